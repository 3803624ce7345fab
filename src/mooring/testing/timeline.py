"""Time that passes only when there is nothing left to do, for everything on the running event loop.

    with Timeline() as time:
        await time.sleep(3600)      # returns at once; all timers within the hour have fired, in order

Where `VirtualClock` moves what waits on that clock, when the test says so, a timeline moves the whole loop by
itself: ``asyncio.sleep``, ``asyncio.timeout`` and code that knows nothing of clocks included. Whenever nothing is
ready, the clock jumps to the next timer. So the same program takes the same turns each time, and a minute of quiet
costs as much as the timers in it.

Real sockets and processes do not keep up with such a clock. Work for threads (``asyncio.to_thread``) is done in
place, in no time; it must not wait for the loop.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from unittest import mock

from mooring.cache.clock import Clock, Timer

__all__ = ["Timeline", "loaded_dice"]

START = datetime(2030, 1, 1, tzinfo=UTC)
#: Seconds that one turn of the loop takes: who waits for the rest of a rounding error gets past it.
TURN = 1e-6


class Timeline(Clock):
    """The running loop's time, virtual for the length of a ``with`` block.

    ``start`` is the wall clock at its beginning (2030-01-01). Raises RuntimeError on an event loop that is not
    asyncio's own.
    """

    waits_for_work = True

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._began = 0.0
        self._passed = 0.0
        self._loop: Any = None
        self._selector: Any = None

    def __enter__(self) -> Self:
        loop: Any = asyncio.get_running_loop()
        if not hasattr(loop, "_selector"):
            raise RuntimeError(
                f"{type(loop).__name__} has no selector to stand in for; use asyncio's own loop"
            )
        self._loop, self._selector = loop, loop._selector
        self._began = loop.time()
        loop._selector = _Selector(self._selector, self)
        loop.time = self._time
        loop.run_in_executor = self._in_place
        return self

    def __exit__(self, *_: object) -> None:
        self._loop._selector = self._selector
        del self._loop.time, self._loop.run_in_executor

    def _time(self) -> float:
        return self._began + self._passed

    def _in_place(self, executor: object, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    # --- the clock

    def now(self) -> datetime:
        """The wall clock."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._passed

    def boottime(self) -> float:
        """The same: see `suspend`."""
        return self._passed

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """See `Clock.call_later`."""
        timer: Timer = asyncio.get_running_loop().call_later(max(0.0, seconds), callback)
        return timer

    def suspend(self, seconds: float) -> None:
        """Pass time without anything running in it, as a stopped process or machine does: timers are late."""
        self._passed += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back, by so many seconds; nothing else notices."""
        self._start += timedelta(seconds=seconds)


@contextmanager
def loaded_dice(seed: str) -> Iterator[None]:
    """Have chance fall the same way each time: that of the module `random`, of generators made meanwhile, and UUIDs."""
    before = random.getstate()
    random.seed(seed)
    uuids = random.Random(f"uuids {seed}")

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=uuids.getrandbits(128), version=4)

    try:
        with mock.patch.object(random, "Random", _Loaded), mock.patch.object(uuid, "uuid4", uuid4):
            yield
    finally:
        random.setstate(before)


class _Loaded(random.Random):
    """A generator that takes its seed, unless one is given, from the module's."""

    def __init__(self, seed: int | float | str | bytes | bytearray | None = None) -> None:
        super().__init__(random.random() if seed is None else seed)


class _Selector:
    """Stands before the loop's selector: when the loop would sleep, the timeline jumps instead."""

    def __init__(self, inner: Any, timeline: Timeline) -> None:
        self._inner = inner
        self._timeline = timeline

    def select(self, timeout: float | None = None) -> list[Any]:
        """What is ready; never waits while there is a timer."""
        events: list[Any] = self._inner.select(None if timeout is None else 0)
        self._timeline.suspend(TURN if events or not timeout else timeout + TURN)
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
