"""The archive of a real MariaDB cluster over a failover, and new clusters that begin at a moment of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.embedded.test_mysql_backup import Backups, eventually

from mooring.kube import MergePatch
from mooring.operators.mysql.dial import Dial
from mooring.operators.mysql.types import ArchiveStatus, MySQLCluster
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


class Rows:
    """One client that writes a row for each transaction; what the primary had after each, and when."""

    def __init__(self, stage: MySQLStage) -> None:
        self.stage = stage
        self.positions: list[str] = []
        self.times: list[datetime] = []

    async def write(self, count: int) -> None:
        async with Dial().open(await self.stage.entry(), await self.stage.login("root")) as link:
            await link.query("CREATE DATABASE IF NOT EXISTS shop")
            await link.query("CREATE TABLE IF NOT EXISTS shop.log (id INT PRIMARY KEY)")
            for _ in range(count):
                await link.query(f"INSERT INTO shop.log VALUES ({len(self.positions) + 1})")
                row = await link.one("SELECT @@GLOBAL.gtid_binlog_pos AS p")
                self.positions.append(str(row["p"]))
                self.times.append(datetime.now(UTC))


async def archive_of(stage: MySQLStage) -> ArchiveStatus:
    return (await stage.status()).archive or ArchiveStatus()


async def archived(stage: MySQLStage) -> str:
    status = await stage.status()
    return next((one.status or "" for one in status.conditions or () if one.type == "Archived"), "")


async def test_the_log_is_archived_over_a_failover_and_new_clusters_begin_at_a_moment_of_it(
    mysql: MySQLStage, tmp_path: Path
) -> None:
    backups, rows = Backups(mysql), Rows(mysql)
    target, _ = await backups.directory(tmp_path)
    patch = MergePatch({"spec": {"archive": {"target": target, "intervalSeconds": 1}}})
    await mysql.bed.client.patch(MySQLCluster, mysql.name, patch, namespace="default")
    await rows.write(10)
    await mysql.exact()
    await backups.make("base", target)
    await backups.over("base")
    await rows.write(10)

    async def works() -> bool:
        return await archived(mysql) == "True"

    await eventually(works)
    old = await mysql.primary()
    mysql.kill(old)
    await mysql.led_by_another(old)
    await mysql.exact()
    await rows.write(10)

    async def caught_up() -> ArchiveStatus | None:
        now = await archive_of(mysql)
        return now if now.position == rows.positions[-1] else None

    # Progress alone is written once a minute.
    archive = await eventually(caught_up, within=90)
    assert (archive.state, archive.gap, archive.lag_seconds) == ("Archiving", None, 30)
