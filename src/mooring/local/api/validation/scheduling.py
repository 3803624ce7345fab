"""The rules of scheduling: priorities."""

from __future__ import annotations

from typing import Final

from mooring.local.api.fields import (
    forbidden,
)
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
)

__all__ = ["RULES"]


def _priority_class(obj: JsonObject) -> Errors:
    value, name = obj.get("value", 0), (obj.get("metadata") or {}).get("name", "")
    if value > 1_000_000_000 and not name.startswith("system-"):
        text = "maximum allowed value of a user defined priority is 1000000000"
        yield forbidden("value", text)


def _priority_class_update(obj: JsonObject, old: JsonObject) -> Errors:
    if obj.get("value", 0) != old.get("value", 0):
        yield forbidden("value", "may not be changed in an update.")


RULES: Final[Table] = {
    ("scheduling.k8s.io", "PriorityClass"): also(_priority_class, _priority_class_update),
}
