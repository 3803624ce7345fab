"""The ledger itself: it must see a loss where there is one, or its zeros mean nothing."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from tests.operators.redis.sentinel.harness import cluster

from mooring.operators.redis.dial import Address
from mooring.testing.ledger import Ledger, parse_address, run

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]


async def until(ledger: Ledger, count: int) -> None:
    async with asyncio.timeout(10):
        while ledger.acknowledged < count:
            await asyncio.sleep(0.01)


async def test_a_loss_of_acknowledged_and_of_confirmed_writes_is_seen(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        master = operator.master
        ledger = Ledger(address=Address(pods.redis[master].ip, 6379), rate=500, wait_every=2, prefix="l")
        task = asyncio.create_task(ledger.write())
        await until(ledger, 200)
        ledger.stop()
        await task
        assert (await ledger.check()).lost_acknowledged == 0
        await pods.call(master, "DEL", "l:10", "l:11", "l:12")
        report = await ledger.check()
        assert (report.lost_acknowledged, report.lost_confirmed) == (3, 1)
        assert set(report.lost_keys) == {"l:10", "l:11", "l:12"}
        assert 0.002 <= report.lost_seconds < 1.0


async def test_a_pause_is_measured(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        ledger = Ledger(sentinels=pods.sentinel_addresses(), rate=200)
        task = asyncio.create_task(ledger.write())
        await until(ledger, 50)
        await pods.call(operator.master, "CLIENT", "PAUSE", 700, "WRITE")
        await until(ledger, ledger.acknowledged + 100)
        ledger.stop()
        await task
        report = await ledger.check()
        assert 0.6 < report.longest_gap < 1.5
        assert len(report.outages) == 1
        assert report.lost_acknowledged == 0


async def test_the_command_reports_and_its_exit_status_tells(tmp_path: Path) -> None:
    async with cluster(tmp_path, password="a word") as (pods, operator):
        await operator.in_sync()
        secret = tmp_path / "secret"
        secret.write_text("a word\n")
        sentinel = pods.sentinels["sentinel-0"].ip
        argv = ["--sentinel", sentinel, "--password-file", str(secret), "--seconds", "0.5", "--rate", "100"]
        out = io.StringIO()
        assert await asyncio.to_thread(run, argv, out=out) == 0
        assert "confirmed by WAIT 1" in out.getvalue()
        assert (
            await asyncio.to_thread(
                run, ["--redis", "127.0.0.1:1", "--seconds", "0.1", "--patience", "0.1"], out=out
            )
            == 2
        )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", ("10.0.0.1", 6379)),
        ("10.0.0.1:7000", ("10.0.0.1", 7000)),
        ("redis.web.svc", ("redis.web.svc", 6379)),
        ("[fd00::1]:7000", ("fd00::1", 7000)),
        ("[fd00::1]", ("fd00::1", 6379)),
        ("fd00::1", ("fd00::1", 6379)),
    ],
)
def test_addresses_are_read_in_every_usual_form(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, port=6379) == address


def test_one_way_to_the_server_must_be_given() -> None:
    with pytest.raises(ValueError, match="either"):
        Ledger()
