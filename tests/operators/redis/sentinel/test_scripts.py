"""The scripts of the pods, run by a plain shell against real servers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.operators.redis.sentinel.harness import Cluster, Container, cluster
from tests.standstill import Standstill

from mooring.operators.redis.dial import DialError
from mooring.operators.redis.sentinel import scripts

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]


def read(path: str) -> bytes:
    return Path(path).read_bytes()


async def run(pods: Cluster, one: Container, script: str, **more: str) -> tuple[int, str]:
    path = one.home / "conf" / "probe.sh"
    path.write_text(script)
    environment = {
        "PATH": os.environ["PATH"],
        "MOORING_HOME": str(one.home),
        "REDIS_HOST": one.ip,
        "POD_IP": one.ip,
        **more,
    }
    process = await asyncio.create_subprocess_exec(
        "sh",
        str(path),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:  # the test gave up on it: it and what it started end now
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_a_gated_server_is_alive_but_not_ready_and_one_in_service_is_both(tmp_path: Path) -> None:
    async with cluster(tmp_path, password='pass "word') as (pods, operator):
        await operator.stop()
        one = pods.redis["redis-0"]
        deadline = asyncio.get_running_loop().time() + 10
        while (await run(pods, one, scripts.REDIS_LIVE))[0] != 0:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
        assert (await run(pods, one, scripts.REDIS_READY))[0] == 1
        assert (await run(pods, pods.sentinels["sentinel-0"], scripts.SENTINEL_READY))[0] == 1
        operator.start()
        await operator.in_sync()
        for name in pods.redis:
            assert await run(pods, pods.redis[name], scripts.REDIS_READY) == (0, "")
        assert await run(pods, pods.sentinels["sentinel-0"], scripts.SENTINEL_READY) == (0, "")
        assert await run(pods, pods.sentinels["sentinel-0"], scripts.SENTINEL_LIVE) == (0, "")


async def test_a_server_that_is_gone_is_neither_alive_nor_ready(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        one = pods.redis["redis-1"]
        pods.freeze("redis-1")
        try:
            for script in (scripts.REDIS_LIVE, scripts.REDIS_READY):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(run(pods, one, script), 0.5)
        finally:
            pods.thaw("redis-1")


async def test_the_password_is_in_no_argument_and_in_no_environment(tmp_path: Path) -> None:
    async with cluster(tmp_path, password="not-to-be-seen") as (pods, operator):
        await operator.in_sync()
        for one in [*pods.redis.values(), *pods.sentinels.values()]:
            for part in ("cmdline", "environ"):
                assert b"not-to-be-seen" not in read(f"/proc/{one.pid}/{part}")
            assert (one.home / "run").joinpath(
                "redis.conf" if one.component == "redis" else "sentinel.conf"
            ).stat().st_mode & 0o077 == 0


async def test_servers_and_sentinels_announce_the_address_of_their_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        for name, one in pods.redis.items():
            assert await pods.call(name, "CONFIG", "GET", "slave-announce-ip") == [
                "slave-announce-ip",
                one.ip,
            ]
        for one in pods.sentinels.values():
            assert f"sentinel announce-ip {one.ip}" in (
                one.home / "run" / "sentinel.conf"
            ).read_text().replace('"', "")


async def test_a_sentinel_that_restarts_in_place_can_read_any_password_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, password='two words, "quoted" \\ and more') as (pods, operator):
        await operator.in_sync()
        old = pods.sentinels["sentinel-0"].pid
        pods.kill("sentinel-0")

        def back() -> bool:
            one = pods.sentinels["sentinel-0"]
            return one.running and one.pid != old

        await operator.until(back, what="the sentinel restarts")
        await operator.in_sync(seconds=20)
        assert pods.sentinels["sentinel-0"].restarts == 1
        assert (
            'two words, \\"quoted'
            in (pods.sentinels["sentinel-0"].home / "run" / "sentinel.conf").read_text()
        )


async def test_sentinels_have_an_id_that_outlives_their_pods(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        before = {
            one.name: one.sentinel.my_id for one in (await operator.topology()).watchers if one.sentinel
        }
        await pods.replace(list(pods.sentinels))
        await operator.in_sync()
        after = {one.name: one.sentinel.my_id for one in (await operator.topology()).watchers if one.sentinel}
        assert before == after
        assert len(set(after.values())) == 3


async def test_a_replica_stops_at_once_and_a_master_without_help_hands_over_by_itself(
    tmp_path: Path, stood: Standstill
) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        while (await pods.server("redis-1")).rewriting:  # its first log, which it does not end without
            await asyncio.sleep(0.1)
        await operator.stop()
        entry = {"SENTINEL_HOST": pods.sentinels["sentinel-0"].ip}
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await run(pods, pods.redis["redis-1"], scripts.PRE_STOP, **entry))[0] == 0
        took = loop.time() - began
        assert took - stood.within(took) < 1
        began = loop.time()
        assert (await run(pods, pods.redis["redis-0"], scripts.PRE_STOP, **entry))[0] == 0
        assert loop.time() - began < 15

        async def another_leads() -> bool:
            for name in ("redis-1", "redis-2"):
                with suppress(DialError):  # the one that follows ends its clients' connections
                    if (await pods.server(name)).is_master:
                        return True
            return False

        by = loop.time() + 3
        while not (leads := await another_leads()) and loop.time() < by:
            await asyncio.sleep(0.05)
        assert leads


async def test_data_of_an_earlier_cluster_is_kept_aside_before_it_can_be_replaced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await pods.call(operator.master, "SET", "old", "data")
        await pods.call(operator.master, "WAIT", 2, 2000)
        volume = pods.redis["redis-2"].volume
        pods.uid = "another-cluster"
        pods.kill("redis-2")
        await operator.until(lambda: pods.redis["redis-2"].restarts == 1)
        await operator.in_sync()
        (saved,) = volume.glob("kept-*")
        assert list(saved.rglob("*.aof"))


async def test_of_what_is_kept_aside_the_newest_two_stay(tmp_path: Path) -> None:
    async with cluster(tmp_path, sentinels=3) as (pods, operator):
        await operator.in_sync()
        volume = pods.redis["redis-2"].volume
        for stamp in ("20240101000000", "20250101000000", "20260101000000"):
            (volume / f"kept-{stamp}" / "appendonlydir").mkdir(parents=True)
        (volume / "kept-by-hand").mkdir()
        pods.uid = "another-cluster"
        pods.kill("redis-2")
        await operator.until(lambda: pods.redis["redis-2"].restarts == 1)
        await operator.in_sync()
        left = sorted(one.name for one in volume.glob("kept-*"))
        assert (len(left), left[0], left[2]) == (3, "kept-20260101000000", "kept-by-hand")


async def test_servers_that_are_to_keep_a_log_begin_with_the_snapshots_they_have(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await pods.call(operator.master, "SET", "old", "data")
        assert await pods.call(operator.master, "WAIT", 2, 2000) == 2
        for name in pods.redis:
            await pods.call(name, "CONFIG", "SET", "appendonly", "no")
            await pods.call(name, "SAVE")
        for one in list(pods.redis.values()):
            shutil.rmtree(one.volume / "appendonlydir")
            pods.kill(one.name)
        await operator.until(lambda: all(one.restarts == 1 for one in pods.redis.values()))
        await operator.in_sync()

        assert await pods.call(operator.master, "GET", "old") == "data"

        def logged() -> bool:
            return all(list(one.volume.glob("appendonlydir/*.manifest")) for one in pods.redis.values())

        await operator.until(logged, what="all keep a log")
