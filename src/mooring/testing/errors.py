"""What a test says when it waited in vain."""

from __future__ import annotations

__all__ = ["NotInTime"]


class NotInTime(AssertionError):
    """What was waited for did not happen; the message says what was there instead."""
