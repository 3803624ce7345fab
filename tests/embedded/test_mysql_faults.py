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
from mooring.operators.mysql.dial import DialError
from mooring.testing.ledger import Report
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


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


async def test_all_servers_killed_at_once_lose_nothing(mysql: MySQLStage) -> None:  # traps 16 and 21
    primary = await mysql.primary()
    async with mysql.writing() as ledger:
        for pod in await mysql.pods():
            mysql.kill(pod.metadata.name or "")
        await mysql.writes(ledger, 200)
    unharmed(await ledger.check())
    await mysql.exact()
    assert await mysql.primary() == primary


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


async def test_a_cluster_of_two_survives_its_primary_and_says_what_it_costs(
    make_mysql: MakeMySQL,
) -> None:  # trap 18
    stage = await make_mysql(size=2)
    old = await stage.primary()
    async with stage.writing() as ledger:
        stage.kill(old)
        await stage.writes(ledger, 100)
    unharmed(await ledger.check())
    await stage.exact()
    assert await stage.primary() != old


async def test_a_single_server_comes_back_with_its_data(make_mysql: MakeMySQL) -> None:
    stage = await make_mysql(size=1)
    async with stage.writing() as ledger:
        stage.kill(await stage.primary())
        await stage.writes(ledger, 100)
    unharmed(await ledger.check())
    await stage.exact()
    assert "only copy" in ((await stage.status()).at_risk or "")
