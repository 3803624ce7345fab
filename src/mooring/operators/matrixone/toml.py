"""MatrixOne's configuration files: read, merged, and written as upstream's operator writes them.

Written with keys in alphabetical order, plain ones before tables, no indentation and an empty line before each table, which
is what Go's ``pelletier/go-toml`` v1 does.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Final

__all__ = ["TomlError", "get", "merged", "parse", "put", "render"]

Table = dict[str, Any]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES: Final = {
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}


class TomlError(ValueError):
    """Text that is not TOML; the message says where."""


def parse(text: str | None) -> Table:
    """The table that a text declares; an empty one for none. Raises `TomlError`."""
    try:
        return tomllib.loads(text or "")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TomlError(str(error) or "nested too deeply") from error


def get(table: Mapping[str, Any], *path: str) -> Any:
    """The value below a path of keys, or None."""
    found: Any = table
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def put(table: Table, value: Any, *path: str) -> Table:
    """The table with a value set below a path; what stands in the way of the path is replaced."""
    key, *rest = path
    if not rest:
        return {**table, key: value}
    inner = table.get(key)
    return {**table, key: put(inner if isinstance(inner, dict) else {}, value, *rest)}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Two tables as one: ``over`` wins, tables are merged, lists of tables with ``name`` entry by entry.

    Entries of ``over`` come first and in their order, those that only ``base`` has after them.
    """
    out = dict(base)
    for key, value in over.items():
        before = out.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            out[key] = merged(before, value)
        elif (one := _named(before)) and (other := _named(value)):
            out[key] = _merged_lists(one, other)
        else:
            out[key] = value
    return out


def _named(value: object) -> list[Mapping[str, Any]]:
    """A list of tables of which the first has a name; an empty one for anything else."""
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        return []
    return value if value and "name" in value[0] else []


def _merged_lists(base: Sequence[Mapping[str, Any]], over: Sequence[Mapping[str, Any]]) -> list[Table]:
    known = {one["name"]: one for one in base if isinstance(one.get("name"), str)}
    names = {one.get("name") for one in over if isinstance(one.get("name"), str)}
    first = [
        merged(known.get(one.get("name"), {}) if isinstance(one.get("name"), str) else {}, one)
        for one in over
    ]
    return [
        *first,
        *(dict(one) for one in base if not (isinstance(one.get("name"), str) and one["name"] in names)),
    ]


def render(table: Mapping[str, Any]) -> str:
    """The text of a table."""
    lines: list[str] = []
    _write(table, "", lines)
    return "".join(lines)


def _write(table: Mapping[str, Any], path: str, lines: list[str]) -> None:
    below = []
    for key in sorted(table):
        if isinstance(table[key], Mapping) or _is_tables(table[key]):
            below.append(key)
        else:
            lines.append(f"{_key(key)} = {_value(table[key])}\n")
    for key in below:
        name, value = f"{path}.{_key(key)}" if path else _key(key), table[key]
        if isinstance(value, Mapping):
            lines.append(f"\n[{name}]\n")
            _write(value, name, lines)
            continue
        for entry in value:
            lines.append(f"\n[[{name}]]\n")
            _write(entry, name, lines)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    return '"' + "".join(map(_character, value)) + '"'


def _character(one: str) -> str:
    if one in _ESCAPES:
        return _ESCAPES[one]
    return f"\\u{ord(one):04X}" if ord(one) < 0x20 or ord(one) == 0x7F else one


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(value[key])}" for key in sorted(value)) + " }"
    return _text(str(value))


def _float(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return repr(value)
    text = f"{value:f}" if value == math.trunc(value) else repr(value)
    return text.rstrip("0") + "0" if text.endswith("0") and "e" not in text else text
