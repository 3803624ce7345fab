"""The RPC and the topology on a real MatrixOne: bare processes, two CNs behind a proxy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from mooring.operators.matrixone.cluster.metrics import USER as READER
from mooring.operators.matrixone.cluster.metrics import statements
from mooring.operators.matrixone.rpc.compute import Load
from mooring.operators.matrixone.rpc.dial import Address, Dial, Refused, Unsupported
from mooring.operators.matrixone.rpc.hakeeper import Hakeeper, UnknownStore, hakeeper
from mooring.operators.matrixone.rpc.locks import Locks, locks
from mooring.operators.matrixone.rpc.messages import QueryMethod, QueryReply, QueryRequest, WorkState
from mooring.operators.matrixone.sql import Login, Sql, SqlFailed
from mooring.operators.matrixone.topology import ComputeNode, Topology, read_topology
from mooring.testing.matrixone import LOG_PORT, PASSWORD, SQL_PORT, USER, BareCluster

pytestmark = [pytest.mark.mo_service, pytest.mark.timeout(180)]

T = TypeVar("T")
DIAL = Dial()
SWEEP = 40.0
"""Seconds in which the proxy has moved what it can move; it looks every 10."""


def keepers(cluster: BareCluster) -> list[Address]:
    return [Address(one.host, LOG_PORT) for one in cluster.services.values() if one.role == "log"]


async def look(cluster: BareCluster, *ask: str) -> Topology:
    seen = await read_topology(DIAL, keepers(cluster), ask=[cluster.services[name].uuid for name in ask])
    assert isinstance(seen, Topology), seen
    return seen


async def compute(cluster: BareCluster, name: str) -> ComputeNode:
    return (await look(cluster)).cns[cluster.services[name].uuid]


async def load_of(cluster: BareCluster, name: str) -> Load:
    node = (await look(cluster, name)).cns[cluster.services[name].uuid]
    assert node.load is not None, node.silence
    return node.load


async def until(
    what: Callable[[], Awaitable[T]], good: Callable[[T], bool], *, within: float, every: float = 0.1
) -> T:
    """Look until it is good; fails with what was seen last."""
    deadline = time.monotonic() + within
    while not good(seen := await what()):
        assert time.monotonic() < deadline, f"still {seen} after {within} s"
        await asyncio.sleep(every)
    return seen


@asynccontextmanager
async def keeper_of(cluster: BareCluster) -> AsyncIterator[Hakeeper]:
    async with hakeeper(DIAL, keepers(cluster)) as keeper:
        yield keeper


@asynccontextmanager
async def locks_of(cluster: BareCluster) -> AsyncIterator[Locks]:
    (tn,) = (await look(cluster)).tns.values()
    assert tn.lock_address is not None
    async with locks(DIAL, tn.lock_address) as allocator:
        yield allocator


async def all_working(cluster: BareCluster) -> None:
    await cluster.until_sql("proxy0")
    for name in ("cn0", "cn1"):
        await cluster.until_sql(name)
        async with keeper_of(cluster) as keeper:
            await keeper.patch(cluster.services[name].uuid, WorkState.WORKING)


async def session_on(cluster: BareCluster, name: str, stack: AsyncExitStack) -> Any:
    """A session through the proxy that is on this CN; others that it takes until then are closed."""
    deadline = time.monotonic() + SWEEP
    while time.monotonic() < deadline:
        before = await load_of(cluster, name)
        async with AsyncExitStack() as attempt:
            cursor = await attempt.enter_async_context(cluster.sql())
            await cursor.execute("select 1")
            if (await load_of(cluster, name)).sessions > before.sessions:
                stack.push_async_exit(attempt.pop_all())
                return cursor
    raise AssertionError(f"the proxy gives no session on {name}")


@dataclass
class Writer:
    """Inserts rows one after the other, on one connection."""

    acknowledged: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def write(self, cluster: BareCluster, name: str, table: str) -> None:
        async with cluster.sql(name) as cursor:
            number = 0
            while True:
                try:
                    await cursor.execute(f"insert into {table} values ({number}, 0)")
                    self.acknowledged.append(time.monotonic())
                except Exception as error:
                    self.failed.append(str(error))
                number += 1
                await asyncio.sleep(0.05)

    def longest_gap(self) -> float:
        times = [*self.acknowledged, time.monotonic()]
        return max(after - before for before, after in pairwise(times))


async def test_the_topology_shows_every_process(cluster: BareCluster) -> None:
    await all_working(cluster)
    seen = await look(cluster, "cn0", "cn1")
    services = cluster.services
    assert {*seen.cns} == {services["cn0"].uuid, services["cn1"].uuid}
    assert {*seen.tns} == {services["tn0"].uuid}
    assert {*seen.logs} == {services["log0"].uuid}
    assert {*seen.proxies} == {services["proxy0"].uuid}
    assert seen.led
    assert seen.settled(services["log0"].uuid)
    assert seen.shards_of(services["log0"].uuid) == {0, 1}
    assert all(shard.leader == services["log0"].uuid for shard in seen.shards.values())
    for node in seen.cns.values():
        assert node.heard < 5
        assert node.load is not None
        assert node.load.sessions == 0
        assert abs(node.up_since - time.time()) < 300
    await until(lambda: look(cluster), lambda later: later.tick > seen.tick, within=5)


async def test_labels_are_replaced_kept_and_cleared(cluster: BareCluster) -> None:
    await all_working(cluster)
    uuid = cluster.services["cn0"].uuid
    async with keeper_of(cluster) as keeper:
        await keeper.set_labels(uuid, {"role": ["a", "b"]})
        await keeper.patch(uuid, WorkState.WORKING)
        assert (await compute(cluster, "cn0")).labels == {"role": ("a", "b")}
        await keeper.patch(uuid, WorkState.UNKNOWN, labels={"zone": ["z"]})
        node = await compute(cluster, "cn0")
        assert (node.labels, node.state) == ({"zone": ("z",)}, WorkState.WORKING)
        await keeper.set_labels(uuid, {})
        assert (await compute(cluster, "cn0")).labels == {}
        with pytest.raises(UnknownStore):
            await keeper.set_labels("nobody", {"role": ["a"]})
        with pytest.raises(UnknownStore):
            await keeper.patch("nobody", WorkState.DRAINING)
        await keeper.delete_cn("nobody")


async def test_a_method_that_the_server_does_not_know_is_told_apart(cluster: BareCluster) -> None:
    await all_working(cluster)
    query = (await compute(cluster, "cn0")).query_address
    assert query is not None
    async with DIAL.link(query) as link:
        request = QueryRequest(method=QueryMethod.GET_REPLICA_COUNT)
        with pytest.raises(Unsupported, match="not support in current service"):
            await link.call(request, QueryReply)
    seen = await read_topology(DIAL, keepers(cluster), ask=[cluster.services["cn0"].uuid], sharding=True)
    assert isinstance(seen, Topology)
    load = seen.cns[cluster.services["cn0"].uuid].load
    assert load is not None
    assert load.replicas == 0


@pytest.mark.nightly
async def test_the_user_that_reads_the_metrics_reads_nothing_else_and_may_be_made_again(
    cluster: BareCluster,
) -> None:
    await cluster.until_sql("cn0")
    host, sql = cluster.services["cn0"].host, Sql(lambda: None)
    first = Login(user=USER, password=PASSWORD)
    for text in ("one-password", "another_password"):
        await sql.run(host, SQL_PORT, first, statements(text), where="cn0")
    reader = Login(user=READER, password="another_password")
    await sql.run(host, SQL_PORT, reader, [("", "select count(*) from system_metrics.metric")], where="cn0")
    with pytest.raises(SqlFailed) as refused:
        await sql.run(host, SQL_PORT, reader, [("", "select * from mo_catalog.mo_user")], where="cn0")
    assert refused.value.reason == "StatementRefused"
    with pytest.raises(SqlFailed) as denied:
        await sql.run(host, SQL_PORT, Login(user=READER, password="one-password"), (), where="cn0")
    assert denied.value.reason == "LoginRejected", denied.value


async def test_an_unknown_shard_is_refused_without_a_text(cluster: BareCluster) -> None:
    await all_working(cluster)
    async with keeper_of(cluster) as keeper:
        with pytest.raises(Refused) as caught:
            await keeper.shard(99)
    assert (caught.value.code, caught.value.reply) == (20437, "")


async def test_a_drain_moves_sessions_but_those_in_a_transaction(cluster: BareCluster) -> None:
    await all_working(cluster)
    uuids = [cluster.services[name].uuid for name in ("cn0", "cn1")]
    async with keeper_of(cluster) as keeper, AsyncExitStack() as stack:
        async with cluster.sql() as cursor:
            await cursor.execute("create database if not exists t")
            await cursor.execute("create table if not exists t.drained (id int primary key)")
        await keeper.patch(uuids[1], WorkState.DRAINING)
        idle = [await session_on(cluster, "cn0", stack) for _ in range(3)]
        busy = [await session_on(cluster, "cn0", stack) for _ in range(2)]
        for number, cursor in enumerate(idle):
            await cursor.execute(f"set @mine = {number}")
        for number, cursor in enumerate(busy):
            await cursor.execute("begin")
            await cursor.execute(f"insert into t.drained values ({number})")
        assert (await load_of(cluster, "cn0")).sessions == 5
        await keeper.patch(uuids[1], WorkState.WORKING)
        await keeper.patch(uuids[0], WorkState.DRAINING)
        assert (await compute(cluster, "cn0")).state is WorkState.DRAINING
        await until(lambda: load_of(cluster, "cn0"), lambda load: load.sessions == 2, within=SWEEP)
        for number, cursor in enumerate(idle):
            await cursor.execute("select @mine")
            assert [str(value) for value in await cursor.fetchone()] == [str(number)]
        assert (await load_of(cluster, "cn0")).sessions == 2
        for cursor in busy:
            await cursor.execute("commit")
        await until(lambda: load_of(cluster, "cn0"), lambda load: load.sessions == 0, within=SWEEP)
        await busy[0].execute("select count(*) from t.drained")
        assert (await busy[0].fetchone())[0] == 2


async def test_a_cn_that_hands_its_lock_tables_over_stops_without_stalling_writes(
    cluster: BareCluster,
) -> None:
    await all_working(cluster)
    uuid = cluster.services["cn1"].uuid
    async with cluster.sql("cn1") as cursor:
        await cursor.execute("create database if not exists t")
        await cursor.execute("create table t.held (id int primary key, n int)")
        # The CN that locks first holds the table's locks.
        await cursor.execute("insert into t.held values (-1, 0)")
        await cursor.execute("update t.held set n = 1 where id = -1")
    writer = Writer()
    writing = asyncio.create_task(writer.write(cluster, "cn0", "t.held"))
    try:
        await until(_value(lambda: len(writer.acknowledged)), lambda count: count > 20, within=10)
        async with keeper_of(cluster) as keeper, locks_of(cluster) as allocator:
            await keeper.patch(uuid, WorkState.DRAINING)
            assert not await allocator.can_restart(uuid)
            await allocator.set_restart(uuid)
            await until(lambda: allocator.can_restart(uuid), bool, within=15)
            await cluster.stop("cn1")
            await keeper.delete_cn(uuid)
            assert uuid not in (await look(cluster)).cns
        so_far = len(writer.acknowledged)
        await until(_value(lambda: len(writer.acknowledged)), lambda count: count > so_far + 40, within=40)
    finally:
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    assert writer.failed == []
    assert writer.longest_gap() < 8  # 16 s where the tables are not handed over
    cluster.start("cn1")
    await cluster.until_sql("cn1")
    assert (await compute(cluster, "cn1")).state is WorkState.WORKING


async def test_a_stopped_cn_is_silent_not_idle(cluster: BareCluster) -> None:
    await all_working(cluster)
    uuid = cluster.services["cn1"].uuid
    await cluster.stop("cn1")
    node = (await look(cluster, "cn1")).cns[uuid]
    assert node.state is WorkState.WORKING  # HAKeeper notices after 30 s
    assert node.load is None
    assert "cannot connect" in node.silence
    async with keeper_of(cluster) as keeper:
        await keeper.delete_cn(uuid)
    assert uuid not in (await look(cluster)).cns
    cluster.start("cn1")
    await cluster.until_sql("cn1")


def _value(read: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    async def value() -> T:
        return read()

    return value
