"""How long this machine let nobody run, for tests that hold the product to a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Standstill", "standstill"]

#: Seconds between two looks, and how late one may be before it counts.
STEP, USUAL = 0.01, 0.05


class Standstill:
    """A thread that only sleeps, and notes how much later than it asked for it was let run."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="standstill", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            time.sleep(STEP)
            now = time.monotonic()
            if (late := now - began - STEP) > USUAL:
                self._late.append((now, late))

    def within(self, seconds: float) -> float:
        """As much of any stretch of that length as the machine can have stood still, in seconds."""
        ends = [end for end, _ in self._late]
        sums = (sum(late for at, late in self._late if end - seconds <= at <= end) for end in ends)
        return min(seconds, max(sums, default=0.0))

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()


@contextmanager
def standstill() -> Iterator[Standstill]:
    """Watch the machine all through the block."""
    watch = Standstill()
    try:
        yield watch
    finally:
        watch.end()
