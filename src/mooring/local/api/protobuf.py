"""Bodies in Kubernetes' protobuf encoding, read into the JSON form everything else works on.

Only reading: answers are JSON, which every client that sends protobuf accepts. The field numbers are in
openapi/protobuf.json, made by hack/protobuf.py.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

__all__ = ["MAGIC", "MEDIA_TYPE", "decode"]

Json = Any
JsonObject = dict[str, Any]

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\0"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_DEPTH: Final = 64

Fields = Mapping[str, tuple[str, str, str]]


@cache
def _messages() -> Mapping[str, Fields]:
    text = resources.files("mooring.local.api").joinpath("openapi", "protobuf.json").read_text()
    messages: Mapping[str, Fields] = json.loads(text)
    return messages


def decode(body: bytes, definition: Callable[[str, str], str | None]) -> JsonObject:
    """Return the object of a body; raises ValueError when it cannot be read.

    `definition` names the message of an apiVersion and kind, such as io.k8s.api.core.v1.Pod.
    """
    if body[:4] != MAGIC:
        raise ValueError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = _split(body[4:])
        type_meta = {number: value.decode() for number, _, value in _split(_last(envelope, 1)) if value}
        api_version, kind = type_meta.get(1, ""), type_meta.get(2, "")
        name = definition(api_version, kind)
        if name is None or name not in _messages():
            raise ValueError(f'no kind "{kind}" is registered for version "{api_version}"')
        obj = _message(_last(envelope, 2), name, 0)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"the protobuf message is malformed: {error}") from None
    return {"kind": kind, "apiVersion": api_version, **obj}


def in_declared_order(obj: JsonObject, name: str) -> JsonObject:
    """Return an object with its fields in the order in which Go declares them, which the messages' numbers follow.

    `name` is the message's, such as io.k8s.api.core.v1.Pod; what is of a wrong type or not known comes as it is.
    """
    fields = _messages().get(name, {})
    order = {field[0]: (int(number), *field[1:]) for number, field in fields.items()}
    return {
        key: _ordered(value, *order[key][1:]) if key in order else value
        for key, value in sorted(obj.items(), key=lambda item: order.get(item[0], (0,))[0])
    }


def _ordered(value: Json, kind: str, flags: str) -> Json:
    if isinstance(value, dict):
        if flags == "m":
            return {key: _ordered(item, kind, "") for key, item in value.items()}
        return in_declared_order(value, kind)
    if isinstance(value, list) and flags == "r":
        return [_ordered(item, kind, "") for item in value]
    return value


# --- the wire format --------------------------------------------------------------------------------


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _split(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return (field number, wire type, value) of a message; numbers stay encoded as 8 bytes."""
    parts = []
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        wire = key & 7
        if wire == 0:
            number, position = _varint(data, position)
            value = struct.pack("<Q", number & 0xFFFFFFFFFFFFFFFF)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value = data[position : position + size]
            position += size
        elif wire == 2:
            size, position = _varint(data, position)
            value = data[position : position + size]
            position += size
        else:
            raise ValueError(f"wire type {wire} is not known")
        if position > len(data):
            raise ValueError("the message is cut short")
        parts.append((key >> 3, wire, value))
    return parts


def _last(parts: list[tuple[int, int, bytes]], number: int) -> bytes:
    found = b""
    for field, _, value in parts:
        if field == number:
            found = value
    return found


def _integer(value: bytes) -> int:
    number: int = struct.unpack("<q", value)[0]
    return number


# --- messages ---------------------------------------------------------------------------------------


def _message(data: bytes, name: str, depth: int) -> JsonObject:
    if depth > _DEPTH:
        raise ValueError("exceeded max depth")
    fields = _messages()[name]
    result: JsonObject = {}
    for number, _, value in _split(data):
        field = fields.get(str(number))
        if field is None:
            continue
        key, kind, flags = field
        if flags == "r":
            result.setdefault(key, []).append(_value(value, kind, depth))
        elif flags == "m":
            entry = _split(value)
            result.setdefault(key, {})[_last(entry, 1).decode()] = _value(_last(entry, 2), kind, depth)
        elif flags == "i":
            result.update(_message(value, kind, depth + 1))
        else:
            result[key] = _value(value, kind, depth)
    return result


def _value(value: bytes, kind: str, depth: int) -> Json:
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value)
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(value)
    message = _message(value, kind, depth + 1)
    if kind == _EXTENSIONS + "JSONSchemaProps":
        return _set_ones(message)
    if kind in _WRAPPERS:
        return _WRAPPERS[kind](message)
    if kind.endswith((".ExtraValue", ".Verbs")):
        return message.get("items", [])
    return message


#: Fields of a schema of which "" or false says something.
_MEANT: Final = frozenset(
    ("default", "example", "additionalItems", "additionalProperties", "x-kubernetes-preserve-unknown-fields")
)


def _set_ones(schema: JsonObject) -> JsonObject:
    """Return a schema without the empty texts and false flags that Go writes for what nobody has set."""
    return {k: v for k, v in schema.items() if (v != "" and v is not False) or k in _MEANT}


_SCALARS: Final[Mapping[str, Callable[[bytes], Json]]] = {
    "string": bytes.decode,
    "bytes": lambda value: base64.b64encode(value).decode(),
    "bool": any,
    "int32": _integer,
    "int64": _integer,
    "uint32": _integer,
    "uint64": _integer,
    "double": lambda value: struct.unpack("<d", value)[0],
}


def _quantity(value: bytes) -> str:
    return _last(_split(value), 1).decode() or "0"


def _int_or_string(value: bytes) -> int | str:
    parts = _split(value)
    kind = _last(parts, 1)
    if kind and _integer(kind) == 1:
        return _last(parts, 3).decode()
    number = _last(parts, 2)
    return _integer(number) if number else 0


def _moment(value: bytes) -> tuple[int, int]:
    parts = _split(value)
    seconds, nanos = _last(parts, 1), _last(parts, 2)
    return _integer(seconds) if seconds else 0, _integer(nanos) if nanos else 0


def _time(value: bytes) -> str | None:
    seconds, _ = _moment(value)
    return f"{_whole(seconds)}Z" if seconds else None


def _micro_time(value: bytes) -> str | None:
    seconds, nanos = _moment(value)
    if not seconds and not nanos:
        return None
    return f"{_whole(seconds)}.{nanos // 1000:06d}Z"


def _whole(seconds: int) -> str:
    """Write a time to the second; the year has four digits, also that of Go's zero time."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def _raw(value: bytes) -> Json:
    raw = _last(_split(value), 1)
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise ValueError(f"embedded JSON: {error}") from None


def _duration(value: bytes) -> str:
    number = _last(_split(value), 1)
    return f"{(_integer(number) if number else 0) / 1e9:g}s"


_SPECIAL: Final[Mapping[str, Callable[[bytes], Json]]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _raw,
    _META + "Time": _time,
    _META + "MicroTime": _micro_time,
    _META + "FieldsV1": _raw,
    _META + "Duration": _duration,
    _EXTENSIONS + "JSON": _raw,
}
_WRAPPERS: Final[Mapping[str, Callable[[JsonObject], Json]]] = {
    _EXTENSIONS + "JSONSchemaPropsOrArray": lambda m: m.get("jSONSchemas") or m.get("schema"),
    _EXTENSIONS + "JSONSchemaPropsOrBool": lambda m: m.get("schema", m.get("allows", False)),
    _EXTENSIONS + "JSONSchemaPropsOrStringArray": lambda m: m.get("property") or m.get("schema"),
}
