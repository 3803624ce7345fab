"""Faults of a MatrixOne cluster on its real server: a disk that is lost, a killed node, a log store more and less."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from tests.embedded.test_matrixone_life import (
    EXAMPLE,
    SETTINGS,
    edit,
    group,
    pods,
    rows,
    session,
    settled,
    under_load,
)

from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.types import CNSet, LogSet
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.mo_service, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

#: HAKeeper replaces a log store after five minutes by default.
QUICK = '[logservice.HAKeeperConfig]\nlog-store-timeout = "20s"\n'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed() -> AsyncIterator[Bed]:
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(path, operators=[OPERATOR], settings=SETTINGS) as running:
            text = EXAMPLE.read_text()
            shown = "    sharedStorage: {fileSystem: {path: /shared}}\n"
            assert text.count(shown) == 1
            manifest = path / "mo.yaml"
            manifest.write_text(text.replace(shown, f"{shown}    config: {json.dumps(QUICK)}\n"))
            await running.apply(manifest)
            await settled(running)
            async with session(running) as cursor:
                await cursor.execute("create database t")
                await cursor.execute("create table t.numbers (n int primary key)")
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def states(bed: Bed) -> dict[str, str]:
    """The log stores' states by pod."""
    found = await bed.get(LogSet, "mo")
    return {one.pod_name: one.state for one in (found.status.stores if found.status else None) or ()}


async def follower(bed: Bed) -> str:
    """A log store that leads no shard."""
    found = await bed.get(LogSet, "mo")
    assert found.status is not None
    return next(one.pod_name for one in found.status.stores or () if not one.leads)


async def test_a_log_store_that_lost_its_disk_waits_until_the_shards_forgot_it(bed: Bed) -> None:
    victim = await follower(bed)
    seen: set[str] = set()

    async def back() -> bool:
        now = await states(bed)
        seen.add(now.get(victim, "gone"))
        return "Held" in seen and set(now.values()) == {"Serving"} and len(now) == 3

    async with under_load(bed, 1) as load:
        claim = f"mo-data-{victim}"
        await bed.client.delete(PersistentVolumeClaim, claim, namespace="default")
        await bed.client.delete(Pod, victim, namespace="default")
        took = await bed.until(back, f"{victim} is back with another disk", within=120, every=0.1)
        await settled(bed)
    assert "Held" in seen
    assert took > 15, "it joined before HAKeeper had replaced it"
    assert load.failed == []
    assert load.longest < 15
    assert await rows(bed) >= set(load.written)


@pytest.mark.nightly
async def test_a_log_store_more_and_less_changes_the_members(bed: Bed) -> None:
    async with under_load(bed, 100_000) as load:
        await edit(bed, logService={"replicas": 4})
        await settled(bed)
        assert len(await states(bed)) == 4
        await edit(bed, logService={"replicas": 3})
        await settled(bed)
        found = (await bed.client.list(PersistentVolumeClaim, namespace="default")).items
    names = {one.metadata.name for one in found if not one.metadata.deletion_timestamp}
    assert names == {"mo-shared", "mo-data-mo-dn-0", *(f"mo-data-mo-log-{at}" for at in range(3))}
    assert set((await states(bed)).values()) == {"Serving"}
    assert load.failed == []
    assert await rows(bed) >= set(load.written)


async def test_killed_nodes_come_back_with_every_acknowledged_row(bed: Bed) -> None:
    async with under_load(bed, 200_000) as load:

        async def writing(beyond: int) -> None:
            async def more() -> bool:
                return len(load.written) > beyond

            await bed.until(more, "rows are written", within=120, every=0.1)

        await writing(5)
        compute = next(iter(await pods(bed, "CNSet")))
        for pod in (compute, "mo-dn-0", await follower(bed)):
            programs = {(pod, "main"): bed.kill("default", pod, "main")}
            await bed.restarted("default", programs, within=60)
            # What was under way may still be acknowledged; what is written after it is from a new session or server.
            await writing(len(load.written) + 5)
            await settled(bed)
    assert await rows(bed) >= set(load.written)


@pytest.mark.nightly
async def test_an_image_that_is_not_there_stops_at_the_first_log_store(bed: Bed) -> None:
    before = {
        one.metadata.uid
        for kind in ("DNSet", "CNSet", "ProxySet")
        for one in (await pods(bed, kind)).values()
    }

    async def halted() -> bool:
        found = await bed.get(LogSet, "mo")
        listed = (found.status.conditions if found.status else None) or ()
        return any(one.type == "Stalled" and one.reason == "RollHalted" for one in listed)

    async with under_load(bed, 300_000) as load:
        await edit(bed, imageRepository="nowhere.invalid/nothing")
        await bed.until(halted, "the roll is stopped", within=90, every=0.2)
        found = await bed.get(LogSet, "mo")
        assert found.status is not None
        assert sum(one.state == "Serving" for one in found.status.stores or ()) >= 2
        assert before == {
            one.metadata.uid
            for kind in ("DNSet", "CNSet", "ProxySet")
            for one in (await pods(bed, kind)).values()
        }
        await edit(bed, imageRepository=None)
        await settled(bed)
    assert set((await states(bed)).values()) == {"Serving"}
    assert load.failed == []
    assert await rows(bed) >= set(load.written)


@pytest.mark.nightly
async def test_a_lost_quorum_is_reported_and_nothing_is_given_up(bed: Bed) -> None:
    claims = {
        one.metadata.uid for one in (await bed.client.list(PersistentVolumeClaim, namespace="default")).items
    }
    uids = {one.metadata.uid for one in await bed.pods()}

    async def reported() -> bool:
        found = await bed.get(LogSet, "mo")
        listed = (found.status.conditions if found.status else None) or ()
        return any(
            one.type == "Ready" and one.status == "False" and one.reason == "NoQuorum" for one in listed
        )

    async with under_load(bed, 400_000) as load:
        for pod in ("mo-log-0", "mo-log-1"):
            bed.kill("default", pod, "main", signal.SIGSTOP)
        try:
            await bed.until(reported, "the lost quorum is reported", within=60, every=0.2)
        finally:
            for pod in ("mo-log-0", "mo-log-1"):
                bed.kill("default", pod, "main", signal.SIGCONT)
        before = len(load.written)

        async def writing() -> bool:
            return len(load.written) > before + 5

        await bed.until(writing, "rows are written again", within=120, every=0.1)
        await settled(bed)
    assert uids == {one.metadata.uid for one in await bed.pods()}
    now = (await bed.client.list(PersistentVolumeClaim, namespace="default")).items
    assert claims == {one.metadata.uid for one in now}
    assert await rows(bed) >= set(load.written)


@pytest.mark.nightly
async def test_another_operator_goes_on_with_a_drain(bed: Bed) -> None:
    async with under_load(bed, 500_000) as load, AsyncExitStack() as open_sessions:
        await group(bed, replicas=2)
        await settled(bed)
        # A session in a transaction is not moved: whichever node is drained waits for it.
        cursors = [await open_sessions.enter_async_context(session(bed)) for _ in range(3)]
        for number, cursor in enumerate(cursors):
            await cursor.execute("begin")
            await cursor.execute(f"insert into t.numbers values ({900_000 + number})")
        await group(bed, replicas=1)

        async def draining() -> bool:
            found = await bed.get(CNSet, "mo-tp")
            return any(
                one.state == "Draining" for one in (found.status.stores if found.status else None) or ()
            )

        await bed.until(draining, "a compute node is drained", within=60, every=0.1)
        await bed.stop_operators()
        await bed.start_operators()
        for cursor in cursors:
            await cursor.execute("commit")
        await open_sessions.aclose()
        await settled(bed)
        assert len(await pods(bed, "CNSet")) == 1
    assert load.failed == []
    assert await rows(bed) >= set(load.written)
