"""Planned changes of primary on real MariaDB servers: short, bounded, undone where they do not get through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.standstill import Standstill

from mooring.operators.mysql.dial import Dial, DialError
from mooring.operators.mysql.names import SWITCH_TO
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


async def another(mysql: MySQLStage) -> str:
    """A replica."""
    primary = await mysql.primary()
    return next(name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary)


@asynccontextmanager
async def never_two_writable(mysql: MySQLStage, old: str, new: str) -> AsyncIterator[None]:
    """Look at both servers all the time, as a proxy would: once the new one takes writes, the old one does not."""
    writable = ("0", "OFF")
    looks: list[str] = []

    async def look() -> None:
        while True:
            first = await mysql.value(new, "read_only")
            looks.append(first)
            if first in writable:
                assert await mysql.value(old, "read_only") not in writable
            await asyncio.sleep(0.05)

    task = asyncio.create_task(look())
    try:
        yield
        assert looks[-1] in writable  # it saw the change
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_switch_holds_writes_for_less_than_a_second(mysql: MySQLStage, stood: Standstill) -> None:
    old, new = await mysql.primary(), await another(mysql)
    async with mysql.writing() as ledger, never_two_writable(mysql, old, new):  # trap 15
        await mysql.switch(new)
        await mysql.led_by_another(old)
        await mysql.writes(ledger, 100)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 1.0, report.text()
    await mysql.exact()
    cluster = await mysql.get()
    assert cluster.status is not None
    assert cluster.status.primary == new
    assert SWITCH_TO not in (cluster.metadata.annotations or {})


async def test_many_switches_round_robin_leave_every_replica_following(mysql: MySQLStage) -> None:  # trap 5
    async with mysql.writing() as ledger:
        for _ in range(6):
            old = await mysql.primary()
            await mysql.switch(await another(mysql))
            await mysql.led_by_another(old)
            await mysql.whole()
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    await mysql.exact()


async def test_a_statement_that_lasts_does_not_hold_writes_for_ever(
    mysql: MySQLStage, stood: Standstill
) -> None:  # trap 12
    old, new = await mysql.primary(), await another(mysql)
    root = await mysql.login("root")
    async with mysql.writing() as ledger, Dial().open(await mysql.address(old), root, timeout=40) as client:
        async with Dial().open(await mysql.address(old), root) as setup:
            await setup.query("CREATE TABLE IF NOT EXISTS mooring_ledger.slow (id INT PRIMARY KEY)")
            await setup.query("REPLACE INTO mooring_ledger.slow VALUES (1), (2), (3)")
        ledger.reset_gap()
        slow = asyncio.create_task(client.query("UPDATE mooring_ledger.slow SET id = id + 10 + SLEEP(10)"))
        await asyncio.sleep(0.2)
        await mysql.switch(new)
        await mysql.led_by_another(old, within=30)
        await mysql.writes(ledger, 100)
        with pytest.raises(DialError):
            await slow
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 6.0, report.text()
    await mysql.exact()


async def test_a_switch_to_a_pod_that_does_not_exist_is_refused(mysql: MySQLStage) -> None:
    old = await mysql.primary()
    await mysql.switch("demo-8")

    async def refused() -> bool:
        return SWITCH_TO not in ((await mysql.get()).metadata.annotations or {})

    await mysql.bed.until(refused, "the annotation is removed", within=10)
    assert await mysql.primary() == old


async def test_a_replica_that_was_pointed_elsewhere_is_repaired_before_it_leads(
    mysql: MySQLStage, stood: Standstill
) -> None:  # trap 4
    old, new = await mysql.primary(), await another(mysql)
    third = next(name for pod in await mysql.pods() if (name := pod.metadata.name or "") not in (old, new))
    host = mysql.names.host(new, "default")
    async with mysql.operators_away():
        change = "MASTER TO MASTER" if mysql.flavor == "mariadb" else "REPLICATION SOURCE TO SOURCE"
        await mysql.query(third, "STOP REPLICA")
        await mysql.query(third, f"CHANGE {change}_HOST='{host}'")
        await mysql.query(third, "START REPLICA")
    async with mysql.writing() as ledger:
        await mysql.switch(third)
        await mysql.led_by_another(old)
        await mysql.writes(ledger, 100)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 5.0
    await mysql.exact()


async def test_read_only_holds_writes_on_every_server_and_lets_them_go_on(mysql: MySQLStage) -> None:
    primary = await mysql.primary()
    await mysql.patch({"maintenance": {"readOnly": True}})

    async def read_only() -> bool:
        return (await mysql.status()).phase == "ReadOnly"

    await mysql.bed.until(read_only, "phase ReadOnly", within=10)
    with pytest.raises(DialError, match="1290"):
        await mysql.query(primary, "CREATE DATABASE never", account="root")
    await mysql.patch({"maintenance": None})
    await mysql.exact()
    await mysql.query(primary, "CREATE DATABASE again", account="root")
    await mysql.query(primary, "DROP DATABASE again", account="root")


async def test_a_fenced_primary_hands_over_and_serves_no_client(mysql: MySQLStage) -> None:
    old = await mysql.primary()
    await mysql.patch({"maintenance": {"fenced": [old]}})
    await mysql.led_by_another(old)

    async def out() -> bool:
        pod = next(pod for pod in await mysql.pods() if pod.metadata.name == old)
        return not (pod.metadata.labels or {}).get("mooring.dev/role")

    await mysql.bed.until(out, f"{old} is in no Service", within=10)
    await mysql.patch({"maintenance": None})
    await mysql.exact()
