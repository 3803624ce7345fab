"""An elector that a busy event loop cannot starve: its own thread, loop and connection.

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
from typing import Any, Final

from mooring.cache.clock import Clock, SystemClock
from mooring.kube.client import Client
from mooring.runtime.lease import Election, Elector, Fence

__all__ = ["ThreadedElector"]

Make = Callable[[Client, asyncio.AbstractEventLoop], Elector]

#: Seconds without a turn after which the main loop no longer deserves its Lease.
STUCK_SECONDS: Final = 60.0


class _Pulse:
    """Whether a loop still turns, asked from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, limit: float) -> None:
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


class _Thread:
    """A thread with an event loop, and in it an elector with a client of its own."""

    def __init__(self, name: str, connect: Callable[[], Client], make: Make) -> None:
        self._connect = connect
        self._make = make
        self._ready: Future[tuple[asyncio.AbstractEventLoop, Elector]] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, args=(asyncio.get_running_loop(),), name=name, daemon=True
        )
        self._thread.start()

    async def begin(self, step: Callable[[Elector], Coroutine[Any, Any, None]]) -> Future[None]:
        """Start something on the thread; cancelling the future cancels it there."""
        loop, elector = await asyncio.wrap_future(self._ready)
        return asyncio.run_coroutine_threadsafe(step(elector), loop)

    async def end(self) -> None:
        """Cancel what still runs there and wait for the thread."""
        loop, _ = await asyncio.wrap_future(self._ready)
        loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    def _run(self, main: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._serve(main))
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self, main: asyncio.AbstractEventLoop) -> None:
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
        self._on_change = on_change
        self._stuck = stuck
        self._clock = SystemClock()
        self._thread: _Thread | None = None
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
        if thread is None:
            return
        self._campaign.cancel()
        try:
            await asyncio.wrap_future(await thread.begin(lambda elector: elector.release()))
        finally:
            await thread.end()

    def _make(self, client: Client, main: asyncio.AbstractEventLoop) -> Elector:
        return Elector(
            client,
            self.election,
            fence=self._fence,
            clock=self._clock,
            on_change=self._on_change,
            trouble=_Pulse(main, self._clock, self._stuck).trouble,
        )
