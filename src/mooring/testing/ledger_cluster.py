"""The ledger of a Redis Cluster: keys all over the slots, each eighth of them written and timed by itself.

One shard that does not answer holds up the writes to its own slots alone, as it does for real clients; the longest
gap is that of the worst eighth.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any

from redis.crc import key_slot

from mooring.operators.redis.dial import Address, DialError, Link, Refused
from mooring.testing.ledger import Ledger

__all__ = ["ClusterLedger"]

SLOTS = 16384
REDIRECTS = 5
"""How often one key is followed before the map is asked for anew."""


class ClusterLedger(Ledger):
    """Writes to whoever owns a key's slot, and follows MOVED and ASK; see `Ledger` for the rest.

    ``nodes`` are any nodes of the cluster; the others are learnt from them. ``at`` of `check` is one that there is now.
    """

    parts = 8

    def __init__(self, nodes: Sequence[Address], **how: Any) -> None:
        super().__init__(address=nodes[0], **how)
        self._nodes = tuple(nodes)
        self._owners: dict[int, Address] = {}
        self._silent: set[Address] = set()
        self._turn = -1

    async def write(self, seconds: float | None = None) -> None:
        """Write until `stop`, or for that long."""
        end = self._begin(seconds)
        try:
            await asyncio.gather(*(self._write_part(part, end) for part in range(self.parts)))
        finally:
            self._end()

    async def _write_part(self, part: int, end: float) -> None:
        number, stale = 0, False
        while not self._stop.is_set() and monotonic() < end:
            try:
                if stale or not self._owners:
                    await self._learn()
                    stale = False
                async with AsyncExitStack() as stack:
                    number = await self._write_keys(_Links(self, stack), part, number, end)
            except DialError as error:
                self._note(error)
                stale = True
                await self._pause(0.02)

    async def _write_keys(self, links: _Links, part: int, number: int, end: float) -> int:
        due, interval = monotonic(), self._interval * self.parts
        while not self._stop.is_set() and (now := monotonic()) < end:
            if due > now:
                await self._pause(due - now)
            due = max(due + interval, now - 1.0)
            key, value = self._key(part), secrets.token_hex(8)
            _, link = await self._asked(links, key, ("SET", key, value))
            self._acknowledge(key, value, part=part)
            number += 1
            if number % self._wait_every == 0:
                await self._confirm(link, key)
        return number

    def _key(self, part: int) -> str:
        """The next key in that part of the slots."""
        while True:
            key = f"{self._prefix}:{self._written}"
            self._written += 1
            if key_slot(key.encode()) * self.parts // SLOTS == part:
                return key

    async def _asked(self, links: _Links, key: str, words: Sequence[str]) -> tuple[Any, Link]:
        """The answer of the key's owner, and the connection to it."""
        slot = key_slot(key.encode())
        for _ in range(REDIRECTS):
            if slot not in self._owners:
                raise Refused(f"nobody owns slot {slot}", "CLUSTERDOWN")
            link = await links.to(self._owners[slot])
            try:
                return await link.call(*words), link
            except Refused as error:
                verb, _, target = error.reply.partition(f" {slot} ")
                if verb == "MOVED":
                    self._owners[slot] = _address(target, self._owners[slot])
                elif verb == "ASK":
                    other = await links.to(_address(target, self._owners[slot]))
                    _, answer = await other.pipeline([("ASKING",), words])
                    if not isinstance(answer, Refused):
                        return answer, other
                else:
                    raise
        raise Refused(f"slot {slot} has no owner that keeps it", "MOVED")

    async def _learn(self) -> None:
        """Who owns which slot, from the first node that answers; raises the last `DialError` when none does.

        Nodes take turns, since one that is cut off names itself for as long; whoever did not answer is asked last.
        """
        last: DialError | None = None
        nodes = list(dict.fromkeys((*self._owners.values(), *self._nodes)))
        self._turn = (self._turn + 1) % len(nodes)
        for node in sorted(nodes[self._turn :] + nodes[: self._turn], key=self._silent.__contains__):
            try:
                async with self._dial.link(node, password=self._password) as link:
                    ranges = await link.call("CLUSTER", "SLOTS")
            except DialError as error:
                self._silent.add(node)
                last = error
                continue
            self._silent.discard(node)
            self._nodes = tuple(dict.fromkeys((*self._nodes, *_replicas(ranges, node))))
            owners: dict[int, Address] = {}
            for low, high, (ip, port, *_), *_ in ranges:
                owners |= dict.fromkeys(range(low, high + 1), Address(ip or node.ip, port))
            if owners:
                self._owners = owners
                return
        raise last or Refused("no node knows of an owner", "CLUSTERDOWN")

    async def _missing(self, at: Address | None) -> list[str]:
        lost: list[str] = []
        if at is not None:
            self._nodes = (at, *self._nodes)
        await self._learn()
        async with AsyncExitStack() as stack:
            links = _Links(self, stack)
            for key, (value, _) in list(self._acknowledged.items()):
                answer, _ = await self._asked(links, key, ("GET", key))
                if answer != value:
                    lost.append(key)
        return lost


class _Links:
    """One connection per node, for as long as the stack is open."""

    def __init__(self, ledger: ClusterLedger, stack: AsyncExitStack) -> None:
        self._ledger, self._stack = ledger, stack
        self._links: dict[Address, Link] = {}

    async def to(self, address: Address) -> Link:
        if address not in self._links:
            made = self._ledger._dial.link(address, password=self._ledger._password)
            self._links[address] = await self._stack.enter_async_context(made)
        return self._links[address]


def _address(text: str, asked: Address) -> Address:
    """``host:port`` of a redirection; without a host it is the one that was asked."""
    host, _, port = text.rpartition(":")
    return Address(host or asked.ip, int(port))


def _replicas(ranges: Iterable[Any], asked: Address) -> list[Address]:
    """All nodes that are named."""
    return [Address(ip or asked.ip, port) for _, _, *nodes in ranges for ip, port, *_ in nodes]
