"""Subscriptions to the sentinels' events: each event wakes its cluster, sooner than the next periodic pass."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable

from mooring.kube.object import Key
from mooring.operators.redis.address import Address
from mooring.operators.redis.dial import Dial, DialError
from mooring.runtime import FenceLost

__all__ = ["Listener"]

_SHORTEST, _LONGEST = 1.0, 30.0


class Listener:
    """Keeps one subscription per sentinel; ``wake`` is called at every event and when one is lost.

    Nothing is decided from what an event says: it only brings the next pass forward.
    """

    def __init__(self, wake: Callable[[Key], None], dial: Callable[[ssl.SSLContext | None], Dial]) -> None:
        self._wake = wake
        self._dial = dial
        self._tls: dict[Key, ssl.SSLContext | None] = {}
        self._wanted: dict[Key, frozenset[Address]] = {}
        self._tasks: dict[tuple[Key, Address], asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def listen(self, key: Key, addresses: Iterable[Address], *, tls: ssl.SSLContext | None = None) -> None:
        """From now on listen to exactly these sentinels of a cluster."""
        self._tls[key] = tls
        wanted = frozenset(addresses)
        if self._wanted.get(key, frozenset()) != wanted:
            self._wanted[key] = wanted
            self._changed.set()

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._tls.pop(key, None)
        if self._wanted.pop(key, None) is not None:
            self._changed.set()

    async def run(self) -> None:
        """Keep the subscriptions until cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._adjust()
        finally:
            await self._end(list(self._tasks))

    async def _adjust(self) -> None:
        wanted = {(key, address) for key, addresses in self._wanted.items() for address in addresses}
        await self._end([pair for pair in self._tasks if pair not in wanted])
        for pair in wanted - self._tasks.keys():
            self._tasks[pair] = asyncio.create_task(self._follow(*pair))

    async def _end(self, pairs: Iterable[tuple[Key, Address]]) -> None:
        tasks = [self._tasks.pop(pair) for pair in pairs]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, key: Key, address: Address) -> None:
        pause = _SHORTEST
        while True:
            # Of several replicas of the operator this one may hold no shard for now.
            with contextlib.suppress(DialError, FenceLost):
                async for _ in self._dial(self._tls.get(key)).listen(address):
                    pause = _SHORTEST
                    self._wake(key)
            self._wake(key)
            await asyncio.sleep(pause)
            pause = min(_LONGEST, pause * 2)
