"""The three patches that are not apply: JSON patch, JSON merge patch, strategic merge patch.

All raise mooring.kube.errors.ApiError subclasses with the status and text of a real server, change
none of their arguments, and return a result that may share structure with them. Strategic merge patch
belongs to built-in kinds alone: a real server answers 415 for custom resources.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NoReturn

import msgspec

from mooring.kube.errors import ApiError, BadRequest, Invalid, ServerError
from mooring.local.api.codec import DEEPEST, check_depth
from mooring.local.api.constraints import same
from mooring.local.api.schema import Schema

__all__ = ["MAX_OPERATIONS", "by_name", "json_patch", "merge_patch", "strategic_merge_patch"]

Json = Any
JsonObject = dict[str, Any]

MAX_OPERATIONS: Final = 10_000
#: Bytes of JSON that the copies of one patch may come to, as a real server has it (its JSONPatchMaxCopyBytes).
_MAX_COPIED: Final = 3 << 20


def by_name(value: Json, paths: Sequence[Sequence[str]] | None = None) -> Json:
    """Sort the members of objects by their names, as a patched document is written.

    `paths`: what a JSON patch changes, of which the objects on the way alone are read and written.
    """
    if paths is None:
        return _by_name(value, None)
    ways = _Ways()
    for path in paths:
        here = ways
        for key in path[: DEEPEST + 1]:
            here = here.setdefault(key, _Ways())
    return _by_name(value, ways)


class _Ways(dict[str, "_Ways"]):
    """Where paths lead from here, by their next step."""


def _by_name(value: Json, ways: _Ways | None) -> Json:
    if isinstance(value, dict):
        return {key: _below(value[key], key, ways) for key in sorted(value)}
    if isinstance(value, list):
        return [_below(item, str(index), ways) for index, item in enumerate(value)]
    return value


def _below(value: Json, key: str, ways: _Ways | None) -> Json:
    if ways is None:
        return _by_name(value, None)
    inner = ways.get(key)
    return _by_name(value, inner) if inner else value


# --- JSON patch (RFC 6902) ----------------------------------------------------------------------------


class _NoMatch(Exception):
    """An operation does not fit the document; clients see one fixed text, as from a real server."""


class _TestFailed(_NoMatch):
    """A test found another value."""


def test_failed(error: Invalid) -> bool:
    """Whether a JSON patch was refused by one of its own tests."""
    return isinstance(error.__cause__, _TestFailed)


def json_patch(obj: Json, operations: Json) -> Json:
    """Apply an RFC 6902 patch (a list of operations); 422 when an operation or a test fails.

    As the real server's library does, `replace` of a missing key of an object adds it, and negative
    indices count from the end.
    """
    if not isinstance(operations, list):
        described = "object" if isinstance(operations, dict) else type(operations).__name__
        raise _bad_request(f"json: cannot unmarshal {described} into Go value of type jsonpatch.Patch")
    for operation in operations:
        if not isinstance(operation, dict):
            described = type(operation).__name__
            raise _bad_request(
                f"json: cannot unmarshal {described} into Go value of type jsonpatch.Operation"
            )
    if len(operations) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise ApiError(text, status=413, reason="RequestEntityTooLarge")
    try:
        changed = _Document(obj)
        for operation in operations:
            changed.operate(operation)
    except _NoMatch as cause:
        text = "the server rejected our request due to an error in our request"
        raise Invalid(text, status=422, reason="Invalid") from cause
    try:
        check_depth(changed.value)
    except ValueError as error:
        raise _bad_request(f"the patched document {error}") from None
    return changed.value


def _bad_request(text: str) -> BadRequest:
    return BadRequest(text, status=400, reason="BadRequest")


class _Document:
    """A document while a patch changes it. Containers are copied when they change first, and only then."""

    def __init__(self, value: Json) -> None:
        self.value = value
        #: The containers that are copies of this patch, by identity; held, so that no other takes it.
        self._owned: dict[int, Json] = {}
        self._copied = 0

    def operate(self, operation: JsonObject) -> None:
        """Carry out one operation; raises _NoMatch."""
        kind = operation.get("op")
        path = _tokens(operation.get("path"))
        value = operation.get("value")
        if kind == "add":
            self._add(path, value)
        elif kind == "remove":
            _remove(*self._container(path))
        elif kind == "replace":
            if path:
                _set(*self._container(path), value)
            else:
                self.value = value
        elif kind == "test":
            found = self.value if not path else self._found(path)
            if not same(found, value):
                raise _TestFailed("test failed")
        elif kind in ("move", "copy"):
            source = _tokens(operation.get("from"))
            if not source or not path:
                raise _NoMatch("the document itself can be neither moved nor copied")
            moved = self._found(source)
            if kind == "move":
                _remove(*self._container(source))
            self._add(path, moved if kind == "move" else self._copy(moved))
        else:
            raise _NoMatch(f"unexpected kind: {kind}")

    def _found(self, path: Sequence[str]) -> Json:
        return _member(_container(self.value, path[:-1]), path[-1])

    def _copy(self, value: Json) -> Json:
        encoded = msgspec.json.encode(value)
        self._copied += len(encoded)
        if self._copied > _MAX_COPIED:
            raise _NoMatch(f"the copies come to {self._copied} bytes, more than {_MAX_COPIED}")
        return msgspec.json.decode(encoded)

    def _own(self, container: Json) -> Json:
        """Return a container of the document as one that may be changed."""
        if not isinstance(container, (dict, list)):
            raise _NoMatch("there is nothing below a value")
        if id(container) in self._owned:
            return container
        own: Json = container.copy()
        self._owned[id(own)] = own
        return own

    def _container(self, path: Sequence[str]) -> tuple[Json, str]:
        """Return the container that a path leads to, to be changed, and the last step of the path."""
        if not path:
            raise _NoMatch("the document itself can only be replaced")
        _container(self.value, path[:-1])  # what does not fit changes nothing
        here = self.value = self._own(self.value)
        for key in path[:-1]:
            below = self._own(_member(here, key))
            _set(here, key, below)
            here = below
        return here, path[-1]

    def _add(self, path: Sequence[str], value: Json) -> None:
        container, key = self._container(path)
        if isinstance(container, dict):
            container[key] = value
        else:
            container.insert(len(container) if key == "-" else _index(key, len(container) + 1), value)


def _tokens(pointer: Json) -> list[str]:
    """Split a JSON pointer; what stands before the first slash is ignored, as the real library does."""
    if not isinstance(pointer, str):
        raise _NoMatch("missing path")
    if not pointer:
        return []
    parts = pointer.split("/", DEEPEST + 2)
    if len(parts) > DEEPEST + 1:
        raise _NoMatch("no document is as deep")
    if len(parts) < 2:
        raise _NoMatch(f"{pointer!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts[1:]]


def _index(key: str, length: int) -> int:
    try:
        index = int(key)
    except ValueError:
        raise _NoMatch(f"{key!r} is no index") from None
    if not -length <= index < length:
        raise _NoMatch(f"index {index} is out of bounds")
    return index + length if index < 0 else index


def _member(parent: Json, key: str) -> Json:
    if isinstance(parent, list):
        return parent[_index(key, len(parent))]
    return parent.get(key)


def _container(obj: Json, path: Sequence[str]) -> Json:
    for key in path:
        obj = _member(obj, key)
        if not isinstance(obj, (dict, list)):
            raise _NoMatch(f"there is nothing below {key!r}")
    return obj


def _set(parent: Json, key: str, value: Json) -> None:
    if isinstance(parent, dict):
        parent[key] = value
    else:
        parent[_index(key, len(parent))] = value


def _remove(parent: Json, key: str) -> None:
    if isinstance(parent, dict):
        if key not in parent:
            raise _NoMatch(f"there is no {key!r}")
        del parent[key]
    else:
        del parent[_index(key, len(parent))]


# --- JSON merge patch (RFC 7386) ----------------------------------------------------------------------


def merge_patch(obj: Json, patch: Json) -> Json:
    """Apply an RFC 7386 merge patch; 400 when it is no object."""
    if not isinstance(patch, dict):
        raise _bad_request("Invalid JSON Patch")
    return _merge(obj, patch)


def _merge(target: JsonObject, patch: JsonObject) -> JsonObject:
    result: JsonObject | None = None
    for key, value in patch.items():
        if value is None:
            if key not in target:
                continue
            result = dict(target) if result is None else result
            del result[key]
            continue
        current = target.get(key)
        if isinstance(current, dict):
            merged = _merge(current, value) if isinstance(value, dict) else value
        else:
            merged = _without_nulls(value)
        if merged is not current:
            result = dict(target) if result is None else result
            result[key] = merged
    return target if result is None else result


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


# --- strategic merge patch ----------------------------------------------------------------------------

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE: Final = "$deleteFromPrimitiveList"
_ORDER: Final = "$setElementOrder"

_BAD_RETAIN: Final = "invalid patch format of retainKeys"
_BAD_ORDER: Final = "invalid patch format of setElementOrder list"
_BAD_DELETE: Final = "invalid patch format of primitive list"


def strategic_merge_patch(obj: JsonObject, patch: JsonObject, schema: Schema) -> JsonObject:
    """Apply a strategic merge patch by the patch strategies and merge keys of a built-in schema.

    Malformed directives are 400; a list item without its merge key is 500, as on a real server.
    """
    if not isinstance(patch, dict):
        raise _bad_request(
            f"json: cannot unmarshal {type(patch).__name__} into Go value of type map[string]interface {{}}"
        )
    return _strategic(obj, patch, schema)


def _fail(text: str) -> NoReturn:
    raise ServerError(text, status=500, reason="")


def _text(value: Json) -> str:
    """Show a value as Go's %v does."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_text, value)) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _strategic(original: JsonObject, patch: JsonObject, schema: Schema | None) -> JsonObject:
    if _PATCH in patch:
        return _directive(patch)
    result = _retained(original, patch)
    ordered = _ordered(result, patch, schema)
    result.update(ordered)
    for key, value in patch.items():
        if key == _RETAIN or key.startswith(f"{_ORDER}/") or key in ordered:
            continue
        if key.startswith(_DELETE):
            _delete_from(result, _name_of(key, _DELETE, _BAD_DELETE), value)
        elif value is None:
            result.pop(key, None)
        else:
            _put(result, key, value, schema)
    return result


def _directive(patch: JsonObject) -> JsonObject:
    if patch[_PATCH] == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if patch[_PATCH] == "delete":
        return {}
    _fail(f"unknown patch type: {_text(patch[_PATCH])} in map: {_text(patch)}")


def _name_of(key: str, prefix: str, error: str) -> str:
    directive, slash, name = key.partition("/")
    if directive != prefix or not slash:
        raise _bad_request(error)
    return name


def _retained(original: JsonObject, patch: JsonObject) -> JsonObject:
    if _RETAIN not in patch:
        return dict(original)
    keep = patch[_RETAIN]
    if not isinstance(keep, list):
        raise _bad_request(_BAD_RETAIN)
    kept = {name for name in keep if isinstance(name, str)}
    for key, value in patch.items():
        if value is not None and key != _RETAIN and not key.startswith((_DELETE, _ORDER)) and key not in kept:
            raise _bad_request(_BAD_RETAIN)
    return {key: value for key, value in original.items() if key in kept}


def _put(result: JsonObject, key: str, value: Json, schema: Schema | None) -> None:
    child = schema.child(key) if schema is not None else None
    current = result.get(key)
    if isinstance(current, dict) and isinstance(value, dict):
        replace = child is not None and "replace" in child.patch_strategy
        result[key] = value if replace else _strategic(current, value, child)
    elif isinstance(current, list) and isinstance(value, list):
        merge = child is not None and "merge" in child.patch_strategy
        result[key] = _merge_lists(current, value, child) if merge else value
    else:
        added = _plain(value)
        if added is _GONE:
            result.pop(key, None)
        else:
            result[key] = added


_GONE: Final = object()


def _plain(value: Json) -> Json:
    """Return a new value without directives and nulls; _GONE when it is itself a directive."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _GONE
        plain = {key: _plain(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in plain.items() if item is not _GONE}
    if isinstance(value, list):
        return [item for item in map(_plain, value) if item is not _GONE]
    return value


def _delete_from(result: JsonObject, key: str, gone: Json) -> None:
    current = result.get(key)
    if isinstance(current, list) and isinstance(gone, list):
        left_out = set(map(_identity, gone))
        result[key] = [item for item in current if _identity(item) not in left_out]


def _identity(value: Json) -> Hashable:
    """Return what two equal values have in common, to look one up by: lists may have 100,000 items."""
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, order="sorted")
    return isinstance(value, bool), value


def _places(items: Sequence[Json], key: str) -> dict[Hashable, int]:
    """Return the first place of each item by its merge key's value, or by itself without a merge key."""
    places: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        if not key:
            places.setdefault(_identity(item), index)
        elif isinstance(item, dict) and key in item:
            places.setdefault(_identity(item[key]), index)
    return places


def _named(item: Json, key: str) -> Hashable:
    """Return what an item is looked up by in `_places`."""
    return _identity(item.get(key) if key else item)


def _merge_lists(original: list[Json], patch: list[Json], schema: Schema | None) -> list[Json]:
    if not original and not patch:
        return original
    key = schema.patch_key if schema is not None else ""
    items = schema.items if schema is not None else None
    if len({type(item) for item in [*original, *patch]}) > 1:
        _fail(f"list element types are not identical: {_text([original, patch])}")
    if not all(isinstance(item, dict) for item in [*original, *patch]):
        return _merge_scalars(original, patch)
    if not key:
        _fail(f"cannot merge lists without merge key for {items.go if items is not None else ''}")
    original, patch = _list_directives(original, patch, key)
    merged = list(original)
    places = _places(merged, key)
    for item in patch:
        if key not in item:
            _no_key(item, key)
        at = places.setdefault(_identity(item[key]), len(merged))
        if at < len(merged):
            merged[at] = _strategic(merged[at], item, items)
        else:
            merged.append(_plain(item))
    return _in_order(merged, patch, original, key)


def _no_key(item: Json, key: str) -> NoReturn:
    _fail(f"map: {_text(item)} does not contain declared merge key: {key}")


def _merge_scalars(original: list[Json], patch: list[Json]) -> list[Json]:
    merged = list({_identity(item): item for item in [*original, *patch]}.values())
    return _in_order(merged, patch, original, "")


def _list_directives(original: list[Json], patch: list[Json], key: str) -> tuple[list[Json], list[Json]]:
    """Carry out `$patch: delete` and `replace` items; return what is left of both lists."""
    rest = []
    gone = set()
    replace = False
    for item in patch:
        directive = item.get(_PATCH)
        if _PATCH not in item:
            rest.append(item)
        elif directive == "delete":
            if key not in item:
                _no_key(item, key)
            gone.add(_identity(item[key]))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            _fail("merging lists cannot yet be specified in the patch")
        else:
            _fail(f"unknown patch type: {_text(directive)} in map: {_text(item)}")
    if replace:
        return [], rest
    return [old for old in original if _identity(old.get(key)) not in gone] if gone else original, rest


def _in_order(merged: list[Json], wanted: Sequence[Json], live: Sequence[Json], key: str) -> list[Json]:
    """Order a merged list: items named in `wanted` in that order, the others kept among them as they were."""
    order, before = _places(wanted, key), _places(live, key)
    named, others = [], []
    for item in merged:
        name = _named(item, key)
        place = before.get(name, -1)
        if name in order:
            named.append((order[name], place, item))
        else:
            others.append((place, item))
    named.sort(key=lambda one: one[0])
    others.sort(key=lambda one: one[0])
    result: list[Json] = []
    last = 0
    for _, right, item in named:
        while last < len(others) and 0 <= others[last][0] < right:
            result.append(others[last][1])
            last += 1
        result.append(item)
    return [*result, *(item for _, item in others[last:])]


def _ordered(original: JsonObject, patch: JsonObject, schema: Schema | None) -> JsonObject:
    """Merge the lists that come with a $setElementOrder; return them by name."""
    result: JsonObject = {}
    for directive, order in patch.items():
        if not directive.startswith(_ORDER):
            continue
        name = _name_of(directive, _ORDER, _BAD_ORDER)
        if not isinstance(order, list):
            raise _bad_request(_BAD_ORDER)
        child = schema.child(name) if schema is not None else None
        key = child.patch_key if child is not None else ""
        change = patch.get(name)
        current = original.get(name)
        _check_order(change or [], order, key)
        if current is None and change is None:
            continue
        merged: list[Json]
        if current is None:
            merged = _plain(change)
        else:
            merged = current if change is None else _merge_lists(current, change, child)
        if any(key and key not in item for item in order):
            _no_key(next(item for item in order if key not in item), key)
        result[name] = _in_order(merged, order, current or [], key)
    return result


def _check_order(change: list[Json], order: list[Json], key: str) -> None:
    """Every changed item must be named in the order, in the same sequence."""
    if not order:
        return
    at = 0
    for item in change:
        if key and (not isinstance(item, dict) or _PATCH in item):
            continue
        if key and key not in item:
            _no_key(item, key)
        while at < len(order) and not (order[at].get(key) == item[key] if key else order[at] == item):
            at += 1
        if at == len(order):
            _fail(
                f"The order in patch list:\n{_text(change)}\n doesn't match {_ORDER} list:\n{_text(order)}\n"
            )
        at += 1
