"""Slots and nodes come and go under a writer: exact counts, no key lost, nothing left behind."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import Make
from tests.operators.redis.cluster.stage import Stage

from mooring.kube import MergePatch
from mooring.operators.redis.cluster.slots import count
from mooring.operators.redis.cluster.types import RATE_ANNOTATION, RedisCluster, RedisClusterStatus

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

KEYS = 5000


async def sizes(stage: Stage) -> list[int]:
    return sorted(count(slots) for slots in (await stage.owned()).values())


async def until_plan(stage: Stage) -> None:
    """Wait until a move of slots is under way and has moved some."""

    async def going() -> bool:
        status = await stage.status()
        return status.slot_plan is not None and len(await stage.owned()) > 3

    await stage.bed.until(going, "slots are being moved", within=60)


async def test_a_fourth_master_gets_an_even_part_under_a_writer_and_all_volumes_grow(make: Make) -> None:
    stage = await make(updateStrategy={"type": "AutoReceive", "pipeline": "100"})
    await stage.fill(KEYS)
    pods = {pod.metadata.uid for pod in await stage.pods()}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}

    async with stage.writing() as report:
        await stage.patch(
            {"replicas": 8, "volumeClaimTemplates": [{"metadata": {"name": "redis-data"}, "spec": claim}]}
        )
        await stage.exact(8, within=90)

    capacities = [(one.status.capacity if one.status else None) or {} for one in await stage.claims()]
    assert capacities == [{"storage": "2Gi"}] * 8
    assert {pod.metadata.uid for pod in await stage.pods()} > pods  # none restarted
    assert (await stage.status()).volumes is None

    assert await sizes(stage) == [4096] * 4
    assert await stage.kept(KEYS) == KEYS
    assert await stage.lost(report) == []
    assert report.errors == {}
    assert len(report.acknowledged) > 100
    assert (await stage.status()).slot_plan is None
    await stage.tells("UpgradeClusterStart", "ScalePod", "RebalanceSlots", "UpgradeClusterSuccess")
    # A node that has not joined after a second is introduced again, and that is told as well.
    assert "AddMaster" in await stage.told()


@pytest.mark.full
@pytest.mark.nightly
async def test_a_fourth_master_gets_what_it_is_assigned_from_whom_it_is_assigned(make: Make) -> None:
    stage = await make()
    await stage.fill(KEYS)
    owned = await stage.owned()
    names = sorted(owned)[:2]
    ids = [(await stage.me(pod)).id for pod in names]

    async with stage.writing() as report:
        await stage.patch(
            {
                "replicas": 8,
                "updateStrategy": {
                    "type": "AssignReceive",
                    "assignStrategies": [{"slots": 1000, "fromReplicas": ",".join(ids)}],
                },
            }
        )
        await stage.exact(8, within=90)

    after = await stage.owned()
    # One of the three first masters has 5462 slots, the others 5461: the larger gives the ceiling.
    assert sorted(count(owned[pod]) - count(after[pod]) for pod in names) in ([500, 500], [499, 501])
    assert 1000 in await sizes(stage)
    assert await stage.kept(KEYS) == KEYS
    assert await stage.lost(report) == []
    assert report.errors == {}


@pytest.mark.full
@pytest.mark.nightly
async def test_how_far_a_move_is_stands_in_the_status_while_it_goes_on(make: Make) -> None:
    stage = await make()
    await stage.fill(KEYS)
    slowly = MergePatch({"metadata": {"annotations": {RATE_ANNOTATION: "1Mi"}}, "spec": {"replicas": 8}})
    await stage.bed.client.patch(RedisCluster, stage.name, slowly, namespace="default")
    said: list[int] = []

    async def told_twice() -> bool:
        plan = (await stage.status()).slot_plan
        if plan is not None and plan.moved and plan.moved not in said:
            assert plan.seconds_left is not None
            said.append(plan.moved)
        return len(said) == 2

    await stage.bed.until(told_twice, "it is said twice how far it is", within=60)
    assert said == sorted(said)


@pytest.mark.full
async def test_an_assignment_that_does_not_fit_touches_nothing(make: Make) -> None:
    stage = await make()
    before = await stage.owned()
    strategy = {"type": "AssignReceive", "assignStrategies": [{"slots": 10, "fromReplicas": "nodeId1"}]}

    await stage.patch({"replicas": 8, "updateStrategy": strategy})

    async def said() -> bool:
        return (await stage.status()).reason_type == "InvalidArgs"

    await stage.bed.until(said, "the reason is InvalidArgs")
    status: RedisClusterStatus = await stage.status()
    assert status.phase == "Running"
    assert "nodeId1 is not a node of this cluster" in (status.reason or "")
    assert len(await stage.pods()) == 6
    assert await stage.owned() == before


async def test_four_masters_become_three_drained_and_forgotten_and_four_again_on_the_old_volumes(
    make: Make,
) -> None:
    stage = await make(replicas=8)
    await stage.fill(KEYS)

    async with stage.writing() as report:
        await stage.patch({"replicas": 6})
        await stage.exact(6, within=90)

    assert max(await sizes(stage)) - min(await sizes(stage)) <= 1
    assert await stage.kept(KEYS) == KEYS
    assert await stage.lost(report) == []
    assert report.errors == {}
    await stage.tells(
        "UpgradeClusterStart", "RebalanceSlots", "DeleteNode", "ScalePod", "UpgradeClusterSuccess"
    )

    await stage.patch({"replicas": 8})
    await stage.exact(8, within=90)
    assert await sizes(stage) == [4096] * 4
    assert await stage.kept(KEYS) == KEYS


@pytest.mark.full
@pytest.mark.nightly
async def test_a_scale_in_taken_back_while_draining_leaves_all_nodes_serving(make: Make) -> None:
    stage = await make(replicas=8)
    await stage.fill(20000)
    whole = min(await sizes(stage))

    await stage.patch({"replicas": 6})

    async def draining() -> bool:
        return min(await sizes(stage)) < whole

    await stage.bed.until(draining, "slots are leaving", within=60)
    await stage.patch({"replicas": 8})
    await stage.exact(8, within=90)

    assert await stage.kept(20000) == 20000


@pytest.mark.full
async def test_a_move_goes_on_after_the_operator_died(make: Make) -> None:
    stage = await make()
    await stage.fill(20000)
    await stage.patch({"replicas": 8})
    await until_plan(stage)

    await stage.bed.stop_operators()
    await stage.bed.start_operators()
    await stage.exact(8, within=90)

    assert await sizes(stage) == [4096] * 4
    assert await stage.kept(20000) == 20000
