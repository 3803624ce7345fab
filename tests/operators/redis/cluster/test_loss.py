"""A cluster of which nothing is left is served empty again, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operators.redis.cluster.builders import NOW, Member, change, snapshot, whole
from tests.operators.redis.cluster.servers import KEYS, Servers

from mooring.kube.objects import apps, core
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.operators.redis.cluster.events import of_move
from mooring.operators.redis.cluster.inputs import read_inputs, read_snapshot
from mooring.operators.redis.cluster.moves import Record, Release, Verdict
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.status import recorded
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterPod,
    RedisClusterSpec,
    RedisClusterStatus,
)
from mooring.operators.redis.dial import Dial
from mooring.operators.workload.surroundings import Surroundings

EMPTY = [Member(ordinal=at) for at in range(6)]


def lost(seen: Snapshot) -> str:
    verdict = next_step(seen)
    return verdict.lost if isinstance(verdict, Record) else ""


def test_a_cluster_on_empty_dirs_whose_pods_are_all_new_is_founded_again_and_says_what_was_lost() -> None:
    seen = snapshot(EMPTY, ephemeral=True, alone=range(6))
    move = next_step(seen)
    assert isinstance(move, Record)
    assert (move.formed, move.drop_plan) == (False, True)
    [note] = of_move(move, seen)
    assert (note.reason, note.warning) == ("DataLost", True)
    assert "all keys are lost" in note.message
    status = recorded(RedisClusterStatus(formed_cluster_before=True, phase="Running"), move, NOW)
    assert status.formed_cluster_before is False
    assert status.last_data_loss is not None
    assert (status.last_data_loss.time, status.last_data_loss.message) == (NOW, move.lost)


@pytest.mark.parametrize(
    ("members", "how"),
    [
        pytest.param(EMPTY, {"ephemeral": False}, id="data that outlives its pods"),
        pytest.param(EMPTY, {"formed": False}, id="a cluster that never had any"),
        pytest.param(change(EMPTY, 5, silent=True), {}, id="a pod that does not answer"),
        pytest.param(change(EMPTY, 5, gone=True), {"pods": 6}, id="a pod that is still to be made"),
        pytest.param(change(EMPTY, 5, gate="full"), {}, id="a node that waits with data"),
        pytest.param(change(EMPTY, 5, pod=(("terminating", True),)), {}, id="a pod that ends"),
        pytest.param(change(EMPTY, 5, keys=1), {}, id="a node with keys"),
        pytest.param(change(EMPTY, 5, server=(("loading", True),)), {}, id="a node that loads its data"),
        pytest.param(change(EMPTY, 5, slots=1), {}, id="a node with a slot"),
        pytest.param(
            [*change(EMPTY, 5, slots=1, gone=True)[:5], Member(ordinal=5, slots=1, silent=True)],
            {},
            id="slots of a node that is away",
        ),
        pytest.param(whole(), {}, id="a cluster that serves"),
    ],
)
def test_what_may_hold_data_or_come_back_is_never_founded_again(
    members: list[Member], how: dict[str, Any]
) -> None:
    assert lost(snapshot(members, **{"ephemeral": True, **how})) == ""


def test_nodes_with_data_begin_with_it_though_a_new_one_that_knows_nobody_was_first() -> None:
    members = [Member(ordinal=0), *(Member(ordinal=at, gate="part") for at in range(1, 6))]
    move = next_step(snapshot(members, ephemeral=True, alone=[0]))
    assert isinstance(move, Release)
    assert (len(move.as_is), move.fresh) == (5, ())


@pytest.mark.parametrize("claimed", [False, True])
async def test_claims_that_no_pod_mounts_may_hold_the_data(claimed: bool) -> None:
    cluster = RedisCluster(
        metadata=ObjectMeta(name="demo", namespace="default", uid="u"),
        spec=RedisClusterSpec(replicas=6, pod=[RedisClusterPod(middleware_image="redis:7.0")]),
    )
    mounted = core.Volume(name="data", empty_dir=core.EmptyDirVolumeSource())
    live = apps.StatefulSet(
        metadata=ObjectMeta(name="demo", uid="set"), spec=apps.StatefulSetSpec(replicas=1)
    )
    pod = core.Pod(
        metadata=ObjectMeta(
            name="demo-0",
            uid="p",
            owner_references=[
                OwnerReference(
                    api_version="apps/v1", kind="StatefulSet", name="demo", uid="set", controller=True
                )
            ],
        ),
        spec=core.PodSpec(containers=[core.Container(name="redis")], volumes=[mounted]),
    )
    claim = core.PersistentVolumeClaim(metadata=ObjectMeta(name="data-demo-0"))
    inputs = read_inputs(
        cluster, Surroundings([live, pod, claim if claimed else None]), RedisClusterStatus(), now=NOW
    )
    seen = await read_snapshot(inputs, Dial(), NOW, grace=120.0)
    assert seen.wanted.ephemeral is not claimed


def test_nothing_is_founded_again_while_the_cluster_is_paused() -> None:
    seen = snapshot(EMPTY, ephemeral=True)
    assert lost(replace(seen, wanted=replace(seen.wanted, paused=True))) == ""


@pytest.mark.embedded
@pytest.mark.timeout(90)
async def test_real_servers_that_are_all_replaced_serve_again(cluster: Servers) -> None:
    for at in range(6):
        await cluster.renew(at)
    decided: list[Verdict] = []

    async def watch(verdict: Verdict) -> None:
        decided.append(verdict)

    assert await cluster.operate(6, watch=watch, ephemeral=True)
    assert [bool(one.lost) for one in decided if isinstance(one, Record)][:1] == [True]
    assert sum(await cluster.sizes()) == 16384
    assert await cluster.kept(KEYS) == 0
    await cluster.fill(KEYS)
    assert await cluster.kept(KEYS) == len(KEYS)
