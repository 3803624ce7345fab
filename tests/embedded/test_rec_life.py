"""Redis Clusters on a whole control plane with real servers: made, healed, and nothing of it lost."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest
from tests.embedded.conftest import Make
from tests.operators.redis.cluster.stage import OPERATOR, Stage, manifest, remove, renewed, restarted

from mooring.kube.objects.core import Pod
from mooring.operators.redis.dial import DialError
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


async def test_six_nodes_become_three_masters_and_three_replicas(make: Make) -> None:
    stage = await make(password='pass"word')

    status = await stage.status()
    assert status.replicas == 6
    assert status.formed_cluster_before
    conditions = status.conditions or []
    assert sorted(one.type or "" for one in conditions) == ["master"] * 3 + ["slave"] * 3
    assert sorted(one.slots for one in conditions if one.slots) == ["0-5460", "10923-16383", "5461-10922"]
    async with stage.client() as client:
        await client.call("a", "SET", "1")
        assert await client.call("a", "GET") == "1"
    await stage.tells("CreateClusterStart", "CreatePod", "InitCluster", "AddSlave", "CreateClusterSuccess")
    assert len(await stage.told()) == 5


async def test_over_three_zones_every_one_has_a_master_and_no_shard_is_in_one_alone(directory: Path) -> None:
    machines = [f"{zone}{number}" for number in (1, 2) for zone in "abc"]
    async with Bed(directory, nodes=machines, zones="abc", operators=[OPERATOR]) as bed:
        await bed.apply(manifest("wide"))
        stage = Stage(bed, "wide")
        await stage.exact(6)
        at = {
            pod.metadata.name: pod.spec.node_name or "" for pod in await stage.pods() if pod.spec is not None
        }
        shards = {one.node_id: one for one in (await stage.status()).conditions or ()}
    assert sorted(at.values()) == sorted(machines)
    heads = {id: at[one.name][0] for id, one in shards.items() if one.type == "master"}
    assert sorted(heads.values()) == ["a", "b", "c"]
    for one in shards.values():
        if one.type == "slave":
            assert heads[one.master_node_id] != at[one.name][0]


async def test_all_pods_deleted_at_once_come_back_at_new_addresses_with_everything(make: Make) -> None:
    stage = await make()
    await stage.fill(2000)
    before = {pod.metadata.uid for pod in await stage.pods()}
    addresses = set((await stage.addresses()).values())

    await asyncio.gather(*(remove(stage, pod.metadata.name or "") for pod in await stage.pods()))

    await renewed(stage, before)
    await stage.exact(6)
    assert not addresses & set((await stage.addresses()).values())
    assert await stage.kept(2000) == 2000


@pytest.mark.full
async def test_a_killed_masters_replica_takes_over_at_once_and_it_comes_back_as_a_replica(make: Make) -> None:
    stage = await make()
    await stage.fill(1000)
    owned = await stage.owned()
    first = next(iter(owned))

    async with stage.writing() as report:
        stage.bed.kill("default", first, "redis")
        await stage.bed.until(lambda: restarted(stage, first), f"{first} runs again")
        await stage.exact(6)

    assert await stage.kept(1000) == 1000
    assert await stage.lost(report) == []
    now = await stage.owned()
    assert first not in now
    assert sorted(now.values()) == sorted(owned.values())


async def test_a_master_that_comes_back_empty_follows_the_replica_that_has_its_data(make: Make) -> None:
    stage = await make(persistence=False)
    await stage.fill(1000)
    first = next(iter(await stage.owned()))
    before = {pod.metadata.uid for pod in await stage.pods() if pod.metadata.name == first}

    await remove(stage, first)

    await renewed(stage, before)
    await stage.exact(6)
    assert await stage.kept(1000) == 1000
    assert first not in await stage.owned()


async def test_a_master_whose_files_vanish_with_its_identity_kept_does_not_wipe_its_replica(
    make: Make,
) -> None:
    stage = await make()
    await stage.fill(1000)
    first = next(iter(await stage.owned()))
    await stage.call(first, "CONFIG", "SET", "appendonly", "no")
    await stage.call(first, "CONFIG", "SET", "save", "")
    assert wipe(stage, first, keep="nodes.conf")

    stage.bed.kill("default", first, "redis")

    await stage.bed.until(lambda: restarted(stage, first), f"{first} runs again")
    await stage.exact(6)
    assert await stage.kept(1000) == 1000


@pytest.mark.full
@pytest.mark.nightly
async def test_a_deleted_masters_pod_hands_over_before_it_goes(make: Make) -> None:
    stage = await make()
    await stage.fill(500)
    first = next(iter(await stage.owned()))
    before = {pod.metadata.uid for pod in await stage.pods() if pod.metadata.name == first}

    async with stage.writing() as report:
        await stage.bed.client.delete(Pod, first, namespace="default")
        await renewed(stage, before)
        await stage.exact(6)

    assert await stage.lost(report) == []
    assert await stage.kept(500) == 500
    assert first not in await stage.owned()


# --- faults ------------------------------------------------------------------------------------------------


def wipe(stage: Stage, pod: str, *, keep: str) -> list[str]:
    """Empty a pod's volume from inside its server's directory; what was taken away."""
    pid = stage.bed.plane.agent.program_pid("default", pod, "redis")
    root = Path(f"/proc/{pid}/root/data")
    gone = []
    for one in root.iterdir():
        if one.name in (keep, ".mooring-lock"):
            continue
        shutil.rmtree(one) if one.is_dir() else one.unlink()
        gone.append(one.name)
    return gone


async def test_two_nodes_are_a_master_and_a_replica_and_survive_losing_both_servers(make: Make) -> None:
    stage = await make(replicas=2, exact=False)
    await running(stage)
    leader = (await stage.status()).leader or ""
    assert await stage.call(leader, "SET", "kept", "1") == "OK"
    await stage.confirmed(leader)

    for pod in await stage.addresses():
        stage.bed.kill("default", pod, "redis")

    await stage.bed.until(lambda: restarted(stage, leader), f"{leader} runs again")
    await running(stage)
    for pod in await stage.addresses():
        assert await stage.call(pod, "GET", "kept") == "1"
    assert (await stage.status()).leader == leader


async def running(stage: Stage) -> None:
    """Wait until the phase is Running and both servers agree on who leads."""

    async def well() -> bool:
        status = await stage.status()
        try:
            roles = [(await stage.call(pod, "ROLE"))[0] for pod in await stage.addresses()]
        except DialError:
            return False
        return status.phase == "Running" and sorted(roles) == ["master", "slave"]

    await stage.bed.until(well, "a master and a replica run", within=60, every=0.2)


@pytest.mark.full
async def test_a_pair_is_rolled_by_a_hand_over_without_a_loss(make: Make) -> None:
    stage = await make(replicas=2, exact=False)
    await running(stage)
    before = {pod.metadata.uid for pod in await stage.pods()}
    leader = (await stage.status()).leader or ""
    written: list[str] = []

    async def write() -> None:
        while True:
            for pod in await stage.addresses():
                with contextlib.suppress(DialError, KeyError):
                    async with stage.dial.link((await stage.addresses())[pod]) as link:
                        while True:
                            await link.call("SET", f"w:{len(written)}", "1")
                            written.append(f"w:{len(written)}")
                            await asyncio.sleep(0.005)
            await asyncio.sleep(0.01)

    writing = asyncio.create_task(write())
    try:
        await stage.patch({"pod": [{"middlewareImage": "redis:7.0", "annotations": {"team": "a"}}]})
        await renewed(stage, before)
        await running(stage)
    finally:
        writing.cancel()

    assert len(written) > 100
    now = (await stage.status()).leader or ""
    assert now != leader
    assert await missing(stage, now, written) == []
    await stage.confirmed(now)
    for pod in await stage.addresses():
        assert await missing(stage, pod, written) == []


async def missing(stage: Stage, pod: str, keys: list[str]) -> list[str]:
    """Those of these keys that a pod's server does not have."""
    values = await stage.call(pod, "MGET", *keys)
    return [key for key, value in zip(keys, values, strict=True) if value is None]
