"""Does a live object still say what we want it to say?

Only the fields we set are compared, and by meaning: ``1Gi`` is ``1024Mi``, ``"80"`` is ``80``, a list with
keys is compared entry by entry, an empty list is an absent one. What the server or others added is theirs.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, TypeVar

import msgspec

from mooring.kube.object import Object, to_dict
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Secret
from mooring.kube.part import Part
from mooring.kube.quantity import same_quantity

__all__ = ["APPLIED", "as_found", "differs", "digest", "onto", "stamped"]

T = TypeVar("T", bound=Object)

#: Annotation with the digest of what was applied: a field we no longer set changes it.
APPLIED = "mooring.dev/applied"

QUANTITIES = frozenset({"limits", "requests", "capacity", "hard", "allocatable", "size_limit", "divisor"})


def digest(value: object) -> str:
    """A short, stable digest of anything JSON can hold; for content names and change detection."""
    plain = to_dict(value) if isinstance(value, Part) else value
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


def stamped(desired: T) -> T:
    """The object with its own digest in the :data:`APPLIED` annotation."""
    annotations = {**(desired.metadata.annotations or {}), APPLIED: digest(desired)}
    return msgspec.structs.replace(
        desired, metadata=msgspec.structs.replace(desired.metadata, annotations=annotations)
    )


def onto(desired: T, version: str | None, uid: str | None = None) -> T:
    """The object as one to be applied to this version alone, of this object; ``None``: to any.

    Without the uid an apply recreates an object that was deleted meanwhile: the version counts only where there is one.
    """
    if (desired.metadata.resource_version, desired.metadata.uid) == (version, uid):
        return desired
    return msgspec.structs.replace(
        desired, metadata=msgspec.structs.replace(desired.metadata, resource_version=version, uid=uid)
    )


#: What the API server never lets anybody change, per kind: sent as found.
_FIXED: dict[type[Object], tuple[str, ...]] = {
    StatefulSet: ("selector", "service_name", "pod_management_policy", "volume_claim_templates"),
}


def as_found(desired: T, live: T) -> T:
    """The object with every immutable field as the live one has it."""
    if isinstance(desired, Secret) and isinstance(live, Secret):
        # A person may have made it, with another type.
        return msgspec.structs.replace(desired, type=live.type)
    names = _FIXED.get(type(desired))
    wanted, found = getattr(desired, "spec", None), getattr(live, "spec", None)
    if not names or wanted is None or found is None:
        return desired
    kept = {name: getattr(found, name) for name in names}
    return msgspec.structs.replace(desired, spec=msgspec.structs.replace(wanted, **kept))


def differs(desired: Part, live: Part) -> str:
    """The path of the first field whose meaning differs, or "" when there is none."""
    for name in desired.__struct_fields__:
        if name in ("api_version", "kind") and isinstance(desired, Object):
            continue
        wanted = getattr(desired, name)
        if wanted is None:
            continue
        path = _compare(wanted, getattr(live, name, None), name, _keys(type(desired), name))
        if path is not None:
            return f"{name}{path}"
    return ""


@functools.cache
def _keys(owner: type[Part], name: str) -> tuple[str, ...]:
    if not owner.list_keys:
        return ()
    fields = dict(zip(owner.__struct_fields__, owner.__struct_encode_fields__, strict=True))
    return owner.list_keys.get(fields[name], ())


def _compare(wanted: Any, found: Any, name: str, keys: tuple[str, ...] = ()) -> str | None:
    """``None`` when equal in meaning, else the path below ``name``."""
    if wanted is found:
        return None
    if not wanted and not found and not isinstance(wanted, Part):
        return None  # False, 0, "" and empty collections are what an absent field means
    if isinstance(wanted, Part):
        below = differs(wanted, found) if isinstance(found, Part) else _first_set(wanted)
        return f".{below}" if below else None
    if isinstance(wanted, list):
        return _compare_lists(wanted, found or [], name, keys)
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            below_key = _compare(value, (found or {}).get(key), name)
            if below_key is not None:
                return f"[{key}]{below_key}"
        return None
    if wanted == found:
        return None
    if found is None:
        return ""
    if name in QUANTITIES:
        return None if same_quantity(wanted, found) else ""
    if isinstance(wanted, int | str) and isinstance(found, int | str) and str(wanted) == str(found):
        return None
    return ""


def _first_set(part: Part) -> str:
    """The first field of ``part`` that says something, "" if none does (an empty struct asks nothing)."""
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if value is None or (not value and not isinstance(value, Part)):
            continue
        if isinstance(value, Part) and not _first_set(value):
            continue
        return name
    return ""


def _compare_lists(wanted: list[Any], found: list[Any], name: str, keys: tuple[str, ...]) -> str | None:
    if keys:
        for index, item in enumerate(wanted):
            match = next((other for other in found if _same_entry(item, other, keys)), None)
            path = _compare(item, match, name) if match is not None else ""
            if path is not None:
                return f"[{index}]{path}"
        return None
    if len(wanted) != len(found):
        return ""
    for index, (item, other) in enumerate(zip(wanted, found, strict=True)):
        path = _compare(item, other, name)
        if path is not None:
            return f"[{index}]{path}"
    return None


def _same_entry(wanted: Any, found: Any, keys: tuple[str, ...]) -> bool:
    """Whether two entries have the same keys; a key we left to the server's default fits any."""
    if not isinstance(wanted, Part):
        return bool(wanted == found)
    names = _fields(type(wanted))
    for key in keys:
        value = getattr(wanted, names[key])
        if value is not None and value != getattr(found, names[key]):
            return False
    return True


@functools.cache
def _fields(owner: type[Part]) -> dict[str, str]:
    """A type's fields by their names in JSON."""
    return dict(zip(owner.__struct_encode_fields__, owner.__struct_fields__, strict=True))
