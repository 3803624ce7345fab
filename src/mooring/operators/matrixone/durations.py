"""Durations of a declaration, and times that were noted, in seconds."""

from __future__ import annotations

import argparse
from datetime import datetime
from math import inf
from typing import Final

from mooring.operators.operator import seconds

__all__ = ["elapsed", "seconds_or"]

_CLOCKS_DIFFER: Final = 60.0
"""Seconds by which clocks of different nodes differ at most."""


def seconds_or(text: str | None, default: float) -> float:
    """The seconds of a duration; ``default`` for none, or one that is reported elsewhere as wrong."""
    if not text:
        return default
    try:
        return seconds(text)
    except argparse.ArgumentTypeError:
        return default


def elapsed(since: datetime | None, now: datetime) -> float:
    """Seconds since something began, 0 where it did not; for ever where somebody set the clock back meanwhile.

    A beginning that lies further ahead than clocks of different nodes do was noted before that.
    """
    if since is None:
        return 0.0
    seconds = (now - since).total_seconds()
    return seconds if seconds >= -_CLOCKS_DIFFER else inf
