"""MySQLCluster -> Deployment: the same in kopf, as far as kopf goes; docs/write-an-operator.md compares.

kubectl apply -f crd.yaml                                  # once; written by hand
kopf run kopf_operator.py --all-namespaces                 # needs: pip install kopf kubernetes
"""

from typing import Any

import kopf
import kubernetes

GROUP, VERSION, PLURAL = "example.com", "v1", "mysqlclusters"


def deployment(name: str, spec: kopf.Spec) -> dict[str, Any]:
    labels = {"app": "mysql", "controller": name}
    container = {"name": "mysql", "image": spec["image"], "ports": [{"containerPort": 3306}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec.get("size", 1),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    # The CRD's schema is structural: kopf's progress would be pruned from the status.
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()


@kopf.on.resume(GROUP, VERSION, PLURAL)
@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL)
def apply(spec: kopf.Spec, name: str, namespace: str, uid: str, patch: kopf.Patch, **_: Any) -> None:
    wanted = deployment(name, spec)
    kopf.adopt(wanted)
    api = kubernetes.client.AppsV1Api()
    try:
        api.create_namespaced_deployment(namespace, wanted)
    except kubernetes.client.ApiException as error:
        if error.status != 409:
            raise
        owners = api.read_namespaced_deployment(name, namespace).metadata.owner_references or []
        if not any(owner.uid == uid and owner.controller for owner in owners):
            reason = f"Deployment {name} belongs to somebody else; delete or rename it"
            patch.status["conditions"] = [{"type": "Ready", "status": "False", "reason": "NotOwned"}]
            raise kopf.PermanentError(reason) from error
        api.patch_namespaced_deployment(name, namespace, wanted)


@kopf.on.event("apps", "v1", "deployments", labels={"app": "mysql"})
def observe(body: kopf.Body, type: str | None, name: str, namespace: str, **_: Any) -> None:
    owner = next((o for o in body.metadata.get("ownerReferences", ()) if o.get("controller")), None)
    if owner is None or owner["kind"] != "MySQLCluster":
        return
    api = kubernetes.client.CustomObjectsApi()
    try:
        cluster = api.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, owner["name"])
        if cluster["metadata"]["uid"] != owner["uid"] or "deletionTimestamp" in cluster["metadata"]:
            return
        if type == "DELETED":  # kopf has no queue to put the cluster into: repair it here, by hand
            wanted = deployment(owner["name"], cluster["spec"])
            kopf.append_owner_reference(wanted, owner=cluster)
            kubernetes.client.AppsV1Api().create_namespaced_deployment(namespace, wanted)
            return
        available = body.get("status", {}).get("availableReplicas", 0)
        if cluster.get("status", {}).get("availableReplicas") == available:
            return
        status = {"status": {"availableReplicas": available}}
        api.patch_namespaced_custom_object_status(GROUP, VERSION, namespace, PLURAL, owner["name"], status)
    except kubernetes.client.ApiException as error:
        if error.status not in (404, 409):
            raise
