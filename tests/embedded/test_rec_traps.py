"""Traps of Redis Cluster that its settings and the gate at every start are to avoid, on real servers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable

import pytest
from redis.crc import key_slot
from tests.embedded.conftest import Make
from tests.embedded.test_rec_life import wipe
from tests.operators.redis.cluster.stage import Stage, remove, renewed

from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.cluster.topology import Peer
from mooring.operators.redis.dial import Refused
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

PAUSE = 5.0
"""Seconds a fork of a large server, or a slow disk, may hold it up."""
MIGRATION_DELAY = 8.0
"""Seconds; Redis gives a shard that lost its replica another's spare one after five."""


async def view_of(stage: Stage, pod: str, id: str) -> Peer:
    return (await stage.view(pod))[id]


async def test_a_master_that_stands_still_for_some_seconds_is_not_replaced(make: Make) -> None:
    stage = await make()
    owned = await stage.owned()
    first, other = list(owned)[:2]
    me = await stage.me(first)

    loop = asyncio.get_running_loop()
    stage.bed.kill("default", first, "redis", signal.SIGSTOP)
    try:
        end = loop.time() + PAUSE
        while loop.time() < end:
            assert not (await view_of(stage, other, me.id)).failed, "the others have given it up"
            await asyncio.sleep(0.1)
    finally:
        stage.bed.kill("default", first, "redis", signal.SIGCONT)

    await stage.exact(6)
    assert await stage.owned() == owned
    assert (await stage.me(first)).epoch == me.epoch


@pytest.mark.full
async def test_one_shard_that_is_down_does_not_stop_the_others(make: Make) -> None:
    stage = await make()
    owned = await stage.owned()
    first, other = list(owned)[:2]
    id = (await stage.me(first)).id
    (replica,) = [pod for pod in await stage.addresses() if (await stage.me(pod)).master == id]
    await stage.bed.stop_operators()
    try:
        for pod in await stage.addresses():
            await stage.call(pod, "CONFIG", "SET", "cluster-node-timeout", 1500)
        for pod in (first, replica):  # nobody lets them in
            stage.bed.kill("default", pod, "redis")

        async def given_up() -> bool:
            return (await view_of(stage, other, id)).failed

        await stage.bed.until(given_up, f"{other} says that {first} is down")
        key = next(str(at) for at in range(10000) if owned[other] >> key_slot(str(at).encode()) & 1)
        try:
            answer = await stage.call(other, "SET", key, "1")
        except Refused as error:
            answer = error.reply
        assert answer == "OK"
    finally:
        await stage.bed.start_operators()
    await stage.exact(6, within=90)


@pytest.mark.full
@pytest.mark.nightly
async def test_a_spare_replica_stays_with_its_shard_while_another_has_none(make: Make) -> None:
    stage = await make(replicas=7, exact=False)
    await stage.exact(7, masters=3)
    followed = await masters(stage)
    rich = next(id for id in followed.values() if list(followed.values()).count(id) == 2)
    alone = next(pod for pod, id in followed.items() if id != rich)
    lost = (await stage.me(alone)).id
    others = [pod for pod in await stage.addresses() if pod != alone]
    await stage.bed.stop_operators()
    try:
        for pod in others:
            await stage.call(pod, "CONFIG", "SET", "cluster-node-timeout", 1500)
        stage.bed.kill("default", alone, "redis")  # nobody lets it in

        async def given_up() -> bool:
            return (await view_of(stage, others[0], lost)).failed

        await stage.bed.until(given_up, f"{others[0]} says that {alone} is down")
        loop = asyncio.get_running_loop()
        end = loop.time() + MIGRATION_DELAY
        while loop.time() < end:
            assert await masters(stage, others) == {pod: id for pod, id in followed.items() if pod != alone}
            await asyncio.sleep(0.2)
    finally:
        await stage.bed.start_operators()
    await stage.exact(7, masters=3)


async def masters(stage: Stage, pods: Iterable[str] = ()) -> dict[str, str]:
    """The master's id of every replica."""
    mine = {pod: await stage.me(pod) for pod in pods or await stage.addresses()}
    return {pod: me.master for pod, me in mine.items() if me.master}


@pytest.mark.full
@pytest.mark.parametrize("keep", ["nodes.conf", ""])
async def test_a_server_without_volume_or_persistence_that_restarts_at_once_keeps_the_shards_data(
    make: Make, keep: str
) -> None:
    stage = await make(persistence=False)
    await stage.fill(1000)
    await emptied(stage, keep=keep)
    assert await stage.kept(1000) == 1000


@pytest.mark.full
@pytest.mark.nightly
async def test_servers_that_are_to_keep_a_log_begin_with_the_snapshots_they_have(
    make: Make, plane: Bed
) -> None:
    template = ObjectMeta(name="snapshots", namespace="default")
    await plane.client.create(ConfigMap(metadata=template, data={"redis.conf": "appendonly no\n"}))
    waits = {"middlewareImage": "redis:7.0", "updateStrategy": {"type": "OnDelete"}}
    stage = await make(pod={**waits, "configmap": "snapshots"})
    await stage.fill(1000)
    for pod in await stage.addresses():
        await stage.call(pod, "SAVE")
    before = {pod.metadata.uid for pod in await stage.pods()}
    revision = (await plane.get(StatefulSet, stage.name)).status

    await stage.patch({"pod": [{**waits, "configmap": None}]})

    async def written() -> bool:
        status = (await plane.get(StatefulSet, stage.name)).status
        return bool(status and revision and status.update_revision != revision.update_revision)

    await plane.until(written, "the template with the log is written")
    await asyncio.gather(*(remove(stage, pod) for pod in await stage.addresses()))
    await renewed(stage, before)
    await stage.exact(6, within=120)
    assert await stage.kept(1000) == 1000

    async def logged() -> bool:
        texts = [await stage.call(pod, "INFO", "persistence") for pod in await stage.addresses()]
        return all("aof_enabled:1" in str(text) for text in texts)

    await plane.until(logged, "all of them keep a log")


async def emptied(stage: Stage, *, keep: str) -> None:
    """A master's server dies, its data is gone, and it is started again at once at the same address."""
    first = next(iter(await stage.owned()))
    await stage.call(first, "CONFIG", "SET", "appendonly", "no")
    await stage.call(first, "CONFIG", "SET", "save", "")
    assert wipe(stage, first, keep=keep)
    await killed(stage, first)
    await stage.exact(6, within=120)


async def restarts(stage: Stage, pod: str) -> int:
    """How often its container was started anew."""
    found = next(one for one in await stage.pods() if one.metadata.name == pod)
    statuses = (found.status.container_statuses if found.status else None) or []
    return sum(one.restart_count or 0 for one in statuses if one.name == "redis")


async def killed(stage: Stage, pod: str) -> None:
    """kill -9, until its container was started anew."""
    before = await restarts(stage, pod)
    stage.bed.kill("default", pod, "redis")

    async def again() -> bool:
        return await restarts(stage, pod) > before

    await stage.bed.until(again, f"{pod} runs again")


# --- series ------------------------------------------------------------------------------------------------

ROUNDS = 20


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("keep", ["nodes.conf", ""])
async def test_twenty_empty_restarts_of_masters_lose_nothing(make: Make, keep: str) -> None:
    stage = await make()
    await stage.fill(2000)
    for _ in range(ROUNDS):
        await emptied(stage, keep=keep)
        assert await stage.kept(2000) == 2000


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_all_pods_deleted_at_once_twenty_times_come_back_with_everything(make: Make) -> None:
    stage = await make()
    await stage.fill(2000)
    for _ in range(ROUNDS):
        pods = await stage.pods()
        before = {pod.metadata.uid for pod in pods}
        await asyncio.gather(*(remove(stage, pod.metadata.name or "") for pod in pods))
        await renewed(stage, before)
        await stage.exact(6, within=120)
        assert await stage.kept(2000) == 2000


@pytest.mark.soak
@pytest.mark.timeout(400)
async def test_a_minute_after_a_scale_in_no_ghost_has_returned(make: Make) -> None:
    stage = await make(replicas=10)
    await stage.fill(5000)
    await stage.patch({"replicas": 6})
    await stage.exact(6, within=120)
    loop = asyncio.get_running_loop()
    end = loop.time() + 70
    while loop.time() < end:
        assert await stage.flaw(6) == ""
        await asyncio.sleep(1)
    assert await stage.kept(5000) == 5000
