"""Electors that a busy event loop cannot starve: their own thread, loop and connection.

Renewals go on while a pass blocks the main loop or a burst of requests fills its connections. The fence is
shared: the thread opens it, every effect of the main loop asks it. A main loop that does not turn for a
minute is taken for dead: then nothing is renewed any more, and another process takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Generic, TypeVar

import structlog

from mooring.cache.clock import Clock, SystemClock
from mooring.kube.client import Client
from mooring.runtime.lease import Election, Elector, Fence
from mooring.runtime.shards import ShardCalls, Shards, Share

__all__ = ["ThreadedElector", "ThreadedShards"]

H = TypeVar("H")

Loop = asyncio.AbstractEventLoop

log = structlog.get_logger("mooring.runtime")

#: Seconds without a turn after which the main loop no longer deserves its Lease.
STUCK_SECONDS: Final = 60.0
#: Seconds for the thread to close its connections and end.
JOIN_SECONDS: Final = 5.0


class _Pulse:
    """Whether a loop still turns, asked from another thread."""

    def __init__(self, loop: Loop, clock: Clock, limit: float) -> None:
        self._loop = loop
        self._clock = clock
        self._limit = limit
        self._asked = 0.0
        self._answered = True

    def trouble(self) -> str:
        """Why the Lease should not be renewed; "" while the loop answers within the limit."""
        now = self._clock.monotonic()
        if self._answered:
            self._answered = False
            self._asked = now
            self._loop.call_soon_threadsafe(self._answer)
        late = now - self._asked
        return f"the event loop has not turned for {late:.0f} s" if late > self._limit else ""

    def _answer(self) -> None:
        self._answered = True


class _Thread(Generic[H]):
    """A thread with an event loop, and in it what holds Leases, with a client of its own.

    One piece of work runs there at a time: `begin` it, and `end` it before something else begins.
    """

    def __init__(self, name: str, connect: Callable[[], Client], make: Callable[[Client, Loop], H]) -> None:
        self._connect = connect
        self._make = make
        self._ready: Future[tuple[Loop, H]] = Future()
        self._stop = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._thread = threading.Thread(
            target=self._run, args=(asyncio.get_running_loop(),), name=name, daemon=True
        )
        self._thread.start()

    async def _started(self) -> tuple[Loop, H]:
        # Shielded: giving up this wait must not take the thread's own news away from whoever asks next.
        return await asyncio.shield(asyncio.wrap_future(self._ready))

    async def begin(self, work: Callable[[H], Coroutine[Any, Any, None]]) -> Future[None]:
        """Start something on the thread; cancelling the future cancels it there."""
        loop, holder = await self._started()

        async def noted() -> None:
            self._work = asyncio.current_task()
            await work(holder)

        return asyncio.run_coroutine_threadsafe(noted(), loop)

    async def finish(self, last: Callable[[H], Coroutine[Any, Any, None]]) -> None:
        """Cancel what runs there, do one thing more, and end the thread."""
        if self._ready.done() and self._ready.exception() is not None:
            await self._joined()  # it ended with that, and `begin` has raised it
            return
        loop, holder = await self._started()

        async def last_of_all() -> None:
            work = self._work
            if work is not None:
                work.cancel()
                await asyncio.wait([work], timeout=JOIN_SECONDS)
            await last(holder)

        try:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(last_of_all(), loop))
        finally:
            loop.call_soon_threadsafe(self._stop.set)
            await self._joined()

    async def _joined(self) -> None:
        await asyncio.to_thread(self._thread.join, JOIN_SECONDS)
        if self._thread.is_alive():
            log.error("the thread of the Lease does not end; left behind", thread=self._thread.name)

    def _run(self, main: Loop) -> None:
        try:
            asyncio.run(self._serve(main))
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self, main: Loop) -> None:
        client = self._connect()
        self._ready.set_result((asyncio.get_running_loop(), self._make(client, main)))
        try:
            await self._stop.wait()
        finally:
            await client.close()


def _tell(future: Future[None], error: BaseException | None) -> None:
    """Settle a future that the other thread may be giving up at this moment."""
    with contextlib.suppress(InvalidStateError):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class ThreadedElector:
    """As `Elector`, for the main loop to await; ``connect`` is called on the thread and makes its client.

    Renewing begins on the thread at the moment the Lease is won, whether or not `keep` is awaited already.
    The thread begins with `acquire` and ends with `release`, which has to follow in any case.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        election: Election,
        *,
        fence: Fence,
        on_change: Callable[[bool], object] | None = None,
        stuck: float = STUCK_SECONDS,
    ) -> None:
        self.election = election
        self._connect = connect
        self._fence = fence
        self._on_change = on_change or (lambda _: None)
        self._stuck = stuck
        self._clock = SystemClock()
        self._thread: _Thread[Elector] | None = None
        self._campaign: Future[None] = Future()

    async def acquire(self) -> None:
        """See `Elector.acquire`."""
        if self._thread is None:
            self._thread = _Thread(f"lease {self.election.name}", self._connect, self._make)
        won: Future[None] = Future()

        async def campaign(elector: Elector) -> None:
            try:
                await elector.acquire()
            except BaseException as error:
                _tell(won, error)
                raise
            _tell(won, None)
            await elector.keep()

        self._campaign = await self._thread.begin(campaign)
        try:
            await asyncio.wrap_future(won)
        except asyncio.CancelledError:
            self._campaign.cancel()
            raise

    async def keep(self) -> None:
        """See `Elector.keep`."""
        await asyncio.wrap_future(self._campaign)

    async def release(self) -> None:
        """See `Elector.release`; the thread ends."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.finish(lambda elector: elector.release())

    def _make(self, client: Client, main: Loop) -> Elector:
        told = self._on_change
        return Elector(
            client,
            self.election,
            fence=self._fence,
            clock=self._clock,
            on_change=lambda leads: _call(main, told, leads),
            trouble=_Pulse(main, self._clock, self._stuck).trouble,
        )


class ThreadedShards:
    """As `Shards`, for the main loop to await; ``connect`` is called on the thread and makes its client.

    What ``calls`` names is called on the main loop. The thread begins with `run` and ends with `release`, which
    has to follow in any case.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        election: Election,
        *,
        share: Share,
        calls: ShardCalls,
        stuck: float = STUCK_SECONDS,
    ) -> None:
        self._connect = connect
        self._election = election
        self._share = share
        self._calls = calls
        self._stuck = stuck
        self._clock = SystemClock()
        self._thread: _Thread[Shards] | None = None

    async def run(self) -> None:
        """See `Shards.run`."""
        self._thread = _Thread(f"lease {self._election.name}", self._connect, self._make)
        await asyncio.wrap_future(await self._thread.begin(lambda shards: shards.run()))

    async def release(self) -> None:
        """See `Shards.release`; the thread ends."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.finish(lambda shards: shards.release())

    def _make(self, client: Client, main: Loop) -> Shards:
        calls = self._calls
        return Shards(
            client,
            self._election,
            share=self._share,
            clock=self._clock,
            calls=ShardCalls(
                ready=lambda: _await(main, calls.ready()),
                taken=lambda shard: _call(main, calls.taken, shard),
                drain=lambda shard: _await(main, calls.drain(shard)),
                on_change=lambda name, leads: _call(main, calls.on_change, name, leads),
            ),
            trouble=_Pulse(main, self._clock, self._stuck).trouble,
        )


def _call(main: Loop, function: Callable[..., object], *arguments: object) -> None:
    """Call something on the main loop soon; nothing when that has ended."""
    with contextlib.suppress(RuntimeError):
        main.call_soon_threadsafe(function, *arguments)


async def _await(main: Loop, work: Coroutine[Any, Any, None]) -> None:
    """Have the main loop do something, and wait for it."""
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, main))
