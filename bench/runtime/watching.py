"""Sees what users see: the moment a status shows the value that somebody asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from bench.runtime.stage import Stage

from mooring.kube import Client, Object, Part, Resource

__all__ = ["Spectator", "summary", "watching"]


class _Shown(Part, frozen=True, kw_only=True):
    value: str | None = None


class _Seen(Object, frozen=True, kw_only=True):
    """As little of a Widget as is looked at: the spectator shares the processors with what it watches."""

    resource: ClassVar[Resource] = Resource("bench.mooring.dev", "v1", "Widget", "widgets")
    spec: _Shown | None = None
    status: _Shown | None = None


class Spectator:
    """Follows the widgets of a namespace.

    ``synced`` holds the names whose status shows their value, ``moments`` when that came true each time,
    ``delays`` the seconds from each edit to its status.
    """

    def __init__(self) -> None:
        self.synced: set[str] = set()
        self.moments: list[float] = []
        self.delays: list[float] = []
        self._asked: dict[str, tuple[str, float]] = {}
        self._changed = asyncio.Event()

    def asked(self, name: str, value: str) -> None:
        """An edit is being sent now; one that was not seen yet goes on waiting, under the new value."""
        since = self._asked[name][1] if name in self._asked else time.monotonic()
        self._asked[name] = (value, since)

    @property
    def waiting(self) -> int:
        """Edits whose status was not seen yet."""
        return len(self._asked)

    def _note(self, kind: str, widget: _Seen) -> None:
        name, now = widget.metadata.name or "", time.monotonic()
        if kind == "DELETED":
            self.synced.discard(name)
            return
        wanted = widget.spec.value if widget.spec else None
        shown = widget.status.value if widget.status else None
        if shown is None or shown != wanted:
            self.synced.discard(name)
            return
        if name not in self.synced:
            self.synced.add(name)
            self.moments.append(now)
        value, since = self._asked.get(name, ("", 0.0))
        if value == shown:
            del self._asked[name]
            self.delays.append(now - since)
        self._changed.set()

    async def until_synced(self, count: int, *, within: float) -> None:
        """Wait until so many widgets show their value."""
        async with asyncio.timeout(within):
            while len(self.synced) < count:
                self._changed.clear()
                await self._changed.wait()

    async def until_seen(self, *, within: float) -> int:
        """Wait until every edit was seen; how many were not in time."""
        try:
            async with asyncio.timeout(within):
                while self._asked:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        missed = len(self._asked)
        self._asked.clear()
        return missed

    async def follow(self, client: Client, namespace: str, ready: asyncio.Event) -> None:
        """Watch until cancelled."""
        page = await client.list(_Seen, namespace=namespace)
        for widget in page.items:
            self._note("ADDED", widget)
        version = page.resource_version
        while True:
            async with client.watch(_Seen, namespace=namespace, resource_version=version) as events:
                ready.set()
                async for event in events:
                    version = event.resource_version or version
                    if event.object is not None:
                        self._note(event.type, event.object)
                    elif event.error is not None:
                        raise event.error


@asynccontextmanager
async def watching(stage: Stage, namespace: str) -> AsyncIterator[Spectator]:
    """A spectator for the time of the block."""
    spectator, ready = Spectator(), asyncio.Event()
    task = asyncio.create_task(spectator.follow(stage.client, namespace, ready))
    gate = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({task, gate}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield spectator
        if task.done():
            task.result()
    finally:
        task.cancel()
        gate.cancel()
        await asyncio.gather(task, gate, return_exceptions=True)


def summary(delays: list[float]) -> dict[str, Any]:
    """Percentiles in milliseconds."""
    if not delays:
        return {"p50_ms": None, "p99_ms": None, "max_ms": None}
    ordered = sorted(delays)

    def at(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}
