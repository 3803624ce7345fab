"""Time as a dependency, so that hours pass in milliseconds in tests.

Everything that waits takes a `Clock`. Production passes `SystemClock`; tests pass
``mooring.testing.VirtualClock`` and move it. A clock owns timers (`call_later`); sleeping and deadlines are
built on those, here, so that an implementation has little to get wrong.
"""

from __future__ import annotations

import asyncio
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import ClassVar, Protocol

__all__ = ["Clock", "Deadline", "SystemClock", "Timer", "Watchdog", "rfc3339"]


class Timer(Protocol):
    """A pending call; `cancel` may be called at any time, more than once."""

    def cancel(self) -> None:
        """Drop the call if it has not happened yet."""
        ...


class Clock(ABC):
    """What time it is, and waiting for it to pass."""

    #: Whether time passes only when there is nothing left to do: then nothing is late, and nobody need look.
    waits_for_work: ClassVar[bool] = False

    @abstractmethod
    def now(self) -> datetime:
        """The wall clock, aware, in UTC. For what people and other programs read; never for measuring."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds that only grow; for measuring. Stands still while the machine is suspended."""

    @abstractmethod
    def boottime(self) -> float:
        """Seconds that only grow and also count while the machine is suspended; for leases and fences."""

    @abstractmethod
    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` on the event loop after that many seconds (0 or less: on its next turn)."""

    async def sleep(self, seconds: float) -> None:
        """Wait that many seconds; 0 or less only lets others run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, functools.partial(_wake, future))
        try:
            await future
        finally:
            timer.cancel()

    def deadline(self, seconds: float | None) -> Deadline:
        """``async with clock.deadline(5):`` raises TimeoutError when the block takes longer; None: never."""
        return Deadline(self, seconds)


class SystemClock(Clock):
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, seconds), callback)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _CancelScope:
    """Cancels the task that entered it and turns that cancellation, and only that one, into TimeoutError."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self.expired = False

    def _enter(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        self._task = task
        self._cancelling = task.cancelling()

    def _expire(self) -> None:
        self._timer = None
        if self._task is not None:
            self.expired = True
            self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task, self._task = self._task, None
        if not self.expired or task is None:
            return
        # Someone else's cancellation, arriving together with ours, must go through.
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


class Deadline(_CancelScope):
    """Bounds the time of a block; see `Clock.deadline`."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        super().__init__(clock)
        self._seconds = seconds

    async def __aenter__(self) -> Deadline:
        self._enter()
        if self._seconds is not None:
            self._timer = self._clock.call_later(self._seconds, self._expire)
        return self


class Watchdog(_CancelScope):
    """Raises TimeoutError in a block that was not `fed` for ``seconds``.

    Feeding only notes the time; the timer is set again when it fires, so a busy stream pays one clock read
    per event rather than a timer.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__(clock)
        self._seconds = seconds
        self._fed = 0.0

    async def __aenter__(self) -> Watchdog:
        self._enter()
        self.feed()
        self._timer = self._clock.call_later(self._seconds, self._check)
        return self

    def feed(self) -> None:
        """There was life."""
        self._fed = self._clock.monotonic()

    def _check(self) -> None:
        left = self._fed + self._seconds - self._clock.monotonic()
        if left > 0.001:
            self._timer = self._clock.call_later(left, self._check)
        else:
            self._expire()


def rfc3339(moment: datetime, *, micro: bool = False) -> str:
    """A moment as Kubernetes writes it: seconds (``metav1.Time``) or microseconds (``metav1.MicroTime``)."""
    text = moment.astimezone(UTC)
    return text.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
