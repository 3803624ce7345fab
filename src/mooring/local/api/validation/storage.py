"""The rules of storage."""

from __future__ import annotations

from typing import Final

from mooring.local.api.constraints import same
from mooring.local.api.fields import (
    forbidden,
    not_supported,
    required,
)
from mooring.local.api.validation.metadata import immutable
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
)

__all__ = ["RULES"]


def _storage_class(obj: JsonObject) -> Errors:
    if not obj.get("provisioner"):
        yield required("provisioner")
    policy = obj.get("reclaimPolicy")
    if policy not in ("Delete", "Retain"):
        yield not_supported("reclaimPolicy", policy, ("Delete", "Retain"))
    mode = obj.get("volumeBindingMode")
    if mode not in ("Immediate", "WaitForFirstConsumer"):
        yield not_supported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))


def _storage_class_update(obj: JsonObject, old: JsonObject) -> Errors:
    if not same(obj.get("parameters") or {}, old.get("parameters") or {}):
        yield forbidden("parameters", "updates to parameters are forbidden.")
    if obj.get("provisioner") != old.get("provisioner"):
        yield forbidden("provisioner", "updates to provisioner are forbidden.")
    if obj.get("reclaimPolicy") != old.get("reclaimPolicy"):
        yield forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden.")
    yield from immutable(obj.get("volumeBindingMode"), old.get("volumeBindingMode"), "volumeBindingMode")


RULES: Final[Table] = {
    ("storage.k8s.io", "StorageClass"): also(_storage_class, _storage_class_update),
}
