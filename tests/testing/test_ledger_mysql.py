"""The writer that remembers, on a real MariaDB."""

from __future__ import annotations

import argparse
import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mooring.cli import ledger as command
from mooring.operators.mysql.dial import Dial, Login
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.mysql import CREDENTIALS, Servers, TestServer

pytestmark = pytest.mark.embedded
ROOT = Login(user="root", passwords=tuple(CREDENTIALS.of("root")))


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async with Servers() as servers:
        (one,) = await servers.start(1, read_only="OFF")
        async with Dial().open(one.address, ROOT) as link:
            await link.query("SET GLOBAL read_only = OFF")
        yield one


async def _until(ledger: MySQLLedger, rows: int) -> None:
    async with asyncio.timeout(20):
        while ledger.acknowledged < rows:
            await asyncio.sleep(0.01)


def _ledger(server: TestServer, rate: float = 0) -> MySQLLedger:
    async def where() -> str:
        return server.address

    return MySQLLedger(where, ROOT, rate=rate)


async def test_a_killed_server_loses_nothing_and_its_gap_is_told(server: TestServer) -> None:
    ledger = _ledger(server)
    writing = asyncio.create_task(ledger.write())
    await _until(ledger, 50)
    server.kill()
    while ledger.silence < 0.4:
        await asyncio.sleep(0.02)
    await server.boot()
    async with Dial().open(server.address, ROOT) as link:
        await link.query("SET GLOBAL read_only = OFF")
    await _until(ledger, ledger.acknowledged + 50)
    ledger.stop()
    await writing
    report = await ledger.check()
    assert report.lost_confirmed == 0
    assert report.acknowledged >= 100
    assert report.longest_gap > 0.4
    assert ledger.failed_twice > 0
    assert report.errors.get("Refused", 0) + report.errors.get("Lost", 0) > 0


async def test_a_row_that_is_gone_is_lost(server: TestServer) -> None:
    ledger = _ledger(server, 50)
    await ledger.write(0.3)
    async with Dial().open(server.address, ROOT) as link:
        row = await link.one("SELECT MIN(id) AS first FROM mooring_ledger.written")
        await link.query(f"DELETE FROM mooring_ledger.written WHERE id = {row['first']}")
        await link.query("INSERT INTO mooring_ledger.written VALUES (1, 1)")
    report = await ledger.check()
    assert report.lost_confirmed == 1
    assert ", lost 1 of 0.00 s" in report.text()
    assert "WAIT" not in report.text()
    assert report.lost_keys == (str(row["first"]),)


async def test_the_command_prints_the_report(server: TestServer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CREDENTIALS.text("root-password") + "\n")
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    options = parser.parse_args(
        [
            "ledger",
            "--mysql",
            server.address,
            "--password-file",
            str(secret),
            "--seconds",
            "0.5",
            "--rate",
            "100",
            "--table",
            "books.written-rows",
        ]
    )
    out = io.StringIO()
    assert await asyncio.to_thread(command.run, options, out=out) == 0
    assert "lost 0" in out.getvalue()
    async with Dial().open(server.address, ROOT) as link:
        row = await link.one("SELECT COUNT(*) AS found FROM books.`written-rows`")
    assert int(row["found"]) > 10


def test_a_table_is_of_mysql_alone(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    options = parser.parse_args(["ledger", "--redis", "127.0.0.1", "--table", "books.rows"])
    assert command.run(options) == 2
    assert "--table: is of --mysql" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parser.parse_args(["ledger", "--mysql", "127.0.0.1", "--table", "books"])
    assert "'books': must be DATABASE.TABLE" in capsys.readouterr().err
