"""Moments as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["EPOCH", "moment", "seconds_since"]

#: What an absent time counts as: before everything.
EPOCH = datetime(1, 1, 1, tzinfo=UTC)


def moment(text: str | None) -> datetime:
    """The moment an RFC 3339 text names; `EPOCH` when there is none."""
    return datetime.fromisoformat(text) if text else EPOCH


def seconds_since(text: str | None, now: datetime) -> float:
    """Seconds between the moment of ``text`` and ``now``; negative when it lies ahead."""
    return (now - moment(text)).total_seconds()
