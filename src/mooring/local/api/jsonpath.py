"""The JSONPath of printer columns and scale subresources: k8s.io/client-go/util/jsonpath without functions.

Understood: `.a.b`, `['a.b']`, `[0]`, `[]` (the first), `[-1]`, `[1:3]`, `[*]`, `.*`, and filters
`[?(@.type=="Ready")]` with ==, !=, <, <=, >, >=.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["JsonPathError", "find"]

Step = Callable[[Any], Sequence[Any]]


class JsonPathError(ValueError):
    """A path that cannot be read."""


def find(obj: Any, path: str) -> list[Any]:
    """Return every value a path leads to, in order; nothing when it leads nowhere."""
    values = [obj]
    for step in _steps(path):
        values = [found for value in values for found in step(value)]
    return values


_TOKEN = re.compile(
    r"""\.(?P<name>(?:[^.\[\]\\]|\\.)+)
    | \[\s*(?P<index>-?\d*)\s*\]
    | \[\s*(?P<slice>-?\d*:-?\d*)\s*\]
    | \[\s*(?P<star>\*)\s*\]
    | \[\s*(?P<quote>['"])(?P<key>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*\]
    | \[\?\(\s*@(?P<left>[^=!<>]*?)\s*(?P<op>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*\)\]
    | \[\?\(\s*@(?P<exists>[^=!<>]+?)\s*\)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Step, ...]:
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text.removeprefix("$").removeprefix("@")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        if text[position:] == ".":
            break
        match = _TOKEN.match(text, position)
        if match is None:
            raise JsonPathError(f"cannot read {path!r} from {text[position:]!r}")
        position = match.end()
        steps.append(_step(match))
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if (name := match["name"]) is not None:
        name = re.sub(r"\\(.)", r"\1", name)
        return _every if name == "*" else _member(name)
    if match["index"] is not None:
        return _item(int(match["index"] or 0))  # client-go reads [] as [0:1]
    if match["slice"] is not None:
        first, _, last = match["slice"].partition(":")
        return _slice(int(first) if first else None, int(last) if last else None)
    if match["star"] is not None:
        return _every
    if match["key"] is not None:
        return _member(re.sub(r"\\(.)", r"\1", match["key"]))
    if match["exists"] is not None:
        return _filter(match["exists"], "exists", None)
    return _filter(match["left"], match["op"], _literal(match["right"]))


def _member(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _item(index: int) -> Step:
    def step(value: Any) -> Sequence[Any]:
        return [value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else []

    return step


def _slice(first: int | None, last: int | None) -> Step:
    return lambda value: value[first:last] if isinstance(value, list) else []


def _every(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _literal(text: str) -> Any:
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        raise JsonPathError(f"cannot read the value {text!r}") from None


def _filter(left: str, op: str, right: Any) -> Step:
    inner = _steps(left) if left else ()

    def values(item: Any) -> list[Any]:
        found = [item]
        for step in inner:
            found = [value for one in found for value in step(one)]
        return found

    def step(value: Any) -> Sequence[Any]:
        items = value if isinstance(value, list) else []
        return [item for item in items if (found := values(item)) and _holds(found[0], op, right)]

    return step


def _holds(left: Any, op: str, right: Any) -> bool:
    if op == "exists":
        return True
    if op in ("==", "!="):
        return bool(left == right) == (op == "==")
    try:
        return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])
    except TypeError:
        return False
