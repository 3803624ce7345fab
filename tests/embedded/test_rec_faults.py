"""What goes wrong with Redis Clusters, each on real servers: exact again by itself, and no key lost."""

from __future__ import annotations

import asyncio

import pytest
from redis.crc import key_slot
from tests.embedded.conftest import Make
from tests.embedded.test_rec_scale import sizes, until_plan
from tests.operators.redis.cluster.stage import Stage, remove, renewed, restarted

from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Service

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

KEYS = 20000


async def slotted(stage: Stage, slot_of: str) -> tuple[str, str]:
    """The pod that owns the slot of a key, and another master."""
    slot = key_slot(slot_of.encode())
    owned = await stage.owned()
    owner = next(pod for pod, slots in owned.items() if slots >> slot & 1)
    return owner, next(pod for pod in owned if pod != owner)


async def test_most_masters_gone_with_their_data_are_replaced_by_their_replicas(make: Make) -> None:
    stage = await make(persistence=False)
    await stage.fill(1000)
    lost = list(await stage.owned())[:2]
    before = {pod.metadata.uid for pod in await stage.pods() if pod.metadata.name in lost}

    await asyncio.gather(*(remove(stage, pod) for pod in lost))

    await renewed(stage, before)
    await stage.exact(6, within=90)
    assert await stage.kept(1000) == 1000


async def test_a_cluster_on_empty_dirs_that_lost_all_its_pods_serves_empty_again_and_says_so(
    make: Make,
) -> None:
    stage = await make(persistence=False)
    await stage.fill(1000)
    before = {pod.metadata.uid for pod in await stage.pods()}

    await asyncio.gather(*(remove(stage, pod.metadata.name or "") for pod in await stage.pods()))

    await renewed(stage, before)
    await stage.exact(6, within=90)
    assert await stage.kept(1000) == 0
    loss = (await stage.status()).last_data_loss
    assert loss is not None
    assert "all keys are lost" in loss.message
    await stage.tells("DataLost")
    await stage.fill(100)
    assert await stage.kept(100) == 100


@pytest.mark.full
@pytest.mark.parametrize("which", [pytest.param("source", marks=pytest.mark.nightly), "target"])
async def test_a_move_survives_the_death_of_its(make: Make, which: str) -> None:
    stage = await make()
    await stage.fill(KEYS)
    before = list(await stage.owned())
    await stage.patch({"replicas": 8})
    await until_plan(stage)

    after = [pod for pod in await stage.owned() if pod not in before]
    victim = before[1] if which == "source" else after[0]
    stage.bed.kill("default", victim, "redis")

    await stage.bed.until(lambda: restarted(stage, victim), f"{victim} runs again")
    await stage.exact(8, within=120)
    assert await sizes(stage) == [4096] * 4
    assert await stage.kept(KEYS) == KEYS


async def test_a_slot_left_half_way_is_finished_with_the_keys_of_both_sides(make: Make) -> None:
    stage = await make()
    keys = [f"{{half}}{at}" for at in range(20)]
    owner, other = await slotted(stage, "half")
    ids = {pod: (await stage.me(pod)).id for pod in (owner, other)}
    for key in keys:
        await stage.call(owner, "SET", key, "new")
    await stage.bed.stop_operators()
    slot = key_slot(b"half")
    await stage.call(other, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner])
    await stage.call(owner, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[other])
    where = (await stage.addresses())[other]
    # Some have moved; of one the copy arrived and the source died before it deleted its own, which then changed.
    await stage.call(owner, "MIGRATE", where.ip, where.port, "", 0, 5000, "KEYS", *keys[:5])
    await stage.call(owner, "MIGRATE", where.ip, where.port, "", 0, 5000, "COPY", "KEYS", keys[10])
    await stage.call(owner, "SET", keys[10], "newer")

    await stage.bed.start_operators()

    await stage.exact(6)
    async with stage.client() as client:
        values = [await client.call(key, "GET") for key in keys]
    assert values == ["new"] * 10 + ["newer"] + ["new"] * 9


@pytest.mark.full
async def test_marks_without_any_key_moved_are_taken_off(make: Make) -> None:
    stage = await make()
    owner, other = await slotted(stage, "half")
    await stage.call(owner, "SET", "{half}", "1")
    slot, owned = key_slot(b"half"), await stage.owned()
    await stage.call(owner, "CLUSTER", "SETSLOT", slot, "MIGRATING", (await stage.me(other)).id)
    replica = next(pod for pod in await stage.addresses() if pod not in owned)
    await remove(stage, replica)

    await stage.exact(6)
    assert (await slotted(stage, "half"))[0] == owner
    assert await stage.call(owner, "GET", "{half}") == "1"


@pytest.mark.full
async def test_changed_pods_are_rolled_out_one_by_one_without_a_loss(make: Make) -> None:
    stage = await make()
    await stage.fill(1000)
    before = {pod.metadata.uid for pod in await stage.pods()}

    async with stage.writing() as report:
        await stage.patch(
            {
                "pod": [
                    {
                        "middlewareImage": "redis:7.0",
                        "annotations": {"team": "a"},
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                    }
                ]
            }
        )
        await stage.bed.until(lambda: replaced(stage, before), "every pod is a new one", within=120)
        await stage.exact(6)

    assert await stage.kept(1000) == 1000
    assert await stage.lost(report) == []
    await stage.tells("UpgradeClusterStart", "UpgradeClusterSuccess")


async def replaced(stage: Stage, uids: set[str | None]) -> bool:
    pods = await stage.pods()
    return len(pods) == 6 and not uids & {pod.metadata.uid for pod in pods}


@pytest.mark.full
@pytest.mark.nightly
async def test_a_deleted_statefulset_and_service_come_back_with_everything(make: Make) -> None:
    stage = await make()
    await stage.fill(500)
    client = stage.bed.client
    before = {pod.metadata.uid for pod in await stage.pods()}
    await client.delete(Service, stage.name, namespace="default")
    await client.delete(StatefulSet, stage.name, namespace="default")

    await stage.bed.until(lambda: replaced(stage, before), "every pod is a new one", within=90)
    await stage.exact(6)
    assert await stage.kept(500) == 500


@pytest.mark.full
@pytest.mark.nightly
async def test_a_roll_that_fails_at_its_first_pod_is_turned_back_and_said_so(make: Make) -> None:
    stage = await make()
    await stage.fill(500)
    before = {pod.metadata.uid for pod in await stage.pods()}

    await stage.patch({"pod": [{"middlewareImage": "nobody/has:this"}]})

    async def said() -> bool:
        conditions = (await stage.status()).standard_conditions or []
        return any("did not come up" in (one.message or "") for one in conditions)

    await stage.bed.until(said, "it says that the new pods do not come up", within=60)
    await stage.exact(6, within=90)
    pods = await stage.pods()
    assert len(before & {pod.metadata.uid for pod in pods}) == 5
    assert {pod.spec.containers[0].image for pod in pods if pod.spec and pod.spec.containers} == {"redis:7.0"}
    assert await stage.kept(500) == 500
    failed = ("UpgradeClusterFailed", "RollbackClusterStart", "RollbackClusterSuccess")
    await stage.tells("UpgradeClusterStart", *failed)

    await stage.patch({"pod": [{"middlewareImage": "redis:7.0", "annotations": {"team": "a"}}]})
    await stage.bed.until(lambda: replaced(stage, before), "another change is rolled out", within=120)
    await stage.exact(6)
