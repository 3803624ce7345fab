"""The scripts of backups on real servers: what they take under a writer, a test restore gives back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.operators.backup.agent import Result
from mooring.operators.backup.manifest import Manifest, decode_manifest, encode_manifest, facts_of
from mooring.operators.backup.shell import PRELUDE
from mooring.operators.mysql.backup import scripts
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.testing.mysql import CREDENTIALS, Servers, TestServer, inside

from .test_steps import FLAVORS, Bench

PREFIX = "shop-1234/backups/20260102T030405Z-0a1b2c3d"
WITHIN = 120.0


def later(flavors: Iterable[Any]) -> list[Any]:
    """The same flavours, in the nightly tier."""
    return [pytest.param(*one.values, marks=[*one.marks, pytest.mark.nightly]) for one in flavors]


class Run:
    """The two containers of one run as processes: the script in the image, `mooring objects` beside it."""

    def __init__(
        self, root: Path, name: str, server: TestServer, volume: Path, script: str, **env: str
    ) -> None:
        self.root = root / name
        self.shared, self.store = self.root / "run", root / "store"
        parts = ("conf", "auth", "scratch", "run", "tls")
        for part in parts:
            (self.root / part).mkdir(parents=True)
        if server.flavor == "mysql" and not script.endswith(scripts.RESTORE):
            # MySQL makes itself a certificate.
            (self.root / "tls" / "ca.crt").write_bytes((server.data / "ca.pem").read_bytes())
        self.store.mkdir(exist_ok=True)
        (self.root / "conf" / "run.sh").write_text(PRELUDE)
        (self.root / "conf" / "data.sh").write_text(script)
        (self.root / "target.json").write_text(json.dumps({"directory": {"path": str(self.store)}}))
        for label in ACCOUNTS.values():
            (self.root / "auth" / label).write_text(CREDENTIALS.text(label))
        command = list(inside(server.image, volume))
        # As in a pod: no program of it runs as root.
        command[1:1] = ["--unshare-user", "--uid", "999", "--gid", "999"]
        for part in parts:
            command += ["--bind", str(self.root / part), f"/run/mooring/{part}"]
            command += ["--setenv", f"MOORING_{part.upper()}", f"/run/mooring/{part}"]
        settings = {
            "HOST": server.address,
            "FLAVOR": server.flavor,
            "TERMINATION_LOG": "/run/mooring/run/said",
            **env,
        }
        for key, value in settings.items():
            command += ["--setenv", key, value]
        with (self.root / "log").open("wb") as log:
            self.data = subprocess.Popen(
                [*command, "sh", "/run/mooring/conf/run.sh"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.agent: subprocess.Popen[bytes] | None = None

    def move(self, action: str, *words: str) -> None:
        """Start the agent."""
        command = [
            sys.executable,
            "-m",
            "mooring",
            "objects",
            action,
            f"--target={self.root / 'target.json'}",
        ]
        command += [
            f"--shared={self.shared}",
            f"--prefix={PREFIX}",
            f"--report={self.root / 'report'}",
            *words,
        ]
        self.agent = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def put(self, method: str, flavor: str, *words: str) -> None:
        """Store what the script writes."""
        draft = {"id": "20260102T030405Z-0a1b2c3d", "operator": "mysql", "flavor": flavor, "method": method}
        (self.root / "manifest.json").write_text(json.dumps(draft))
        self.move("put", "--part=data", f"--manifest={self.root / 'manifest.json'}", *words)

    async def over(self) -> tuple[int, int]:
        """Exit status of both."""
        assert self.agent is not None
        data = await asyncio.to_thread(self.data.wait, WITHIN)
        return data, await asyncio.to_thread(self.agent.wait, WITHIN)

    async def good(self) -> None:
        """Both have to succeed."""
        assert await self.over() == (0, 0), self.log + str(self.report)

    @property
    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")[-3000:]

    @property
    def report(self) -> Result:
        return msgspec.json.decode((self.root / "report").read_bytes(), type=Result)

    @property
    def said(self) -> dict[str, str]:
        return facts_of((self.shared / "said").read_text().splitlines())

    @property
    def manifest(self) -> Manifest:
        return decode_manifest((self.store / PREFIX / "manifest.json").read_bytes())

    def stop(self) -> None:
        """End what is left."""
        with suppress(ProcessLookupError):
            os.killpg(self.data.pid, signal.SIGKILL)
        self.data.wait()
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()


class Stand:
    """A server with rows, and the runs that were made of it."""

    def __init__(self, bench: Bench, server: TestServer, root: Path) -> None:
        self.bench, self.server, self.root = bench, server, root
        self.runs: list[Run] = []

    def run(self, script: str, volume: Path | None = None, **env: str) -> Run:
        name = f"run-{len(self.runs) + 1}"
        if volume is None:
            volume = self.root / f"volume-{name}"
            volume.mkdir()
        made = Run(self.root, name, self.server, volume, script, **env)
        self.runs.append(made)
        return made

    def backup(self, method: str, *words: str, **env: str) -> Run:
        """Begin a backup by this method."""
        script = scripts.PHYSICAL if method == "Physical" else scripts.LOGICAL
        beside = method == "Physical" and self.server.flavor == "mariadb"
        made = self.run(script, self.server.directory if beside else None, **env)
        made.put(method, self.server.flavor, *words)
        return made

    async def checked(self) -> Run:
        """A test restore."""
        made = self.run(scripts.RESTORE, VERIFY="yes")
        made.move("get")
        await made.over()
        return made

    async def sql(self, text: str) -> list[dict[str, object]]:
        async with self.bench.dial.open(self.server.address, self.bench.login) as link:
            return await link.query(text)


@pytest.fixture
async def stand(image: str, tmp_path: Path) -> AsyncIterator[Stand]:
    async with Servers(image) as servers:
        bench = Bench(servers)
        (server,) = await bench.start(1)
        await bench.found(server, [], semi_sync=False)
        made = Stand(bench, server, tmp_path)
        await made.sql(
            "CREATE TABLE shop.`odd = 100%` (id INT PRIMARY KEY, what TEXT, at DATETIME(3), made INT AS (id + 1))"
        )
        await made.sql(
            "INSERT INTO shop.`odd = 100%` (id, what, at) VALUES (1, 'it''s', '2026-01-02 03:04:05.678'), (2, NULL, NULL)"
        )
        await made.sql("CREATE TABLE shop.log (id INT PRIMARY KEY)")
        yield made
        for one in made.runs:
            one.stop()


class Writer:
    """One row a transaction, from 1 on, without end."""

    def __init__(self, stand: Stand) -> None:
        self.stand, self.written, self._stop = stand, 0, asyncio.Event()

    async def __aenter__(self) -> Writer:
        self.before = await self.stand.bench.see(self.stand.server)
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stop.set()
        await self._task

    async def _write(self) -> None:
        async with self.stand.bench.dial.open(self.stand.server.address, self.stand.bench.login) as link:
            while not self._stop.is_set():
                await link.query(f"INSERT INTO shop.log VALUES ({self.written + 1})")
                self.written += 1

    async def past(self, number: int) -> None:
        deadline = time.monotonic() + WITHIN
        while self.written < number:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


def _transactions(position: str) -> int:
    """How many transactions a position of one source has."""
    last = (
        position.rpartition("-")[2] if "-" in position.rpartition(":")[2] or ":" not in position else position
    )
    return int(last.rpartition(":")[2])


@pytest.mark.parametrize("image", [FLAVORS[0], *later(FLAVORS[1:-1]), FLAVORS[-1]])
@pytest.mark.parametrize("method", ["Logical", "Physical"])
async def test_a_backup_under_a_writer_has_exactly_the_rows_of_its_position(
    stand: Stand, method: str
) -> None:
    # No server runs on what mariadb-backup copies.
    summed = method == "Logical" or stand.server.flavor == "mysql"
    async with Writer(stand) as writer:
        await writer.past(20)
        run = stand.backup(method, VERIFICATION="Checksums" if summed else "Tables")
        await run.good()
        await writer.past(writer.written + 20)
    before = _transactions(str(writer.before.executed))
    rows = _transactions(run.manifest.position) - before
    assert 20 <= rows < writer.written
    check = await stand.checked()
    assert check.report.ok, check.log
    assert f"{rows + 2} rows in 3 tables" in check.said["checked"], (check.said, rows)
    assert ("checksums of 3" in check.said["checked"]) == summed


@pytest.mark.parametrize("image", FLAVORS[:1])
async def test_a_table_that_differs_from_the_source_is_named(stand: Stand) -> None:
    run = stand.backup("Logical", VERIFICATION="Checksums")
    await run.good()
    facts = dict(run.manifest.facts)
    rows, _, checksum = facts["table.shop.odd %3D 100%25"].partition(":")
    assert (rows, checksum.isdecimal()) == ("2", True)
    facts["table.shop.odd %3D 100%25"] = f"2:{int(checksum) + 1}"
    stored = run.store / PREFIX / "manifest.json"
    stored.chmod(0o600)
    stored.write_bytes(encode_manifest(msgspec.structs.replace(run.manifest, facts=facts)))
    check = await stand.checked()
    assert check.data.returncode != 0
    assert "rows differ from those of the source in shop.odd %3D 100%25" in check.log
    assert "shop.log" not in check.log


@pytest.mark.parametrize("image", FLAVORS[-1:])
async def test_a_table_whose_rows_clone_would_leave_out_is_refused(stand: Stand) -> None:
    await stand.sql("CREATE TABLE shop.old (id INT PRIMARY KEY) ENGINE=MyISAM")
    run = stand.backup("Physical")
    data, store = await run.over()
    assert (data == 0, store == 0) == (False, False)
    assert "convert shop.old by" in run.report.message
    assert not list(run.store.rglob("manifest.json"))


@pytest.mark.parametrize("image", [FLAVORS[0], *later(FLAVORS[-1:])])
@pytest.mark.parametrize("which", ["data", "store"])
async def test_a_container_killed_half_way_leaves_no_backup_and_no_lock(stand: Stand, which: str) -> None:
    await stand.sql("CREATE TABLE shop.wide (id INT PRIMARY KEY, noise LONGBLOB)")
    for number in range(8):
        noise = os.urandom(600_000).hex()
        await stand.sql(f"INSERT INTO shop.wide VALUES ({number}, UNHEX('{noise}'))")
    run = stand.backup("Physical", "--bandwidth=1M")
    assert run.agent is not None
    begun = time.monotonic()
    while not any(path.is_file() and path.stat().st_size for path in run.store.rglob("*")):
        assert time.monotonic() < begun + WITHIN, run.log
        assert run.data.poll() is None, run.log
        await asyncio.sleep(0.02)
    if which == "store":
        run.agent.kill()
    else:
        os.killpg(run.data.pid, signal.SIGKILL)
    data, store = await run.over()
    assert (data == 0, store == 0) == (False, False)
    assert not list(run.store.rglob("manifest.json"))
    await stand.sql("INSERT INTO shop.log VALUES (1)")  # no lock is left behind
    if which == "data":
        assert (run.report.ok, run.report.reason) == (False, "DataLost")
        assert not [path for path in run.store.rglob("*") if path.is_file()]


@pytest.mark.parametrize("image", FLAVORS[:1])
async def test_a_statement_that_goes_on_and_on_fails_the_checksums_and_blocks_nobody(stand: Stand) -> None:
    await stand.sql("INSERT INTO shop.t VALUES (1, 1)")
    async with stand.bench.dial.open(stand.server.address, stand.bench.login, timeout=WITHIN) as link:
        await link.query("LOCK TABLES shop.t WRITE")
        run = stand.backup("Logical", VERIFICATION="Checksums", LOCK_PATIENCE="1")
        data, store = await run.over()
        await link.query("UNLOCK TABLES")
    assert (data == 0, store == 0) == (False, False)
    assert "no moment of" in run.report.message
    assert not list(run.store.rglob("manifest.json"))
    await stand.sql("INSERT INTO shop.log VALUES (1)")
