"""Steps that succeed and change nothing: named and spaced out instead of repeated without end."""

from __future__ import annotations

from typing import Final

from mooring.kube.object import Key
from mooring.operators.redis.verdicts import Move, Verdict, Wait
from mooring.runtime.backoff import KeyedBackoff
from mooring.runtime.clock import Clock

__all__ = ["Repeats"]

FEW: Final = 5
"""Times the same step may succeed in a row before it counts as one without effect."""
FIRST: Final = 1.0
MOST: Final = 60.0
"""Seconds between two tries of a step without effect, twice as long each time."""


class Repeats:
    """Counts how often each cluster's same step succeeded in a row; any other verdict ends the row."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[Key, Move] = {}
        self._count: dict[Key, int] = {}
        self._next: dict[Key, float] = {}
        self._backoff: KeyedBackoff[Key] = KeyedBackoff(first=FIRST, most=MOST)

    def spaced(self, key: Key, verdict: Verdict) -> Verdict:
        """The verdict, or a wait where it is a step without effect whose time has not come."""
        if verdict != self._last.get(key):
            self.forget(key)
        left = self._next.get(key, 0.0) - self._clock.monotonic()
        if left <= 0 or not isinstance(verdict, Move):
            return verdict
        return Wait(
            reason="StepWithoutEffect",
            message=f"{verdict.name} ({verdict.why}) succeeded {self._count[key]} times and changed nothing. Check "
            "whether something else sets these servers back; report it as a fault of the operator if nothing does",
            after=left,
            stalled=True,
        )

    def succeeded(self, key: Key, move: Move) -> None:
        """A step was carried out without an error."""
        self._last[key] = move
        self._count[key] = self._count.get(key, 0) + 1
        if self._count[key] >= FEW:
            self._next[key] = self._clock.monotonic() + self._backoff.next(key)

    def forget(self, key: Key) -> None:
        """Another verdict, or the cluster is gone."""
        for kept in (self._last, self._count, self._next):
            kept.pop(key, None)
        self._backoff.forget(key)
