"""What INFO and CONFIG GET say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["keys_of", "pairs", "parse_info", "rewriting"]


_DB: Final = re.compile(r"db\d+$")
_KEYS: Final = re.compile(r"\bkeys=(\d+)")


def parse_info(text: str) -> dict[str, str]:
    """The fields of INFO."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


def keys_of(info: Mapping[str, str]) -> int:
    """How many keys a server has, in all of its databases."""
    return sum(
        int(found[1]) for name, value in info.items() if _DB.match(name) and (found := _KEYS.search(value))
    )


def rewriting(info: Mapping[str, str]) -> bool:
    """Whether it rewrites its append-only file, or will soon.

    While a server writes its first one, as after every full synchronisation, it refuses SIGTERM ("Writing initial AOF,
    can't exit") and forgets the signal. The pod then stays until its grace period ends.
    """
    return "1" in (info.get("aof_rewrite_in_progress"), info.get("aof_rewrite_scheduled"))


def pairs(answer: Any) -> dict[str, str]:
    """A flat list of names and values, or a map (what redis-py makes of it differs by version)."""
    if isinstance(answer, Mapping):
        return {str(name): str(value) for name, value in answer.items()}
    words = [str(word) for word in answer]
    return dict(zip(words[::2], words[1::2], strict=False))
