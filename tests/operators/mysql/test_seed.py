"""Copying a server's data before a start, where binary logs do not reach back: the start script on real servers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from mooring.operators.mysql import config, scripts
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.operators.mysql.moves import Follow, Target
from mooring.operators.mysql.topology import Server
from mooring.testing.mysql import CREDENTIALS, Servers, TestServer, inside

from .test_steps import FLAVORS, Bench

pytestmark = pytest.mark.parametrize("image", FLAVORS)


class Pod:
    """The start script as a pod runs it, on a volume of its own."""

    def __init__(self, like: TestServer, directory: Path, address: str) -> None:
        self.like, self.address, self.starts = like, address, 0
        self.volume, self.home = directory / "volume", directory / "home"
        self.process: subprocess.Popen[bytes] | None = None
        for name in ("scripts", "auth", "order", "run", "starts", "live"):
            (self.home / name).mkdir(parents=True)
        self.volume.mkdir()
        flavor = like.flavor
        small = {
            "innodb_buffer_pool_size": "16M",
            "performance_schema": "OFF",
            "innodb_use_native_aio": "OFF",
        }
        files = {
            "start.sh": scripts.START,
            "base.cnf": config.base_cnf(flavor, small),
            "forced.cnf": config.forced_cnf(flavor),
            "extra.cnf": f"bind_address={address}\nreport_host={address}\n"
            + ("" if flavor == "mariadb" else "secure_file_priv=NULL\n"),
        }
        for name, text in files.items():
            (self.home / "scripts" / name).write_text(text)
        for label in ACCOUNTS.values():
            (self.home / "auth" / label).write_text(CREDENTIALS.text(label))

    def start(self, order: str, *, patience: int = 60) -> None:
        """A container start, with its order; ``patience``: seconds for which a copy may stand still."""
        self.starts += 1
        (self.home / "order" / "order").write_text(f"{self.starts} {order}\n")
        command = [*inside(self.like.image, self.volume), "sh", "/run/mooring/scripts/start.sh"]
        at = command.index("sh")
        command[at:at] = [
            "--bind",
            str(self.home),
            "/run/mooring",
            "--setenv",
            "MOORING_HOME",
            "/run/mooring",
            "--setenv",
            "COPY_PATIENCE",
            str(patience),
        ]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def stop(self) -> None:
        """End the script and the servers that it started: these would outlive it."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
async def bench(image: str) -> AsyncIterator[Bench]:
    async with Servers(image) as servers:
        yield Bench(servers)


@pytest.fixture
async def pod(bench: Bench, tmp_path: Path) -> AsyncIterator[Pod]:
    primary, donor = await bench.start(2)
    await bench.found(primary, [donor])
    made = Pod(primary, tmp_path, f"{primary.address.rpartition('.')[0]}.99")
    yield made
    made.stop()


async def _answers(bench: Bench, pod: Pod, within: float = 60.0) -> Server:
    copy = TestServer(
        flavor=pod.like.flavor, image=pod.like.image, directory=pod.home, address=pod.address, name="copy"
    )
    deadline = time.monotonic() + within
    while True:
        try:
            return await bench.see(copy)
        except Exception:
            assert pod.process is not None
            assert pod.process.poll() is None, pod.log[-3000:]
            assert time.monotonic() < deadline, pod.log[-3000:]
            await asyncio.sleep(0.1)


async def _purge(bench: Bench, primary: TestServer) -> None:
    async with bench.dial.open(primary.address, bench.login) as link:
        await link.query("FLUSH BINARY LOGS")
        rows = await link.query("SHOW BINARY LOGS")
        await link.query(f"PURGE BINARY LOGS TO '{rows[-1]['Log_name']}'")


async def test_a_copy_goes_on_where_the_binary_logs_begin(bench: Bench, pod: Pod) -> None:
    primary = pod.like
    for number in range(20):
        await bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)")
    async with bench.dial.open(primary.address, bench.login) as link:
        await link.query(
            "CREATE TABLE shop.texts (id INT PRIMARY KEY, a TEXT, b BLOB) DEFAULT CHARSET utf8mb4"
        )
        await link.query("INSERT INTO shop.texts VALUES (1, '主节点 -- it''s\nSET GLOBAL x', 0x00FF0A0D)")
        await link.query("CREATE PROCEDURE shop.p() SELECT 1")
    donor = bench.servers.all[1]
    await bench.level(primary, donor)
    for one in (primary, donor):
        await _purge(bench, one)
    leader = await bench.see(primary)

    pod.start(f"replica 4242 fresh seed {donor.address}")
    copy = await _answers(bench, pod)
    assert copy.server_id == 4242
    assert (pod.home / "run" / "state").read_text() == "starting\n"  # the probes ask the server from now on
    assert copy.read_only
    assert copy.executed.contains(leader.executed)
    assert leader.executed.contains(copy.executed)
    await bench.sql(primary, "INSERT INTO shop.t VALUES (100, 1)")
    await bench.run(
        Follow(
            targets=(Target(name="copy", host=pod.address, server_id=4242),), source=primary.target,
            source_host=primary.address, acking=frozenset({"copy"}),
        )
    )  # fmt: skip
    leader = await bench.see(primary)
    there = TestServer(
        flavor=primary.flavor,
        image=primary.image,
        directory=pod.home,
        address=pod.address,
        name="copy",
        server_id=4242,
    )
    await bench.shows(there, leader, [*range(20), 100])
    async with bench.dial.open(pod.address, bench.login) as link:
        row = await link.one("SELECT a, b FROM shop.texts")
        assert row == {"a": "主节点 -- it's\nSET GLOBAL x", "b": b"\x00\xff\n\r"}
        assert await link.query("SHOW PROCEDURE STATUS WHERE Db = 'shop'")
    # It can lead others: they find their position in its binary log.
    async with bench.client(there):
        pass
    await bench.run(bench.promote(there))
    await bench.run(
        Follow(
            targets=(primary.target,),
            source=there.target,
            source_host=there.address,
            acking=frozenset({"s-1"}),
        )
    )
    await bench.until(there, lambda it: it.semi_sync.clients == 1)
    await bench.sql(there, "INSERT INTO shop.t VALUES (101, 1)")
    assert 101 in await bench.rows(there)


async def test_a_copy_that_fails_leaves_nothing_half_done(bench: Bench, pod: Pod) -> None:
    pod.start("replica 4242 seed 127.0.0.9")
    assert pod.process is not None
    async with asyncio.timeout(90):
        while pod.process.poll() is None:
            await asyncio.sleep(0.1)
    assert "could not be copied" in pod.log
    assert not (pod.volume / "data.old").exists()
    assert CREDENTIALS.text("operator-password") not in pod.log
    pod.start(f"replica 4243 seed {pod.like.address}")
    copy = await _answers(bench, pod)
    assert copy.executed.contains((await bench.see(pod.like)).executed)


@pytest.mark.nightly
async def test_a_donor_that_hangs_is_given_up(bench: Bench, pod: Pod) -> None:
    donor = bench.servers.all[1]
    donor.kill(signal.SIGSTOP)
    try:
        pod.start(f"replica 4242 seed {donor.address}", patience=4)
        assert pod.process is not None
        async with asyncio.timeout(60):
            while pod.process.poll() is None:
                await asyncio.sleep(0.1)
    finally:
        donor.kill(signal.SIGCONT)
    # MySQL's own limit for a connection may come first.
    assert pod.like.flavor == "mysql" or "no file of the copy changed for 4 s" in pod.log
    assert "could not be copied" in pod.log
    pod.start(f"replica 4243 seed {donor.address}")
    copy = await _answers(bench, pod)
    assert copy.executed.contains((await bench.see(pod.like)).executed)
