"""The rules of node: runtime classes."""

from __future__ import annotations

from typing import Final

from mooring.local.api import names
from mooring.local.api.fields import duplicate
from mooring.local.api.validation.metadata import label_errors
from mooring.local.api.validation.pods import resource_errors, toleration_errors
from mooring.local.api.validation.rules import Errors, JsonObject, Rules, Table, fixed, named

__all__ = ["RULES"]


def _runtime_class(obj: JsonObject) -> Errors:
    yield from named(obj.get("handler") or "", "handler", names.dns1123_label)
    if (overhead := obj.get("overhead")) is not None:
        yield from resource_errors({"limits": overhead.get("podFixed") or {}}, "overhead")
    scheduling = obj.get("scheduling") or {}
    yield from label_errors(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or []
    yield from toleration_errors(tolerations, "scheduling.tolerations")
    keys = [tuple(t.get(key) or "" for key in ("key", "operator", "value", "effect")) for t in tolerations]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            yield duplicate(f"scheduling.tolerations[{index}]", tolerations[index])


RULES: Final[Table] = {("node.k8s.io", "RuntimeClass"): Rules(_runtime_class, fixed("handler"))}
