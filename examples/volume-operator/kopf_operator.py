"""EphemeralVolumeClaim -> PersistentVolumeClaim: the same in kopf; docs/migrate/kopf.md compares.

kubectl apply -f crd.yaml                                  # once; written by hand
kopf run kopf_operator.py --all-namespaces                 # needs: pip install kopf kubernetes
"""

from typing import Any

import kopf
import kubernetes

GROUP, VERSION, PLURAL = "kopf.dev", "v1", "ephemeralvolumeclaims"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    # The CRD's schema is structural: kopf's progress would be pruned from the status.
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()


@kopf.on.create(GROUP, VERSION, PLURAL)
def create(spec: kopf.Spec, name: str, namespace: str, **_: Any) -> None:
    wanted = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": spec["size"]}}},
    }
    kopf.adopt(wanted)
    kopf.label(wanted)
    kubernetes.client.CoreV1Api().create_namespaced_persistent_volume_claim(namespace, wanted)


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.size")
def resize(spec: kopf.Spec, name: str, namespace: str, **_: Any) -> None:
    change = {"spec": {"resources": {"requests": {"storage": spec["size"]}}}}
    kubernetes.client.CoreV1Api().patch_namespaced_persistent_volume_claim(name, namespace, change)


@kopf.on.field(GROUP, VERSION, PLURAL, field="metadata.labels")
def relabel(diff: kopf.Diff, name: str, namespace: str, **_: Any) -> None:
    labels = {field[0]: new for _, field, _, new in diff if field}
    if labels:
        change = {"metadata": {"labels": labels}}
        kubernetes.client.CoreV1Api().patch_namespaced_persistent_volume_claim(name, namespace, change)
