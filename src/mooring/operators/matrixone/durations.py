"""Durations of a declaration in seconds."""

from __future__ import annotations

import argparse

from mooring.operators.operator import seconds

__all__ = ["seconds_or"]


def seconds_or(text: str | None, default: float) -> float:
    """The seconds of a duration; ``default`` for none, or one that is reported elsewhere as wrong."""
    if not text:
        return default
    try:
        return seconds(text)
    except argparse.ArgumentTypeError:
        return default
