"""Compares, merges and prunes objects by their schemas, as sigs.k8s.io/structured-merge-diff does.

What a value is decides how: structs and maps are merged key by key, lists of type map and set item by
item, everything else (scalars, atomic lists, maps and structs) as a whole. Fields a schema does not
know but preserves are deduced: objects merge, lists do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mooring.local.api.constraints import same
from mooring.local.api.fieldset import FieldSet, is_member, key_element, node_of, render, value_element
from mooring.local.api.schema import MISSING, Schema

__all__ = ["Comparison", "TypedError", "check", "compare", "field_set_of", "merge", "named", "remove"]

Json = Any
JsonObject = dict[str, Any]


class TypedError(ValueError):
    """A value does not have the form its schema asks for; the text is structured-merge-diff's."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed between two objects."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def _deduced() -> Schema:
    schema = Schema()
    schema.deduced = True
    return schema


DEDUCED: Final = _deduced()
_NOTHING: Final[FieldSet] = {}
_MAPS: Final = frozenset(("struct", "map", "any", "raw"))
_CONTAINERS: Final = (dict, list)
_LEAF, _MAP, _LIST = 0, 1, 2


def _shape(value: Json, schema: Schema) -> int:
    if type(value) is dict:
        return _MAP if schema.kind in _MAPS and not schema.atomic else _LEAF
    if type(value) is list:
        return _LIST if schema.list_type != "atomic" else _LEAF
    return _LEAF


def _field(schema: Schema, key: str) -> Schema:
    return schema.properties.get(key) or schema.additional or DEDUCED


def _item(schema: Schema) -> Schema:
    return schema.items or DEDUCED


def element_of(item: Json, schema: Schema) -> str:
    """Return the set element that names an item of a list of type map or set."""
    if schema.list_type == "set":
        if isinstance(item, dict):
            raise TypedError("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise TypedError("not supported: associative list with lists as elements")
        if item is None:
            raise TypedError("associative list without keys has an element that's an explicit null")
        return value_element(item)
    if item is None:
        raise TypedError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise TypedError("associative list with keys may not have non-map elements")
    fields = []
    for name in schema.list_keys:
        if name in item:
            fields.append((name, item[name]))
        else:
            known = _item(schema).properties.get(name)
            if known is not None and known.default is not MISSING:
                fields.append((name, known.default))
    if not fields:
        keys = "[" + " ".join(f'"{name}"' for name in schema.list_keys) + "]"
        raise TypedError(
            f"associative list with keys has an element that omits all key fields {keys} "
            "(and doesn't have default values for any key fields)"
        )
    if len(fields) > 1:
        fields.sort()
    return key_element(fields)


# --- the fields of an object --------------------------------------------------------------------------


def field_set_of(value: Json, schema: Schema) -> FieldSet:
    """Return the set of fields an applied configuration gives."""
    return _fields(value, schema) or {}


def _fields(value: Json, schema: Schema) -> FieldSet | None:
    """Return the node of a value; None when nothing in it counts (an empty list of type map)."""
    shape = _shape(value, schema)
    if shape == _LEAF:
        return _NOTHING
    result: FieldSet = {}
    if shape == _MAP:
        known = schema.properties
        for key, item in value.items():
            node = _fields(item, _field(schema, key))
            if key not in known or (not item and type(item) is dict):
                node = node_of(dict(node or {}), member=True)
            if node is not None:
                result[f"f:{key}"] = node
        return result or None
    for item in value:
        children = _fields(item, _item(schema)) or {}
        element = element_of(item, schema)
        if element in result:
            result[element] = _NOTHING
        else:
            node = node_of(dict(children), member=True)
            assert node is not None
            result[element] = node
    return result or None


# --- what changed -------------------------------------------------------------------------------------


def compare(old: Json, new: Json, schema: Schema) -> Comparison:
    """Return the fields removed, modified and added between two objects."""
    removed, modified, added = _compare(old, new, schema)
    return Comparison(removed or {}, modified or {}, added or {})


_Triple = tuple[FieldSet | None, FieldSet | None, FieldSet | None]
_SAME: Final[_Triple] = (None, None, None)
_MODIFIED: Final[_Triple] = (None, _NOTHING, None)


def _compare(old: Json, new: Json, schema: Schema) -> _Triple:
    """Compare two values that are both there; the nodes are relative to them."""
    if old is new or (type(new) in _CONTAINERS and same(old, new)):
        return _SAME
    shape = _shape(new, schema) if new is not None else _shape(old, schema)
    if shape == _LEAF and _shape(old, schema) == _MAP and old:
        return _other_type(old, new, schema) if new is not None else _MODIFIED
    if shape == _LEAF or (not old and not new):
        return _SAME if same(old, new) else _MODIFIED
    if type(old) is not type(new) and old is not None and new is not None:
        return _other_type(old, new, schema)
    if shape == _MAP:
        return _compare_maps(old or {}, new or {}, schema)
    return _compare_lists(old or [], new or [], schema)


def _other_type(old: Json, new: Json, schema: Schema) -> _Triple:
    """A value of another type was modified; what a map held is gone, what a map holds is new."""
    removed, added = (
        _whole(value, schema) if _shape(value, schema) == _MAP and value else None for value in (old, new)
    )
    below = [
        {key: node for key, node in whole.items() if key != "."} if whole else None
        for whole in (removed, added)
    ]
    return (below[0], _NOTHING, below[1])


class _Collector:
    """Gathers the three sets of the children of one node."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.removed: FieldSet = {}
        self.modified: FieldSet = {}
        self.added: FieldSet = {}

    def put(self, element: str, triple: _Triple) -> None:
        removed, modified, added = triple
        if removed is not None:
            self.removed[element] = removed
        if modified is not None:
            self.modified[element] = modified
        if added is not None:
            self.added[element] = added

    def triple(self) -> _Triple:
        return (self.removed or None, self.modified or None, self.added or None)


def _compare_maps(old: JsonObject, new: JsonObject, schema: Schema) -> _Triple:
    result = _Collector()
    for key, value in new.items():
        before = old.get(key, MISSING)
        if before is MISSING:
            result.added[f"f:{key}"] = _whole(value, _field(schema, key))
        elif before is not value:
            triple = _compare(before, value, _field(schema, key))
            if triple is not _SAME:
                result.put(f"f:{key}", triple)
    for key, value in old.items():
        if key not in new:
            result.removed[f"f:{key}"] = _whole(value, _field(schema, key))
    return result.triple()


def _whole(value: Json, schema: Schema) -> FieldSet:
    """Return the node of a value that came or went: it and everything in it."""
    shape = _shape(value, schema)
    if shape == _LEAF or not value:
        return _NOTHING
    result: FieldSet = {".": _NOTHING}
    if shape == _MAP:
        for key, item in value.items():
            result[f"f:{key}"] = _whole(item, _field(schema, key))
        return result
    for item in value:
        element = element_of(item, schema)
        result[element] = _NOTHING if element in result else _whole(item, _item(schema))
    return result


def _by_element(items: list[Json], schema: Schema) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for item in items:
        found.setdefault(element_of(item, schema), []).append(item)
    return found


def _compare_lists(old: list[Json], new: list[Json], schema: Schema) -> _Triple:
    result = _Collector()
    before, after = _by_element(old, schema), _by_element(new, schema)
    items = _item(schema)
    for element in {**before, **after}:
        left, right = before.get(element, []), after.get(element, [])
        if len(left) <= 1 and len(right) <= 1:
            if not left:
                result.added[element] = _whole(right[0], items)
            elif not right:
                result.removed[element] = _whole(left[0], items)
            else:
                result.put(element, _compare(left[0], right[0], items))
        elif len(left) > 1 and len(right) > 1:
            if not same(left, right):
                result.modified[element] = _NOTHING
        elif len(left) > 1:
            if right:
                result.added[element] = _whole(right[0], items)
            result.removed[element] = _NOTHING
        else:
            if left:
                result.removed[element] = _whole(left[0], items)
            result.added[element] = _NOTHING
    return result.triple()


# --- merging ------------------------------------------------------------------------------------------


def merge(live: Json, config: Json, schema: Schema) -> Json:
    """Return the live value with an applied configuration merged in; `live` itself if nothing differs."""
    if live is config or (type(live) in _CONTAINERS and same(live, config)):
        return live
    shape = _shape(config, schema) if config is not None else _shape(live, schema)
    if shape == _LEAF or (not live and not config):
        return live if same(live, config) else config
    if type(live) is not type(config) and live is not None and config is not None:
        return config
    if config is None:
        return live
    if live is None:
        return config
    if shape == _MAP:
        return _merge_maps(live, config, schema)
    return _merge_lists(live, config, schema)


def _merge_maps(live: JsonObject, config: JsonObject, schema: Schema) -> JsonObject:
    result: JsonObject | None = None
    for key, value in config.items():
        current = live.get(key, MISSING)
        merged = value if current is MISSING else merge(current, value, _field(schema, key))
        if merged is not current:
            result = dict(live) if result is None else result
            result[key] = merged
    return live if result is None else result


def _merge_lists(live: list[Json], config: list[Json], schema: Schema) -> list[Json]:
    """Merge item by item: applied items in their order, the others kept where they stood between them."""
    items = _item(schema)
    left = [element_of(item, schema) for item in live]
    right = [element_of(item, schema) for item in config]
    wanted = dict(zip(right, config, strict=True))
    current: dict[str, Json] = {}
    for element, item in zip(left, live, strict=True):
        current[element] = None if element in current else item
    shared = [element for element in right if element in current]
    result: list[Json] = []
    done: set[str] = set()
    l_at = r_at = 0

    def take(element: str) -> None:
        done.add(element)
        old = current.get(element, MISSING)
        result.append(wanted[element] if old is MISSING else merge(old, wanted[element], items))
        if shared and shared[0] == element:
            shared.pop(0)

    while l_at < len(left) or r_at < len(right):
        if l_at < len(left) and r_at < len(right):
            element = left[l_at]
            if element == right[r_at]:
                take(element)
                l_at += 1
                r_at += 1
                continue
            if element in wanted and shared and shared[0] != element:
                l_at += 1
                continue
        if l_at < len(left):
            element = left[l_at]
            if element not in wanted:
                result.append(live[l_at])
                l_at += 1
                continue
            if element in done:
                l_at += 1
        if r_at < len(right):
            take(right[r_at])
            r_at += 1
    if len(result) == len(live) and all(a is b for a, b in zip(result, live, strict=True)):
        return live
    return result


# --- removing -----------------------------------------------------------------------------------------


def remove(value: Json, fields: FieldSet, schema: Schema) -> Json:
    """Return a value without the members of a set, None for what is left of a structure that lost all its parts.

    That is how structured-merge-diff 6.3.3 has it: a built-in struct that is given up whole is then not
    there, and a custom resource's list that may not be null is refused.
    """
    shape = _shape(value, schema)
    if shape == _LEAF:
        return None if isinstance(value, (dict, list)) else value
    if shape == _MAP:
        result: JsonObject = {}
        for key, item in value.items():
            node = fields.get(f"f:{key}")
            if node is None:
                result[key] = item
            elif not is_member(node):
                result[key] = remove(item, node, _field(schema, key))
        return result or None
    kept = []
    for item in value:
        node = fields.get(element_of(item, schema))
        if node is None:
            kept.append(item)
        elif not is_member(node):
            kept.append(remove(item, node, _item(schema)))
    return kept or None


def named(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set with every struct field that leads to a member made a member itself."""
    result: FieldSet = {}
    for element, node in fields.items():
        if not node:
            result[element] = node
            continue
        if element.startswith("f:"):
            key = element[2:]
            inner = named(node, _field(schema, key))
            if key in schema.properties:
                inner["."] = _NOTHING
        else:
            inner = named(node, _item(schema))
        result[element] = inner
    return result


# --- the form of a configuration ----------------------------------------------------------------------

_WANTED: Final = {
    "string": (str, "expected string, got {}"),
    "integer": ((int, float), "expected numeric (int or float), got {}"),
    "number": ((int, float), "expected numeric (int or float), got {}"),
    "boolean": (bool, "expected boolean, got {}"),
}


def check(value: Json, schema: Schema) -> None:
    """Raise TypedError unless a configuration has the form of its schema, without duplicates."""
    errors = list(_errors(value, schema, ""))
    if len(errors) == 1:
        raise TypedError(errors[0])
    if errors:
        raise TypedError("errors:\n" + "\n".join(f"  {error}" for error in errors))


def _errors(value: Json, schema: Schema, path: str) -> Sequence[str]:
    if value is None or schema.kind == "raw":
        return ()
    prefix = f"{path}: " if path else ""
    if schema.kind in ("struct", "map"):
        if not isinstance(value, dict):
            return (f"{prefix}expected map, got {_go_value(value)}",)
        return _map_errors(value, schema, path)
    if schema.kind == "list":
        if not isinstance(value, list):
            return (f"{prefix}expected list, got {_go_value(value)}",)
        return _list_errors(value, schema, path)
    if schema.kind == "any":
        if isinstance(value, dict) and schema.properties:
            return _map_errors(value, schema, path)
        return ()
    if schema.kind in _WANTED:
        types, text = _WANTED[schema.kind]
        if not isinstance(value, types) or (isinstance(value, bool) and schema.kind != "boolean"):  # type: ignore[arg-type]
            if schema.kind == "boolean":
                return (prefix + text.format(_go_value(value)),)
            return (prefix + text.format(_shown(value, schema.kind)),)
    elif isinstance(value, (dict, list)):
        return (f"{prefix}expected any scalar, got {_go_value(value)}",)
    return ()


def _map_errors(value: JsonObject, schema: Schema, path: str) -> Sequence[str]:
    errors: list[str] = []
    for key, item in value.items():
        child = schema.properties.get(key) or schema.additional
        if child is None:
            if not schema.deduced:
                errors.append(f"{path}.{key}: field not declared in schema")
            continue
        errors += _errors(item, child, f"{path}.{key}")
    return errors


def _list_errors(value: list[Json], schema: Schema, path: str) -> Sequence[str]:
    errors: list[str] = []
    seen = set()
    items = _item(schema)
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        if schema.list_type != "atomic":
            try:
                element = element_of(item, schema)
            except TypedError as error:
                return [*errors, f"{path}: element {index}: {error}"]
            place = path + _bracketed(element)
            if element in seen:
                errors.append(f"{path}: duplicate entries for key {_bracketed(element)}")
            seen.add(element)
        errors += _errors(item, items, place)
    return errors


def _bracketed(element: str) -> str:
    return render((element,))


def _go_syntax(value: Json) -> str:
    """Show a value in Go's own syntax: `map[string]interface {}{"a":1}`."""
    if isinstance(value, dict):
        inner = ", ".join(f'"{key}":{_go_syntax(value[key])}' for key in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_go_syntax, value)) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _go_value(value: Json) -> str:
    """Show the pointer to a value as Go does: `&{map[a:1]}`."""

    def plain(item: Json) -> str:
        if isinstance(item, dict):
            return "map[" + " ".join(f"{key}:{plain(item[key])}" for key in sorted(item)) + "]"
        if isinstance(item, list):
            return "[" + " ".join(map(plain, item)) + "]"
        if isinstance(item, bool):
            return "true" if item else "false"
        return "<nil>" if item is None else str(item)

    return f"&{{{plain(value)}}}"


def _shown(value: Json, kind: str = "") -> str:
    """Show a value as Go does in these errors."""
    if kind in ("integer", "number"):
        names = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
        return names.get(type(value), "string")
    if isinstance(value, str):
        return f'"{value}"' if not kind else f'&value.valueUnstructured{{Value:"{value}"}}'
    if kind == "string":
        if isinstance(value, bool):
            return f"&value.valueUnstructured{{Value:{str(value).lower()}}}"
        return f"&value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{_shown(v)}" for k, v in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_shown, value)) + "]"
    return str(value)
