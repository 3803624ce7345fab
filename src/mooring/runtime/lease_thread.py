"""An elector that a busy event loop cannot starve: its own thread, loop and connection.

Renewals go on while a pass blocks the main loop or a burst of requests fills its connections. The fence is
shared: the thread opens it, every effect of the main loop asks it. A main loop that does not turn for a
minute is taken for dead: then nothing is renewed any more, and another process takes over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final

from mooring.cache.clock import Clock, SystemClock
from mooring.kube.client import Client
from mooring.runtime.lease import Election, Elector, Fence

__all__ = ["ThreadedElector"]

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


class ThreadedElector:
    """As `Elector`, for the main loop to await; ``connect`` is called on the thread and makes its client.

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
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, Elector]] = Future()
        self._ended: Future[None] = Future()
        self._end = asyncio.Event()

    async def acquire(self) -> None:
        """See `Elector.acquire`."""
        if self._thread is None:
            main = asyncio.get_running_loop()
            self._started, self._ended, self._end = Future(), Future(), asyncio.Event()
            self._thread = threading.Thread(
                target=self._run, args=(main,), name=f"lease {self.election.name}", daemon=True
            )
            self._thread.start()
        await self._on_thread(lambda elector: elector.acquire())

    async def keep(self) -> None:
        """See `Elector.keep`."""
        await self._on_thread(lambda elector: elector.keep())

    async def release(self) -> None:
        """See `Elector.release`; the thread ends."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            await self._on_thread(lambda elector: elector.release())
        finally:
            loop, _ = await asyncio.wrap_future(self._started)
            loop.call_soon_threadsafe(self._end.set)
            await asyncio.wrap_future(self._ended)
            thread.join()

    async def _on_thread(self, step: Callable[[Elector], Awaitable[None]]) -> None:
        loop, elector = await asyncio.shield(asyncio.wrap_future(self._started))

        async def run() -> None:
            await step(elector)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), loop))

    def _run(self, main: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._serve(main))
            self._ended.set_result(None)
        except BaseException as error:
            for future in (self._started, self._ended):
                if not future.done():
                    future.set_exception(error)

    async def _serve(self, main: asyncio.AbstractEventLoop) -> None:
        client = self._connect()
        elector = Elector(
            client,
            self.election,
            fence=self._fence,
            clock=self._clock,
            on_change=self._on_change,
            trouble=_Pulse(main, self._clock, self._stuck).trouble,
        )
        self._started.set_result((asyncio.get_running_loop(), elector))
        try:
            await self._end.wait()
        finally:
            await client.close()
