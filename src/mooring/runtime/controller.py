"""A controller: watches that name keys, a queue that holds them, workers that reconcile them.

Guarantees: one pass per key at a time; every relevant transition is followed by a pass that starts after it;
a failing key waits by itself (5 ms doubling to 1000 s) and holds nobody back; whatever a reconcile raises
ends that pass only; a pass that takes longer than ``timeout`` is cancelled; a key that keeps waking itself
is slowed down and counted.
Non-guarantees: no pass per event (they merge), no order between keys.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from mooring.cache.clock import Clock, SystemClock, Timer
from mooring.cache.errors import NotCached
from mooring.cache.informer import Informer
from mooring.cache.store import Transition
from mooring.kube.client import Undecodable
from mooring.kube.errors import ApiError, Conflict
from mooring.kube.object import Key, Object, controller_of, key_of
from mooring.runtime.backoff import KeyedBackoff
from mooring.runtime.context import Pass, current_pass, enter
from mooring.runtime.expectations import Expectations
from mooring.runtime.lease import FenceLost
from mooring.runtime.metrics import ControllerStats, Metrics, QueueStats
from mooring.runtime.predicates import Predicate
from mooring.runtime.queue import LOW, NORMAL, QueueClosed, WorkQueue
from mooring.runtime.shards import Share

__all__ = ["After", "Controller", "Done", "Reconcile", "Result", "Terminal", "owner_key"]

T = TypeVar("T", bound=Object)

log = structlog.get_logger("mooring.runtime")

RESYNC_SECONDS: Final = 36_000.0
#: A key may wake itself so often within a minute before it is slowed down.
HOT_LOOP: Final = 600
#: A pass that takes longer says in the log what it did.
SLOW_SECONDS: Final = 10.0
#: The longest wait after a conflict: somebody else writes often, and that is nobody's failure.
CONFLICT_SECONDS: Final = 1.0
#: Until another look at what could not be done without the Lease.
FENCED_SECONDS: Final = 1.0
#: How long what was cancelled may take to end, on the machine's own clock.
CANCEL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class After:
    """Look again after so many seconds (0: at once), even if nothing changes."""

    seconds: float


Result = Done | After | None
Reconcile = Callable[[Key], Awaitable[Result]]
Map = Callable[[Any], Iterable[Key]]


class Terminal(Exception):
    """Trying again cannot help until something changes; raised with the reason, or from the error itself.

    ``again``: look once more after so many seconds, for what no watch can tell (``None``: never).
    """

    def __init__(self, *reason: object, again: float | None = None) -> None:
        super().__init__(*reason)
        self.again = again


#: Exceptions that say the code is wrong, not the world; counted apart, as Go counts panics.
_PANICS = (TypeError, AttributeError, LookupError, NameError, AssertionError, ArithmeticError, RecursionError)


def owner_key(kind: type[Object]) -> Map:
    """A map function for owned objects: the key of the controlling owner, if it is of that kind."""
    resource = kind.resource

    def keys(obj: Object) -> Iterable[Key]:
        owner = controller_of(obj)
        if owner is None or owner.kind != resource.kind:
            return ()
        group = (owner.api_version or "").rpartition("/")[0]
        if group != resource.group:
            return ()
        return (Key(obj.metadata.namespace or "" if resource.namespaced else "", owner.name or ""),)

    return keys


class _Watch:
    """One informer's transitions, turned into keys."""

    def __init__(
        self,
        controller: Controller,
        informer: Informer[Any],
        *,
        map: Map | None,
        predicate: Predicate | None,
        priority: int,
        own_writes: bool,
    ) -> None:
        self.informer = informer
        self.primary = map is None
        self._controller = controller
        self._map = map
        self._predicate = predicate
        self._priority = priority
        self._own_writes = own_writes
        self._replaying = False

    def attach(self) -> None:
        self._replaying = True
        self.informer.add_handler(self.on_change, on_bad=self.on_bad)
        self._replaying = False

    def detach(self) -> None:
        self.informer.remove_handler(self.on_change, on_bad=self.on_bad)

    def on_change(self, change: Transition[Any]) -> None:
        if self.primary and change.new is None and change.old is not None:
            self._controller.remember_uid(change.key, change.old.metadata.uid or "")
        if self._predicate is not None and not self._predicate(change):
            return
        # What a later list shows has changed while the watch was away: it is as urgent as any change.
        all_known = self._replaying or (change.origin == "list" and not self.informer.synced.is_set())
        priority = min(self._priority, LOW) if all_known else self._priority
        for key in self._keys(change):
            self._controller._wake(key, change, priority=priority, own_writes=self._own_writes)

    def _keys(self, change: Transition[Any]) -> Iterable[Key]:
        if self._map is None:
            return (change.key,)
        old, new = change.old, change.new
        if old is None or new is None:
            return self._mapped(change.object)
        # An object may have moved from one owner to another: both must look.
        return dict.fromkeys((*self._mapped(old), *self._mapped(new)))

    def _mapped(self, obj: Object) -> Iterable[Key]:
        try:
            return tuple(self._map(obj)) if self._map is not None else ()
        except Exception:
            # One side failing must not lose the other's keys.
            log.exception("a map function failed", controller=self._controller.name, kind=obj.resource.kind)
            return ()

    def on_bad(self, bad: Undecodable) -> None:
        if self.primary:
            self._controller.enqueue(bad.key)

    def resync(self) -> None:
        self._replaying = True
        for obj in self.informer.list():
            self.on_change(Transition(key_of(obj), None, obj, "list"))
        self._replaying = False


class _Pace:
    """How often a key has woken itself within the current minute."""

    __slots__ = ("count", "delay", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.delay = 0.0


class Controller:
    """Runs ``reconcile(key)`` for every key that its watches, its results or `enqueue` name.

    ``workers``: passes at the same time (8). ``timeout``: seconds for one pass (300; None: no limit).
    ``resync``: seconds between two rounds over everything at low priority (10 h, jittered; 0: never).
    ``clock`` and ``metrics`` are taken from the `Manager` it is added to.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 8,
        timeout: float | None = 300.0,
        resync: float = RESYNC_SECONDS,
        hot_loop: int = HOT_LOOP,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.stats = ControllerStats(name, workers)
        self._reconcile = reconcile
        self._timeout = timeout
        self._resync = resync
        self._hot_loop = hot_loop
        self._watches: list[_Watch] = []
        self._backoff: KeyedBackoff[Key] = KeyedBackoff()
        self._paces: dict[Key, _Pace] = {}
        self._early: dict[Key, tuple[int, float]] = {}
        self._clock = clock or SystemClock()
        self._queue: WorkQueue[Key] | None = None
        self._queue_stats = QueueStats(name)
        self._workers: list[asyncio.Task[None]] = []
        self._passes: list[Pass] = []
        self._resync_timer: Timer | None = None
        self._metrics: Metrics | None = None
        self._expectations: Expectations | None = None
        self._share: Share | None = None
        self._uids: dict[Key, str] = {}

    # --- wiring

    def watch(
        self,
        informer: Informer[T],
        *,
        map: Callable[[T], Iterable[Key]] | None = None,
        predicate: Predicate | None = None,
        priority: int = NORMAL,
        own_writes: bool = True,
    ) -> Controller:
        """Have keys looked at when objects of an informer change.

        Without ``map`` the object's own key; with it, the keys it gives for the old and for the new state.
        ``predicate`` filters transitions, wherever they come from (a watch, a list, a write of ours).
        With ``own_writes=False`` what a pass writes does not wake that same key: for a reconcile that looks
        at the caches again after its writes, as an `Actor` does.
        """
        if self._workers:
            raise RuntimeError(f"controller {self.name} runs already; add watches before it starts")
        self._watches.append(
            _Watch(self, informer, map=map, predicate=predicate, priority=priority, own_writes=own_writes)
        )
        return self

    def owns(
        self,
        informer: Informer[T],
        owner: type[Object],
        *,
        predicate: Predicate | None = None,
        own_writes: bool = True,
    ) -> Controller:
        """Have the controlling owner looked at when an object it owns changes."""
        return self.watch(informer, map=owner_key(owner), predicate=predicate, own_writes=own_writes)

    @property
    def informers(self) -> list[Informer[Any]]:
        """The informers it watches."""
        return [watch.informer for watch in self._watches]

    def enqueue(self, key: Key, *, after: float = 0.0, priority: int = NORMAL) -> None:
        """Have a key looked at, now or after so many seconds."""
        if self._queue is not None:
            self._queue.add(key, priority=priority, after=after)
            return
        other, sooner = self._early.get(key, (priority, after))
        self._early[key] = (max(priority, other), min(after, sooner))

    # --- life

    @property
    def running(self) -> bool:
        """Whether workers are there."""
        return bool(self._workers)

    @property
    def passes(self) -> list[Pass]:
        """The passes that are running now, for ``/debug/tasks``."""
        return [current for current in self._passes if current.key is not None]

    @property
    def idle(self) -> bool:
        """Nothing due and nothing being worked on (keys may wait for their time)."""
        return self._queue is None or (len(self._queue) == 0 and self._queue.working == 0)

    def bind(
        self,
        clock: Clock,
        metrics: Metrics,
        *,
        expectations: Expectations | None = None,
        share: Share | None = None,
    ) -> None:
        """Take what the manager gives: the clock, the client's expectations, our shards; publish numbers."""
        self._clock = clock
        self._expectations = expectations
        self._share = share
        metrics.controller(self.stats)
        self._metrics = metrics

    def start(self) -> None:
        """Take over: everything known is looked at once at low priority, then what changes."""
        if self._workers:
            return
        queue: WorkQueue[Key] = WorkQueue(self._clock, observer=self._queue_stats)
        self._queue = queue
        if self._metrics is not None:
            self._metrics.queue(self._queue_stats, queue)
        for watch in self._watches:
            watch.attach()
        for key, (priority, after) in self._early.items():
            queue.add(key, priority=priority, after=after)
        self._early.clear()
        for number in range(self.stats.workers):
            current = Pass(self.name, self._clock)
            self._passes.append(current)
            task = asyncio.create_task(self._work(queue, current), name=f"{self.name} worker {number}")
            self._workers.append(task)
        self._schedule_resync()

    async def stop(self, grace: float = 0.0) -> None:
        """Begin no new pass, let running ones finish for ``grace`` seconds, then cancel them."""
        queue, self._queue = self._queue, None
        if queue is None:
            return
        if self._resync_timer is not None:
            self._resync_timer.cancel()
        for watch in self._watches:
            watch.detach()
        queue.close()
        workers, self._workers = self._workers, []
        gathered = asyncio.gather(*workers, return_exceptions=True)
        try:
            async with self._clock.deadline(grace):
                await asyncio.shield(gathered)
        except TimeoutError:
            if late := self._late():
                log.warning("passes cancelled at shutdown", controller=self.name, keys=late)
        finally:
            for worker in workers:
                worker.cancel()
            if workers and (await asyncio.wait(workers, timeout=CANCEL_SECONDS))[1]:
                # Its effects are fenced once the Lease is given back; nobody waits for it.
                log.error("passes left behind: they ignore being cancelled", keys=self._late())
            self._passes.clear()
            self._paces.clear()

    def _late(self) -> str:
        return ", ".join(f"{current.key} ({current.id})" for current in self.passes)

    def _schedule_resync(self) -> None:
        if self._resync > 0:
            delay = self._resync * random.uniform(0.9, 1.1)
            self._resync_timer = self._clock.call_later(delay, self._on_resync)

    def _on_resync(self) -> None:
        for watch in self._watches:
            if watch.primary:
                watch.resync()
        self._schedule_resync()

    # --- shards

    def take_shard(self, shard: int) -> None:
        """Look at every object of a shard that has become ours."""
        if self._queue is None or self._share is None:
            return
        for watch in self._watches:
            if watch.primary:
                for obj in watch.informer.list():
                    if self._share.of(obj.metadata.uid or "") == shard:
                        self._queue.add(key_of(obj), priority=LOW)

    def works_for(self, shard: int) -> bool:
        """Whether a pass is running for an object of that shard."""
        return any(current.shard == shard for current in self.passes)

    def remember_uid(self, key: Key, uid: str) -> None:
        """The object is gone: its UID still says which shard has to look at that."""
        if self._share is not None:
            self._uids[key] = uid

    def _shard_of(self, key: Key, share: Share) -> int:
        gone = self._uids.pop(key, "")
        found = (watch.informer.peek(key) for watch in self._watches if watch.primary)
        obj = next((obj for obj in found if obj is not None), None)
        return share.of((obj.metadata.uid or "") if obj is not None else gone)

    # --- waking

    def _wake(self, key: Key, change: Transition[Any], *, priority: int, own_writes: bool) -> None:
        queue = self._queue
        if queue is None:
            return
        after = 0.0
        if change.origin == "write":
            current = current_pass()
            if current is not None and current.key == key and current.controller == self.name:
                if not own_writes:
                    return
                after = self._slowed(key)
        queue.add(key, priority=priority, after=after)

    def _slowed(self, key: Key) -> float:
        """The delay for a key that wakes itself: 0, unless it does so all the time."""
        now = self._clock.monotonic()
        pace = self._paces.get(key)
        if pace is None:
            if len(self._paces) > 4096:
                self._paces = {k: p for k, p in self._paces.items() if now - p.since < 60.0}
            pace = self._paces[key] = _Pace(now)
        elif now - pace.since >= 60.0:
            pace.delay = pace.delay if pace.count > self._hot_loop else 0.0
            pace.since, pace.count = now, 0
        pace.count += 1
        if pace.count <= self._hot_loop:
            return 0.0
        self.stats.hot_loops += 1
        if pace.delay == 0.0:
            log.warning(
                "slowing down a key that wakes itself: each pass writes, or asks to look again",
                controller=self.name,
                key=str(key),
                times=pace.count,
            )
        pace.delay = min(60.0, pace.delay * 2 or 1.0)
        return pace.delay

    # --- working

    async def _work(self, queue: WorkQueue[Key], current: Pass) -> None:
        enter(current)
        stats = self.stats
        monotonic = self._clock.monotonic
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return
            if self._share is not None:
                shard = self._shard_of(key, self._share)
                if shard not in self._share.held:
                    self._backoff.forget(key)
                    queue.done(key)
                    continue
                current.shard = shard
            current.begin(key)
            stats.active += 1
            started = monotonic()
            try:
                await self._pass(queue, key)
            finally:
                seconds = monotonic() - started
                stats.seconds.observe(seconds)
                stats.active -= 1
                if seconds > SLOW_SECONDS:
                    spans = [str(part) for part in current.spans]
                    log.warning("slow reconcile", seconds=round(seconds, 3), spans=spans)
                current.end()
                queue.done(key)

    async def _pass(self, queue: WorkQueue[Key], key: Key) -> None:
        deadline = self._clock.deadline(self._timeout)
        try:
            async with deadline:
                wait = await self._expectations.settle(self.name, key) if self._expectations else 0.0
                if wait:
                    self.stats.stale_skips += 1
                    result: Result = After(wait)
                else:
                    result = await self._reconcile(key)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._failed(queue, key, RuntimeError("something the pass waited for was cancelled"))
        except Conflict as error:
            # Not a failure: the cache was a moment behind. The next pass sees the newer object.
            self.stats.results["requeue"] += 1
            log.debug("conflict, again", controller=self.name, key=str(key), error=str(error))
            queue.retry(key, after=min(CONFLICT_SECONDS, self._backoff.next(key)) * random.random())
        except FenceLost as error:
            # Not a failure either: the Lease comes back, or another process has it and this one ends in a moment.
            self.stats.results["requeue_after"] += 1
            log.info("a pass was given up", controller=self.name, key=str(key), error=str(error))
            queue.retry(key, after=FENCED_SECONDS)
        except Terminal as error:
            self._backoff.forget(key)
            self.stats.results["error"] += 1
            self.stats.terminal += 1
            log.error("reconcile failed for good", controller=self.name, key=str(key), error=str(error))
            if error.again is not None:
                queue.retry(key, after=error.again)
        except TimeoutError as error:
            if deadline.expired:
                self.stats.timeouts += 1
                self._failed(queue, key, TimeoutError(f"the pass took longer than {self._timeout} s"))
            else:
                self._failed(queue, key, error)
        except Exception as error:
            self._failed(queue, key, error)
        else:
            self._finished(queue, key, result)

    def _finished(self, queue: WorkQueue[Key], key: Key, result: Result) -> None:
        self._backoff.forget(key)
        if isinstance(result, After):
            self.stats.results["requeue_after"] += 1
            seconds = result.seconds
            if seconds < 0.1:
                seconds = max(seconds, self._slowed(key))
            queue.retry(key, after=seconds)
        else:
            self.stats.results["success"] += 1

    def _failed(self, queue: WorkQueue[Key], key: Key, error: Exception) -> None:
        stats = self.stats
        stats.results["error"] += 1
        if isinstance(error, _PANICS):
            stats.panics += 1
        delay = self._backoff.next(key)
        if isinstance(error, ApiError) and error.retry_after:
            delay = max(delay, error.retry_after)
        failures = self._backoff.failures(key)
        expected = isinstance(error, (ApiError, NotCached, TimeoutError))
        log.error(
            "reconcile failed",
            controller=self.name,
            key=str(key),
            error=str(error) or repr(error),
            failures=failures,
            retry_in=round(delay, 3),
            # The same traceback every few seconds helps nobody.
            exc_info=error if failures == 1 and not expected else None,
        )
        queue.retry(key, after=delay)
