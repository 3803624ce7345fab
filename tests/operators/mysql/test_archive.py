"""The archive of real servers, from the first write over a fail-over to restored rows."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.operators.mysql.test_archive_target import no_secrets
from tests.operators.mysql.test_steps import Bench

from mooring.objectstore import Store, Target, open_store
from mooring.objectstore.target import Directory
from mooring.operators.mysql.archive.apply import APPLY, WAY
from mooring.operators.mysql.archive.archiver import Archiver, stream_id
from mooring.operators.mysql.archive.relay import write_relay
from mooring.operators.mysql.archive.sources import Sources
from mooring.operators.mysql.archive.store import Archive, reaches
from mooring.operators.mysql.archive.target import Goal, Way, resolve
from mooring.operators.mysql.dial import Dial, Login
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import Fence
from mooring.testing.mysql import CREDENTIALS, Servers, TestServer, inside

FLAVORS = pytest.mark.parametrize(
    "image",
    [
        pytest.param("mariadb:10.11", marks=pytest.mark.embedded),
        pytest.param("mariadb:11.8", marks=[pytest.mark.embedded, pytest.mark.nightly]),
        pytest.param("mysql:9.7", marks=[pytest.mark.embedded, pytest.mark.full]),
    ],
)
REPLICATION = Login(user="mooring_replication", passwords=tuple(CREDENTIALS.of("mooring_replication")))


@dataclass
class Stage:
    """Servers, a store, and an archiver that can be stopped and started."""

    bench: Bench
    store: Store
    root: Path
    task: asyncio.Task[None] | None = None
    archiver: Archiver | None = None

    @property
    def archive(self) -> Archive:
        return Archive(self.store, "demo-00000000/archive")

    def start(self, *servers: TestServer, patience: float = 60.0) -> Archiver:
        dial = Dial()
        addresses = [one.address for one in servers]
        sources = Sources(dial, lambda: REPLICATION, flavor=self.bench.servers.flavor, addresses=addresses)
        self.archiver = Archiver(
            self.archive, sources, flavor=self.bench.servers.flavor, server_id=stream_id("demo"), seconds=0.5,
            patience=patience, note=0.5,
        )  # fmt: skip
        self.task = asyncio.create_task(self.archiver.run())
        self.task.add_done_callback(lambda _: dial.close())
        return self.archiver

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None

    async def until(self, reached: Callable[[], Awaitable[object]], *, within: float = 60.0) -> None:
        async with asyncio.timeout(within):
            while not await reached():
                await asyncio.sleep(0.05)

    async def archived(self, position: Position) -> None:
        async def there() -> bool:
            tail = await self.archive.tail()
            return tail is not None and reaches(tail.position, position)

        await self.until(there)

    async def restored(self, base: Path | None, way: Way) -> tuple[TestServer, list[int]]:
        """A further server with the base, and what of the archive is needed, applied by the Job's own shell."""
        bench = self.bench
        server = await bench.servers.make()
        if base is not None:
            shutil.rmtree(server.data)
            shutil.copytree(base, server.data, symlinks=True)
        source = server.directory / "archive"
        source.mkdir()
        await write_relay(self.archive, way, source)
        (source / WAY).write_text(f"stop={way.stop}\n")
        done = await asyncio.to_thread(apply, server)
        assert done.returncode == 0, done.stderr + done.stdout
        await server.boot()
        assert (await bench.see(server)).read_only
        return server, await bench.rows(server)


def apply(server: TestServer) -> subprocess.CompletedProcess[str]:
    program = "mariadbd" if server.flavor == "mariadb" else "mysqld"
    sizes = "--innodb-buffer-pool-size=16M --performance-schema=OFF --innodb-use-native-aio=OFF"
    call = f"apply_archive /var/lib/mysql/data /var/lib/mysql/archive {server.flavor} {program} --user=root {sizes}"
    text = f'set -u\n{APPLY}\n{call} || {{ echo "$apply_error"; exit 1; }}\n'
    (server.directory / "apply.sh").write_text(text)
    return subprocess.run(
        [*inside(server.image, server.directory), "sh", "/var/lib/mysql/apply.sh"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.fixture
async def stage(image: str, tmp_path: Path) -> AsyncIterator[Stage]:
    target = Target(directory=Directory(path=str(tmp_path)))
    async with Servers(image) as servers, open_store(target, secrets=no_secrets) as store:
        made = Stage(Bench(servers), store, tmp_path)
        try:
            yield made
        finally:
            await made.stop()
            made.bench.holds.close()
            made.bench.dial.close()


@dataclass
class Written:
    """What a client knows of one row: what the primary had after it, and the times before and after."""

    id: int
    executed: Position
    before: float
    after: float


class Writer:
    """One client, so that the order of rows is that of the transactions."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.rows: list[Written] = []

    async def write(self, primary: TestServer, count: int) -> None:
        for _ in range(count):
            number, before = len(self.rows) + 1, time.time()
            await self.bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)")
            after = time.time()
            self.rows.append(Written(number, (await self.bench.see(primary)).executed, before, after))


async def base_of(bench: Bench, replica: TestServer, at: Path) -> tuple[Path, Position]:
    """A cold copy of a replica, without what it replicated from."""
    server = await bench.servers.make()
    position = (await bench.see(replica)).executed
    replica.kill(15)
    assert replica.process is not None
    await asyncio.to_thread(replica.process.wait)
    shutil.rmtree(server.data)
    shutil.copytree(replica.data, server.data, symlinks=True)
    (server.data / "auto.cnf").unlink(missing_ok=True)
    await server.boot()
    async with bench.dial.open(server.address, bench.login) as link:
        await link.query("RESET REPLICA ALL")
    server.kill(15)
    assert server.process is not None
    await asyncio.to_thread(server.process.wait)
    shutil.copytree(server.data, at, symlinks=True)
    return at, position


async def fail_over(bench: Bench, primary: TestServer, replicas: list[TestServer]) -> TestServer:
    primary.kill()
    await bench.run(Fence(targets=tuple(one.target for one in replicas)))
    seen = [(await bench.see(one), one) for one in replicas]
    new = max(seen, key=lambda pair: pair[0].received.ahead_of(Position()))[1]
    others = [one for one in replicas if one is not new]
    expected = next(server.received for server, one in seen if one is new)
    await bench.run(bench.promote(new, others, expected))
    return new


@asynccontextmanager
async def running(stage: Stage, *servers: TestServer) -> AsyncIterator[Archiver]:
    yield stage.start(*servers)
    await stage.stop()


async def round_trip(stage: Stage, seed: int, *, gtids: int, times: int, rows: int, tmp_path: Path) -> None:
    bench, chosen = stage.bench, random.Random(seed)
    mariadb = bench.servers.flavor == "mariadb"
    primary, *replicas = await bench.start(3)
    await bench.found(primary, replicas)
    writer = Writer(bench)
    async with running(stage, primary, *replicas):
        await writer.write(primary, rows)
        await bench.level(primary, replicas[1])
        await stage.archived(writer.rows[-1].executed)
    # While no archiver runs the history goes on.
    base, base_position = await base_of(bench, replicas[1], tmp_path / "base")
    based = rows
    await replicas[1].boot()
    await bench.run(bench.promote(primary, replicas))
    await writer.write(primary, rows)
    async with running(stage, primary, *replicas):
        await writer.write(primary, rows)
        new = await fail_over(bench, primary, replicas)
        await writer.write(new, rows)
        await stage.archived(writer.rows[-1].executed)
        archiver = stage.archiver
        assert archiver is not None

        async def complete() -> bool:
            seen = await stage.archive.seen()
            return seen is not None and seen.complete >= writer.rows[-1].after * 1e6

        await stage.until(complete)
        assert archiver.report.state == "Archiving"
        assert archiver.report.gap is None
    chains = await stage.archive.chains()
    assert len(chains) == 1
    segments = [one async for one in stage.archive.segments(chains[0])]
    assert sum(one.transactions for one in segments) >= 4 * rows
    assert len(segments) > 1

    for _ in range(gtids):
        from_base = chosen.random() < 0.5
        goal = chosen.choice(writer.rows[based if from_base else 0 :])
        newest = goal.executed - writer.rows[goal.id - 2].executed if goal.id > 1 else goal.executed
        way = await resolve(
            stage.archive,
            base_position if from_base else Position(),
            Goal(gtid=newest.newest().split(",")[-1]),
        )
        server, found = await stage.restored(base if from_base else None, way)
        assert found == list(range(1, goal.id + 1))
        assert (await bench.see(server)).executed.contains(newest)
        server.stop()
    for _ in range(times):
        goal = chosen.choice(writer.rows[:-1])
        way = await resolve(stage.archive, Position(), Goal(time=int(goal.after * 1e6)))
        server, found = await stage.restored(None, way)
        if mariadb:  # whole seconds: what was begun within the second of the target may be in
            most = max(one.id for one in writer.rows if int(one.before) <= int(goal.after))
            assert goal.id <= len(found) <= most
        else:
            assert len(found) == goal.id
        assert found == list(range(1, len(found) + 1))
        assert way.committed <= goal.after * 1e6
        server.stop()


@FLAVORS
@pytest.mark.timeout(400)
async def test_rows_are_exact_at_gtids_and_times_over_a_fail_over(stage: Stage, tmp_path: Path) -> None:
    await round_trip(stage, 1, gtids=2, times=1, rows=15, tmp_path=tmp_path)


@FLAVORS
@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_rows_are_exact_at_many_gtids_and_times(stage: Stage, tmp_path: Path) -> None:
    await round_trip(stage, 2, gtids=20, times=20, rows=60, tmp_path=tmp_path)
