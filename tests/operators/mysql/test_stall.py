"""Commits that do not end though the server answers: what the servers say of it, and what status shows."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from bench.small_volumes import filled
from tests.operators.mysql.builders import healthy
from tests.operators.mysql.declared import cluster, inputs
from tests.operators.mysql.test_steps import FLAVORS, Bench

from mooring.actor import Wait
from mooring.operators.mysql.dial import DialError
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.moves import Fence, Follow, InSync
from mooring.operators.mysql.status import readiness, report
from mooring.operators.mysql.topology import Flavor, Stall
from mooring.testing.mysql import Servers


@pytest.mark.parametrize(
    ("flavor", "rows", "stall"),
    [
        ("mariadb", [("Query", 1, "Waiting for someone to free space")], "full"),
        ("mariadb", [("Query", 10, "Commit")], "wait"),
        ("mariadb", [("Query", 9, "Commit")], ""),
        ("mariadb", [("Sleep", 500, ""), ("Binlog Dump", 500, "Master has sent all binlog to slave")], ""),
        ("mysql", [("Execute", 10, "waiting for handler commit")], "wait"),
        ("mysql", [("Query", 60, "Waiting for table metadata lock")], ""),
        ("mysql", [], ""),
    ],
)
def test_sessions_tell_whether_commits_end(
    flavor: Flavor, rows: Sequence[tuple[str, int, str]], stall: str
) -> None:
    answer = [{"Command": command, "Time": time, "State": state} for command, time, state in rows]
    assert dialect_of(flavor).stall_of(answer) == stall


@pytest.mark.parametrize(
    ("stall", "reason", "words"),
    [
        ("full", "VolumeFull", "the volume of demo-0 is full: writes wait for space; raise spec.storage.size"),
        ("wait", "WritesStalled", "commits on demo-0 wait, and not for a replica: its volume is full, or does not answer"),
    ],
)  # fmt: skip
def test_a_primary_whose_commits_do_not_end_is_not_ready_and_says_why(
    stall: Stall, reason: str, words: str
) -> None:
    scene = healthy().server("demo-0", stalled=stall)
    assert isinstance(scene.decide(), InSync)  # no failover: the volumes of the others are as full

    ready = readiness(scene.snapshot)
    shown = report(inputs(cluster({"size": 3, "image": "mariadb:10.11"})), scene.snapshot, InSync()).instead

    assert (ready.status, ready.reason) == (False, reason)
    assert words in (ready.message or "")
    assert isinstance(shown, Wait)
    assert (shown.reason, shown.stalled) == (reason, True)
    assert readiness(healthy().snapshot).status is True


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 700 MB."""
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700m", "small", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small(volume: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with the directories of all servers."""
    monkeypatch.setattr(tempfile, "tempdir", str(volume))
    return volume


@pytest.mark.parametrize("image", FLAVORS)
async def test_a_server_whose_volume_is_full_says_so_while_it_answers(small: Path, image: str) -> None:
    async with Servers(image) as servers:
        bench = Bench(servers)
        [primary] = await bench.start(1)
        await bench.found(primary, [], semi_sync=False)
        assert (await bench.see(primary)).stalled == ""

        async def write() -> None:
            for number in range(1000):  # the page that the binary log ends in has room for some
                await bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)", timeout=60)

        with filled(small):
            writing = asyncio.create_task(write())

            server = await bench.until(primary, lambda it: it.stalled or writing.done(), within=40)

            assert not writing.done(), writing
            assert server.stalled == ("full" if servers.flavor == "mariadb" else "wait")
            assert not server.read_only
            primary.kill()
        with suppress(DialError):
            await writing
        bench.holds.close()
        bench.dial.close()


@pytest.mark.embedded
@pytest.mark.full
async def test_a_receiver_that_waits_for_space_is_stopped_at_once_and_says_what_it_received(
    volume: Path,
) -> None:
    async with Servers("mysql:9.7") as servers:
        bench = Bench(servers)
        [primary] = await bench.start(1)
        replica = await servers.make()
        replica.directory = Path(shutil.move(replica.directory, volume / "replica"))
        await replica.boot()
        await bench.found(primary, [replica], semi_sync=False)
        await bench.level(primary, replica)

        async def waits() -> bool:
            async with bench.dial.open(replica.address, bench.login) as link:
                return any(
                    row["State"] == "Waiting for disk space" for row in await link.query("SHOW PROCESSLIST")
                )

        with filled(volume):
            async with asyncio.timeout(60):
                number = 0
                while not await waits():
                    for _ in range(50):
                        number += 1
                        await bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)")

            await bench.run(Fence(targets=(replica.target,)))

            server = await bench.see(replica)
            assert server.replication is not None
            assert not server.replication.io_running
            assert not server.replication.connecting
            assert (await bench.see(primary)).executed.contains(server.received)
        await bench.run(
            Follow(targets=(replica.target,), source=primary.target, source_host=primary.address), within=60
        )
        await bench.shows(replica, await bench.see(primary), list(range(1, number + 1)))
        bench.holds.close()
        bench.dial.close()
