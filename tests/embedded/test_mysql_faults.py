"""Faults on clusters of real MariaDB servers: no row that was acknowledged is lost, and the cluster is whole by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest
from tests.embedded.conftest import MakeMySQL
from tests.standstill import Standstill

from mooring.kube.objects.core import PersistentVolumeClaim
from mooring.kube.objects.discovery import EndpointSlice
from mooring.operators.mysql.dial import Dial, DialError
from mooring.testing.ledger import Report
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


def unharmed(report: Report) -> None:
    """Nothing that was acknowledged is lost, and something was acknowledged."""
    assert report.lost_acknowledged == 0, report.text()
    assert report.acknowledged > 150, report.text()


async def test_a_killed_primary_is_replaced_within_two_seconds(mysql: MySQLStage, stood: Standstill) -> None:
    old = await mysql.primary()
    async with mysql.writing() as ledger:
        mysql.kill(old)
        await mysql.led_by_another(old)
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 2.0

    await mysql.exact()
    status = await mysql.status()
    assert status.promotions
    assert status.promotions[0].cause == "Died"
    assert (await mysql.server(old)).replication is not None


@pytest.mark.full
async def test_a_primary_that_is_killed_right_after_the_creation_is_replaced(
    make_mysql: MakeMySQL,
) -> None:  # trap 10
    stage = await make_mysql()
    old = await stage.primary()
    stage.kill(old)
    await stage.led_by_another(old)
    async with stage.writing() as ledger:
        await stage.writes(ledger, 50)
    unharmed(await ledger.check())
    await stage.exact()


async def test_two_primaries_killed_one_after_the_other(mysql: MySQLStage) -> None:  # trap 9
    async with mysql.writing() as ledger:
        for _ in range(2):
            old = await mysql.primary()
            mysql.kill(old)
            # The second one may come back itself: before the first is in sync again, one replica alone cannot tell.
            await mysql.writes(ledger, 50)
    unharmed(await ledger.check())
    await mysql.exact()


async def test_a_hung_primary_is_replaced_and_comes_back_as_a_replica(
    mysql: MySQLStage, stood: Standstill
) -> None:  # traps 11 and 13
    old = await mysql.primary()
    async with mysql.writing(patience=0.5) as ledger:
        pid = mysql.kill(old, signal.SIGSTOP)
        try:
            await mysql.led_by_another(old)
            await mysql.writes(ledger, 100)
        finally:
            os.kill(pid, signal.SIGCONT)
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 8.0
    await mysql.exact(within=60)
    assert (await mysql.server(old)).read_only


async def led_by_the_second(mysql: MySQLStage) -> None:
    """The primary is not the pod that leads a new cluster: who guesses by ordinal is wrong."""
    old = await mysql.primary()
    if old == "demo-1":
        return
    await mysql.switch("demo-1")
    await mysql.led_by_another(old)
    await mysql.whole()


async def test_all_servers_killed_at_once_lose_nothing(mysql: MySQLStage) -> None:  # traps 16 and 21
    await led_by_the_second(mysql)
    primary = await mysql.primary()
    assert primary == "demo-1"
    async with mysql.writing() as ledger:
        for pod in await mysql.pods():
            mysql.kill(pod.metadata.name or "")
        await mysql.writes(ledger, 200)
    unharmed(await ledger.check())
    await mysql.exact()
    assert await mysql.primary() == primary


@pytest.mark.nightly
async def test_all_pods_deleted_at_once_without_grace_lose_nothing(mysql: MySQLStage) -> None:  # trap 16
    await led_by_the_second(mysql)
    before = {pod.metadata.uid for pod in await mysql.pods()}
    async with mysql.writing() as ledger:
        pods = [pod.metadata.name or "" for pod in await mysql.pods()]
        await asyncio.gather(*(mysql.delete_pod(name, grace=0) for name in pods))
        await mysql.writes(ledger, 200)
    unharmed(await ledger.check())
    await mysql.exact()
    assert await mysql.primary() == "demo-1"
    assert not before & {pod.metadata.uid for pod in await mysql.pods()}


async def test_a_deleted_primary_hands_over_before_it_goes(mysql: MySQLStage, stood: Standstill) -> None:
    old = await mysql.primary()
    async with mysql.writing() as ledger:
        await mysql.delete_pod(old)
        await mysql.led_by_another(old)
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 1.0
    await mysql.exact()
    status = await mysql.status()
    assert status.promotions
    assert status.promotions[0].cause == "Planned"


async def test_a_primary_whose_claim_and_pod_are_deleted_is_built_again_from_the_others(
    mysql: MySQLStage,
) -> None:
    old = await mysql.primary()
    claim = f"data-{old}"
    before = (await mysql.claims())[claim]
    async with mysql.writing() as ledger:
        await mysql.bed.client.delete(PersistentVolumeClaim, claim, namespace="default")
        await mysql.delete_pod(old, grace=0)
        await mysql.led_by_another(old)
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    await mysql.exact(within=60)
    assert (await mysql.claims())[claim] != before
    unharmed(await ledger.check(at=await mysql.address(old)))


async def test_without_any_replica_writes_wait_and_go_on_with_the_first_that_returns(
    mysql: MySQLStage,
) -> None:
    primary = await mysql.primary()
    others = [name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary]
    async with mysql.writing() as ledger:
        pids = [mysql.kill(name, signal.SIGSTOP) for name in others]
        try:

            async def blocked() -> bool:
                return (await mysql.status()).phase == "Blocked"

            await mysql.bed.until(blocked, "phase Blocked", within=20)
            assert (await mysql.condition("Ready"))[:2] == ("False", "WritesBlocked")
            assert ledger.silence > 0.5
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    await mysql.exact()
    assert await mysql.primary() == primary


@pytest.mark.nightly
async def test_without_any_replica_writes_go_on_alone_where_that_is_asked_for(mysql: MySQLStage) -> None:
    primary = await mysql.primary()
    others = [name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary]
    await mysql.patch({"durability": {"mode": "Available"}})
    await mysql.exact()
    assert (await mysql.status()).durability == "Strict"

    async def weakened() -> bool:
        """Status says so before the first row that no replica has."""
        confirmed = ledger.acknowledged
        status = await mysql.status()
        if status.blocked_since is not None:
            blocked.append(confirmed)
        if status.durability == "Strict":
            assert not blocked or confirmed == blocked[0], (
                "rows were confirmed while status still said Strict"
            )
        return (status.durability, status.acks) == ("Async", 0)

    async def strict() -> bool:
        status = await mysql.status()
        return (status.durability, status.acks, status.blocked_since) == ("Strict", 1, None)

    blocked: list[int] = []
    async with mysql.writing() as ledger:
        pids = [mysql.kill(name, signal.SIGSTOP) for name in others]
        try:
            took = await mysql.bed.until(weakened, "writes wait for nobody, by status", within=30)
            assert blocked, "status did not say since when writes waited"
            assert took > 10
            risk = (await mysql.status()).at_risk
            assert risk == f"writes that no replica has received yet, if {primary} fails"
            await mysql.writes(ledger, 100)
            assert (await mysql.status()).primary == primary
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        await mysql.bed.until(strict, "Strict again", within=40)
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    await mysql.patch({"durability": None})
    await mysql.exact()
    assert await mysql.primary() == primary
    for name in others:
        unharmed(await ledger.check(at=await mysql.address(name)))


@pytest.mark.nightly
async def test_a_replica_that_is_behind_leaves_the_service_and_returns(mysql: MySQLStage) -> None:
    primary = await mysql.primary()
    late, other = (name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary)
    await mysql.patch({"durability": {"maxLagSeconds": 1}})
    await mysql.exact()

    async def read_from() -> set[str]:
        """The pods behind the replicas' Service."""
        found = await mysql.bed.client.list(EndpointSlice, namespace=mysql.namespace)
        service = mysql.names.replicas
        slices = [
            one
            for one in found.items
            if (one.metadata.labels or {}).get("kubernetes.io/service-name") == service
        ]
        ends = [end for one in slices for end in one.endpoints or ()]
        return {
            end.target_ref.name or ""
            for end in ends
            if end.target_ref is not None and end.conditions is not None and end.conditions.ready
        }

    async def both() -> bool:
        return await read_from() == {late, other}

    async def left() -> bool:
        return await read_from() == {other}

    await mysql.bed.until(both, "both replicas are read from", within=20)
    async with mysql.writing() as ledger:
        root = await mysql.login("root")
        async with Dial().open(await mysql.address(late), root, timeout=40) as client:
            await client.query("FLUSH TABLES WITH READ LOCK")  # what is received is not applied meanwhile
            await mysql.bed.until(left, f"{late} is not read from", within=60)
            assert (await mysql.server(late)).semi_sync.replica
        await mysql.bed.until(both, f"{late} is read from again", within=60)
    unharmed(await ledger.check())
    await mysql.patch({"durability": None})
    await mysql.exact()


async def test_a_primary_that_dies_while_no_operator_runs_is_replaced_by_the_next_one(
    mysql: MySQLStage,
) -> None:  # 20
    old = await mysql.primary()
    async with mysql.writing() as ledger:
        async with mysql.operators_away():
            mysql.kill(old)
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    await mysql.exact()


@pytest.mark.parametrize("after", [0.05, 0.15, 0.3, 0.5])
async def test_an_operator_that_ends_in_the_middle_of_a_failover_is_continued_by_the_next(
    mysql: MySQLStage, after: float
) -> None:
    async with mysql.writing() as ledger:
        mysql.kill(await mysql.primary())
        await asyncio.sleep(after)
        async with mysql.operators_away():
            pass
        await mysql.writes(ledger, 100)
    unharmed(await ledger.check())
    await mysql.exact()


async def test_replicas_refuse_writes_after_a_restart_without_an_operator(
    mysql: MySQLStage,
) -> None:  # trap 7
    async with mysql.operators_away():
        for pod in await mysql.pods():
            mysql.kill(pod.metadata.name or "")
        await asyncio.sleep(1.5)
        for pod in await mysql.pods():
            with pytest.raises(DialError, match="nothing listens"):
                await mysql.server(pod.metadata.name or "")
    await mysql.exact()


async def test_rows_that_one_server_alone_has_are_set_aside_and_it_is_built_again(mysql: MySQLStage) -> None:
    primary = await mysql.primary()
    # An empty primary proves nothing: no replica is built again after it.
    await mysql.query(primary, "CREATE DATABASE IF NOT EXISTS shop", account="root")
    replica = next(name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary)
    async with mysql.operators_away():
        await mysql.stray(replica)

    async def rebuilt() -> bool:
        known = ((await mysql.status()).members or {})[replica]
        with contextlib.suppress(DialError):
            return not known.reseed and not await mysql.query(replica, "SHOW DATABASES LIKE 'stray'")
        return False

    await mysql.bed.until(rebuilt, f"{replica} without the stray database", within=40)
    await mysql.exact()
    assert mysql.set_aside(replica, "stray"), "nothing of the diverged data is kept on the volume"


async def test_a_cluster_of_two_survives_its_primary_and_says_what_it_costs(
    make_mysql: MakeMySQL,
) -> None:  # trap 18
    stage = await make_mysql(size=2, failover={"detectSeconds": 2})
    old = await stage.primary()

    async def blocked() -> bool:
        return (await stage.status()).phase == "Blocked"

    async with stage.writing() as ledger:
        pid = stage.kill(old, signal.SIGSTOP)
        try:
            new = await stage.led_by_another(old)  # the only replica
            await stage.bed.until(blocked, "phase Blocked", within=10)
            before = ledger.acknowledged
            status = await stage.status()
            assert (status.primary, status.durability, status.acks) == (new, "Strict", 1)
            assert status.at_risk == "writes wait for 1 replicas; none that was acknowledged is at risk"
            ready = await stage.condition("Ready")
            assert ready == (
                "False",
                "WritesBlocked",
                f"{new} holds writes until 1 replicas acknowledge them",
            )
            assert await stage.value(new, "read_only") in ("0", "OFF")
            assert ledger.acknowledged == before
        finally:
            os.kill(pid, signal.SIGCONT)
        await stage.writes(ledger, 100)
    unharmed(await ledger.check())
    await stage.exact()
    assert await stage.primary() == new


async def test_a_single_server_comes_back_with_its_data(make_mysql: MakeMySQL) -> None:
    stage = await make_mysql(size=1)
    async with stage.writing() as ledger:
        stage.kill(await stage.primary())
        await stage.writes(ledger, 100)
    unharmed(await ledger.check())
    await stage.exact()
    assert "only copy" in ((await stage.status()).at_risk or "")
