"""What the API server itself writes into metadata."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime
from typing import Any

from mooring.local.api.constraints import same

__all__ = [
    "bump_generation",
    "differs",
    "finalizers",
    "generate_name",
    "is_deleting",
    "mark_deleting",
    "on_create",
    "on_update",
    "rfc3339",
    "with_metadata",
]

JsonObject = dict[str, Any]

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_NAME_LENGTH = 63


def rfc3339(moment: datetime) -> str:
    """Return a time as the API shows it, in UTC and whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def with_metadata(obj: JsonObject, **changes: Any) -> JsonObject:
    """Return the object with some metadata changed; None removes a field."""
    meta = {**obj.get("metadata", {}), **changes}
    return {**obj, "metadata": {key: value for key, value in meta.items() if value is not None}}


def generate_name(base: str) -> str:
    """Return a name that begins with `base` and ends with five random letters."""
    suffix = "".join(random.choices(_LETTERS, k=_SUFFIX))
    return base[: _NAME_LENGTH - _SUFFIX] + suffix


def on_create(obj: JsonObject, *, now: datetime, namespace: str) -> JsonObject:
    """Return a new object with its name, UID and time; what a client may not choose is removed."""
    meta = dict(obj.get("metadata") or {})
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        meta.pop(name, None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = generate_name(meta["generateName"])
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = rfc3339(now)
    if namespace:
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)
    return {**obj, "metadata": meta}


#: Metadata that an update carries over from the live object when it says nothing of its own.
_KEPT = ("uid", "namespace", "name")
#: Metadata that no update can change.
_FIXED = ("generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def on_update(obj: JsonObject, old: JsonObject) -> JsonObject:
    """Return a changed object with the metadata that only the server sets taken from the live one."""
    meta = dict(obj.get("metadata") or {})
    before = old["metadata"]
    meta.pop("selfLink", None)
    if "namespace" not in before:
        meta.pop("namespace", None)
    for name in _KEPT:
        if not meta.get(name) and name in before:
            meta[name] = before[name]
    for name in _FIXED:
        if name in before:
            meta[name] = before[name]
        elif name == "generation":
            meta.pop(name, None)
    return {**obj, "metadata": meta}


def bump_generation(obj: JsonObject) -> JsonObject:
    """Return the object with its generation raised, if it has one."""
    generation = obj["metadata"].get("generation")
    return with_metadata(obj, generation=generation + 1) if generation else obj


def finalizers(obj: JsonObject) -> list[str]:
    """Return the finalizers of an object."""
    return list(obj["metadata"].get("finalizers") or ())


def is_deleting(obj: JsonObject) -> bool:
    """Whether deletion of an object has begun."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def mark_deleting(obj: JsonObject, *, at: str, grace: int) -> JsonObject:
    """Return the object as being deleted; the generation moves the first time."""
    if is_deleting(obj):
        return with_metadata(obj, deletionGracePeriodSeconds=grace)
    marked = with_metadata(obj, deletionTimestamp=at, deletionGracePeriodSeconds=grace)
    return bump_generation(marked)


def differs(new: JsonObject, old: JsonObject, *, without: tuple[str, ...]) -> bool:
    """Whether two objects differ outside some top-level parts."""
    keys = (new.keys() | old.keys()) - set(without)
    return any(not same(new.get(key), old.get(key)) for key in keys)
