"""Checks compiled CEL expressions against the schema of what they look at.

Objects are dynamic to the compiler, since their shape is a schema, not a protobuf message. So a
misspelt field would only be found when a rule runs, and would then refuse every object. This module
reads the compiled expression (a serialized cel.expr.CheckedExpr) and follows the fields it selects.
It also finds uses of values which are times, durations or bytes on a real server, but texts here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from mooring.local.api.schema import META, Schema

__all__ = ["Message", "escape", "field_errors", "message_of", "one_of", "text_of", "unescape"]

# --- the expression -----------------------------------------------------------------------------------

_IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = 4, 5, 6, 7, 8, 9


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


Message = dict[int, list[Any]]


def message_of(data: bytes) -> Message:
    """Return the fields of a protobuf message by number, undecoded."""
    found: Message = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: Any
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            width = 8 if kind == 1 else 4
            value, at = data[at : at + width], at + width
        found.setdefault(tag >> 3, []).append(value)
    return found


def one_of(message: Message, number: int) -> Any:
    """Return the first value of a field."""
    return message.get(number, [b""])[0]


def text_of(message: Message, number: int) -> str:
    """Return the first value of a text field."""
    value: bytes = one_of(message, number)
    return value.decode()


# --- names --------------------------------------------------------------------------------------------

_RESERVED: Final = frozenset(
    ("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let",
     "loop", "namespace", "null", "package", "return", "true", "var", "void", "while")
)  # fmt: skip


@cache
def escape(name: str) -> str | None:
    """Return the CEL identifier of a property, None when rules cannot name it."""
    if name in _RESERVED:
        return f"__{name}__"
    escaped = name.replace("__", "__underscores__")
    for sign, word in ((".", "dot"), ("-", "dash"), ("/", "slash")):
        escaped = escaped.replace(sign, f"__{word}__")
    return escaped if re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", escaped) else None


def unescape(identifier: str) -> str:
    """Return the property that a CEL identifier names."""
    bare = identifier.removeprefix("__").removesuffix("__")
    if identifier == f"__{bare}__" and bare in _RESERVED:
        return bare
    for sign, word in ((".", "dot"), ("-", "dash"), ("/", "slash"), ("__", "underscores")):
        identifier = identifier.replace(f"__{word}__", sign)
    return identifier


# --- the walk -----------------------------------------------------------------------------------------

_Known = Schema | None  # None: anything
_TEMPORAL: Final = frozenset(("date-time", "date", "duration", "byte"))
_CONVERSIONS: Final = frozenset(("timestamp", "duration", "string", "bytes", "_==_", "_!=_"))
_SAME: Final = frozenset(("value", "orValue", "or", "optional.of", "optional.ofNonZeroValue"))


@dataclass(slots=True)
class _Walk:
    """One pass over an expression."""

    root: Schema
    place: Callable[[int], str]
    errors: list[str] = field(default_factory=list)

    def visit(self, data: bytes, names: Mapping[str, _Known], *, converted: bool = False) -> _Known:
        """Return the schema of what an expression yields, as far as it is known."""
        message = message_of(data)
        number = message.get(2, [0])[0]
        found: _Known = None
        if _IDENT in message:
            found = names.get(text_of(message_of(one_of(message, _IDENT)), 1))
        elif _SELECT in message:
            found = self._select(message_of(one_of(message, _SELECT)), names, number)
            converted = converted or bool(message_of(one_of(message, _SELECT)).get(3, [0])[0])
        elif _CALL in message:
            found = self._call(message_of(one_of(message, _CALL)), names, number)
        elif _COMPREHENSION in message:
            found = self._comprehension(message_of(one_of(message, _COMPREHENSION)), names)
        elif _LIST in message:
            for element in message_of(one_of(message, _LIST)).get(1, ()):
                self.visit(element, names)
        elif _STRUCT in message:
            for entry in message_of(one_of(message, _STRUCT)).get(2, ()):
                parts = message_of(entry)
                for key in (3, 4):
                    if key in parts:
                        self.visit(parts[key][0], names)
        if found is not None and found.kind == "string" and found.format in _TEMPORAL and not converted:
            self.errors.append(
                f"ERROR: {self.place(number)}: format {found.format} is a text here, not a value of its own type: "
                "write timestamp(...) or duration(...) around it"
            )
        return found

    def _select(self, select: Message, names: Mapping[str, _Known], number: int) -> _Known:
        operand = self.visit(one_of(select, 1), names)
        return self._field(operand, text_of(select, 2), number)

    def _field(self, schema: _Known, name: str, number: int) -> _Known:
        if schema is None or schema.kind not in ("struct", "map", "any"):
            return None
        if schema is self.root.properties.get("metadata") or schema.name == META:
            if name not in ("name", "generateName"):
                self.errors.append(f"ERROR: {self.place(number)}: undefined field '{name}'")
            return None
        for key, child in schema.properties.items():
            if escape(key) == name:
                return child
        if schema.additional is not None:
            return schema.additional
        if schema.kind == "struct" and (schema.properties or not schema.preserve):
            self.errors.append(f"ERROR: {self.place(number)}: undefined field '{name}'")
        return None

    def _call(self, call: Message, names: Mapping[str, _Known], number: int) -> _Known:
        function = text_of(call, 2)
        inner = function in _CONVERSIONS
        target = self.visit(one_of(call, 1), names) if 1 in call else None
        arguments = call.get(3, [])
        if function == "_?._" and len(arguments) == 2:
            name = text_of(message_of(one_of(message_of(arguments[1]), 3)), 6)
            return self._field(self.visit(arguments[0], names), name, number)
        found = [self.visit(argument, names, converted=inner) for argument in arguments]
        if function in ("_[_]", "_[?_]") and found:
            return (found[0].items or found[0].additional) if found[0] is not None else None
        if function == "_?_:_" and len(found) == 3:
            return found[1] or found[2]
        if function in _SAME:
            return target if 1 in call else found[0] if found else None
        return None

    def _comprehension(self, loop: Message, names: Mapping[str, _Known]) -> _Known:
        over = self.visit(one_of(loop, 2), names) if 2 in loop else None
        start = self.visit(one_of(loop, 4), names) if 4 in loop else None
        inner = dict(names)
        first, second = text_of(loop, 1), text_of(loop, 8)
        if over is not None and over.kind == "list":
            inner[second or first] = over.items
            if second:
                inner[first] = None
        else:
            inner[first] = None
            if second:
                inner[second] = over.additional if over is not None else None
        inner[text_of(loop, 3)] = start
        for part in (5, 6):
            if part in loop:
                self.visit(one_of(loop, part), inner)
        inner = {**names, text_of(loop, 3): start}
        return self.visit(one_of(loop, 7), inner) if 7 in loop else None


def field_errors(serialized: bytes, text: str, schema: Schema, *, offset: int = 0) -> list[str]:
    """Return the fields an expression selects that its schema does not have, worded as cel-go does.

    `self`, `oldSelf` and `old` are values of the schema; `text` is the source, which starts at `offset`
    characters of what was compiled.
    """
    checked = message_of(one_of(message_of(serialized), 2))
    positions = dict(_positions(message_of(one_of(checked, 5))))

    def place(number: int) -> str:
        at = max(0, positions.get(number, offset) - offset)
        line = text.count("\n", 0, at) + 1
        column = at - (text.rfind("\n", 0, at) + 1) + 1
        return f"<input>:{line}:{column}"

    walk = _Walk(schema, place)
    walk.visit(one_of(checked, 4), {"self": schema, "oldSelf": schema, "old": schema})
    return list(dict.fromkeys(walk.errors))


def _positions(source: Message) -> Iterator[tuple[int, int]]:
    for entry in source.get(4, ()):
        pair = message_of(entry)
        yield pair.get(1, [0])[0], pair.get(2, [0])[0]
