"""The smallest merge patch from one status to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merge_diff"]


def merge_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch that turns ``old`` into ``new``; empty when they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before == value and key in old:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if below := merge_diff(before, value):
                patch[key] = below
        else:
            patch[key] = value
    return patch
