"""Clusters of real MariaDB servers that grow and shrink while clients write."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import MakeMySQL
from tests.embedded.test_mysql_seed import purge
from tests.standstill import Standstill

from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest.mark.nightly
async def test_from_three_to_five_with_larger_volumes_and_back_under_load(
    mysql: MySQLStage, stood: Standstill
) -> None:
    async with mysql.writing() as ledger:
        pods = {one.metadata.uid for one in await mysql.pods()}
        await mysql.patch({"size": 5, "storage": {"size": "2Gi"}})
        await mysql.whole(within=60)
        await mysql.capacity("2Gi")
        assert len(await mysql.capacities()) == 5
        assert {one.metadata.uid for one in await mysql.pods()} > pods  # none restarted
        # MariaDB waits for one acknowledgement whatever is asked for, so that of four replicas two may give it.
        assert len((await mysql.status()).ack_set or ()) == (2 if mysql.flavor == "mariadb" else 4)
        await mysql.switch("demo-4")  # what leads is about to go
        await mysql.led_by_another("demo-0")
        await mysql.patch({"size": 3})
        await mysql.whole(within=60)
        await mysql.writes(ledger, 100)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 2.0, report.text()
    await mysql.exact()
    status = await mysql.status()
    assert status.primary in ("demo-0", "demo-1", "demo-2")
    assert set(status.ack_set or ()) | {status.primary} == {"demo-0", "demo-1", "demo-2"}


@pytest.mark.parametrize("purged", [True, pytest.param(False, marks=pytest.mark.nightly)])
async def test_a_pod_that_comes_back_to_an_old_claim_joins_with_what_it_lacks(
    mysql: MySQLStage, purged: bool
) -> None:  # traps 14 and 23
    await mysql.patch({"size": 2})
    await mysql.exact(within=60)
    async with mysql.writing() as ledger:
        await mysql.writes(ledger, 100)
    if purged:  # what it lacks is in no binary log any more
        await purge(mysql)
    await mysql.patch({"size": 3})
    await mysql.exact(within=60)
    assert (await ledger.check(at=await mysql.address("demo-2"))).lost_acknowledged == 0


async def test_one_server_becomes_three_and_writes_are_safe_from_then_on(make_mysql: MakeMySQL) -> None:
    stage = await make_mysql(size=1)
    async with stage.writing() as ledger:
        await stage.patch({"size": 3})
        await stage.whole(within=60)
        status = await stage.status()
        assert (status.durability, status.acks) == ("Strict", 1)
        old = await stage.primary()
        stage.kill(old)
        await stage.led_by_another(old)
        await stage.writes(ledger, 50)
        await stage.whole(within=60)
        await stage.patch({"size": 1})
        await stage.whole(within=60)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert (await stage.status()).durability == "Async"
