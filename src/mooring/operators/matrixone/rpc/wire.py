"""The wire format of protocol buffers, as far as MatrixOne's messages use it.

A message is a frozen dataclass whose annotations carry the field numbers:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ReplicaInfo(Message):
        uuid: Annotated[str, 1] = ""
        service_address: Annotated[str, 2] = ""

Fields without a declaration are skipped by their length, unread. That is why the `protobuf` package is not used: a CN
reports 45 KB of settings with every cluster state, sessions come with the text of their statements, and the state
contains a password. `protobuf` would copy all of it and keep it in the message. It has no types that a checker knows
either, unless code is generated.

Supported: integers (read as signed, 64 bits), bool, enumerations, str, bytes, messages, repeated strings and messages,
and maps. Where a field that is not repeated comes twice the last one counts; MatrixOne never sends such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["Enumeration", "Message", "WireError", "decode", "encode"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_SIGN = 1 << 63
_WORD = (1 << 64) - 1

Kind = Literal["one", "many", "map"]


class WireError(ValueError):
    """The bytes are no such message."""


class Enumeration(IntEnum):
    """An enumeration in a message; a number of a newer server is read as 0, which says that nothing is known."""

    @classmethod
    def _missing_(cls, value: object) -> Enumeration:
        return cls(0) if value != 0 else super()._missing_(value)


class Message:
    """The base of messages; subclasses are frozen dataclasses in which every field has a default."""

    __slots__ = ()


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: Kind
    value: Any
    """The type of a value: `int`, `str`, a message ..."""
    key: Any = None
    """The type of a map's keys."""


#: The declared fields of a message by number.
_known: dict[type[Message], Mapping[int, _Field]] = {}


def _fields(message: type[Message]) -> Mapping[int, _Field]:
    if (fields := _known.get(message)) is None:
        fields = _known[message] = _declared(message)
    return fields


def _declared(message: type[Message]) -> Mapping[int, _Field]:
    found = {}
    for name, hint in get_type_hints(message, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        declared, number = get_args(hint)
        found[number] = _field(name, declared)
    return MappingProxyType(found)


def _field(name: str, declared: Any) -> _Field:
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is tuple:
        return _Field(name, "many", arguments[0])
    if origin is Mapping:
        return _Field(name, "map", arguments[1], arguments[0])
    if arguments:  # an optional message
        return _Field(name, "one", next(one for one in arguments if one is not type(None)))
    return _Field(name, "one", declared)


# --- reading


def decode(message: type[M], data: bytes | memoryview) -> M:
    """Read a message; raises `WireError` for bytes that are cut off or have a field of another type."""
    return _decode(message, memoryview(data))


def _decode(message: type[M], data: memoryview) -> M:
    fields, found = _fields(message), dict[str, Any]()
    for number, wire, value in _split(data):
        if (field := fields.get(number)) is None:
            continue
        if field.kind == "many":
            found.setdefault(field.name, []).append(_value(field, field.value, wire, value))
        elif field.kind == "map":
            if wire != _BYTES:
                raise WireError(f"{field.name} is no map")
            key, entry = _entry(field, value)
            found.setdefault(field.name, {})[key] = entry
        else:
            found[field.name] = _value(field, field.value, wire, value)
    return message(**{name: _frozen(value) for name, value in found.items()})


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return MappingProxyType(value) if isinstance(value, dict) else value


def _entry(field: _Field, data: memoryview) -> tuple[Any, Any]:
    """Key and value of a map's entry; either may be left out when it is the default."""
    key, value = field.key(), field.value()
    for number, wire, given in _split(data):
        if number == 1:
            key = _value(field, field.key, wire, given)
        elif number == 2:
            value = _value(field, field.value, wire, given)
    return key, value


def _value(field: _Field, kind: Any, wire: int, given: Any) -> Any:
    if wire != (_VARINT if issubclass(kind, int) else _BYTES):
        raise WireError(f"{field.name} has another type")
    if issubclass(kind, int):
        return kind(given - 2 * _SIGN if given & _SIGN else given)
    if kind is str:
        return str(given, "utf-8", "replace")
    return bytes(given) if kind is bytes else _decode(kind, given)


def _split(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of every field; what has a length is a view, not copied."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise WireError("a field without a number")
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire == _FIXED64:
            size = 8
        elif wire == _FIXED32:
            size = 4
        else:
            raise WireError(f"field {number} has the wire type {wire}")
        if size > end - at:
            raise WireError(f"field {number} is cut off")
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        for _ in range(_MAX_VARINT_BYTES):
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & _WORD, at
            shift += 7
    except IndexError:
        raise WireError("a number is cut off") from None
    raise WireError("a number has more than ten bytes")


# --- writing


def encode(message: Message) -> bytes:
    """Write a message; fields that hold their type's default are left out, but a message that is set never is."""
    out = bytearray()
    for number, field in sorted(_fields(type(message)).items()):
        value = getattr(message, field.name)
        if field.kind == "many":
            for one in value:
                _write(out, number, one)
        elif field.kind == "map":
            for key, one in value.items():
                entry = bytearray()
                _write(entry, 1, key)
                _write(entry, 2, one)
                _write(out, number, bytes(entry))
        elif value is not None and (value or isinstance(value, Message)):
            _write(out, number, value)
    return bytes(out)


def _write(out: bytearray, number: int, value: Any) -> None:
    if isinstance(value, int):
        out += _number(number << 3 | _VARINT) + _number(value & _WORD)
        return
    for kind, into in _INTO_BYTES:
        if isinstance(value, kind):
            data = into(value)
            out += _number(number << 3 | _BYTES) + _number(len(data)) + data
            return
    raise TypeError(f"{type(value).__name__} cannot be written")


_INTO_BYTES: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (str, str.encode),
    (bytes, bytes),
    (Message, encode),
)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
