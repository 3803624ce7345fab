"""Which claims may ask for more: the built-in plugin PersistentVolumeClaimResize."""

from __future__ import annotations

from typing import Any

from mooring.local.api.call import Call
from mooring.local.api.wire import quantity_value

__all__ = ["check_claim_size"]

JsonObject = dict[str, Any]

_CLASSES = "storageclasses.storage.k8s.io"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_NOT_BOUND = "Only bound persistent volume claims can be expanded"
_FIXED = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
    "support resize"
)


def check_claim_size(obj: JsonObject, old: JsonObject, call: Call) -> None:
    """Refuse more storage for a claim that is not bound, or whose class does not allow it."""
    if quantity_value(_request(obj)) <= quantity_value(_request(old)):
        return
    name = obj["metadata"].get("name") or ""
    if (old.get("status") or {}).get("phase") != "Bound":
        raise call.forbidden(_NOT_BOUND, name)
    used = _class_of(obj)
    entry = call.cluster.store.collection(_CLASSES).head(("", used)) if used else None
    if entry is None or used != _class_of(old) or not entry.obj.get("allowVolumeExpansion"):
        raise call.forbidden(_FIXED, name)


def _request(claim: JsonObject) -> str:
    resources = (claim.get("spec") or {}).get("resources") or {}
    return (resources.get("requests") or {}).get("storage") or "0"


def _class_of(claim: JsonObject) -> str:
    annotated = (claim["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    return annotated or (claim.get("spec") or {}).get("storageClassName") or ""
