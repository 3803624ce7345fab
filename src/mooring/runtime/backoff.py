"""How long a failing key waits: 5 ms, doubling, up to 1000 s (controller-runtime's limits)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from mooring.cache.backoff import StreamBackoff

__all__ = ["KeyedBackoff", "StreamBackoff"]

K = TypeVar("K", bound=Hashable)


class KeyedBackoff(Generic[K]):
    """Counts the failures of each key in a row; remembers only keys that are failing."""

    def __init__(self, *, first: float = 0.005, most: float = 1000.0) -> None:
        self._first = first
        self._most = most
        self._failures: dict[K, int] = {}

    def next(self, key: K) -> float:
        """Note a failure; the delay before the next attempt, in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._most, self._first * 2.0 ** min(failures, 60))

    def failures(self, key: K) -> int:
        """How often the key has failed in a row."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """The key has succeeded, or is no more."""
        if self._failures:
            self._failures.pop(key, None)

    def __len__(self) -> int:
        return len(self._failures)
