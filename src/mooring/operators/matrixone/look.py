"""Read a `View` of a cluster from its log stores, and change what HAKeeper knows of a compute node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from mooring.cache import Clock
from mooring.kube.object import Key
from mooring.kube.objects import core
from mooring.operators.matrixone.names import HAKEEPER
from mooring.operators.matrixone.rpc.compute import Load, load
from mooring.operators.matrixone.rpc.dial import Address, Dial, Refused, Unreachable, Unsupported
from mooring.operators.matrixone.rpc.hakeeper import Hakeeper, UnknownStore, hakeeper
from mooring.operators.matrixone.rpc.locks import locks
from mooring.operators.matrixone.rpc.messages import CheckerState, WorkState
from mooring.operators.matrixone.view import Compute, LogStore, Shard, Transaction, View

__all__ = ["Keeper", "view_of"]

TICKS: Final = 10.0
"""HAKeeper's clock: ticks a second, by default."""
FRESH_FOR: Final = 0.4
"""Seconds for which the sets of one cluster share an answer: it is 45 KB for each compute node."""
BETWEEN: Final = 0.3
"""Seconds between two questions that tell whether HAKeeper's clock moves."""


def view_of(state: CheckerState, *, advances: bool = True) -> View:
    """What rules need of HAKeeper's state."""

    def silent(tick: int) -> float:
        return max(0, state.tick - tick) / TICKS

    shards = {
        number: Shard(
            id=number,
            replicas=dict(one.replicas),
            leader=one.replicas.get(one.leader_id, "") if one.leader_id else "",
        )
        for number, one in state.log.shards.items()
    }
    stores = {
        uuid: LogStore(
            uuid=uuid,
            silent=silent(one.tick),
            replicas={
                each.shard.shard_id: each.replica_id for each in one.replicas if each.shard is not None
            },
        )
        for uuid, one in state.log.stores.items()
    }
    transactions = {
        uuid: Transaction(uuid=uuid, silent=silent(one.tick), lock_address=one.lock_address)
        for uuid, one in state.tn.stores.items()
    }
    computes = {
        uuid: Compute(
            uuid=uuid,
            state=one.work_state.name.capitalize(),
            silent=silent(one.tick),
            labels={name: tuple(values.labels) for name, values in one.labels.items()},
            query_address=one.query_address,
        )
        for uuid, one in state.cn.stores.items()
    }
    return View(shards=shards, stores=stores, transactions=transactions, computes=computes, advances=advances)


class Keeper:
    """HAKeeper of every cluster, reached by the IPs of the pods of its LogSet.

    Answers are shared for `FRESH_FOR` seconds, and never after a change that went through here.
    """

    def __init__(self, dial: Dial, clock: Clock) -> None:
        self._dial, self._clock = dial, clock
        self._known: dict[Key, tuple[float, View]] = {}
        self._asking: dict[Key, asyncio.Lock] = {}

    def forget(self, key: Key) -> None:
        """The LogSet is gone, or something was changed."""
        self._known.pop(key, None)

    async def view(self, key: Key, pods: Iterable[core.Pod], *, twice: bool = False) -> View:
        """The state of the cluster whose LogSet is ``key``; ``twice`` also tells whether its clock moves.

        Raises `RpcError`: nothing is known then.
        """
        async with self._asking.setdefault(key, asyncio.Lock()):
            at, known = self._known.get(key, (-1e9, None))
            if known is not None and not twice and self._clock.monotonic() - at < FRESH_FOR:
                return known
            self.forget(key)
            async with self._open(pods) as keeper:
                state = await keeper.state()
                advances = True
                if twice:
                    await self._clock.sleep(BETWEEN)
                    later = await keeper.state()
                    state, advances = later, later.tick > state.tick
            found = view_of(state, advances=advances)
            self._known[key] = (self._clock.monotonic(), found)
            return found

    async def set_working(
        self,
        key: Key,
        pods: Iterable[core.Pod],
        uuid: str,
        labels: Mapping[str, Sequence[str]],
    ) -> None:
        """Send sessions to a compute node with exactly these labels; raises `RpcError`."""
        self.forget(key)
        async with self._open(pods) as keeper:
            if not labels:
                await keeper.set_labels(uuid, {})
            await keeper.patch(uuid, WorkState.WORKING, labels=labels or None)
        self.forget(key)

    async def drain(self, key: Key, pods: Iterable[core.Pod], uuid: str) -> None:
        """Send no new sessions to a compute node; one that is not known needs none. Raises `RpcError`."""
        self.forget(key)
        async with self._open(pods) as keeper:
            try:
                await keeper.patch(uuid, WorkState.DRAINING)
            except UnknownStore:
                return
            finally:
                self.forget(key)

    async def delete(self, key: Key, pods: Iterable[core.Pod], uuid: str) -> None:
        """Forget a compute node whose process is gone; raises `RpcError`."""
        self.forget(key)
        async with self._open(pods) as keeper:
            await keeper.delete_cn(uuid)
        self.forget(key)

    async def load(self, pod: core.Pod, query_address: str) -> Load:
        """What runs on a compute node; raises `RpcError`."""
        return await load(self._dial, _at_pod(pod, query_address))

    async def hand_over(self, pods: Iterable[core.Pod], view: View, uuid: str) -> None:
        """Have a compute node give its lock tables away; a server that knows no such thing has none to give."""
        for address in _lock_addresses(pods, view):
            async with locks(self._dial, address) as service:
                try:
                    await service.set_restart(uuid)
                except Unsupported:
                    continue

    async def gave_locks(self, pods: Iterable[core.Pod], view: View, uuid: str) -> bool:
        """Whether a compute node has given its lock tables away; raises `RpcError`."""
        for address in _lock_addresses(pods, view):
            async with locks(self._dial, address) as service:
                try:
                    if not await service.can_restart(uuid):
                        return False
                except Refused:
                    continue
        return True

    @asynccontextmanager
    async def _open(self, pods: Iterable[core.Pod]) -> AsyncIterator[Hakeeper]:
        known = [pod for pod in pods if _ip(pod)]
        hosts = {_host(pod): _ip(pod) for pod in known}
        addresses = [Address(_ip(pod), HAKEEPER) for pod in known]
        if not addresses:
            raise Unreachable("no log store has an address yet")
        async with hakeeper(self._dial, addresses, hosts=hosts) as keeper:
            yield keeper


def _lock_addresses(pods: Iterable[core.Pod], view: View) -> Iterator[Address]:
    """The lock service of every transaction node, at the IP of its pod: its name may not resolve here."""
    ips = {pod.metadata.name or "": _ip(pod) for pod in pods}
    for node in view.transactions.values():
        address = Address.parse(node.lock_address)
        if address is not None:
            yield Address(ips.get(address.host.partition(".")[0]) or address.host, address.port)


def _at_pod(pod: core.Pod, address: str) -> Address:
    found = Address.parse(address)
    if found is None or not _ip(pod):
        raise Unreachable(f"{pod.metadata.name}: it has no query address")
    return Address(_ip(pod), found.port)


def _ip(pod: core.Pod) -> str:
    return (pod.status.pod_ip if pod.status is not None else None) or ""


def _host(pod: core.Pod) -> str:
    """The pod's name in DNS, as it names itself."""
    subdomain = (pod.spec.subdomain if pod.spec is not None else None) or ""
    return f"{pod.metadata.name}.{subdomain}.{pod.metadata.namespace}.svc"
