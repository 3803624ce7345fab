"""A master that hangs is replaced before the servers call it failed; one that works on something for as long is not.

The operator is a process of its own: what it sees of the nodes' processes comes through the API server's sockets.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.operators.redis.cluster.stage import Stage, manifest

from mooring.testing.bed import Bed
from mooring.testing.process import operator_process, served

pytestmark = [pytest.mark.embedded, pytest.mark.full, pytest.mark.timeout(240)]

LONG = 120_000
"""Milliseconds of node timeout: nobody but the operator replaces a master within the test."""
BUSY = "local at = redis.call('TIME')[1] while redis.call('TIME')[1] - at < 15 do end return 'done'"
"""Works for 15 seconds."""


@pytest.fixture
async def stage(directory: Path) -> AsyncIterator[Stage]:
    async with (
        Bed(directory, operators=()) as bed,
        operator_process(bed, directory, operators="redis-cluster"),
    ):
        await served(bed, group="redis.middleware.hc.cn")
        await bed.apply(manifest())
        stage = Stage(bed, "demo")
        await stage.exact(6, within=120)
        await stage.fill(1000)
        for pod in await stage.addresses():
            await stage.call(pod, "CONFIG", "SET", "cluster-node-timeout", LONG)
        yield stage


async def test_a_hung_master_is_replaced_by_the_operator_and_follows_once_it_wakes(stage: Stage) -> None:
    hung, other = list(await stage.owned())[:2]
    id = (await stage.me(hung)).id
    (heir,) = [pod for pod in await stage.addresses() if (await stage.me(pod)).master == id]

    stage.bed.kill("default", hung, "redis", signal.SIGSTOP)
    try:

        async def replaced() -> bool:
            return (await stage.me(heir)).is_master

        await stage.bed.until(replaced, f"{heir} takes over", within=90)
        peer = (await stage.view(other))[id]
        assert not peer.failed
        assert not peer.doubted
    finally:
        stage.bed.kill("default", hung, "redis", signal.SIGCONT)

    await stage.exact(6, within=90)
    assert await stage.kept(1000) == 1000
    assert (await stage.me(hung)).master == (await stage.me(heir)).id


@pytest.mark.nightly
async def test_a_master_that_works_and_answers_nobody_keeps_its_slots(stage: Stage) -> None:
    owned = await stage.owned()
    busy = next(iter(owned))
    before = {pod: (await stage.me(pod)).epoch for pod in owned}
    await stage.call(busy, "CONFIG", "SET", "lua-time-limit", 0)  # not even BUSY is answered

    async with stage.dial.link((await stage.addresses())[busy], reply_timeout=180) as link:
        assert await link.call("EVAL", BUSY, 0) == "done"

    await stage.exact(6, within=90)
    assert await stage.owned() == owned
    assert {pod: (await stage.me(pod)).epoch for pod in owned} == before
    assert await stage.kept(1000) == 1000
