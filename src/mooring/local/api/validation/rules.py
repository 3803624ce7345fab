"""What the rules of kinds are made of: a table of checks, and the checks that many fields share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import FieldError, GoStruct, invalid, not_supported, required
from mooring.local.api.validation.metadata import immutable

__all__ = [
    "NOT_NEGATIVE",
    "POSITIVE",
    "PROTOCOLS",
    "Create",
    "Errors",
    "JsonObject",
    "Rules",
    "Table",
    "Update",
    "also",
    "chosen",
    "counts",
    "dump",
    "fixed",
    "int_or_percent",
    "items",
    "named",
    "nonnegative",
    "nothing",
    "port_errors",
    "port_number",
    "spec_of",
]

JsonObject = dict[str, Any]
Errors = Iterator[FieldError]
Create = Callable[[JsonObject], Errors]
Update = Callable[[JsonObject, JsonObject], Errors]

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than 0"
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PORT_RANGE: Final = "must be between 1 and 65535, inclusive"
_PERCENT: Final = re.compile(r"[0-9]+%")


# --- tables of rules ----------------------------------------------------------------------------------


def nothing(obj: JsonObject, old: JsonObject) -> Errors:
    """Find nothing wrong with a change."""
    yield from ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What one kind asks of a new object, of a changed one, of a changed status, and of an approval."""

    create: Create
    update: Update
    status: Update = nothing
    approval: Update = nothing


#: The rules of a group's kinds, by group and kind.
Table = Mapping[tuple[str, str], Rules]


def also(create: Create, update: Update = nothing, *, status: Update = nothing) -> Rules:
    """Rules whose updates are judged like new objects, too, unless the spec stayed the same."""

    def changed(obj: JsonObject, old: JsonObject) -> Errors:
        if not same(_without_meta(obj), _without_meta(old)):
            yield from create(obj)
            yield from update(obj, old)

    return Rules(create, changed, status)


def _without_meta(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def spec_of(obj: JsonObject) -> JsonObject:
    """Return the spec of an object, an empty one when it has none."""
    return obj.get("spec") or {}


def items(obj: JsonObject, key: str, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list, each with its path: `spec.ports[0]`."""
    for index, item in enumerate(obj.get(key) or ()):
        yield f"{path}.{key}[{index}]" if path else f"{key}[{index}]", item


def dump(value: JsonObject, **fields: str) -> GoStruct:
    """Return a value as Go dumps it: every field by its Go name, in order."""
    return GoStruct({go: value.get(key) for key, go in fields.items()})


def fixed(*paths: str) -> Update:
    """Return the rule of an update that must leave some fields alone."""

    def check(obj: JsonObject, old: JsonObject) -> Errors:
        for path in paths:
            value, before = obj, old
            for key in path.split("."):
                value, before = (value or {}).get(key), (before or {}).get(key)  # type: ignore[assignment]
            yield from immutable(value, before, path)

    return check


# --- values -------------------------------------------------------------------------------------------


def nonnegative(value: int | None, path: str) -> Errors:
    """Yield the error for a number below zero."""
    if value is not None and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)


def counts(spec: JsonObject, *keys: str) -> Errors:
    """Yield the errors for fields of a spec that are below zero."""
    for key in keys:
        yield from nonnegative(spec.get(key), f"spec.{key}")


def port_number(port: object, path: str) -> Errors:
    """Yield the error for a number that no port has."""
    if not isinstance(port, int) or not 1 <= port <= 65535:
        yield invalid(path, port, _PORT_RANGE)


def port_errors(port: object, path: str) -> Errors:
    """Yield what is wrong with a port number or the name of one."""
    if isinstance(port, str):
        for text in names.port_name(port):
            yield invalid(path, port, text)
    else:
        yield from port_number(port, path)


def int_or_percent(value: object, path: str) -> Errors:
    """Yield what is wrong with a number or a percentage."""
    if isinstance(value, str):
        if _PERCENT.fullmatch(value) is None:
            text = (
                "a valid percent string must be a numeric string followed by an ending '%' "
                "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            )
            yield invalid(path, value, text)
        elif int(value[:-1]) > 100:
            yield invalid(path, value, "must not be greater than 100%")
    elif isinstance(value, int) and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)


def chosen(value: JsonObject, key: str, allowed: Sequence[str], path: str) -> Errors:
    """Yield the error for a field that must hold one of some texts and does not."""
    found, place = value.get(key), f"{path}.{key}" if path else key
    if not found:
        yield required(place)
    elif found not in allowed:
        yield not_supported(place, found, allowed)


def named(name: str, path: str, check: Callable[[str], tuple[str, ...]]) -> Errors:
    """Yield what is wrong with a name that must be there."""
    if not name:
        yield required(path)
        return
    for text in check(name):
        yield invalid(path, name, text)
