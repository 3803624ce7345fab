"""Writes that are held while the primary changes: sessions with a global read lock, each open until the new one leads.

A hold is a courtesy to clients, never a safeguard: the server is read-only beside it. When this process dies, its sessions
end, the lock with them, and clients get errors instead of waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from mooring.operators.mysql.dial import Link

__all__ = ["AT_MOST", "RELEASE_AFTER", "Hold", "Holds"]

RELEASE_AFTER: Final = 0.5
"""Seconds from the promotion until clients are let go: the Services follow the new primary meanwhile."""
AT_MOST: Final = 15.0
"""Seconds after which a hold ends, whatever became of the switch."""

FORGOTTEN_AFTER: Final = 10.0
"""Seconds after which a drain that nobody looked at is another one."""


@dataclass
class Hold:
    """One session that holds a server's writes."""

    link: Link
    let_go: Callable[[Link], Awaitable[None]]
    """Disconnects the clients that wait, before the lock goes."""
    ends: asyncio.Task[None] | None = field(default=None, repr=False)

    def close(self) -> None:
        """End the session, and its lock."""
        if self.ends is not None:
            self.ends.cancel()
        self.link.close()


class Holds:
    """What outlives a step: the holds of an operator by address of the server, drains that go on, and tasks."""

    def __init__(self) -> None:
        self._drains: dict[str, tuple[str, float, float]] = {}
        """What a server that drains had applied, since when no more, and when it was last looked at."""
        self._holds: dict[str, Hold] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, host: str, hold: Hold) -> None:
        """Keep a hold until it is released, or `AT_MOST`."""
        self.drop(host)
        self._holds[host] = hold
        hold.ends = asyncio.create_task(self._end(host, hold, AT_MOST))

    def has(self, host: str) -> bool:
        """Whether the writes of a server are held."""
        return host in self._holds

    def release_soon(self, host: str) -> None:
        """Let the clients of a server go after `RELEASE_AFTER`: they are disconnected, and find the new primary."""
        if (hold := self._holds.get(host)) is not None:
            if hold.ends is not None:
                hold.ends.cancel()
            hold.ends = asyncio.create_task(self._end(host, hold, RELEASE_AFTER))

    def drop(self, host: str) -> None:
        """End a hold at once."""
        if (hold := self._holds.pop(host, None)) is not None:
            hold.close()

    def stands_still(self, host: str, executed: str, now: float) -> float:
        """Seconds for which a server that drains has applied nothing; ``now`` is of a monotonic clock."""
        before, since, looked = self._drains.get(host, ("", now, now))
        if before != executed or now - looked > FORGOTTEN_AFTER:
            since = now
        self._drains[host] = executed, since, now
        return now - since

    def drained(self, host: str) -> None:
        """A server has applied everything."""
        self._drains.pop(host, None)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold on to a task until it ends."""
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End everything."""
        for host in list(self._holds):
            self.drop(host)
        for task in self._tasks:
            task.cancel()

    async def _end(self, host: str, hold: Hold, after: float) -> None:
        await asyncio.sleep(after)
        if self._holds.get(host) is hold:
            del self._holds[host]
        try:
            await hold.let_go(hold.link)
        finally:
            hold.link.close()
