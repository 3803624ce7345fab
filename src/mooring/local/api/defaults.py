"""What the API server fills into built-in kinds.

Defaults belong to structs, wherever they occur: a Container gets the same ones in a Pod and in the
template of a StatefulSet. So there is one rule per struct, keyed by its definition, and one walk over
the object that visits only what can lead to such a struct. Objects come decoded (`wire.decode`):
an empty optional value is not there.

What depends on other objects or on allocation (cluster IPs, the default storage class, tolerations,
the service account) is the business of the server's strategies and admission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from mooring.local.api.schema import MISSING, Schema, builtin

__all__ = ["default_builtin", "image_tag"]

JsonObject = dict[str, Any]
_Rule = Callable[[JsonObject], JsonObject]

_RULES: Final[dict[str, _Rule]] = {}
_CORE: Final = "io.k8s.api.core.v1."
_WANTED: dict[int, tuple[tuple[str, Schema], ...]] = {}
_KEEP: list[Schema] = []


def default_builtin(obj: JsonObject, *, group: str, kind: str) -> JsonObject:
    """Return a decoded built-in object with its defaults set; the same object when none was missing."""
    version = str(obj.get("apiVersion", "")).rpartition("/")[2]
    schema = builtin().get(group, version, kind)
    return obj if schema is None else _struct(obj, schema)


# --- the walk -----------------------------------------------------------------------------------------


def _struct(value: JsonObject, schema: Schema) -> JsonObject:
    rule = _RULES.get(schema.name)
    if rule is not None:
        value = rule(value)
    result: JsonObject | None = None
    for key, child in _relevant(schema):
        item = value.get(key, MISSING)
        if item is MISSING:
            if child.kind == "struct" or child.default is MISSING:
                continue
            filled = child.default
        else:
            filled = _value(item, child)
        if filled is not item:
            result = dict(value) if result is None else result
            result[key] = filled
    return value if result is None else result


def _value(value: Any, schema: Schema) -> Any:
    if type(value) is dict:
        if schema.kind == "struct":
            return _struct(value, schema)
        if schema.kind == "map" and schema.additional is not None and schema.additional.kind == "struct":
            return {key: _struct(item, schema.additional) for key, item in value.items()}
    elif type(value) is list and schema.items is not None and schema.items.kind == "struct":
        items = [_struct(item, schema.items) for item in value]
        if any(a is not b for a, b in zip(items, value, strict=True)):
            return items
    return value


def _relevant(schema: Schema) -> tuple[tuple[str, Schema], ...]:
    """Return the properties of a struct that have a default or lead to one."""
    known = _WANTED.get(id(schema))
    if known is None:
        found = tuple((key, child) for key, child in schema.properties.items() if _leads(child, frozenset()))
        _KEEP.append(schema)
        known = _WANTED[id(schema)] = found
    return known


def _leads(schema: Schema, above: frozenset[int]) -> bool:
    if schema.name in _RULES or (schema.default is not MISSING and schema.default not in ("", 0, False)):
        return True
    if id(schema) in above or schema.name.endswith(".JSONSchemaProps"):
        return False
    above = above | {id(schema)}
    children = [*schema.properties.values(), *filter(None, (schema.items, schema.additional))]
    return any(_leads(child, above) for child in children)


# --- helpers ------------------------------------------------------------------------------------------


def _rule(*names: str, prefix: str = _CORE) -> Callable[[_Rule], _Rule]:
    def register(function: _Rule) -> _Rule:
        for name in names:
            _RULES[prefix + name] = function
        return function

    return register


def _fill(value: JsonObject, missing: JsonObject) -> JsonObject:
    """Return the value with what is not set in it; itself when all is."""
    absent = {key: item for key, item in missing.items() if value.get(key) is None}
    return {**value, **absent} if absent else value


def _fixed(missing: JsonObject) -> _Rule:
    return lambda value: _fill(value, missing)


def _within(value: JsonObject, key: str, change: _Rule) -> JsonObject:
    """Return the value with one member, an empty object when it is not there, changed."""
    old = value.get(key)
    new = change(old or {})
    return value if new is old else {**value, key: new}


def image_tag(image: str) -> str:
    """Return the tag of an image reference: `latest` when it has neither tag nor digest, "" when unknown."""
    name, at, _ = image.partition("@")
    last = name.rpartition("/")[2]
    _, colon, tag = last.partition(":")
    if colon:
        return tag
    return "" if at or not image else "latest"


def _pull_policy(image: str) -> str:
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"


# --- pods ---------------------------------------------------------------------------------------------


@_rule("PodSpec")
def _pod_spec(spec: JsonObject) -> JsonObject:
    # The name stands in two fields: the deprecated one follows the other, and speaks where it is alone.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account and not spec.get("serviceAccount") == spec.get("serviceAccountName") == account:
        spec = {**spec, "serviceAccountName": account, "serviceAccount": account}
    return _fill(
        spec,
        {
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
        },
    )


@_rule("GRPCAction")
def _grpc(action: JsonObject) -> JsonObject:
    return {**action, "service": ""} if action.get("service") is None else action


@_rule("Container", "EphemeralContainer")
def _container(container: JsonObject) -> JsonObject:
    return _fill(
        container,
        {
            "imagePullPolicy": _pull_policy(container.get("image", "")),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        },
    )


_RULES[_CORE + "Probe"] = _fixed(
    {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
)
_RULES[_CORE + "HTTPGetAction"] = _fixed({"path": "/", "scheme": "HTTP"})
_RULES[_CORE + "ObjectFieldSelector"] = _fixed({"apiVersion": "v1"})
_RULES[_CORE + "ServiceAccountTokenProjection"] = _fixed({"expirationSeconds": 3600})
_RULES[_CORE + "HostPathVolumeSource"] = _fixed({"type": ""})
for _source in (
    "SecretVolumeSource",
    "ConfigMapVolumeSource",
    "DownwardAPIVolumeSource",
    "ProjectedVolumeSource",
):
    _RULES[_CORE + _source] = _fixed({"defaultMode": 0o644})


@_rule("PodStatus")
def _pod_status(status: JsonObject) -> JsonObject:
    """Let a pod's one address and its first speak for each other; the one counts where they differ."""
    address, several = status.get("podIP"), status.get("podIPs") or []
    if address and [ip.get("ip") for ip in several[:1]] != [address]:
        return {**status, "podIPs": [{"ip": address}]}
    return {**status, "podIP": several[0]["ip"]} if several and not address and "ip" in several[0] else status


@_rule("Volume")
def _volume(volume: JsonObject) -> JsonObject:
    if all(key == "name" for key in volume):
        return {**volume, "emptyDir": {}}
    image = volume.get("image")
    if image is not None and "pullPolicy" not in image:
        return {**volume, "image": {**image, "pullPolicy": _pull_policy(image.get("reference", ""))}}
    return volume


@_rule("Pod")
def _pod(pod: JsonObject) -> JsonObject:
    """Set what only a Pod gets, not a template, so that templates do not change with new releases."""
    spec = pod.get("spec") or {}
    result = _fill(spec, {"enableServiceLinks": True})
    for key in ("containers", "initContainers"):
        containers = spec.get(key)
        if containers:
            changed = [
                _pod_container(container, host=bool(spec.get("hostNetwork"))) for container in containers
            ]
            if any(a is not b for a, b in zip(changed, containers, strict=True)):
                result = {**result, key: changed}
    result = _pod_resources(result)
    return pod if result is spec else {**pod, "spec": result}


def _pod_container(container: JsonObject, *, host: bool) -> JsonObject:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        requests = resources.get("requests") or {}
        filled = _fill(requests, limits)
        if filled is not requests:
            container = {**container, "resources": {**resources, "requests": filled}}
    if host and any("hostPort" not in port for port in container.get("ports") or ()):
        ports = [_fill(port, {"hostPort": port["containerPort"]}) for port in container["ports"]]
        container = {**container, "ports": ports}
    return container


def _pod_resources(spec: JsonObject) -> JsonObject:
    """Fill requests of the whole pod from its limits where no container asks for the resource."""
    limits = (spec.get("resources") or {}).get("limits")
    if not limits:
        return spec
    asked = {
        name
        for container in spec.get("containers") or ()
        for name in (container.get("resources") or {}).get("requests") or ()
    }
    missing = {name: value for name, value in limits.items() if name not in asked}
    return _within(spec, "resources", lambda r: _within(r, "requests", lambda q: _fill(q, missing)))


# --- services, volumes, configuration -----------------------------------------------------------------


@_rule("Service")
def _service(service: JsonObject) -> JsonObject:
    spec = service.get("spec") or {}
    result = _fill(spec, {"sessionAffinity": "None", "type": "ClusterIP"})
    kind = result["type"]
    if result["sessionAffinity"] == "None" and "sessionAffinityConfig" in result:
        result = {key: value for key, value in result.items() if key != "sessionAffinityConfig"}
    if result["sessionAffinity"] == "ClientIP":
        seconds = ((result.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
        if seconds is None:
            result = {**result, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}
    ports = result.get("ports")
    if ports:
        filled = [_service_port(port) for port in ports]
        if any(a is not b for a, b in zip(filled, ports, strict=True)):
            result = {**result, "ports": filled}
    if kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and result.get("externalIPs")):
        result = _fill(result, {"externalTrafficPolicy": "Cluster"})
    if kind in ("LoadBalancer", "NodePort", "ClusterIP"):
        result = _fill(result, {"internalTrafficPolicy": "Cluster"})
    if kind == "LoadBalancer":
        result = _fill(result, {"allocateLoadBalancerNodePorts": True})
    return service if result is spec else {**service, "spec": result}


def _service_port(port: JsonObject) -> JsonObject:
    if not port.get("targetPort"):
        port = {**port, "targetPort": port.get("port", 0)}
    return _fill(port, {"protocol": "TCP"})


_RULES[_CORE + "Secret"] = _fixed({"type": "Opaque"})
_RULES[_CORE + "PersistentVolumeClaimSpec"] = _fixed({"volumeMode": "Filesystem"})
_RULES[_CORE + "PersistentVolumeSpec"] = _fixed(
    {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
)
_RULES[_CORE + "PersistentVolumeClaimStatus"] = _fixed({"phase": "Pending"})
_RULES[_CORE + "PersistentVolumeStatus"] = _fixed({"phase": "Pending"})
_RULES[_CORE + "NamespaceStatus"] = _fixed({"phase": "Active"})
_RULES[_CORE + "EndpointPort"] = _fixed({"protocol": "TCP"})


@_rule("Namespace")
def _namespace(namespace: JsonObject) -> JsonObject:
    metadata = namespace.get("metadata") or {}
    name = metadata.get("name")
    if not name or (metadata.get("labels") or {}).get("kubernetes.io/metadata.name") == name:
        return namespace
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
    return {**namespace, "metadata": {**metadata, "labels": labels}}


@_rule("NodeStatus")
def _node_status(status: JsonObject) -> JsonObject:
    return _fill(status, {"allocatable": status["capacity"]}) if "capacity" in status else status


@_rule("LimitRangeItem")
def _limit_range_item(item: JsonObject) -> JsonObject:
    if item.get("type") != "Container":
        return item
    limit = _fill(item.get("default") or {}, item.get("max") or {})
    request = _fill(_fill(item.get("defaultRequest") or {}, limit), item.get("min") or {})
    result = {**item, "default": limit, "defaultRequest": request}
    return {key: value for key, value in result.items() if value or key not in ("default", "defaultRequest")}


@_rule("ReplicationController")
def _replication_controller(rc: JsonObject) -> JsonObject:
    spec = rc.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        spec = _fill(spec, {"selector": labels})
        rc = _within(rc, "metadata", lambda metadata: _fill(metadata, {"labels": labels}))
    spec = _fill(spec, {"replicas": 1})
    return rc if spec is rc.get("spec") else {**rc, "spec": spec}


# --- workloads ----------------------------------------------------------------------------------------

_APPS: Final = "io.k8s.api.apps.v1."
_RULES[_APPS + "ReplicaSetSpec"] = _fixed({"replicas": 1})


@_rule("DeploymentSpec", prefix=_APPS)
def _deployment(spec: JsonObject) -> JsonObject:
    spec = _within(spec, "strategy", _deployment_strategy)
    return _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})


def _deployment_strategy(strategy: JsonObject) -> JsonObject:
    strategy = _fill(strategy, {"type": "RollingUpdate"})
    if strategy["type"] != "RollingUpdate":
        return strategy
    return _within(strategy, "rollingUpdate", _fixed({"maxUnavailable": "25%", "maxSurge": "25%"}))


@_rule("DaemonSet", prefix=_APPS)
def _daemon_set_generation(daemon_set: JsonObject) -> JsonObject:
    generation = _fixed({"deprecated.daemonset.template.generation": "1"})
    return _within(daemon_set, "metadata", lambda metadata: _within(metadata, "annotations", generation))


@_rule("DaemonSetSpec", prefix=_APPS)
def _daemon_set(spec: JsonObject) -> JsonObject:
    return _fill(_within(spec, "updateStrategy", _daemon_set_strategy), {"revisionHistoryLimit": 10})


def _daemon_set_strategy(strategy: JsonObject) -> JsonObject:
    strategy = _fill(strategy, {"type": "RollingUpdate"})
    if strategy["type"] != "RollingUpdate":
        return strategy
    return _within(strategy, "rollingUpdate", _fixed({"maxUnavailable": 1, "maxSurge": 0}))


@_rule("StatefulSetSpec", prefix=_APPS)
def _stateful_set(spec: JsonObject) -> JsonObject:
    spec = _within(spec, "updateStrategy", _stateful_set_strategy)
    retain = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    spec = _within(spec, "persistentVolumeClaimRetentionPolicy", _fixed(retain))
    spec = _fill(spec, {"podManagementPolicy": "OrderedReady", "replicas": 1, "revisionHistoryLimit": 10})
    claims = spec.get("volumeClaimTemplates")
    if claims and any("kind" not in claim or "apiVersion" not in claim for claim in claims):
        marks = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        spec = {**spec, "volumeClaimTemplates": [_fill(claim, marks) for claim in claims]}
    return spec


def _stateful_set_strategy(strategy: JsonObject) -> JsonObject:
    if "type" not in strategy:
        strategy = _fill({**strategy, "type": "RollingUpdate"}, {"rollingUpdate": {}})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        return _within(strategy, "rollingUpdate", _fixed(_ROLLING_STATEFUL_SET))
    return strategy


_ROLLING_STATEFUL_SET: Final[JsonObject] = {"partition": 0}

_BATCH: Final = "io.k8s.api.batch.v1."


@_rule("Job", prefix=_BATCH)
def _job(job: JsonObject) -> JsonObject:
    spec = job.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not (job.get("metadata") or {}).get("labels"):
        job = _within(job, "metadata", lambda metadata: _fill(metadata, {"labels": labels}))
    return _within(job, "spec", _job_spec)


def _job_spec(spec: JsonObject) -> JsonObject:
    if "completions" not in spec and "parallelism" not in spec:
        spec = {**spec, "completions": 1}
    failed = "podFailurePolicy" in spec
    return _fill(
        spec,
        {
            "parallelism": 1,
            "backoffLimit": 2**31 - 1 if "backoffLimitPerIndex" in spec else 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": "Failed" if failed else "TerminatingOrFailed",
            "manualSelector": False,
        },
    )


_RULES[_BATCH + "CronJobSpec"] = _fixed(
    {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
)
_RULES[_BATCH + "PodFailurePolicyOnPodConditionsPattern"] = _fixed({"status": "True"})

# --- the other groups ---------------------------------------------------------------------------------

_RULES["io.k8s.api.discovery.v1.EndpointPort"] = _fixed({"name": "", "protocol": "TCP"})
_RULES["io.k8s.api.networking.v1.NetworkPolicyPort"] = _fixed({"protocol": "TCP"})
_RULES["io.k8s.api.networking.v1.IngressClassParametersReference"] = _fixed({"scope": "Cluster"})
_RULES["io.k8s.api.storage.v1.StorageClass"] = _fixed(
    {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
)
_RULES["io.k8s.api.storage.v1.CSIDriverSpec"] = _fixed(
    {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
        "requiresRepublish": False,
        "seLinuxMount": False,
    }
)
_RULES["io.k8s.api.scheduling.v1.PriorityClass"] = _fixed({"preemptionPolicy": "PreemptLowerPriority"})


@_rule("NetworkPolicySpec", prefix="io.k8s.api.networking.v1.")
def _network_policy(spec: JsonObject) -> JsonObject:
    return _fill(spec, {"policyTypes": ["Ingress", *(["Egress"] if spec.get("egress") else [])]})


_RBAC: Final = "io.k8s.api.rbac.v1."
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"


@_rule("RoleRef", prefix=_RBAC)
def _role_ref(reference: JsonObject) -> JsonObject:
    return reference if reference.get("apiGroup") else {**reference, "apiGroup": _RBAC_GROUP}


@_rule("Subject", prefix=_RBAC)
def _subject(subject: JsonObject) -> JsonObject:
    if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
        return {**subject, "apiGroup": _RBAC_GROUP}
    return subject


_ADMISSION: Final = "io.k8s.api.admissionregistration.v1."
_WEBHOOK: Final[JsonObject] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}
_RULES[_ADMISSION + "ValidatingWebhook"] = _fixed(_WEBHOOK)
_RULES[_ADMISSION + "MutatingWebhook"] = _fixed({**_WEBHOOK, "reinvocationPolicy": "Never"})
_RULES[_ADMISSION + "RuleWithOperations"] = _fixed({"scope": "*"})
_RULES[_ADMISSION + "NamedRuleWithOperations"] = _fixed({"scope": "*"})
_RULES[_ADMISSION + "ServiceReference"] = _fixed({"port": 443})
_RULES[_ADMISSION + "MutatingAdmissionPolicySpec"] = _fixed({"failurePolicy": "Fail"})
_RULES[_ADMISSION + "ValidatingAdmissionPolicySpec"] = _fixed({"failurePolicy": "Fail"})
_RULES[_ADMISSION + "MatchResources"] = _fixed(
    {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
)
_RULES["io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference"] = _fixed({"port": 443})
_RULES["io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec"] = _fixed(
    {"minReplicas": 1, "targetCPUUtilizationPercentage": 80}
)


@_rule("HorizontalPodAutoscalerSpec", prefix="io.k8s.api.autoscaling.v2.")
def _autoscaler(spec: JsonObject) -> JsonObject:
    target = {"type": "Utilization", "averageUtilization": 80}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    spec = _fill(spec, {"minReplicas": 1, "metrics": [cpu]})
    if "behavior" in spec:
        pods, percent = (
            {"type": kind, "value": n, "periodSeconds": 15} for kind, n in (("Pods", 4), ("Percent", 100))
        )
        up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]}
        down = {"selectPolicy": "Max", "policies": [percent]}
        behavior = _within(_within(spec["behavior"], "scaleUp", _fixed(up)), "scaleDown", _fixed(down))
        spec = {**spec, "behavior": behavior}
    return spec


_FLOW: Final = "io.k8s.api.flowcontrol.v1."


def _nonzero(missing: JsonObject) -> _Rule:
    """Fill what is not set or zero."""
    return lambda value: {**value, **{k: v for k, v in missing.items() if not value.get(k)}}


def _unset(value: JsonObject, missing: JsonObject) -> JsonObject:
    """Fill what is not set or null."""
    return {**value, **{k: v for k, v in missing.items() if value.get(k) is None}}


_RULES[_FLOW + "FlowSchemaSpec"] = _nonzero({"matchingPrecedence": 1000})
_RULES[_FLOW + "ExemptPriorityLevelConfiguration"] = _nonzero(
    {"nominalConcurrencyShares": 0, "lendablePercent": 0}
)
_RULES[_FLOW + "LimitedPriorityLevelConfiguration"] = lambda value: _unset(
    value, {"nominalConcurrencyShares": 30, "lendablePercent": 0}
)
_RULES[_FLOW + "QueuingConfiguration"] = _nonzero({"handSize": 8, "queues": 64, "queueLengthLimit": 50})
_RULES["io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern"] = _nonzero({"status": "True"})


@_rule("ExactDeviceRequest", "DeviceSubRequest", prefix="io.k8s.api.resource.v1.")
def _device_request(request: JsonObject) -> JsonObject:
    request = _fill(request, {"allocationMode": "ExactCount"})
    return _fill(request, {"count": 1}) if request["allocationMode"] == "ExactCount" else request


# --- CustomResourceDefinitions ------------------------------------------------------------------------

_CRD: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."


@_rule("CustomResourceDefinition", prefix=_CRD)
def _custom_resource_definition(crd: JsonObject) -> JsonObject:
    spec = crd.get("spec") or {}
    stored = [v["name"] for v in spec.get("versions") or () if v.get("storage") and v.get("name")]
    status = crd.get("status") or {}
    if stored and not status.get("storedVersions"):
        crd = {**crd, "status": {**status, "storedVersions": stored[:1]}}
    return crd


@_rule("CustomResourceDefinitionSpec", prefix=_CRD)
def _custom_resource_definition_spec(spec: JsonObject) -> JsonObject:
    names = spec.get("names") or {}
    kind = names.get("kind", "")
    filled = {
        **names,
        "singular": names.get("singular") or kind.lower(),
        "listKind": names.get("listKind") or (f"{kind}List" if kind else ""),
    }
    filled = {key: value for key, value in filled.items() if value or key not in ("singular", "listKind")}
    if filled != names:
        spec = {**spec, "names": filled}
    if not (spec.get("conversion") or {}).get("strategy"):
        spec = {**spec, "conversion": {**(spec.get("conversion") or {}), "strategy": "None"}}
    return spec


_RULES[_CRD + "ServiceReference"] = _fixed({"port": 443})


def rules() -> Iterable[str]:
    """Return the definitions that have defaults, for tests."""
    return _RULES.keys()
