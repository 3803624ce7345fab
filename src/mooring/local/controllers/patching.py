"""Patches that say only what differs, and only to the object that was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mooring.kube.object import Object
from mooring.kube.objects.meta import OwnerReference
from mooring.kube.part import Part
from mooring.kube.patches import MergePatch, StrategicMergePatch

__all__ = ["adopt", "disown", "merge_diff", "metadata_patch", "spec_patch", "status_patch"]


def merge_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that turns ``old`` into ``new``; empty when they are the same."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_diff(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def status_patch(obj: Object, status: Part) -> MergePatch | None:
    """What makes the status of ``obj`` this one, or ``None`` when it is already.

    Guarded by the UID: a successor of the same name never gets its predecessor's status.
    """
    return _section(obj, "status", status)


def spec_patch(obj: Object, spec: Part) -> MergePatch | None:
    """What makes the spec of ``obj`` this one, guarded by UID and resource version."""
    patch = _section(obj, "spec", spec)
    if patch is not None:
        patch.body["metadata"]["resourceVersion"] = obj.metadata.resource_version
    return patch


def _section(obj: Object, name: str, wanted: Part) -> MergePatch | None:
    present = getattr(obj, name)
    old: dict[str, Any] = msgspec.to_builtins(present) if present is not None else {}
    diff = merge_diff(old, msgspec.to_builtins(wanted))
    if not diff:
        return None
    return MergePatch({"metadata": {"uid": obj.metadata.uid}, name: diff})


def metadata_patch(obj: Object, *, versioned: bool = True, **changes: Any) -> MergePatch:
    """A merge patch of metadata fields (JSON names), guarded by UID and, if ``versioned``, by version."""
    guard = {"uid": obj.metadata.uid}
    if versioned:
        guard["resourceVersion"] = obj.metadata.resource_version
    return MergePatch({"metadata": {**guard, **changes}})


def adopt(obj: Object, owner: OwnerReference) -> StrategicMergePatch:
    """Add an owner; others' references stay."""
    return StrategicMergePatch(
        {"metadata": {"uid": obj.metadata.uid, "ownerReferences": [msgspec.to_builtins(owner)]}}
    )


def disown(obj: Object, owner_uids: Iterable[str]) -> StrategicMergePatch:
    """Take owners away by UID; other references stay."""
    references = [{"$patch": "delete", "uid": uid} for uid in owner_uids]
    return StrategicMergePatch({"metadata": {"uid": obj.metadata.uid, "ownerReferences": references}})
