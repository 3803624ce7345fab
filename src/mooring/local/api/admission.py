"""Admission: what a real server's built-in plugins fill into pods, and the configured webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from mooring.local.api.call import Call
    from mooring.local.api.options import WriteOptions

__all__ = ["Admission", "Operation"]

JsonObject = dict[str, Any]
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"


class Admission:
    """The chain every write goes through: plugins, then webhooks."""

    async def mutate(
        self,
        call: Call,
        obj: JsonObject,
        old: JsonObject | None,
        operation: Operation,
        options: WriteOptions,
    ) -> JsonObject:
        """Return the object as the chain wants it; the very same one when nobody changed it."""
        if call.served.storage == "pods" and not call.target.subresource:
            obj = complete_pod(obj, call) if operation == "CREATE" else with_tolerations(obj)
        return obj

    async def validate(
        self,
        call: Call,
        obj: JsonObject | None,
        old: JsonObject | None,
        operation: Operation,
        options: WriteOptions | None,
    ) -> None:
        """Ask those who may refuse; raises what they answer."""


def complete_pod(obj: JsonObject, call: Call) -> JsonObject:
    """Return a new pod with its account, priority and the tolerations every pod gets for five minutes."""
    spec = dict(obj.get("spec") or {})
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    _set_priority(spec, call)
    return with_tolerations({**obj, "spec": spec})


def with_tolerations(obj: JsonObject) -> JsonObject:
    """Return a pod that tolerates a lost node for five minutes, unless it says otherwise itself."""
    spec = obj.get("spec") or {}
    present = list(spec.get("tolerations") or ())
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in (_NOT_READY, _UNREACHABLE)
        if not any(_tolerates(toleration, key) for toleration in present)
    ]
    return {**obj, "spec": {**spec, "tolerations": present + missing}} if missing else obj


def _tolerates(toleration: JsonObject, key: str) -> bool:
    same_key = toleration.get("key") in (None, "", key)
    return same_key and toleration.get("effect") in (None, "", "NoExecute")


def _set_priority(spec: JsonObject, call: Call) -> None:
    classes = call.cluster.store.collection("priorityclasses.scheduling.k8s.io")
    name = spec.get("priorityClassName")
    if name:
        entry = classes.get(("", name))
        if entry is None:
            raise call.forbidden(f"no PriorityClass with name {name} was found")
        chosen: JsonObject = entry.obj
    else:
        defaults = [entry.obj for entry in classes if entry.obj.get("globalDefault")]
        chosen = max(defaults, key=lambda c: c["value"], default={})
        if chosen:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = chosen.get("value", 0)
    spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))
