"""Traps of failover on real servers: the planner looks at them, and its steps are carried out. MariaDB, and MySQL in the full tier."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from tests.operators.mysql.test_steps import FLAVORS, ROOT, Bench

from mooring.actor import StepFailed
from mooring.operators.mysql.dial import DialError
from mooring.operators.mysql.moves import (
    DatabaseMove,
    DeletePod,
    Demote,
    Fence,
    Promote,
    Record,
    Verdict,
    Wait,
)
from mooring.operators.mysql.plan import decide
from mooring.operators.mysql.snapshot import Observed, Snapshot, Wanted
from mooring.operators.mysql.survey import read_topology
from mooring.operators.mysql.topology import Member
from mooring.operators.mysql.types import MySQLClusterStatus, Recorded
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import SetState
from mooring.testing.mysql import Servers, TestServer

BOTH = [FLAVORS[0], FLAVORS[-1]]


@dataclass
class Operated:
    """A cluster of servers without pods: each is known by its address, and has the claim of that name."""

    bench: Bench
    servers: Sequence[TestServer]
    status: MySQLClusterStatus = field(default_factory=MySQLClusterStatus)
    moves: list[Verdict] = field(default_factory=list)
    silent_for: float = 0.0
    """Seconds for which a primary that does not answer has not done so."""

    @classmethod
    async def made(cls, bench: Bench, servers: Sequence[TestServer]) -> Operated:
        """The first of them leads, the others follow and acknowledge."""
        primary, *replicas = servers
        await bench.found(primary, replicas)
        for one in replicas:
            await bench.level(primary, one)
        cluster = cls(bench, servers)
        cluster.status = MySQLClusterStatus(
            primary=primary.address,
            term=1,
            ack_set=sorted(one.address for one in replicas),
            acks=1,
            durability="Strict",
            members={one.address: await cluster._known(one, synced=one is not primary) for one in servers},
        )
        return cluster

    async def _known(self, one: TestServer, *, synced: bool) -> Recorded:
        server = await self.bench.see(one)
        return Recorded(
            volume=f"claim-{one.address}",
            server_id=server.server_id,
            start=f"{one.address}/0",
            version=server.version,
            joined=True,
            synced=synced,
        )

    async def look(self) -> Snapshot:
        """What a pass sees."""
        size, primary = len(self.servers), self.status.primary
        members = [
            Member(pod=self._pod(ordinal, one, leads=one.address == primary), order="1 replica 1")
            for ordinal, one in enumerate(self.servers)
        ]
        bench = self.bench
        silent = [primary or ""] if self.silent_for else []
        topology = await read_topology(
            bench.dial, bench.dialect, members, login=bench.login, primary=primary or "", silent=silent
        )
        wanted = Wanted(size=size, flavor=bench.servers.flavor, image=bench.servers.reference)
        leader = topology.member(primary or "")
        away = self.silent_for if leader is not None and leader.server is None else 0.0
        observed = Observed(set=SetState(replicas=size, update_revision="one"), primary_unreachable=away)
        return Snapshot(
            wanted=wanted, topology=topology, observed=observed, status=self.status, now=datetime.now(UTC)
        )

    def _pod(self, ordinal: int, one: TestServer, *, leads: bool) -> Pod:
        alive = one.process is not None and one.process.poll() is None
        return Pod(
            name=one.address,
            ordinal=ordinal,
            uid=one.address,
            ip=one.address,
            volume=f"claim-{one.address}",
            lasting=True,
            fresh=True,
            incarnation=f"{one.address}/0",
            ready=alive,
            running=alive,
            revision="one",
            role="primary" if leads else "replica",
            reads=not leads,
        )

    async def act(self, recorded: Callable[[Verdict], None] = lambda _: None) -> Verdict:
        """One pass: what was decided is recorded and carried out; ``recorded`` is called in between."""
        verdict = decide(await self.look())
        self.moves.append(verdict)
        if isinstance(verdict, Record):
            self.status = verdict.status
        elif isinstance(verdict, DatabaseMove):
            self.status = verdict.first or self.status
            recorded(verdict)
            await self.bench.steps.run(verdict)
        return verdict

    async def until(self, over: Callable[[Verdict], bool]) -> Verdict:
        """Passes until one comes to this."""
        async with asyncio.timeout(30):
            while not over(verdict := await self.act()):
                await asyncio.sleep(0.02)
            return verdict

    async def led(self) -> str:
        """Passes until another server was recorded and takes writes."""
        before = self.status.term
        await self.until(
            lambda verdict: (
                self.status.term != before and self.status.operation is None and isinstance(verdict, Record)
            )
        )
        return self.status.primary or ""


@pytest.fixture
async def bench(image: str) -> AsyncIterator[Bench]:
    async with Servers(image) as servers:
        made = Bench(servers)
        yield made
        made.holds.close()
        made.dial.close()


async def stop(bench: Bench, one: TestServer, thread: str) -> None:
    async with bench.dial.open(one.address, bench.login) as link:
        await link.query(f"STOP REPLICA {thread}")


@pytest.mark.parametrize("image", BOTH)
async def test_a_replica_that_stopped_to_apply_does_not_lead_once_it_is_alone(bench: Bench) -> None:
    """Trap 1."""
    primary, behind, other = await bench.start(3)
    cluster = await Operated.made(bench, [primary, behind, other])
    await stop(bench, behind, "")
    await bench.until(primary, lambda it: it.semi_sync.clients == 1, within=30)
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
    primary.kill()
    other.kill()

    for _ in range(10):
        verdict = await cluster.act()
        assert isinstance(verdict, Wait), verdict
        await asyncio.sleep(0.05)

    assert {one.reason for one in cluster.moves if isinstance(one, Wait)} <= {"PrimaryReturning", "Lost"}
    assert cluster.status.primary == primary.address
    assert (await bench.see(behind)).read_only
    assert 1 not in await bench.rows(behind)

    # Nothing is lost: the server that has the row comes back and leads.
    await primary.boot()
    known = {**(cluster.status.members or {})}
    known[primary.address] = replace(known[primary.address], server_id=primary.server_id)
    cluster.status = replace(cluster.status, members=known)
    await cluster.until(lambda verdict: isinstance(verdict, Promote))
    assert cluster.status.primary == primary.address
    assert 1 in await bench.rows(primary)


@pytest.mark.parametrize("image", BOTH)
async def test_of_two_replicas_the_one_that_is_ahead_leads(bench: Bench) -> None:
    """Trap 3: it has the higher ordinal, and has received and not applied what the other one lacks."""
    primary, behind, ahead = await bench.start(3)
    cluster = await Operated.made(bench, [primary, behind, ahead])
    await stop(bench, behind, "IO_THREAD")
    await bench.until(primary, lambda it: it.semi_sync.clients == 1, within=30)
    await stop(bench, ahead, "SQL_THREAD")
    rows = list(range(20))
    await bench.sql(primary, *(f"INSERT INTO shop.t VALUES ({number}, 1)" for number in rows))
    assert await bench.rows(ahead) == []
    primary.kill()

    assert await cluster.led() == ahead.address

    leader = await bench.see(ahead)
    assert not leader.read_only
    assert sorted(await bench.rows(ahead)) == rows
    promoted = [one.target.name for one in cluster.moves if isinstance(one, Promote)]
    assert set(promoted) == {ahead.address}


@pytest.mark.parametrize("image", BOTH[:1])  # MySQL lets nobody take rights away while it is read-only
async def test_a_promotion_that_a_server_refuses_is_not_taken_for_done(bench: Bench) -> None:
    """Trap 6: the server refuses to take writes, and later does: until then nobody counts as leading."""
    primary, heir, other = await bench.start(3)
    cluster = await Operated.made(bench, [primary, heir, other])
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
    await bench.until(heir, lambda it: it.executed.contains(it.received))
    rights = "READ ONLY ADMIN, SUPER"
    primary.kill()
    await cluster.until(lambda verdict: isinstance(verdict, Fence))
    async with bench.dial.open(heir.address, ROOT) as link:
        await link.query("SET SESSION sql_log_bin = 0")
        [given] = (await link.query("SHOW GRANTS FOR 'mooring'@'%'"))[:1]
        assert "ALL PRIVILEGES" in str(given) or "SUPER" in str(given)
        await link.query(f"REVOKE {rights} ON *.* FROM 'mooring'@'%'")
    bench.dial.forget(heir.address)

    with pytest.raises(StepFailed):
        await cluster.led()

    assert cluster.status.primary == heir.address
    assert cluster.status.operation is not None
    assert (await bench.see(heir)).read_only
    async with bench.dial.open(heir.address, ROOT) as link:
        await link.query("SET SESSION sql_log_bin = 0")
        await link.query(f"GRANT {rights} ON *.* TO 'mooring'@'%'")
    bench.dial.forget(heir.address)

    await cluster.until(lambda _: cluster.status.operation is None)
    leader = await bench.see(heir)
    assert not leader.read_only
    assert leader.semi_sync.source
    assert leader.replication is None
    assert await bench.rows(heir) == [1]


class Writer:
    """A client of one server, on one connection: rows 0, 1, 2 ... as fast as they are confirmed."""

    def __init__(self, bench: Bench, one: TestServer) -> None:
        self.confirmed = 0
        self._task = asyncio.create_task(self._write(bench, one))

    async def _write(self, bench: Bench, one: TestServer) -> None:
        async with bench.client(one) as client:
            while True:
                await client.query(f"INSERT INTO shop.t VALUES ({self.confirmed}, 1)")
                self.confirmed += 1

    async def reached(self, count: int) -> None:
        """Wait for so many confirmed rows."""
        async with asyncio.timeout(10):
            while self.confirmed < count:
                await asyncio.sleep(0.01)

    async def ended(self) -> None:
        """Wait for the error that ends it."""
        with suppress(DialError):
            await self._task


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["fenced", "recorded", "promoted"])
@pytest.mark.parametrize("image", BOTH)
async def test_a_primary_that_wakes_amid_its_failover_confirms_no_row_that_is_lost(
    bench: Bench, moment: str
) -> None:
    """Trap 13: it goes on where it stood, with the client that waits for it, once the receivers are stopped."""
    primary, *others = await bench.start(3)
    cluster = await Operated.made(bench, [primary, *others])
    writer = Writer(bench, primary)
    await writer.reached(20)
    primary.kill(signal.SIGSTOP)
    cluster.silent_for = 10.0
    woken: list[str] = []

    def wake(now: str) -> None:
        if now == moment and not woken:
            primary.kill(signal.SIGCONT)
            woken.append(now)

    def recorded(verdict: Verdict) -> None:
        if isinstance(verdict, Promote):
            wake("recorded")

    async with asyncio.timeout(60):
        while True:
            verdict = await cluster.act(recorded)
            if isinstance(verdict, Fence):
                wake("fenced")
            if isinstance(verdict, Promote):
                wake("promoted")
            if woken and isinstance(verdict, DeletePod | Demote):
                break
            await asyncio.sleep(0.02)
    assert woken == [moment]
    new = next(one for one in others if one.address == cluster.status.primary)
    named = verdict.pod if isinstance(verdict, DeletePod) else verdict.target.name
    assert named == primary.address
    primary.kill()
    await writer.ended()

    leader = await bench.see(new)
    assert not leader.read_only
    rows = await bench.rows(new)
    assert set(range(writer.confirmed)) <= set(rows)
    assert cluster.status.term == 2


@pytest.mark.embedded
@pytest.mark.full
@pytest.mark.parametrize("image", ["mariadb:10.11"])
async def test_of_replicas_of_two_versions_the_older_one_leads(bench: Bench) -> None:
    """Trap 25: the primary ends amid an upgrade; a newer one would leave the older one without a source."""
    async with AsyncExitStack() as stack:
        newer = await stack.enter_async_context(Servers("mariadb:11.8"))
        primary, older = await bench.start(2)
        [new] = await newer.start(1)
        cluster = await Operated.made(bench, [primary, new, older])
        await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
        leader = await bench.see(primary)
        for one in (new, older):
            await bench.shows(one, leader, [1])
        assert (await bench.see(new)).version > (await bench.see(older)).version
        primary.kill()

        assert await cluster.led() == older.address

        await bench.sql(older, "INSERT INTO shop.t VALUES (2, 1)")
        await bench.shows(new, await bench.see(older), [1, 2])
