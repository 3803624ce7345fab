"""What a rule costs at most, reckoned before it ever runs, as a real API server reckons it.

A unit is about 50 ns. The reckoning follows the compiled expression and the sizes that the schema allows:
what has no limit may be as large as a request (3 MiB). A rule, and all rules of a schema together, have a
budget; a definition above it is refused, so that one which is accepted here is accepted by a cluster too.

Sizes and costs are upper bounds; `_UNBOUNDED` stands for all that would not fit into 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from mooring.local.api.cel.checks import Message, escape, message_of, one_of, text_of
from mooring.local.api.schema import META, MISSING, Schema

__all__ = ["RULE_LIMIT", "SCHEMA_LIMIT", "Budget", "exceeded", "most_elements", "rule_cost", "times_at_most"]

RULE_LIMIT: Final = 10_000_000
SCHEMA_LIMIT: Final = 100_000_000
_UNBOUNDED: Final = 2**64 - 1
_REQUEST: Final = 3 << 20
_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25

_CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = 3, 4, 5, 6, 7, 8, 9
_NUMBERS: Final = frozenset(("int", "double", "bool", "timestamp", "duration", "null"))


def _add(*parts: int) -> int:
    return min(sum(parts), _UNBOUNDED)


def _multiply(a: int, b: int) -> int:
    return min(a * b, _UNBOUNDED)


def _factor(size: int, factor: float) -> int:
    return min(math.ceil(float(size) * factor), _UNBOUNDED)


# --- what a schema allows -----------------------------------------------------------------------------


def _kind(schema: Schema) -> str:
    """Return the CEL type of a value of a schema."""
    if schema.kind == "string":
        formats = {"byte": "bytes", "duration": "duration", "date": "timestamp", "date-time": "timestamp"}
        return formats.get(schema.format, "string")
    names = {
        "integer": "int",
        "number": "double",
        "boolean": "bool",
        "struct": "object",
        "list": "list",
        "map": "map",
    }
    return names.get(schema.kind, "dyn")


@cache
def _least(schema: Schema) -> int:
    """Return the fewest bytes of a value's JSON."""
    kind = _kind(schema)
    if kind == "object":
        size = 2
        for name in schema.required:
            child = schema.properties.get(name)
            if child is not None and child.default is MISSING:
                size += len(name.encode()) + _least(child) + 4
        return size
    if kind == "timestamp":
        return 12 if schema.format == "date" else 21
    return {"bool": 4, "int": 1, "double": 1, "dyn": 1, "duration": 3}.get(kind, 2)


def _most(schema: Schema) -> int:
    """Return the most elements (bytes of a text) that a value of a schema has; 0 for numbers and objects."""
    kind = _kind(schema)
    if kind == "list" and schema.items is not None:
        return _declared(schema.max_items, (_REQUEST - 2) // (_least(schema.items) + 1))
    if kind == "map" and schema.additional is not None:
        return _declared(schema.max_properties, (_REQUEST - 2) // (_least(schema.additional) + 6))
    if kind in ("timestamp", "duration"):
        return 12 if schema.format == "date" else 32
    if kind == "bytes":
        return _declared(schema.max_length, _REQUEST - 2)
    if kind == "string" or schema.kind == "int-or-string":
        if schema.max_length is not None:
            return max(schema.max_length, 0) * 4
        if schema.enum and schema.kind == "string":
            return max(len(value.encode()) for value in schema.enum if isinstance(value, str))
        return _REQUEST - 2
    return 0


def _declared(most: int | None, else_: int) -> int:
    return else_ if most is None else max(most, 0)


def most_elements(schema: Schema) -> int | None:
    """Return how many children a value has for each of its schema's nodes; None when nothing limits them."""
    if schema.items is not None:
        return None if schema.max_items is None else max(schema.max_items, 0)
    if schema.additional is not None:
        return None if schema.max_properties is None else max(schema.max_properties, 0)
    return 1


def times_at_most(schema: Schema, cardinality: int | None) -> int:
    """Return how often a node's rules may run for one object, below lists without limits as far as it fits."""
    return _REQUEST // (_least(schema) + 1) if cardinality is None else cardinality


# --- what an expression costs -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of an expression: its cost, its type, and how large its value and its elements may be."""

    cost: int = 0
    kind: str = "dyn"
    size: int | None = None
    schema: Schema | None = None
    element: _Value | None = None
    text: str | None = None
    least: int = 0

    @property
    def most(self) -> int:
        return _UNBOUNDED if self.size is None else self.size


def _of(schema: Schema | None, *, cost: int = 0) -> _Value:
    if schema is None:
        return _Value(cost)
    return _Value(cost, _kind(schema), _most(schema), schema)


def _elements(value: _Value) -> _Value:
    """Return what is known of the elements of a list, or of the values of a map."""
    if value.element is not None:
        return value.element
    schema = value.schema
    if schema is not None:
        return _of(schema.items if value.kind == "list" else schema.additional)
    return _Value()


def _keys(value: _Value) -> _Value:
    if value.kind == "list":
        return _Value(kind="int", size=1)
    # Keys of a map are texts without a limit of their own.
    return _Value(kind="string", size=0 if value.schema is not None else None)


Scope = Mapping[str, _Value]
_NAME: Final = _Value(kind="string", size=_REQUEST - 2)


@dataclass(slots=True)
class _Reckoning:
    root: Schema
    is_resource: bool

    def visit(self, data: bytes, scope: Scope) -> _Value:
        message = message_of(data)
        if _CONST in message:
            return _constant(message_of(one_of(message, _CONST)))
        if _IDENT in message:
            # What is no variable of ours (the name of a type) counts as large as the value itself.
            unknown = _Value(size=_most(self.root))
            return _at_cost(scope.get(text_of(message_of(one_of(message, _IDENT)), 1), unknown), 1)
        if _SELECT in message:
            return self._select(message_of(one_of(message, _SELECT)), scope)
        if _CALL in message:
            return self._call(message_of(one_of(message, _CALL)), scope)
        if _LIST in message:
            return self._list(message_of(one_of(message, _LIST)), scope)
        if _STRUCT in message:
            return self._struct(message_of(one_of(message, _STRUCT)), scope)
        if _COMPREHENSION in message:
            return self._comprehension(message_of(one_of(message, _COMPREHENSION)), scope)
        return _Value()

    def _select(self, select: Message, scope: Scope) -> _Value:
        operand = self.visit(one_of(select, 1), scope)
        if select.get(3, [0])[0]:
            return _Value(operand.cost, "bool", 1)
        cost = operand.cost + (operand.kind in ("map", "object"))
        return _at_cost(self._field(operand, text_of(select, 2)), cost)

    def _field(self, operand: _Value, name: str) -> _Value:
        schema = operand.schema
        if schema is None:
            return _Value()
        if schema.name == META or operand.text == "metadata":
            return _NAME
        if self.is_resource and schema is self.root and name in ("kind", "apiVersion", "metadata"):
            known = name == "metadata"
            return _Value(kind="object", size=0, schema=schema, text="metadata") if known else _NAME
        for key, child in schema.properties.items():
            if escape(key) == name:
                return _of(child)
        return _of(schema.additional)

    def _list(self, made: Message, scope: Scope) -> _Value:
        items = [self.visit(item, scope) for item in made.get(1, ())]
        element = _Value(
            kind=items[0].kind if items else "dyn", size=max((item.most for item in items), default=0)
        )
        cost = _add(10, *(item.cost for item in items))
        return _Value(cost, "list", len(items), element=element, least=len(items))

    def _struct(self, made: Message, scope: Scope) -> _Value:
        cost, entries = 40 if text_of(made, 1) else 30, made.get(2, ())
        for entry in entries:
            parts = message_of(entry)
            for key in (3, 4):
                if key in parts:
                    cost = _add(cost, self.visit(parts[key][0], scope).cost)
        return _Value(cost, "map", len(entries))

    def _comprehension(self, loop: Message, scope: Scope) -> _Value:
        over, start = self._part(loop, 2, scope), self._part(loop, 4, scope)
        first, accumulator, second = text_of(loop, 1), text_of(loop, 3), text_of(loop, 8)
        condition = message_of(one_of(loop, 5)) if 5 in loop else {}
        if first == "#unused":  # cel.bind: a name for a value
            result = self._part(loop, 7, {**scope, accumulator: start})
            return _at_cost(result, _add(over.cost, start.cost, result.cost))
        inner = dict(scope)
        inner[accumulator] = _at_cost(start, 0)
        if second:
            inner[first], inner[second] = _keys(over), _elements(over)
        else:
            inner[first] = _elements(over) if over.kind == "list" else _keys(over)
        step = self._part(loop, 6, inner)
        each = _add(step.cost, self.visit(one_of(loop, 5), inner).cost if condition else 0)
        result = self._part(loop, 7, {**scope, accumulator: _at_cost(start, 0)})
        cost = _add(over.cost, start.cost, result.cost, _multiply(over.most, each))
        if start.kind in ("list", "map"):
            return _Value(cost, start.kind, over.size, element=step.element or _elements(over))
        return _Value(cost, start.kind, start.size)

    def _part(self, loop: Message, number: int, scope: Scope) -> _Value:
        return self.visit(one_of(loop, number), scope) if number in loop else _Value()

    def _call(self, call: Message, scope: Scope) -> _Value:
        name = text_of(call, 2)
        target = self.visit(one_of(call, 1), scope) if 1 in call else None
        arguments = [self.visit(argument, scope) for argument in call.get(3, ())]
        before = _add(target.cost if target is not None else 0, *(argument.cost for argument in arguments))
        if name == "dyn" and arguments:
            return _at_cost(arguments[0], _add(before, 1))
        if name in ("_&&_", "_||_"):
            return _Value(before, "bool", 1)
        if name == "_?_:_":
            one, other = arguments[1], arguments[2]
            cost = _add(arguments[0].cost, max(one.cost, other.cost))
            size = None if one.size is None or other.size is None else max(one.size, other.size)
            known = one if one.schema is not None else other
            return _Value(cost, known.kind, size, known.schema)
        if name in ("_[_]", "_[?_]", "_?._") and arguments:
            found = (
                self._field(arguments[0], arguments[1].text or "")
                if name == "_?._"
                else _elements(arguments[0])
            )
            return _at_cost(found, _add(before, 1))
        cost, result = _function(name, target, arguments)
        return _at_cost(result, _add(before, cost))


def _at_cost(value: _Value, cost: int) -> _Value:
    return _Value(cost, value.kind, value.size, value.schema, value.element, value.text, value.least)


_CONSTANTS: Final = {1: "null", 2: "bool", 3: "int", 4: "int", 5: "double"}


def _constant(message: Message) -> _Value:
    if 6 in message:
        text = text_of(message, 6)
        return _Value(0, "string", len(text), text=text, least=len(text))
    if 7 in message:
        return _Value(0, "bytes", len(one_of(message, 7)))
    # A double takes no room in a message whose value is 0.
    kind = next((kind for number, kind in _CONSTANTS.items() if number in message), "null")
    return _Value(0, kind, 1, least=1)


Cost = tuple[int, _Value]
_BOOL, _INT, _TEXT = _Value(kind="bool", size=1), _Value(kind="int", size=1), _Value(kind="string")


def _function(name: str, target: _Value | None, arguments: Sequence[_Value]) -> Cost:
    """Return what a function costs besides its arguments, and what its result is."""
    if name in _COMPARISONS and len(arguments) == 2:
        return _compare(name, *arguments)
    if name == "_+_" and len(arguments) == 2:
        return _plus(*arguments)
    if name == "@in" and len(arguments) == 2:
        return (arguments[1].most if arguments[1].kind != "map" else 1), _BOOL
    found = _FUNCTIONS.get(name)
    subjects = [*([target] if target is not None else ()), *arguments]
    if found is not None and subjects:
        return found(subjects)
    kinds = {"size": _INT, "!_": _BOOL, "string": _TEXT, "int": _INT, "@not_strictly_false": _BOOL}
    return 1, kinds.get(name, _result_of(name, arguments))


def _result_of(name: str, arguments: Sequence[_Value]) -> _Value:
    if name in ("_-_", "_*_", "_/_", "_%_", "-_") and arguments:
        return _Value(kind=arguments[0].kind, size=1 if arguments[0].kind in _NUMBERS else None)
    kinds = {"timestamp": "timestamp", "duration": "duration", "double": "double"}
    return _Value(kind=kinds[name], size=1) if name in kinds else _Value()


_COMPARISONS: Final = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"))


def _compare(name: str, left: _Value, right: _Value) -> Cost:
    texts = ("string", "bytes")
    if name not in ("_==_", "_!=_") and left.kind not in texts and right.kind not in texts:
        return 1, _BOOL
    return _factor(min(left.most, right.most), _TRAVERSAL), _BOOL


def _plus(left: _Value, right: _Value) -> Cost:
    kind = left.kind if left.kind != "dyn" else right.kind
    if kind in _NUMBERS:
        return 1, _Value(kind=kind, size=1)
    size = _add(left.most, right.most)
    known = None if left.size is None or right.size is None else size
    if kind == "list":
        element = _elements(left) if left.size or left.schema is not None else _elements(right)
        return 1, _Value(kind=kind, size=known, element=element)
    return _factor(size, _TRAVERSAL), _Value(kind=kind, size=known)


def _traversal(subject: int, factor: float = 1.0, *, keeps: bool = False) -> Callable[[list[_Value]], Cost]:
    def cost(values: list[_Value]) -> Cost:
        value = values[min(subject, len(values) - 1)]
        result = _Value(kind="string", size=value.size) if keeps else _Value()
        return _factor(value.most, _TRAVERSAL * factor), result

    return cost


def _matches(values: list[_Value]) -> Cost:
    text, pattern = _factor(_add(values[0].most, 1), _TRAVERSAL), _factor(values[-1].most, _REGEX)
    return _multiply(text, pattern), _BOOL


def _find(values: list[_Value]) -> Cost:
    text, pattern = _factor(_add(values[0].most, 1), _TRAVERSAL), _factor(values[1].most, _REGEX)
    return _multiply(text, pattern), _Value(kind="string", size=values[0].size)


def _contains(values: list[_Value]) -> Cost:
    return _multiply(_factor(values[0].most, _TRAVERSAL), _factor(values[-1].most, _TRAVERSAL)), _BOOL


def _declared_elements(values: list[_Value]) -> _Value:
    """Return the elements of a list as its schema limits them; those of a list that was made have no limit."""
    found = _elements(values[0])
    return found if values[0].schema is not None else _Value(kind=found.kind)


def _over_list(values: list[_Value]) -> Cost:
    """Compare every element of a list once."""
    value = values[0]
    if value.kind == "string":
        return _factor(value.most, _TRAVERSAL), _INT
    element = _declared_elements(values)
    each = 1 + (_factor(element.most, _TRAVERSAL) if element.kind in ("string", "bytes") else 0)
    return _multiply(value.most, each), _Value(kind=element.kind, size=element.size)


def _split(values: list[_Value]) -> Cost:
    size = values[0].most
    return _factor(size, 2 * _TRAVERSAL), _Value(kind="list", size=size, element=_Value(kind="string"))


def _join(values: list[_Value]) -> Cost:
    count, separator = values[0].most, values[1].most if len(values) > 1 else 0
    size = _add(_multiply(count, _declared_elements(values).most), _multiply(separator, max(count - 1, 0)))
    return _factor(size, _TRAVERSAL), _Value(kind="string", size=size)


def _replace(values: list[_Value]) -> Cost:
    size, old, new = values[0].most, values[1], values[2]
    if old.least == 0:
        count, kept = _add(size, 1), size
    elif new.most <= old.least:
        count, kept = 0, size
    else:
        count, kept = math.ceil(size / old.least), 0
    result = _add(_multiply(count, new.most), kept)
    return _factor(size, 2 * _TRAVERSAL), _Value(kind="string", size=result)


_FUNCTIONS: Final[Mapping[str, Callable[[list[_Value]], Cost]]] = {
    "matches": _matches,
    "find": _find,
    "findAll": _find,
    "contains": _contains,
    "startsWith": _traversal(1),
    "endsWith": _traversal(1),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _over_list),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _traversal(0, keeps=True)),
    **dict.fromkeys(("url", "cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity"), _traversal(0)),
    "bytes": _traversal(0),
    "split": _split,
    "join": _join,
    "replace": _replace,
}


def rule_cost(serialized: bytes, schema: Schema, *, is_resource: bool) -> int:
    """Return the most that one run of a compiled expression over a value of a schema costs.

    `is_resource`: the value is a whole object, whose kind and metadata rules may look at.
    """
    checked = message_of(one_of(message_of(serialized), 2))
    own = _of(schema)
    names = {"self": own, "oldSelf": own, "old": own, "hasOld": _BOOL}
    return _Reckoning(schema, is_resource).visit(one_of(checked, 4), names).cost


# --- budgets ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Budget:
    """The costs of all rules of one schema, and the places of those that matter."""

    total: int = 0
    dear: list[tuple[int, str]] = field(default_factory=list)

    def spend(self, cost: int, place: str) -> None:
        """Count an expression."""
        self.total = _add(self.total, cost)
        if cost >= SCHEMA_LIMIT // 100:
            self.dear = sorted([*self.dear, (cost, place)], key=lambda entry: -entry[0])[:4]

    def times(self, cost: int, count: int) -> int:
        """Return the cost of running an expression several times."""
        return _multiply(cost, count)


def exceeded(about: str, cost: int, limit: int) -> str:
    """Say by how much a cost exceeds its limit."""
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{about} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, "
        "maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
