"""Sets of field paths, in the very form managedFields hold them (FieldsV1).

A set is a tree of dicts: `{"f:spec": {".": {}, "f:replicas": {}}}` holds spec itself and
spec.replicas. A node that is empty, or has a ".", is a member; others only lead to members. Keys are
`f:<field>`, `k:{"name":"a"}` (item of a keyed list), `v:"a"` (item of a set), `i:0`. The empty set
is `{}`. Sets are never changed, and operations share their parts.

Working on the serialized form spares a translation on every write: sets are as they come and go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = [
    "FieldSet",
    "difference",
    "field_set",
    "has",
    "intersection",
    "is_field_set",
    "key_element",
    "paths",
    "render",
    "union",
    "value_element",
    "without",
]

FieldSet = dict[str, Any]
SELF: Final = "."
_MEMBER: Final[FieldSet] = {}


def is_member(node: FieldSet) -> bool:
    """Tell whether a node stands for a member itself, not just for a way to its children."""
    return not node or SELF in node


def node_of(children: FieldSet, *, member: bool) -> FieldSet | None:
    """Return a node for these children, None when there is nothing to hold."""
    if not member:
        return children or None
    if children:
        children[SELF] = _MEMBER
    return children


def field_set(*dotted: str) -> FieldSet:
    """Return the set of some field paths, written `metadata.ownerReferences`."""
    result: FieldSet = {}
    for path in dotted:
        node: FieldSet = {}
        for name in reversed(path.split(".")):
            node = {f"f:{name}": node}
        result = union(result, node)
    return result


def is_field_set(node: Any) -> bool:
    """Tell whether a JSON value is a valid FieldsV1."""
    return isinstance(node, dict) and all(
        (key == SELF or (len(key) > 1 and key[1] == ":" and key[0] in "fkvi")) and is_field_set(child)
        for key, child in node.items()
    )


# --- operations ---------------------------------------------------------------------------------------


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the set of what is in either."""
    if not left or left is right:
        return right
    if not right:
        return left
    result = dict(left)
    for key, node in right.items():
        mine = result.get(key)
        result[key] = node if mine is None else _union_node(mine, node)
    return result


def _union_node(left: FieldSet, right: FieldSet) -> FieldSet:
    if left is right or (not left and not right):
        return left
    if not left:
        return right if SELF in right else {**right, SELF: _MEMBER}
    if not right:
        return left if SELF in left else {**left, SELF: _MEMBER}
    return union(left, right)


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return what is in the left set alone; a member's children are not touched by its own removal."""
    if not right or not left:
        return left
    result: FieldSet = {}
    changed = False
    for key, node in left.items():
        other = right.get(key) if key != SELF else None
        if other is None:
            result[key] = node
            continue
        rest = _difference_node(node, other)
        if rest is not node:
            changed = True
        if rest is not None:
            result[key] = rest
    return result if changed else left


def _difference_node(left: FieldSet, right: FieldSet) -> FieldSet | None:
    member = is_member(left) and not is_member(right)
    if not left:
        return left if member else None
    children = {key: node for key, node in difference(left, right).items() if key != SELF}
    if member == (SELF in left) and len(children) == len(left) - member and _same_nodes(children, left):
        return left
    return node_of(children, member=member)


def _same_nodes(children: FieldSet, node: FieldSet) -> bool:
    return all(node[key] is child for key, child in children.items())


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the set of what is in both."""
    result: FieldSet = {}
    for key, node in left.items():
        other = right.get(key)
        if key == SELF or other is None:
            continue
        common = node_of(intersection(node, other), member=is_member(node) and is_member(other))
        if common is not None:
            result[key] = common
    return result


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return what is in the left set and neither in the right one nor below one of its members."""
    if not right or not left:
        return left
    result: FieldSet = {}
    for key, node in left.items():
        other = right.get(key) if key != SELF else None
        if other is None:
            result[key] = node
        elif not is_member(other):
            children = {k: child for k, child in without(node, other).items() if k != SELF}
            rest = node_of(children, member=is_member(node))
            if rest is not None:
                result[key] = rest
    return result


def has(fields: FieldSet, path: Sequence[str]) -> bool:
    """Tell whether a path (of keys as in the set) is a member."""
    node: FieldSet | None = fields
    for key in path:
        node = node.get(key) if node is not None else None
    return node is not None and is_member(node)


# --- elements -----------------------------------------------------------------------------------------


def _encoded(value: Any) -> str:
    if type(value) is str and value.isascii() and value.isprintable() and not _ESCAPED.intersection(value):
        return f'"{value}"'
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


_ESCAPED: Final = frozenset('"\\<>&')


def value_element(value: Any) -> str:
    """Return the key of an item of a set."""
    return f"v:{_encoded(value)}"


def key_element(fields: Sequence[tuple[str, Any]]) -> str:
    """Return the key of an item of a keyed list; the fields come sorted by name."""
    return "k:{" + ",".join(f'"{name}":{_encoded(value)}' for name, value in fields) + "}"


def _rank(element: str) -> tuple[Any, ...]:
    kind = "fkvi".index(element[0])
    if kind == 0:
        return (kind, element)
    value = json.loads(element[2:])
    return (kind, str(type(value)), json.dumps(value, sort_keys=True))


def paths(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Yield the members, ordered as structured-merge-diff orders them: members first, then deeper ones."""
    keys = sorted((key for key in fields if key != SELF), key=_rank)
    for key in keys:
        if is_member(fields[key]):
            yield (key,)
    for key in keys:
        yield from ((key, *rest) for rest in paths(fields[key]))


def render(path: Sequence[str]) -> str:
    """Show a path as in a conflict: `.spec.template.spec.containers[name="a"].image`."""
    return "".join(map(_rendered, path))


def _rendered(element: str) -> str:
    kind, text = element[0], element[2:]
    if kind == "f":
        return f".{text}"
    if kind == "i":
        return f"[{text}]"
    value = json.loads(text)
    if kind == "v":
        return f"[={_shown(value)}]"
    return "[" + ",".join(f"{name}={_shown(value[name])}" for name in sorted(value)) + "]"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
