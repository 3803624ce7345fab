"""A clock that moves only when the test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from mooring.cache.clock import Clock, Timer

__all__ = ["VirtualClock"]

START = datetime(2030, 1, 1, tzinfo=UTC)


class _VirtualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock(Clock):
    """Time that stands still until `advance`; timers due on the way fire in order, each at its own moment.

    Between two timers the event loop runs until nothing is ready, so code woken by the first has acted (and
    may have set new timers) before the second fires. Only what waits on this clock is moved: real sockets and
    processes need `settle` or a real wait.
    """

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._now = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _VirtualTimer]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._now)

    def monotonic(self) -> float:
        return self._now

    def boottime(self) -> float:
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        timer = _VirtualTimer(callback)
        if seconds <= 0:
            asyncio.get_running_loop().call_soon(_fire, timer)
        else:
            heapq.heappush(self._timers, (self._now + seconds, next(self._order), timer))
        return timer

    async def settle(self, turns: int = 30) -> None:
        """Let everything that is ready run, without moving the clock."""
        for _ in range(turns):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Move forward, firing every timer that falls due, in order."""
        await self.settle()
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._now = max(self._now, due)
            _fire(timer)
            await self.settle()
        self._now = end
        await self.settle()

    async def advance_to_next(self) -> float:
        """Move to the next pending timer, if any; returns the seconds passed."""
        await self.settle()
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return 0.0
        passed = max(0.0, self._timers[0][0] - self._now)
        await self.advance(passed)
        return passed

    def suspend(self, seconds: float) -> None:
        """Pass time without firing anything, as a suspended machine does; timers are late afterwards."""
        self._now += seconds

    @property
    def pending(self) -> int:
        """How many timers are set."""
        return sum(timer.callback is not None for _, _, timer in self._timers)


def _fire(timer: _VirtualTimer) -> None:
    callback, timer.callback = timer.callback, None
    if callback is not None:
        callback()
