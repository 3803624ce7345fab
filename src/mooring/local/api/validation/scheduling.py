"""The rules of scheduling: priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooring.local.api.fields import forbidden, not_supported
from mooring.local.api.validation.metadata import immutable
from mooring.local.api.validation.rules import Errors, JsonObject, Rules, Table

__all__ = ["RULES"]

_HIGHEST: Final = 1_000_000_000
_POLICIES: Final = ("PreemptLowerPriority", "Never")
_SYSTEM: Final[Mapping[str, int]] = {
    "system-node-critical": 2 * _HIGHEST + 1000,
    "system-cluster-critical": 2 * _HIGHEST,
}


def _priority_class(obj: JsonObject) -> Errors:
    value, name = obj.get("value") or 0, (obj.get("metadata") or {}).get("name") or ""
    if name.startswith("system-"):
        if why := _not_of_the_system(name, value, everywhere=bool(obj.get("globalDefault"))):
            text = "priority class names with 'system-' prefix are reserved for system use only. error: "
            yield forbidden("metadata.name", text + why)
    elif value > _HIGHEST:
        text = f"maximum allowed value of a user defined priority is {_HIGHEST}"
        yield forbidden("value", text)
    policy = obj.get("preemptionPolicy")
    if policy is not None and policy not in _POLICIES:
        yield not_supported("preemptionPolicy", policy, _POLICIES)


def _not_of_the_system(name: str, value: int, *, everywhere: bool) -> str:
    wanted = _SYSTEM.get(name)
    if wanted is None:
        return f"{name} is not a known system priority class"
    if value != wanted:
        return f"value of {name} PriorityClass must be {wanted}"
    return f"globalDefault of {name} PriorityClass must be false" if everywhere else ""


def _priority_class_update(obj: JsonObject, old: JsonObject) -> Errors:
    if (obj.get("value") or 0) != (old.get("value") or 0):
        yield forbidden("value", "may not be changed in an update.")
    yield from immutable(obj.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")


RULES: Final[Table] = {
    ("scheduling.k8s.io", "PriorityClass"): Rules(_priority_class, _priority_class_update),
}
