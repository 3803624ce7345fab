"""One scenario for each built-in kind: the life of a minimal object through every verb."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.conformance.comparing import Step

__all__ = ["KINDS", "lives"]

Json = Any

_TEMPLATE: Json = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
_SELECTOR = {"matchLabels": {"a": "b"}}
_HOOK = {
    "name": "hook.{ns}.example.com",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "clientConfig": {"url": "https://hook.example.com/x"},
    "rules": [
        {
            "apiGroups": ["{ns}.example.com"],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["x"],
        }
    ],
}
_ROLE_REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
_CLUSTER_ROLE_REF = {**_ROLE_REF, "kind": "ClusterRole"}
_RULES: list[dict[str, Any]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]

#: Path of the collection -> (minimal object, a merge patch that changes what it wants).
KINDS: Mapping[str, tuple[Json, Json]] = {
    "/api/v1/namespaces/{ns}/configmaps": ({"data": {"a": "b"}}, {"data": {"c": "d"}}),
    "/api/v1/namespaces/{ns}/secrets": ({"stringData": {"a": "b"}}, {"stringData": {"c": "d"}}),
    "/api/v1/namespaces/{ns}/endpoints": (
        {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
        {"subsets": []},
    ),
    "/api/v1/namespaces/{ns}/limitranges": (
        {"spec": {"limits": [{"type": "Container", "default": {"cpu": "0.5"}}]}},
        {"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}},
    ),
    "/api/v1/namespaces/{ns}/resourcequotas": ({"spec": {"hard": {"pods": 3}}}, {"spec": {"hard": {"pods": "4"}}}),
    "/api/v1/namespaces/{ns}/serviceaccounts": ({}, {"automountServiceAccountToken": False}),
    "/api/v1/namespaces/{ns}/podtemplates": ({"template": _TEMPLATE}, {"template": {"metadata": {"labels": {"c": "d"}}}}),
    "/api/v1/namespaces/{ns}/replicationcontrollers": (
        {"spec": {"replicas": 0, "selector": {"a": "b"}, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 3}},
    ),
    "/api/v1/namespaces/{ns}/persistentvolumeclaims": (
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
        {"spec": {"volumeName": "v"}},
    ),
    "/api/v1/namespaces/{ns}/services": ({"spec": {"ports": [{"port": 80}]}}, {"spec": {"selector": {"a": "b"}}}),
    "/api/v1/namespaces/{ns}/pods": ({"spec": _TEMPLATE["spec"]}, {"spec": {"activeDeadlineSeconds": 10}}),
    "/api/v1/namespaces/{ns}/events": (
        {
            "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p"},
            "reason": "R", "message": "m", "type": "Normal",
        },
        {"count": 2},
    ),
    "/api/v1/persistentvolumes": (
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/tmp/{ns}"}, "storageClassName": "{ns}",
            }
        },
        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    ),
    "/api/v1/nodes": ({"spec": {"unschedulable": True}}, {"spec": {"unschedulable": False}}),
    "/apis/apps/v1/namespaces/{ns}/deployments": (
        {"spec": {"replicas": 0, "selector": _SELECTOR, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 3}},
    ),
    "/apis/apps/v1/namespaces/{ns}/statefulsets": (
        {"spec": {"replicas": 0, "serviceName": "x", "selector": _SELECTOR, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 3}},
    ),
    "/apis/apps/v1/namespaces/{ns}/replicasets": (
        {"spec": {"replicas": 0, "selector": _SELECTOR, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 3}},
    ),
    "/apis/apps/v1/namespaces/{ns}/daemonsets": (
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
        {"spec": {"minReadySeconds": 3}},
    ),
    "/apis/apps/v1/namespaces/{ns}/controllerrevisions": ({"revision": 1, "data": {"a": 1}}, {"revision": 1}),
    "/apis/batch/v1/namespaces/{ns}/jobs": (
        {"spec": {"suspend": True, "template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}},
        {"spec": {"parallelism": 2}},
    ),
    "/apis/batch/v1/namespaces/{ns}/cronjobs": (
        {
            "spec": {
                "suspend": True, "schedule": "0 0 1 1 *",
                "jobTemplate": {"spec": {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}},
            }
        },
        {"spec": {"schedule": "0 0 2 1 *"}},
    ),
    "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers": (
        {"spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}},
        {"spec": {"maxReplicas": 3}},
    ),
    "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets": (
        {"spec": {"minAvailable": 1, "selector": _SELECTOR}},
        {"spec": {"minAvailable": 2}},
    ),
    "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases": ({"spec": {"holderIdentity": "a"}}, {"spec": {"holderIdentity": "b"}}),
    "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices": (
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
        {"ports": [{"port": 81}]},
    ),
    "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies": (
        {"spec": {"podSelector": {}}},
        {"spec": {"policyTypes": ["Ingress", "Egress"]}},
    ),
    "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses": (
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
        {"spec": {"defaultBackend": {"service": {"name": "t"}}}},
    ),
    "/apis/networking.k8s.io/v1/ingressclasses": ({"spec": {"controller": "example.com/x"}}, {"spec": {"parameters": None}}),
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles": ({"rules": _RULES}, {"rules": [{**_RULES[0], "verbs": ["list"]}]}),
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings": (
        {"roleRef": _ROLE_REF, "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "y"}]},
        {"subjects": [{"kind": "User", "name": "u"}]},
    ),
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": ({"rules": _RULES}, {"rules": [{**_RULES[0], "verbs": ["list"]}]}),
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": (
        {"roleRef": _CLUSTER_ROLE_REF, "subjects": [{"kind": "Group", "name": "g"}]},
        {"subjects": []},
    ),
    "/apis/storage.k8s.io/v1/storageclasses": ({"provisioner": "example.com/x"}, {"allowVolumeExpansion": True}),
    "/apis/storage.k8s.io/v1/csidrivers": ({"spec": {}}, {"spec": {"requiresRepublish": True}}),
    "/apis/scheduling.k8s.io/v1/priorityclasses": ({"value": 5}, {"description": "x"}),
    "/apis/node.k8s.io/v1/runtimeclasses": ({"handler": "x"}, {"scheduling": {"nodeSelector": {"a": "b"}}}),
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": (
        {"webhooks": [_HOOK]},
        {"webhooks": [{**_HOOK, "timeoutSeconds": 3}]},
    ),
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": (
        {"webhooks": [_HOOK]},
        {"webhooks": [{**_HOOK, "timeoutSeconds": 3}]},
    ),
}  # fmt: skip

# What controllers of a real server write meanwhile.
_NOISE = (
    "status",
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.finalizers",
    "metadata.annotations",
    "metadata.deletionTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "spec.taints",
)


def lives() -> dict[str, list[Step]]:
    """Return the scenarios."""
    return {f"the life of {path}": _life(path, *bodies) for path, bodies in KINDS.items()}


def _life(path: str, minimal: Json, change: Json) -> list[Step]:
    name = "x-{ns}"
    one = f"{path}/{name}"

    def body(**meta: Any) -> Json:
        return {**minimal, "metadata": {"name": name, **meta}}

    merge = "application/merge-patch+json"
    steps = [
        Step("POST", path, body()),
        Step("GET", one),
        Step("PUT", one, body(labels={"l": "m"})),
        Step("PUT", f"{path}/absent-{{ns}}", {**minimal, "metadata": {"name": "absent-{ns}"}}),
        Step("PATCH", one, change, merge),
        Step("PATCH", one, {"metadata": {"labels": {"l": "n"}}}, merge),
        Step(
            "PATCH",
            one + "?fieldManager=other&force=true",
            _configuration(path, body()),
            "application/apply-patch+yaml",
        ),
        Step(
            "GET", one, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, ignore=("rows",)
        ),
        Step("DELETE", one + "?propagationPolicy=Background"),
        Step("GET", one, until=404),
        Step("DELETE", f"{path}/absent-{{ns}}", quiet=True),
    ]
    return [step if step.ignore or step.quiet else _calm(step, path) for step in steps]


#: Where a controller writes the spec or an annotation of ours has none, or texts show Go's own structures.
_MORE_NOISE = {
    "deployments": ("metadata.generation",),
    "jobs": ("message", "details.causes"),
    "pods": ("message", "details.causes.message"),
}


def _calm(step: Step, path: str) -> Step:
    noise = (*_NOISE, *_MORE_NOISE.get(path.rpartition("/")[2], ()))
    return replace(step, ignore=noise)


_API = {
    "configmaps": "ConfigMap", "secrets": "Secret", "endpoints": "Endpoints", "limitranges": "LimitRange",
    "resourcequotas": "ResourceQuota", "serviceaccounts": "ServiceAccount", "podtemplates": "PodTemplate",
    "replicationcontrollers": "ReplicationController", "persistentvolumeclaims": "PersistentVolumeClaim",
    "services": "Service", "pods": "Pod", "events": "Event", "persistentvolumes": "PersistentVolume",
    "nodes": "Node", "deployments": "Deployment", "statefulsets": "StatefulSet", "replicasets": "ReplicaSet",
    "daemonsets": "DaemonSet", "controllerrevisions": "ControllerRevision", "jobs": "Job", "cronjobs": "CronJob",
    "horizontalpodautoscalers": "HorizontalPodAutoscaler", "poddisruptionbudgets": "PodDisruptionBudget",
    "leases": "Lease", "endpointslices": "EndpointSlice", "networkpolicies": "NetworkPolicy",
    "ingresses": "Ingress", "ingressclasses": "IngressClass", "roles": "Role", "rolebindings": "RoleBinding",
    "clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding",
    "storageclasses": "StorageClass", "csidrivers": "CSIDriver", "priorityclasses": "PriorityClass",
    "runtimeclasses": "RuntimeClass", "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
}  # fmt: skip


def _configuration(path: str, body: Json) -> Json:
    parts = path.strip("/").split("/")
    version = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
    return {"apiVersion": version, "kind": _API[parts[-1]], **body}
