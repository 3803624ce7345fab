"""How long to wait before trying again."""

from __future__ import annotations

import random

from mooring.cache.clock import Clock

__all__ = ["StreamBackoff"]


class StreamBackoff:
    """Delays for something that should run for ever: jittered, doubling, forgotten after a stable minute.

    ``first`` and ``most`` are in seconds (client-go's reflector: 0.8 to 30). A delay is uniform between one
    and two times the step, so that a thousand clients of a restarted server do not return together.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        first: float = 0.8,
        most: float = 30.0,
        stable: float = 60.0,
    ) -> None:
        self._clock = clock
        self._first = first
        self._most = most
        self._stable = stable
        self._step = first
        self._last = -stable
        self._random = random.Random()

    def next(self) -> float:
        """The delay before the next attempt, in seconds."""
        now = self._clock.monotonic()
        if now - self._last > self._stable:
            self._step = self._first
        delay = min(self._most, self._step * (1 + self._random.random()))
        self._step = min(self._most, self._step * 2)
        self._last = now + delay
        return delay
