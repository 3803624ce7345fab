"""How long this machine let nobody run, for tests that hold the product to a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Standstill", "standstill"]

#: Seconds between two looks, and how late one may be before it counts.
STEP, USUAL = 0.01, 0.05
#: What the test waits for goes to and fro between its own thread (operator and plane run there) and servers, which are
#: kept from a processor as long as it is.
BOTH = 2
_NANOSECONDS = 1e9


class Standstill:
    """A thread that only sleeps, and notes how much later than it asked for it was let run.

    It also notes for how long the test's own thread had work to do and got no processor, as beside other programs.
    """

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._starved: list[tuple[float, float]] = []
        self._waits = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="standstill", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        before = self._waited()
        while not self._ended.is_set():
            began = time.monotonic()
            time.sleep(STEP)
            now = time.monotonic()
            if (late := now - began - STEP) > USUAL:
                self._late.append((now, late))
            waited = self._waited()
            if waited > before:
                self._starved.append((now, BOTH * (waited - before)))
            before = waited

    def _waited(self) -> float:
        """Seconds that the test's thread was ready to run and did not, since it began."""
        try:
            return int(self._waits.read_text().split()[1]) / _NANOSECONDS
        except (OSError, IndexError):  # a kernel that does not count it
            return 0.0

    def within(self, seconds: float) -> float:
        """As much of any stretch of that length as the machine can have kept the test from running, in seconds."""
        return min(seconds, max(_most(self._late, seconds), _most(self._starved, seconds)))

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()


def _most(noted: Sequence[tuple[float, float]], seconds: float) -> float:
    """The largest sum of what was noted within so many seconds."""
    most = total = 0.0
    first = 0
    for end, length in noted:
        total += length
        while noted[first][0] < end - seconds:
            total -= noted[first][1]
            first += 1
        most = max(most, total)
    return most


@contextmanager
def standstill() -> Iterator[Standstill]:
    """Watch the machine all through the block."""
    watch = Standstill()
    try:
        yield watch
    finally:
        watch.end()
