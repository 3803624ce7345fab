"""MatrixOne's own view of a cluster: one cheap question to HAKeeper, and one to each CN whose load matters.

Reads only. Either the whole state is known or `Unseen` says why not: an error, an empty answer and a HAKeeper without
quorum are unknown, never a cluster without stores. The load of a CN that does not answer is None with the reason.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from mooring.operators.matrixone.rpc.compute import Load, load
from mooring.operators.matrixone.rpc.dial import Address, Dial, RpcError
from mooring.operators.matrixone.rpc.hakeeper import hakeeper
from mooring.operators.matrixone.rpc.messages import CheckerState, CnInfo, LogShard, LogStoreInfo, WorkState

__all__ = [
    "TICKS_PER_SECOND",
    "ComputeNode",
    "LogStore",
    "Proxy",
    "Shard",
    "Topology",
    "TransactionNode",
    "Unseen",
    "ask_load",
    "read_topology",
    "view_of",
]

TICKS_PER_SECOND = 10
"""HAKeeper's default; it counts the age of heartbeats in ticks, which stand still while it has no quorum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A log shard as HAKeeper wants it: its members by replica id, and who leads."""

    id: int
    members: Mapping[int, str]
    """UUIDs of log stores, also of one that is gone until HAKeeper replaces it."""
    leader: str | None
    """UUID of the log store that leads, None where none is known."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStore:
    """A log store as it reported itself last. HAKeeper never forgets one: see `heard`."""

    uuid: str
    address: str
    heard: float
    """Seconds since its last heartbeat."""
    replicas: Mapping[int, int]
    """Ids of the replicas that run on it, by shard."""
    epochs: Mapping[int, int]
    """By shard the epoch of the membership that its replica has taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionNode:
    """A TN; its lock service moves with every start, so take the address from here."""

    uuid: str
    heard: float
    lock_address: Address | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode:
    """A CN. HAKeeper forgets it 30 s after its last heartbeat."""

    uuid: str
    heard: float
    sql_address: str
    query_address: Address | None
    state: WorkState
    labels: Mapping[str, tuple[str, ...]]
    up_since: float
    """Seconds since 1970: when it registered."""
    load: Load | None = None
    """None where it was not asked, or did not answer."""
    silence: str = ""
    """Why there is no load though it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy."""

    uuid: str
    heard: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A cluster at one moment; stores by UUID, shards by id."""

    tick: int
    """HAKeeper's clock. Where it does not advance between two looks, HAKeeper does not work, whatever it answers."""
    shards: Mapping[int, Shard]
    logs: Mapping[str, LogStore]
    tns: Mapping[str, TransactionNode]
    cns: Mapping[str, ComputeNode]
    proxies: Mapping[str, Proxy]

    def shards_of(self, uuid: str) -> frozenset[int]:
        """The shards that count a log store among their members, whether or not it runs."""
        return frozenset(shard.id for shard in self.shards.values() if uuid in shard.members.values())

    def settled(self, uuid: str) -> bool:
        """Whether a log store runs exactly the replicas that the shards want of it, at their newest membership."""
        if (store := self.logs.get(uuid)) is None:
            return False
        wanted = {
            shard.id: (replica, shard.epoch)
            for shard in self.shards.values()
            for replica, member in shard.members.items()
            if member == uuid
        }
        return {one: (replica, store.epochs[one]) for one, replica in store.replicas.items()} == wanted

    @property
    def silence(self) -> float:
        """Seconds since HAKeeper heard of any store, infinite where it never did.

        Where this is long nobody reaches it, for example since the discovery address leads to a dead log store. Then
        CNs that run are missing here after 30 s, although HAKeeper works.
        """
        heard = [one.heard for one in self.logs.values()] + [one.heard for one in self.tns.values()]
        heard += [one.heard for one in self.cns.values()] + [one.heard for one in self.proxies.values()]
        return min(heard, default=math.inf)

    @property
    def led(self) -> bool:
        """Whether every shard has a leader, and there is one."""
        return bool(self.shards) and all(shard.leader for shard in self.shards.values())


@dataclass(frozen=True, slots=True)
class Unseen:
    """The cluster's state is unknown."""

    reason: str


async def read_topology(
    dial: Dial,
    addresses: Iterable[Address],
    *,
    hosts: Mapping[str, str] | None = None,
    ask: Collection[str] = (),
    sharding: bool = False,
    ticks_per_second: float = TICKS_PER_SECOND,
) -> Topology | Unseen:
    """Look at a cluster by the log stores at ``addresses``; never raises `RpcError`.

    ``ask`` are UUIDs of CNs whose load is wanted; ``hosts`` the IPs of names that this process cannot resolve.
    ``sharding``: see :func:`~mooring.operators.matrixone.rpc.compute.load`.
    """
    known = hosts or {}
    try:
        async with hakeeper(dial, addresses, hosts=known) as keeper:
            state = await keeper.state()
    except RpcError as error:
        return Unseen(str(error))
    seen = view_of(state, hosts=known, ticks_per_second=ticks_per_second)
    return await ask_load(dial, seen, ask, sharding=sharding)


async def ask_load(dial: Dial, seen: Topology, ask: Collection[str], *, sharding: bool = False) -> Topology:
    """A look with the load, at this moment, of the CNs of these UUIDs, and of no other; never raises `RpcError`."""
    asked = [cn for uuid, cn in seen.cns.items() if uuid in ask]
    answers = await asyncio.gather(*(_load(dial, cn, sharding=sharding) for cn in asked))
    return _with_load(seen, {cn.uuid: answer for cn, answer in zip(asked, answers, strict=True)})


async def _load(dial: Dial, cn: ComputeNode, *, sharding: bool) -> Load | str:
    if cn.query_address is None:
        return "HAKeeper knows no address of its query service"
    try:
        return await load(dial, cn.query_address, sharding=sharding)
    except RpcError as error:
        return str(error)


def _with_load(seen: Topology, answers: Mapping[str, Load | str]) -> Topology:
    cns = {
        uuid: replace(
            cn,
            load=answer if isinstance(answer := answers.get(uuid), Load) else None,
            silence=answer if isinstance(answer, str) else "",
        )
        for uuid, cn in seen.cns.items()
    }
    return replace(seen, cns=cns)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What translates a state: the age of ticks, and hosts."""

    tick: int
    per_second: float
    hosts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def heard(self, tick: int) -> float:
        return max(0, self.tick - tick) / self.per_second

    def reach(self, text: str) -> Address | None:
        found = Address.parse(text)
        return found and Address(self.hosts.get(found.host, found.host), found.port)

    def log(self, uuid: str, store: LogStoreInfo) -> LogStore:
        replicas = {one.shard.shard_id: one.replica_id for one in store.replicas if one.shard is not None}
        epochs = {one.shard.shard_id: one.shard.epoch for one in store.replicas if one.shard is not None}
        return LogStore(
            uuid=uuid,
            address=store.service_address,
            heard=self.heard(store.tick),
            replicas=replicas,
            epochs=epochs,
        )

    def cn(self, uuid: str, store: CnInfo) -> ComputeNode:
        return ComputeNode(
            uuid=uuid,
            heard=self.heard(store.tick),
            sql_address=store.sql_address,
            query_address=self.reach(store.query_address),
            state=store.work_state,
            labels={name: one.labels for name, one in store.labels.items()},
            up_since=store.up_time / 1e9,
        )


def view_of(
    state: CheckerState, *, hosts: Mapping[str, str] | None = None, ticks_per_second: float = TICKS_PER_SECOND
) -> Topology:
    """The view that a state of HAKeeper gives."""
    reading = _Reading(state.tick, ticks_per_second, hosts or {})
    return Topology(
        tick=state.tick,
        shards={number: _shard(number, shard) for number, shard in state.log.shards.items()},
        logs={uuid: reading.log(uuid, store) for uuid, store in state.log.stores.items()},
        tns={
            uuid: TransactionNode(
                uuid=uuid, heard=reading.heard(store.tick), lock_address=reading.reach(store.lock_address)
            )
            for uuid, store in state.tn.stores.items()
        },
        cns={uuid: reading.cn(uuid, store) for uuid, store in state.cn.stores.items()},
        proxies={
            uuid: Proxy(uuid=uuid, heard=reading.heard(store.tick))
            for uuid, store in state.proxy.stores.items()
        },
    )


def _shard(number: int, shard: LogShard) -> Shard:
    return Shard(
        id=number, members=shard.replicas, leader=shard.replicas.get(shard.leader_id), epoch=shard.epoch
    )
