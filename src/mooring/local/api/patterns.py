"""Regular expressions that users write, in Go's syntax (RE2), in time that is bounded by the pattern and the text.

RE2 never goes back, but it can be slow in two ways. Groups that are captured take time and space of their own for each
character, and nobody here asks for them: they are not captured. An automaton with too many states to be kept is run
step by step, each character through the whole program: a text too long for that is refused, not searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import re2

__all__ = ["STEPS", "TooLong", "check", "find", "find_all", "matches"]

#: Characters times instructions, about 9 ns each at worst; more is refused.
STEPS: Final = 1 << 28


class TooLong(ValueError):
    """A text is too long to be searched for a pattern; says how long it may be."""


def _options() -> Any:
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    return options


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    return re2.compile(pattern, _options())


def _for(pattern: str, text: str) -> Any:
    compiled = _compiled(pattern)
    if len(text) * (size := compiled.programsize) > STEPS:
        raise TooLong(
            f"is too long ({len(text)} characters) to be searched for a pattern of {size} steps; "
            f"shorten it to {STEPS // size} characters, or simplify the pattern"
        )
    return compiled


def check(pattern: str) -> str:
    """Return why a text is no pattern, "" for one."""
    try:
        _compiled(pattern)
    except (re2.error, ValueError) as error:
        return str(error)
    return ""


def matches(pattern: str, text: str) -> bool:
    """Search a pattern in a text; raises TooLong, and re2.error for what is no pattern."""
    return _for(pattern, text).search(text) is not None


def find(pattern: str, text: str) -> str:
    """Return what a pattern matches first, "" for nothing; raises as `matches`."""
    found = _for(pattern, text).search(text)
    return str(found[0]) if found else ""


def find_all(pattern: str, text: str) -> Iterator[str]:
    """Yield all that a pattern matches; raises as `matches`."""
    return (str(found[0]) for found in _for(pattern, text).finditer(text))
