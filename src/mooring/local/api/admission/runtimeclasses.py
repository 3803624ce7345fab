"""What a pod's RuntimeClass adds to it: the overhead it costs, and the nodes it can run on."""

from __future__ import annotations

from typing import Any

from mooring.local.api.call import Call
from mooring.local.api.constraints import same

__all__ = ["with_runtime_class"]

JsonObject = dict[str, Any]

_CLASSES = "runtimeclasses.node.k8s.io"
_DIFFERS = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_UNDEFINED = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


def with_runtime_class(obj: JsonObject, call: Call) -> JsonObject:
    """Return a new pod with what its class adds; raises 403 for a class that is unknown or in conflict."""
    spec = obj.get("spec") or {}
    pod = obj["metadata"].get("name") or ""
    found: JsonObject = {}
    if name := spec.get("runtimeClassName"):
        entry = call.cluster.store.collection(_CLASSES).head(("", name))
        if entry is None:
            raise call.forbidden(f'pod rejected: RuntimeClass "{name}" not found', pod)
        found = entry.obj
    overhead = (found.get("overhead") or {}).get("podFixed")
    if spec.get("overhead") and not (overhead and same(spec["overhead"], overhead)):
        raise call.forbidden(_DIFFERS if overhead else _UNDEFINED, pod)
    added = {**({"overhead": overhead} if overhead else {}), **_placed(found, spec, call, pod)}
    return {**obj, "spec": {**spec, **added}} if added else obj


def _placed(found: JsonObject, spec: JsonObject, call: Call, pod: str) -> JsonObject:
    """Return the node selector and the tolerations of a pod together with those of its class."""
    scheduling = found.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise call.forbidden(why, pod)
    present = list(spec.get("tolerations") or ())
    missing = [each for each in scheduling.get("tolerations") or () if each not in present]
    placed: JsonObject = {"nodeSelector": selector} if scheduling.get("nodeSelector") else {}
    return {**placed, "tolerations": present + missing} if missing else placed
