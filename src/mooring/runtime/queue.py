"""The work queue: which keys need looking at, each at most once at a time.

Guarantees: a key added is handed out at least once after the add; adds while it waits are merged into one
(highest priority, earliest time); a key that is being worked on is not handed out again before `done`, and
an add in the meantime is kept. Keys of one priority come in order; a lower priority waits for higher ones,
but every `FAIR`th key comes from the lowest that waits, so that none starves. A cancelled `get` loses
nothing.

The queue belongs to one event loop; no method but `get` suspends.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, Literal, Protocol, TypeVar

from mooring.cache.clock import Clock, SystemClock, Timer

__all__ = ["HIGH", "LOW", "NORMAL", "QueueClosed", "QueueObserver", "WorkQueue"]

K = TypeVar("K", bound=Hashable)

NORMAL: Final = 0
#: The initial list and periodic resyncs: they must not delay what changes now.
LOW: Final = -100
HIGH: Final = 100

FAIR: Final = 16


class QueueClosed(Exception):
    """The queue hands out nothing any more."""


class QueueObserver(Protocol):
    """Told what happens in a queue; for metrics."""

    def on_add(self) -> None:
        """A key became due that was not waiting before."""
        ...

    def on_get(self, waited: float) -> None:
        """A key was handed out after waiting so many seconds."""
        ...

    def on_done(self, worked: float) -> None:
        """Work on a key took so many seconds."""
        ...

    def on_retry(self) -> None:
        """A key was added again by its own worker."""
        ...


class _Item(Generic[K]):
    """A key that waits: for its time (delayed), for its turn (ready), or for its own worker (parked)."""

    __slots__ = ("due", "key", "priority", "since", "state")

    def __init__(self, key: K, *, priority: int, due: float) -> None:
        self.key = key
        self.priority = priority
        self.due = due
        self.since = 0.0
        self.state: Literal["delayed", "ready", "parked", "taken"] = "delayed"


class _Working:
    __slots__ = ("priority", "since")

    def __init__(self, *, priority: int, since: float) -> None:
        self.priority = priority
        self.since = since


class WorkQueue(Generic[K]):
    """A keyed priority queue with delayed adds; see the module's text."""

    def __init__(self, clock: Clock | None = None, *, observer: QueueObserver | None = None) -> None:
        self._clock = clock or SystemClock()
        self._observer = observer
        self._items: dict[K, _Item[K]] = {}
        self._ready: dict[int, deque[_Item[K]]] = {}
        self._ready_count = 0
        self._parked_count = 0
        self._working: dict[K, _Working] = {}
        self._delayed: list[tuple[float, int, _Item[K]]] = []
        self._order = itertools.count()
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._turn = 0
        self._closed = False

    # --- looking

    def __len__(self) -> int:
        """Keys that are due and not being worked on for this add yet."""
        return self._ready_count + self._parked_count

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._items) - len(self)

    @property
    def working(self) -> int:
        """Keys handed out and not done."""
        return len(self._working)

    def unfinished(self) -> tuple[float, float]:
        """Seconds of work in progress: the sum over all workers, and the longest."""
        now = self._clock.monotonic()
        ages = [now - work.since for work in self._working.values()]
        return sum(ages), max(ages, default=0.0)

    def __contains__(self, key: K) -> bool:
        return key in self._items

    # --- adding

    def add(self, key: K, *, priority: int = NORMAL, after: float = 0.0) -> None:
        """Have the key looked at, now or ``after`` so many seconds; one that waits only moves forward."""
        if self._closed:
            return
        item = self._items.get(key)
        if item is not None:
            if priority > item.priority:
                self._raise(item, priority)
            if item.state != "delayed":
                return
        if after <= 0:
            if item is None:
                item = self._items[key] = _Item(key, priority=priority, due=0.0)
            self._due(item)
            return
        due = self._clock.monotonic() + after
        if item is None:
            item = self._items[key] = _Item(key, priority=priority, due=due)
        elif due >= item.due:
            return
        item.due = due
        heapq.heappush(self._delayed, (due, next(self._order), item))
        self._arm()

    def retry(self, key: K, *, after: float = 0.0) -> None:
        """`add` by the key's own worker: keeps the priority it was handed out with."""
        work = self._working.get(key)
        if self._observer is not None:
            self._observer.on_retry()
        self.add(key, priority=work.priority if work is not None else NORMAL, after=after)

    def _raise(self, item: _Item[K], priority: int) -> None:
        item.priority = priority
        if item.state == "ready":
            # Its old place is skipped when it comes up: the priority there no longer matches.
            self._ready.setdefault(priority, deque()).append(item)

    def _due(self, item: _Item[K]) -> None:
        item.since = self._clock.monotonic()
        if self._observer is not None:
            self._observer.on_add()
        if item.key in self._working:
            item.state = "parked"
            self._parked_count += 1
        else:
            self._make_ready(item)

    def _make_ready(self, item: _Item[K]) -> None:
        item.state = "ready"
        self._ready.setdefault(item.priority, deque()).append(item)
        self._ready_count += 1
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    # --- time

    def _arm(self) -> None:
        due = self._delayed[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(due - self._clock.monotonic(), self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        heap = self._delayed
        while heap and (heap[0][0] <= now or self._stale(heap[0])):
            entry = heapq.heappop(heap)
            if not self._stale(entry):
                self._due(entry[2])
        if len(heap) > 2 * len(self._items) + 64:
            heap[:] = [entry for entry in heap if not self._stale(entry)]
            heapq.heapify(heap)
        if heap:
            self._arm()

    @staticmethod
    def _stale(entry: tuple[float, int, _Item[K]]) -> bool:
        due, _, item = entry
        return item.state != "delayed" or item.due != due

    # --- working

    async def get(self) -> K:
        """Wait for a key and take it; call `done` when finished with it. Raises QueueClosed after `close`."""
        while True:
            if self._closed:
                raise QueueClosed
            if self._ready_count:
                return self._take()
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()  # we were chosen, and will not come: let another
                raise

    def _take(self) -> K:
        self._turn += 1
        priorities = sorted(self._ready, reverse=self._turn % FAIR != 0)
        for priority in priorities:
            line = self._ready[priority]
            while line:
                item = line.popleft()
                if item.state == "ready" and item.priority == priority:
                    if not line:
                        del self._ready[priority]
                    return self._hand_out(item)
            del self._ready[priority]
        raise RuntimeError("the queue lost count of its ready keys")

    def _hand_out(self, item: _Item[K]) -> K:
        now = self._clock.monotonic()
        item.state = "taken"
        del self._items[item.key]
        self._ready_count -= 1
        self._working[item.key] = _Working(priority=item.priority, since=now)
        if self._observer is not None:
            self._observer.on_get(now - item.since)
        return item.key

    def done(self, key: K) -> None:
        """The worker has finished with the key; an add that came in the meantime takes effect."""
        work = self._working.pop(key)
        if self._observer is not None:
            self._observer.on_done(self._clock.monotonic() - work.since)
        item = self._items.get(key)
        if item is not None and item.state == "parked":
            self._parked_count -= 1
            self._make_ready(item)

    def close(self) -> None:
        """Hand out nothing any more and drop what waits; keys being worked on may still be `done`."""
        self._closed = True
        self._items.clear()
        self._ready.clear()
        self._delayed.clear()
        self._ready_count = self._parked_count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()
