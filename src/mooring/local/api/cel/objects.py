"""The object literals of mutating policies, `Object.spec{replicas: 3}`, written as CEL's own maps.

A real server gives `Object`, `Object.spec` ... and `JSONPatch` types of their own; their names only repeat
where a value stands. Here they become maps before compilation, and a name that does not repeat its place is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from mooring.local.api.cel.checks import unescape

__all__ = ["Literals", "as_maps"]

_TOKEN: Final = re.compile(
    r'''
    (?P<text>[rRbB]{0,2}(?:"""(?:\\.|.)*?"""|\'\'\'(?:\\.|.)*?\'\'\'|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<note>//[^\n]*)
    |(?P<literal>(?<![\w.])(?P<type>(?:Object(?:\s*\.\s*[A-Za-z_]\w*)*|JSONPatch))\s*\{)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<space>\s+)
    |(?P<other>.)
    ''',
    re.VERBOSE | re.DOTALL,
)
_ENDS: Final = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Literals:
    """An expression with maps for object literals; `mismatch` tells of a type that is not that of its place."""

    expression: str
    mismatch: str = ""


@dataclass(slots=True)
class _Frame:
    """An open bracket; `type` is set for an object literal, `key` is the field whose value is being read."""

    bracket: str
    type: str = ""
    key: str = ""

    @property
    def wants_key(self) -> bool:
        return bool(self.type) and not self.key


@cache
def as_maps(expression: str) -> Literals:
    """Return an expression that every CEL compiler takes."""
    frames: list[_Frame] = []
    found: list[str] = []
    mismatch = ""
    for token in _TOKEN.finditer(expression):
        text, kind = token[0], token.lastgroup
        if token["literal"]:
            name = re.sub(r"\s", "", token["type"])
            mismatch = mismatch or _mismatch(name, frames)
            frames.append(_Frame("{", name))
            text = "{"
        elif kind == "name" and frames and frames[-1].wants_key:
            frames[-1].key = unescape(text)
            text = f'"{frames[-1].key}"'
        elif kind == "other":
            _follow(text, frames)
        found.append(text)
    return Literals("".join(found), mismatch)


def _follow(sign: str, frames: list[_Frame]) -> None:
    """Keep count of brackets; a comma directly in an object literal ends a field."""
    if sign in _ENDS:
        frames.append(_Frame(sign))
    elif frames and sign == _ENDS[frames[-1].bracket]:
        frames.pop()
    elif frames and sign == "," and frames[-1].type:
        frames[-1].key = ""


def _mismatch(name: str, frames: list[_Frame]) -> str:
    """Compare a literal's type with the path of the field it is the value, or an item, of."""
    around = next((frame for frame in reversed(frames) if frame.bracket == "{"), None)
    if around is None or not around.type.startswith("Object"):
        return ""
    wanted = f"{around.type}.{around.key}"
    if name == wanted:
        return ""
    return f'unexpected type name "{name}", expected "{wanted}", which matches field name path from root Object type'
