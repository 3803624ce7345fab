"""The pulse of masters: a PING each second, so that a master that stops answering is noticed between two passes.

A cluster at rest is looked at rarely, and a master that hangs changes nothing in Kubernetes. A missed beat brings the
next pass forward; how many were missed in a row is part of what that pass decides from. A new process begins at zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from mooring.kube.object import Key
from mooring.operators.redis.address import Address
from mooring.operators.redis.dial import Dial, Refused, Unreachable
from mooring.runtime import FenceLost

__all__ = ["BEAT", "Pulse"]

BEAT: Final = 1.0
"""Seconds between two PINGs, and seconds that a server has to answer one."""


class Pulse:
    """Asks the masters of every cluster; ``wake`` is called at every beat that one of them missed."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._dials: dict[Key, Dial] = {}
        self._wanted: dict[Key, frozenset[Address]] = {}
        self._missed: dict[tuple[Key, Address], int] = {}
        self._tasks: dict[tuple[Key, Address], asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def follow(self, key: Key, addresses: Mapping[str, Address], dial: Dial) -> None:
        """From now on ask exactly these servers of a cluster, by pod; ``dial`` waits `BEAT` for an answer."""
        self._dials[key] = dial
        wanted = frozenset(addresses.values())
        if self._wanted.get(key, frozenset()) != wanted:
            self._wanted[key] = wanted
            self._changed.set()

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._dials.pop(key, None)
        if self._wanted.pop(key, None) is not None:
            self._changed.set()

    def missed(self, key: Key, address: Address) -> int:
        """How many PINGs in a row the server left unanswered, each for `BEAT`; 0 for one that is not asked."""
        return self._missed.get((key, address), 0)

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                wanted = {(key, address) for key, addresses in self._wanted.items() for address in addresses}
                await self._end([pair for pair in self._tasks if pair not in wanted])
                for pair in wanted - self._tasks.keys():
                    self._tasks[pair] = asyncio.create_task(self._ask(*pair))
        finally:
            await self._end(list(self._tasks))

    async def _end(self, pairs: list[tuple[Key, Address]]) -> None:
        tasks = [self._tasks.pop(pair) for pair in pairs]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pair in pairs:
            self._missed.pop(pair, None)

    async def _ask(self, key: Key, address: Address) -> None:
        pair = (key, address)
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._beat(pair)
            except (Refused, FenceLost):
                # It answers: it loads, or it runs a script. A password that it does not take is for the next pass.
                # Or it was not asked: of several replicas of the operator this one holds no shard for now.
                self._missed.pop(pair, None)
            except Unreachable:
                self._missed[pair] = self._missed.get(pair, 0) + 1
                self._wake(key)
            # One that refuses connections must not be asked without a pause.
            await asyncio.sleep(max(0.0, began + BEAT - asyncio.get_running_loop().time()))

    async def _beat(self, pair: tuple[Key, Address]) -> None:
        """Ask over one connection until it fails."""
        key, address = pair
        async with self._dials[key].link(address) as link:
            while True:
                await link.call("PING")
                self._missed.pop(pair, None)
                await asyncio.sleep(BEAT)
