"""Which reconcile is running: for log lines, and to tell our own writes from others'."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from mooring.cache.clock import Clock, SystemClock
from mooring.kube.object import Key

__all__ = ["Pass", "Span", "current_pass", "span"]

#: Kept of one pass; what comes after is counted only in the pass's time.
MOST_SPANS: Final = 100

_RUN = secrets.token_hex(3)


class Span:
    """A named part of a pass: seconds after the pass began, and how long it took (``None``: it still runs)."""

    __slots__ = ("name", "seconds", "start")

    def __init__(self, name: str, start: float) -> None:
        self.name = name
        self.start = start
        self.seconds: float | None = None

    def __str__(self) -> str:
        took = "running" if self.seconds is None else f"{self.seconds:.3f} s"
        return f"{self.name} at {self.start:.3f} s: {took}"


class Pass:
    """One worker's current reconcile; the same object serves all passes of that worker.

    ``controller`` is the controller's name, ``key`` the object it works on, ``None`` between two passes;
    ``shard`` the one the object belongs to, ``None`` without sharding; ``spans`` what it has done so far.
    """

    __slots__ = ("_clock", "_number", "_started", "controller", "key", "shard", "spans")

    _count = 0

    def __init__(self, controller: str, clock: Clock | None = None) -> None:
        self.controller = controller
        self._clock = clock or SystemClock()
        self._started = 0.0
        self.spans: list[Span] = []
        self.key: Key | None = None
        self.shard: int | None = None
        self._number = 0

    def begin(self, key: Key) -> None:
        """A pass over ``key`` starts, under a new id."""
        Pass._count += 1
        self._started = self._clock.monotonic()
        self.spans.clear()
        self._number = Pass._count
        self.key = key

    def end(self) -> None:
        """The pass is over."""
        self.key = None
        self.shard = None

    @property
    def age(self) -> float:
        """Seconds since the pass began."""
        return self._clock.monotonic() - self._started

    @property
    def id(self) -> str:
        """Unique among all passes of all processes, near enough: for finding the lines of one pass."""
        return f"{_RUN}-{self._number:x}"


_current: ContextVar[Pass | None] = ContextVar("mooring_pass", default=None)


def current_pass() -> Pass | None:
    """The pass this code runs in, ``None`` outside of any."""
    current = _current.get()
    return current if current is not None and current.key is not None else None


def enter(current: Pass) -> None:
    """The running task (and those it starts) works for this pass from now on."""
    _current.set(current)


@contextmanager
def span(name: str) -> Iterator[None]:
    """Note a part of the running pass, for the log line of a slow pass and for ``/debug/tasks``.

    Requests to the API server are noted by themselves; a database call or a long computation is worth one.
    Outside of a pass nothing is noted.
    """
    current = current_pass()
    if current is None or len(current.spans) >= MOST_SPANS:
        yield
        return
    noted = Span(name, current.age)
    current.spans.append(noted)
    try:
        yield
    finally:
        noted.seconds = current.age - noted.start
