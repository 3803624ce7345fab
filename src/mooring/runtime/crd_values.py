"""The same markers at run time: defaults for code that may run before the server, and unknown fields."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from mooring.runtime.crd_checks import join
from mooring.runtime.crd_markers import unwrap

__all__ = ["UnknownField", "defaulted", "unknown_fields"]

T = TypeVar("T")

Filler = Callable[[Any], Any]
_fillers: dict[Any, Filler | None] = {}


def defaulted(value: T) -> T:
    """The value with the defaults of its markers filled in, for code that may run before the server has.

    Structs are copied only where something was missing; a default inside an absent object is not applied,
    exactly as the API server does it.
    """
    fill = _filler(type(value))
    return value if fill is None else cast("T", fill(value))


def _filler(annotation: Any) -> Filler | None:
    base, _ = unwrap(annotation)
    key = base if isinstance(base, type) else repr(base)
    if key not in _fillers:
        _fillers[key] = None  # a recursive type has no defaults below itself
        _fillers[key] = _build_filler(base)
    return _fillers[key]


def _build_filler(base: Any) -> Filler | None:
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        return _struct_filler(base)
    origin = get_origin(base)
    if origin is list and (each := _filler(get_args(base)[0])) is not None:
        return lambda items: [each(item) for item in items]
    if origin is dict and (value := _filler(get_args(base)[1])) is not None:
        return lambda items: {name: value(item) for name, item in items.items()}
    return None


def _struct_filler(kind: type[msgspec.Struct]) -> Filler | None:
    plan: list[tuple[str, Any, bool, Filler | None]] = []
    for f in msgspec.structs.fields(kind):
        base, markers = unwrap(f.type)
        default = next((m.default for m in reversed(markers) if m.has_default), None)
        has_default = any(m.has_default for m in markers)
        if has_default and isinstance(base, type) and issubclass(base, msgspec.Struct):
            default = msgspec.convert(default, base)
        filler = _filler(f.type)
        if has_default or filler is not None:
            plan.append((f.name, default, has_default, filler))
    if not plan:
        return None

    def fill(value: Any) -> Any:
        changes: dict[str, Any] = {}
        for name, default, has_default, filler in plan:
            old = getattr(value, name)
            new = default if old is None and has_default else old
            if filler is not None and new is not None:
                new = filler(new)
            if new is not old:
                changes[name] = new
        return msgspec.structs.replace(value, **changes) if changes else value

    return fill


@dataclass(frozen=True)
class UnknownField:
    """A field of a user's object that the type does not know; ``nearest`` is what was probably meant."""

    path: str
    nearest: str

    def __str__(self) -> str:
        hint = f'; did you mean "{self.nearest}"?' if self.nearest else ""
        return f'unknown field "{self.path}"{hint}'


def unknown_fields(kind: type, raw: Mapping[str, Any], *, path: str = "") -> list[UnknownField]:
    """Fields of a decoded JSON object that the type does not know, with the nearest known name."""
    found: list[UnknownField] = []
    known = {f.encode_name: f.type for f in msgspec.structs.fields(kind)}
    for name, value in raw.items():
        where = join(path, name)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            folded = next((other for other in known if other.lower() == name.lower()), "")
            found.append(UnknownField(where, folded or (close[0] if close else "")))
        else:
            found += _unknown_in(known[name], value, where)
    return found


def _unknown_in(annotation: Any, value: Any, path: str) -> list[UnknownField]:
    base, markers = unwrap(annotation)
    if path == "metadata" or any(m.preserve_unknown or m.schema is not None for m in markers):
        return []
    if isinstance(base, type) and issubclass(base, msgspec.Struct) and isinstance(value, Mapping):
        return unknown_fields(base, value, path=path)
    found: list[UnknownField] = []
    if get_origin(base) is list and isinstance(value, list):
        for index, item in enumerate(value):
            found += _unknown_in(get_args(base)[0], item, f"{path}[{index}]")
    elif get_origin(base) is dict and isinstance(value, Mapping):
        for name, item in value.items():
            found += _unknown_in(get_args(base)[1], item, f"{path}[{name}]")
    return found
