"""The ledger itself: it must see a loss where there is one, or its zeros mean nothing."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
from redis.crc import key_slot
from tests.operators.redis.sentinel.harness import cluster
from tests.standstill import Standstill

from mooring.cli import ledger as command
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.testing.ledger import Ledger, parse_address
from mooring.testing.ledger_cluster import ClusterLedger

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]


def run(argv: Sequence[str], *, out: TextIO | None = None) -> int:
    """The command, with its own options."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return command.run(parser.parse_args(["ledger", *argv]), out=out)


async def silent(ledger: Ledger, seconds: float) -> None:
    async with asyncio.timeout(seconds + 10.0):
        while ledger.silence < seconds:
            await asyncio.sleep(0.01)


async def until(ledger: Ledger, count: int, *, within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while ledger.acknowledged < count:
            await asyncio.sleep(0.01)


async def test_a_loss_of_acknowledged_and_of_confirmed_writes_is_seen(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        master = operator.master
        ledger = Ledger(address=Address(pods.redis[master].ip, 6379), rate=500, wait_every=2, prefix="l")
        task = asyncio.create_task(ledger.write())
        await until(ledger, 50)
        await pods.call(master, "CLIENT", "PAUSE", 300, "WRITE")  # so that the first and the last lie apart
        await until(ledger, ledger.acknowledged + 50)
        ledger.stop()
        await task
        assert (await ledger.check()).lost_acknowledged == 0
        last = ledger.acknowledged // 2 * 2 - 2  # an even one: every second is confirmed
        lost = {"l:10", "l:11", f"l:{last}"}
        await pods.call(master, "DEL", *lost)
        report = await ledger.check()
        assert (report.lost_acknowledged, report.lost_confirmed) == (3, 1)
        assert set(report.lost_keys) == lost
        assert 0.25 <= report.lost_seconds < 10.0


async def test_a_pause_is_measured(tmp_path: Path, stood: Standstill) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        # Counted from a second on: a busy machine pauses too, for less.
        ledger = Ledger(sentinels=pods.sentinel_addresses(), rate=200, gap_from=1.0)
        task = asyncio.create_task(ledger.write())
        await until(ledger, 50)
        await pods.call(operator.master, "CLIENT", "PAUSE", 1500, "WRITE")
        await until(ledger, ledger.acknowledged + 100)
        ledger.stop()
        await task
        report = await ledger.check()
        assert report.longest_gap > 1.4
        assert report.longest_gap - stood.within(report.longest_gap) < 3.0
        assert len(report.outages) == 1
        assert report.lost_acknowledged == 0


async def test_a_pause_that_nothing_ends_counts_to_the_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        ledger = Ledger(address=Address(pods.redis[operator.master].ip, 6379), rate=200)
        task = asyncio.create_task(ledger.write())
        await until(ledger, 50)
        await pods.call(operator.master, "CLIENT", "PAUSE", 60_000, "WRITE")
        await silent(ledger, 1.5)
        ledger.stop()
        await task
        assert ledger.longest_gap >= 1.5


async def test_a_sentinels_word_of_another_master_is_followed_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        ledger = Ledger(sentinels=pods.sentinel_addresses(), rate=200, patience=40.0, follow=True)
        task = asyncio.create_task(ledger.write())
        await until(ledger, 50)
        before = operator.master
        pods.freeze(before)  # its address still takes connections: without a word the client waits on
        try:
            await until(ledger, ledger.acknowledged + 50, within=30.0)
        finally:
            pods.thaw(before)
        ledger.stop()
        await task
        assert ledger.longest_gap < 30.0


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


# --- a cluster


@asynccontextmanager
async def redis_cluster(directory: Path) -> AsyncIterator[list[Address]]:
    """Two masters with a replica each."""
    ip = f"127.{random.randint(10, 250)}.{random.randint(1, 250)}.1"
    ports = range(7000, 7004)
    words = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--protected-mode", "no"]
    words += ["--save", "", "--bind", ip, "--bind-source-addr", ip]
    servers = []
    dial = Dial()
    try:
        for port in ports:
            home = directory / str(port)
            home.mkdir()
            servers.append(
                await asyncio.create_subprocess_exec(
                    *("redis-server", "--port", str(port), "--dir", str(home), *words), stdout=DEVNULL
                )
            )
        nodes = [Address(ip, port) for port in ports]
        await eventually(lambda: all_answer(dial, nodes))
        ids = [await ask(dial, node, "CLUSTER", "MYID") for node in nodes]
        for number, node in enumerate(nodes[:2]):
            await ask(dial, node, "CLUSTER", "ADDSLOTSRANGE", number * 8192, number * 8192 + 8191)
            await ask(dial, node, "CONFIG", "SET", "cluster-allow-replica-migration", "no")
        for node in nodes[1:]:
            await ask(dial, nodes[0], "CLUSTER", "MEET", node.ip, node.port)
        await eventually(lambda: all_know(dial, nodes, 4))
        for number, node in enumerate(nodes[2:]):
            await ask(dial, node, "CLUSTER", "REPLICATE", ids[number])
        await eventually(lambda: all_serve(dial, nodes))
        yield nodes
    finally:
        for server in servers:
            server.kill()
            await server.wait()


async def ask(dial: Dial, node: Address, *words: str | int) -> Any:
    async with dial.link(node) as link:
        return await link.call(*words)


async def all_answer(dial: Dial, nodes: list[Address]) -> bool:
    try:
        return all([await ask(dial, node, "PING") == "PONG" for node in nodes])
    except DialError:
        return False


async def all_know(dial: Dial, nodes: list[Address], count: int) -> bool:
    said = [await ask(dial, node, "CLUSTER", "INFO") for node in nodes]
    return all(f"cluster_known_nodes:{count}" in one for one in said)


async def all_serve(dial: Dial, nodes: list[Address]) -> bool:
    said = [await ask(dial, node, "CLUSTER", "INFO") for node in nodes]
    fed = [await ask(dial, node, "INFO", "replication") for node in nodes[:2]]
    return all("cluster_state:ok" in one for one in said) and all("state=online" in one for one in fed)


async def all_hold(dial: Dial, nodes: list[Address], count: int) -> bool:
    return all([await ask(dial, node, "DBSIZE") > count for node in nodes])


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await check():
            await asyncio.sleep(0.05)


async def confirmed(ledger: ClusterLedger, count: int) -> bool:
    return (await ledger.check()).confirmed >= count


async def test_a_cluster_is_written_all_over_and_a_loss_in_one_shard_is_seen(tmp_path: Path) -> None:
    async with redis_cluster(tmp_path) as nodes:
        ledger = ClusterLedger([nodes[1]], rate=800, wait_every=2, prefix="l", patience=10)
        task = asyncio.create_task(ledger.write())
        await eventually(lambda: all_hold(Dial(), nodes[:2], 100))
        await eventually(lambda: confirmed(ledger, 50))
        ledger.stop()
        await task
        report = await ledger.check()
        assert (report.lost_acknowledged, report.errors) == (0, {})
        assert report.confirmed >= 50
        sizes = [await ask(Dial(), node, "DBSIZE") for node in nodes[:2]]

        await ask(Dial(), nodes[0], "FLUSHALL")

        report = await ledger.check()
        assert report.lost_acknowledged == sizes[0]
        assert report.lost_confirmed > 0


@pytest.mark.nightly
async def test_a_shard_that_is_silent_to_the_end_is_a_pause_although_the_other_is_written(
    tmp_path: Path,
) -> None:
    async with redis_cluster(tmp_path) as nodes:
        ledger = ClusterLedger(nodes, rate=800)
        task = asyncio.create_task(ledger.write())
        await eventually(lambda: all_hold(Dial(), nodes[:2], 100))
        await ask(Dial(), nodes[0], "CLIENT", "PAUSE", 60_000, "WRITE")
        await silent(ledger, 1.5)
        before = ledger.acknowledged
        await until(ledger, before + 50)
        ledger.stop()
        await task
        assert ledger.longest_gap >= 1.5


async def test_a_slot_that_moves_while_it_is_written_is_followed(tmp_path: Path) -> None:
    async with redis_cluster(tmp_path) as nodes:
        dial = Dial()
        ids = [await ask(dial, node, "CLUSTER", "MYID") for node in nodes[:2]]
        ledger = ClusterLedger(nodes[:1], rate=800, prefix="l")
        task = asyncio.create_task(ledger.write())
        await until(ledger, 200)
        slot = key_slot(b"l:0")
        source, target = (0, 1) if slot < 8192 else (1, 0)
        await ask(dial, nodes[target], "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        await ask(dial, nodes[source], "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        for key in await ask(dial, nodes[source], "CLUSTER", "GETKEYSINSLOT", slot, 100):
            there = nodes[target]
            await ask(dial, nodes[source], "MIGRATE", there.ip, there.port, key, 0, 1000)
        asking = await ledger.check()
        for node in (nodes[target], nodes[source]):
            await ask(dial, node, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        await until(ledger, ledger.acknowledged + 100)
        ledger.stop()
        await task

        moved = await ledger.check()

        assert (asking.lost_acknowledged, moved.lost_acknowledged) == (0, 0)
        assert not {"MOVED", "ASK"} & moved.errors.keys()


@pytest.mark.parametrize("rate", ["-1", "inf", "nan", "often"])
def test_a_rate_that_is_none_is_refused(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["--redis", "127.0.0.1:1", "--rate", rate])
    assert f"--rate: '{rate}': must be a number of writes per second" in capsys.readouterr().err


@pytest.mark.nightly
async def test_without_a_rate_it_writes_as_fast_as_it_is_answered(tmp_path: Path) -> None:
    async with redis_cluster(tmp_path) as nodes:
        out = io.StringIO()
        where = f"{nodes[0].ip}:{nodes[0].port}"
        argv = ["--cluster", where, "--rate", "0", "--seconds", "5", "--json"]
        assert await asyncio.to_thread(run, argv, out=out) == 0
        assert json.loads(out.getvalue())["acknowledged"] > 1100, "more than at the default rate"


@pytest.mark.nightly
async def test_a_master_that_is_cut_off_and_names_itself_is_not_asked_for_ever(tmp_path: Path) -> None:
    async with redis_cluster(tmp_path) as nodes:
        dial = Dial()
        ids = [await ask(dial, node, "CLUSTER", "MYID") for node in nodes]
        ledger = ClusterLedger(nodes[:1], rate=800)
        task = asyncio.create_task(ledger.write())
        await until(ledger, 200)
        for other in ids[1:]:  # from here on it hears nobody, and owns its slots alone
            await ask(dial, nodes[0], "CLUSTER", "FORGET", other)
        await ask(dial, nodes[2], "CLUSTER", "FAILOVER", "TAKEOVER")
        await eventually(lambda: says(dial, nodes[0], "cluster_state:fail"))
        ranges = await ask(dial, nodes[0], "CLUSTER", "SLOTS")
        assert [one[:2] for one in ranges] == [[0, 8191]]

        await eventually(lambda: written_all_over(ledger))

        ledger.stop()
        await task
        assert "CLUSTERDOWN" in (await ledger.check()).errors


async def says(dial: Dial, node: Address, word: str) -> bool:
    return word in await ask(dial, node, "CLUSTER", "INFO")


async def written_all_over(ledger: ClusterLedger) -> bool:
    await asyncio.sleep(0.2)
    return ledger.silence < 0.2


async def test_what_was_written_is_found_through_a_node_that_came_later(tmp_path: Path) -> None:
    async with redis_cluster(tmp_path) as nodes:
        ledger = ClusterLedger(nodes[:1], rate=800)
        task = asyncio.create_task(ledger.write())
        await until(ledger, 101)
        ledger.stop()
        await task
        ledger._nodes, ledger._owners = (Address(nodes[0].ip, 1),), {}
        with pytest.raises(DialError):
            await ledger.check(patience=0.1)

        report = await ledger.check(at=nodes[3])

        assert report.acknowledged > 100
        assert report.lost_acknowledged == 0
