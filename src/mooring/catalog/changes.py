"""What an edit changes: from two versions of an object to the smallest JSON patch between them.

An edit begins from what a person was shown, in which secrets are masked. Both versions are masked in the same places, so
a secret that was not touched is in no change; where a change carries a masked secret along, `restored` puts the live one in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, Literal

import msgspec

from mooring.catalog import pointer
from mooring.catalog.entry import Entry
from mooring.catalog.mask import MASKED, mask

__all__ = [
    "Change",
    "MaskedSecret",
    "apply_changes",
    "diff",
    "editable",
    "json_patch",
    "overlaps",
    "restored",
    "values_of",
    "with_values",
]

#: What the API server sets; an edit begins without it.
_SERVER_SET: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)


class MaskedSecret(ValueError):
    """A masked secret stands where the live object has none; ``path`` is its JSON pointer."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: ``path`` is a JSON pointer; ``old`` is absent in an addition, ``new`` in a removal."""

    op: Literal["add", "replace", "remove"]
    path: str
    old: Any = None
    new: Any = None


def editable(obj: Mapping[str, Any], sensitive: Sequence[str] = ()) -> dict[str, Any]:
    """The masked part of an object that its author writes: no status, nothing that the API server sets."""
    shown = mask(dict(obj), sensitive)
    shown.pop("status", None)
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        shown["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVER_SET}
    return shown


def diff(old: Any, new: Any, path: str = "") -> list[Change]:
    """The changes that make ``new`` of ``old``; a list is compared by index, or replaced if its length differs."""
    return list(_diff(old, new, path))


def _diff(old: Any, new: Any, path: str) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{path}/{pointer.escape(str(key))}"
            if key not in new:
                yield Change(op="remove", path=below, old=old[key])
            elif key not in old:
                yield Change(op="add", path=below, new=new[key])
            else:
                yield from _diff(old[key], new[key], below)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _diff(before, after, f"{path}/{index}")
    elif type(old) is not type(new) or old != new:
        yield Change(op="replace", path=path, old=old, new=new)


def overlaps(one: Change, other: Change) -> bool:
    """Whether two changes touch the same place, or one a place within the other's."""
    a, b = pointer.parts(one.path), pointer.parts(other.path)
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def json_patch(changes: Sequence[Change], *, resource_version: str) -> list[dict[str, Any]]:
    """The JSON patch (RFC 6902) of these changes, for an object of exactly that version."""
    # The API server compares it and answers 409 if another writer was faster.
    operations: list[dict[str, Any]] = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}
    ]
    for change in changes:
        if change.op == "remove":
            operations.append({"op": "remove", "path": change.path})
        else:
            operations.append({"op": change.op, "path": change.path, "value": change.new})
    return operations


def apply_changes(obj: Any, changes: Sequence[Change]) -> tuple[Any, list[Change]]:
    """A copy of an object with the changes made, and those for which it has no place any more."""
    made, left = deepcopy(obj), []
    for change in changes:
        try:
            made = (
                pointer.drop(made, change.path)
                if change.op == "remove"
                else pointer.put(made, change.path, change.new)
            )
        except ValueError:
            left.append(change)
    return made, left


def restored(changes: Sequence[Change], shown: Any, live: Any) -> list[Change]:
    """The changes with the live secrets where they carry masked ones; raises `MaskedSecret`."""
    return [
        change
        if change.op == "remove"
        else Change(
            op=change.op,
            path=change.path,
            old=change.old,
            new=_restored(
                change.new, pointer.get(shown, change.path), pointer.get(live, change.path), change.path
            ),
        )
        for change in changes
    ]


def _restored(new: Any, shown: Any, live: Any, path: str) -> Any:
    if isinstance(new, str):
        if MASKED not in new:
            return new
        if new == shown and isinstance(live, str):
            return live
        raise MaskedSecret(path)
    if isinstance(new, dict):
        before, below = (shown, live) if isinstance(shown, dict) and isinstance(live, dict) else ({}, {})
        return {
            key: _restored(value, before.get(key), below.get(key), f"{path}/{pointer.escape(str(key))}")
            for key, value in new.items()
        }
    if isinstance(new, list):
        pair = (shown, live) if isinstance(shown, list) and isinstance(live, list) else ([], [])
        return [
            _restored(value, *_counterpart(value, index, *pair), f"{path}/{index}")
            for index, value in enumerate(new)
        ]
    return new


def _counterpart(value: Any, index: int, shown: list[Any], live: list[Any]) -> tuple[Any, Any]:
    """The element of the lists that an element of a new list was before: by its name, or by its place."""
    if isinstance(value, dict) and "name" in value:
        for before, below in zip(shown, live, strict=False):
            if isinstance(before, dict) and before.get("name") == value["name"]:
                return before, below
        return None, None
    if isinstance(value, str):
        for before, below in zip(shown, live, strict=False):
            if before == value:
                return before, below
    return (shown[index], live[index]) if index < min(len(shown), len(live)) else (None, None)


# --- forms


def values_of(entry: Entry, obj: Any) -> dict[str, Any]:
    """The values of an entry's fields in an object; sensitive ones, and those of another type, are left out."""
    values = {}
    for name, parameter in entry.parameters.items():
        found = pointer.get(obj, parameter.bind)
        if parameter.sensitive or found is None or isinstance(found, list):
            continue
        if parameter.type == "string" and isinstance(found, int | float) and not isinstance(found, bool):
            found = str(found)
        if isinstance(found, dict) != (parameter.type == "object"):
            continue
        values[name] = found
    return values


def with_values(entry: Entry, obj: Any, values: Mapping[str, Any]) -> Any:
    """A copy of an object with the values of a form that differ from its own; an empty one is taken out.

    An empty sensitive value leaves the secret as it is. Raises `ValueError` where a field has no place.
    """
    present = values_of(entry, obj)
    for name, value in values.items():
        parameter = entry.parameters[name]
        if value in (None, "", {}):
            if name in present:
                obj = pointer.drop(obj, parameter.bind)
        elif parameter.sensitive or name not in present or diff(present[name], value):
            obj = pointer.put(obj, parameter.bind, deepcopy(value))
    return obj
