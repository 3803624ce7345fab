"""JSON pointers (RFC 6901) into plain data: read, and set as a copy."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["drop", "escape", "get", "parts", "put", "shown"]

#: Steps of a pointer: an object that it could lead into is no deeper, and more could exhaust the stack.
STEPS: Final = 300


def escape(step: str) -> str:
    """A key as a step of a pointer."""
    return step.replace("~", "~0").replace("/", "~1")


def parts(pointer: str) -> tuple[str, ...]:
    """The steps of a pointer; raises `ValueError` for what is none."""
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is no JSON pointer: it must begin with /")
    if pointer.count("/") > STEPS:
        raise ValueError(f"a JSON pointer has at most {STEPS} steps")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def get(value: Any, pointer: str) -> Any:
    """What a pointer leads to, None where the path ends before."""
    for part in parts(pointer):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list):
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else None
        else:
            return None
    return value


def put(value: Any, pointer: str, leaf: Any) -> Any:
    """A copy of ``value`` with ``leaf`` at the pointer; the maps on the way are made.

    An index of a list must be there already, or be the next. Raises `ValueError` where the path leads through a scalar.
    """
    return _put(value, parts(pointer), leaf, pointer)


def _put(value: Any, steps: tuple[str, ...], leaf: Any, pointer: str) -> Any:
    if not steps:
        return leaf
    first, rest = steps[0], steps[1:]
    if isinstance(value, list):
        if not first.isdigit() or int(first) > len(value):
            raise ValueError(f"{pointer}: {first!r} is no index of a list of {len(value)}")
        index = int(first)
        below = value[index] if index < len(value) else None
        return [*value[:index], _put(below, rest, leaf, pointer), *value[index + 1 :]]
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise ValueError(f"{pointer}: the path leads through a value that is no map")
    return {**value, first: _put(value.get(first), rest, leaf, pointer)}


def drop(value: Any, pointer: str) -> Any:
    """A copy of ``value`` without what the pointer leads to; raises `ValueError` where nothing is there."""
    return _drop(value, parts(pointer), pointer)


def _drop(value: Any, steps: tuple[str, ...], pointer: str) -> Any:
    first, rest = steps[0], steps[1:]
    if isinstance(value, list) and first.isdigit() and int(first) < len(value):
        index = int(first)
        below = [_drop(value[index], rest, pointer)] if rest else []
        return [*value[:index], *below, *value[index + 1 :]]
    if not isinstance(value, dict) or first not in value:
        raise ValueError(f"{pointer}: there is nothing at this path")
    if rest:
        return {**value, first: _drop(value[first], rest, pointer)}
    return {key: below for key, below in value.items() if key != first}


def shown(pointer: str) -> str:
    """A pointer as Kubernetes writes paths: ``spec.pod[0].image``."""
    text = ""
    for part in parts(pointer):
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text
