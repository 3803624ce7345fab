"""Replicas that cannot join by replication alone begin with a copy: binary logs were purged since their data was made."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from mooring.kube import NotFound
from mooring.kube.objects.core import PersistentVolumeClaim
from mooring.operators.mysql.dial import DialError
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


async def purge(mysql: MySQLStage) -> None:
    """No server has binary logs that reach back to the beginning."""
    await mysql.exact(within=60)
    for pod in await mysql.pods():
        name = pod.metadata.name or ""
        await mysql.query(name, "FLUSH BINARY LOGS")
        logs = await mysql.query(name, "SHOW BINARY LOGS")
        await mysql.query(name, f"PURGE BINARY LOGS TO '{logs[-1]['Log_name']}'")


async def test_a_further_replica_begins_with_a_copy_and_goes_on_from_there(mysql: MySQLStage) -> None:
    async with mysql.writing() as ledger:
        await mysql.writes(ledger, 200)
        await _purge_under_load(mysql)
        await mysql.patch({"size": 4})
        await mysql.whole(within=90)
        await mysql.writes(ledger, 100)
    await mysql.exact(within=60)
    report = await ledger.check(at=await mysql.address("demo-3"))
    assert report.lost_acknowledged == 0, report.text()
    await mysql.patch({"size": 3})
    await mysql.exact(within=60)


async def _purge_under_load(mysql: MySQLStage) -> None:
    for pod in await mysql.pods():
        name = pod.metadata.name or ""
        await mysql.query(name, "FLUSH BINARY LOGS")
        logs = await mysql.query(name, "SHOW BINARY LOGS")
        with contextlib.suppress(DialError):  # a replica reads it just now
            await mysql.query(name, f"PURGE BINARY LOGS TO '{logs[-1]['Log_name']}'")


async def test_a_replica_whose_claim_is_gone_is_copied_and_may_lead(mysql: MySQLStage) -> None:
    await purge(mysql)
    primary = await mysql.primary()
    lost = next(name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary)
    before = (await mysql.claims())[f"data-{lost}"]
    with contextlib.suppress(NotFound):
        await mysql.bed.client.delete(PersistentVolumeClaim, f"data-{lost}", namespace="default")
    await mysql.delete_pod(lost)

    async def remade() -> bool:
        return (await mysql.claims()).get(f"data-{lost}", before) != before

    await mysql.bed.until(remade, "a new claim", within=60)
    await mysql.exact(within=90)
    await mysql.switch(lost)
    await mysql.led_by_another(primary)
    assert await mysql.primary() == lost
    await mysql.exact(within=60)  # the others find their position in its binary logs


async def test_a_server_with_rows_of_its_own_is_copied_anew(mysql: MySQLStage) -> None:
    primary = await mysql.primary()
    # An empty primary proves nothing: no replica is built again after it.
    await mysql.query(primary, "CREATE DATABASE IF NOT EXISTS shop", account="root")
    await purge(mysql)
    replica = next(name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary)
    async with mysql.operators_away():
        await mysql.stray(replica)

    async def rebuilt() -> bool:
        known = ((await mysql.status()).members or {})[replica]
        with contextlib.suppress(DialError):
            return not known.reseed and not await mysql.query(replica, "SHOW DATABASES LIKE 'stray'")
        return False

    await mysql.bed.until(rebuilt, f"{replica} without the stray database", within=90)
    await mysql.exact(within=60)
    assert mysql.set_aside(replica, "stray"), "nothing of the diverged data is kept on the volume"


def _overwrite(file: Path) -> None:
    """Damage the beginning of a file."""
    with file.open("r+b") as damaged:
        damaged.write(b"\xde\xad" * (1 << 17))


async def test_a_replica_whose_files_are_damaged_is_built_again(mysql: MySQLStage) -> None:
    primary = await mysql.primary()
    damaged = next(name for pod in await mysql.pods() if (name := pod.metadata.name or "") != primary)
    pid = mysql.kill(damaged, signal.SIGSTOP)
    _overwrite(Path(f"/proc/{pid}/root/var/lib/mysql/data/ibdata1"))
    mysql.kill(damaged)

    async def seeded() -> bool:
        return bool(((await mysql.status()).members or {})[damaged].seeded)

    await mysql.bed.until(seeded, "its data is set aside", within=90)
    await mysql.exact(within=90)
    assert await mysql.primary() == primary
