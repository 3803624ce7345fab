"""A physical backup of a real server, continued from its archive by the Job's own shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.operators.mysql.test_archive import REPLICATION
from tests.operators.mysql.test_archive_target import no_secrets
from tests.operators.mysql.test_backup_files import PREFIX, WITHIN, Run, Stand, stand
from tests.operators.mysql.test_steps import FLAVORS

from mooring.objectstore import Target, open_store
from mooring.objectstore.target import Directory
from mooring.operators.backup.layout import archive_of
from mooring.operators.mysql.archive.agent import fetch
from mooring.operators.mysql.archive.archiver import Archiver, stream_id
from mooring.operators.mysql.archive.forward import FETCHED, FORWARD
from mooring.operators.mysql.archive.sources import Sources
from mooring.operators.mysql.archive.store import Archive, reaches
from mooring.operators.mysql.archive.target import Goal
from mooring.operators.mysql.backup import scripts
from mooring.operators.mysql.dial import Dial
from mooring.operators.mysql.gtid import Position, parse

__all__ = ["stand"]


async def position(stand: Stand) -> Position:
    return (await stand.bench.see(stand.server)).executed


@asynccontextmanager
async def archived(stand: Stand) -> AsyncIterator[Archive]:
    """The archive of the server; at the end of the block it has all that was written in it."""
    dial, flavor = Dial(), stand.server.flavor
    (stand.root / "store").mkdir()
    target = Target(directory=Directory(path=str(stand.root / "store")))
    async with open_store(target, secrets=no_secrets) as store:
        archive = Archive(store, archive_of(PREFIX))
        sources = Sources(dial, lambda: REPLICATION, flavor=flavor, addresses=[stand.server.address])
        archiver = Archiver(archive, sources, flavor=flavor, server_id=stream_id("demo"), seconds=0.5)
        task = asyncio.create_task(archiver.run())
        try:
            yield archive
            end = await position(stand)
            async with asyncio.timeout(WITHIN):
                while (tail := await archive.tail()) is None or not reaches(tail.position, end):
                    await asyncio.sleep(0.05)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            dial.close()


async def continued(stand: Stand, backup: Run, goal: Goal) -> Run:
    """A restore that goes on from the backup to the goal, checked as a test restore is; it has ended."""
    volume = stand.root / "volume"
    fetched = volume / Path(FETCHED).name
    target = Target(directory=Directory(path=str(stand.root / "store")))
    async with open_store(target, secrets=no_secrets) as store:
        base = parse(stand.server.flavor, backup.manifest.position)
        assert (await fetch(Archive(store, archive_of(PREFIX)), base, goal, fetched)).ok
    run = stand.run(FORWARD + scripts.RESTORE, volume, FORWARD=FETCHED, VERIFY="yes")
    run.move("get")
    await run.over()
    return run


@pytest.mark.parametrize("image", FLAVORS)
@pytest.mark.timeout(300)
async def test_a_physical_backup_is_continued_to_exactly_a_transaction(stand: Stand) -> None:
    flavor = stand.server.flavor
    async with archived(stand):
        for number in range(1, 11):
            await stand.sql(f"INSERT INTO shop.log VALUES ({number})")
        backup = stand.backup("Physical")
        await backup.good()
        await stand.sql("CREATE TABLE shop.later (id INT PRIMARY KEY)")
        await stand.sql("CREATE USER late@'%' IDENTIFIED BY 'of that moment'")
        for number in range(11, 21):
            await stand.sql(f"INSERT INTO shop.log VALUES ({number})")
        before = await position(stand)
        await stand.sql("INSERT INTO shop.later VALUES (1)")
        goal = await position(stand)
        for number in range(21, 31):
            await stand.sql(f"INSERT INTO shop.log VALUES ({number})")
    gtid = goal.newest() if flavor == "mariadb" else (goal - before).text()
    run = await continued(stand, backup, Goal(gtid=gtid))
    assert run.report.ok, run.log
    assert run.said["transaction"] == gtid
    assert parse(flavor, run.said["position"]).newest() == goal.newest()
    # Two rows were there before, twenty and one were written up to the goal.
    assert "23 rows in 4 tables" in run.said["checked"]
    # A Job that is made again after all is done says the same, and leaves nothing on the server's volume.
    again = await continued(stand, backup, Goal(gtid=gtid))
    assert again.report.ok, again.log
    same = ("transaction", "committed", "position")
    assert [again.said[name] for name in same] == [run.said[name] for name in same]
    assert not (stand.root / "volume" / Path(FETCHED).name).exists()


@pytest.mark.parametrize("image", [FLAVORS[0], FLAVORS[-1]])
@pytest.mark.timeout(300)
async def test_a_statement_that_cannot_be_applied_is_not_repeated_in_any_message(stand: Stand) -> None:
    async with (
        archived(stand),
        stand.bench.dial.open(stand.server.address, stand.bench.login, timeout=WITHIN) as link,
    ):
        await link.query("SET sql_log_bin = 0")
        await link.query("CREATE USER twice@'%'")
        backup = stand.backup("Physical")
        await backup.good()
        await link.query("DROP USER twice@'%'")
        await link.query("SET sql_log_bin = 1")
        await link.query("CREATE USER twice@'%' IDENTIFIED BY 'open-sesame'")
    run = await continued(stand, backup, Goal())
    assert run.data.returncode != 0
    said = (run.shared / "said").read_text()
    assert "the archive could not be applied up to" in said
    if stand.server.flavor == "mariadb":
        assert "CREATE USER failed for 'twice'@'%'" in said
    for text in (said, run.log):
        assert "open-sesame" not in text
        assert "IDENTIFIED" not in text
