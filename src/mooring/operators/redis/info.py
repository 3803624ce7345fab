"""What INFO and CONFIG GET say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["pairs", "parse_info"]


def parse_info(text: str) -> dict[str, str]:
    """The fields of INFO."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


def pairs(answer: Any) -> dict[str, str]:
    """A flat list of names and values, or a map (what redis-py makes of it differs by version)."""
    if isinstance(answer, Mapping):
        return {str(name): str(value) for name, value in answer.items()}
    words = [str(word) for word in answer]
    return dict(zip(words[::2], words[1::2], strict=False))
