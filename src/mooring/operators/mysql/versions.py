"""Versions of servers: their series are compared, since data files and binary logs differ between those."""

from __future__ import annotations

import re

__all__ = ["is_older", "series"]


def series(version: str) -> tuple[int, ...]:
    """Major and minor number; as many as the text has."""
    found = re.match(r"\d+(?:\.\d+)?", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def is_older(version: tuple[int, ...], than: str) -> bool:
    """Whether a version is of an older series than another; what is not known is not older."""
    right = series(than)
    length = min(len(version), len(right), 2)
    return version[:length] < right[:length]
