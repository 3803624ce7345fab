"""The load of the masters chooses the number of nodes: when a change may begin, and how far."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs
from redis.crc import key_slot
from tests.operators.redis.cluster.builders import NOW, Member, change, snapshot, whole
from tests.operators.redis.cluster.servers import KEYS, Servers

from mooring.operators.redis.cluster import load
from mooring.operators.redis.cluster.events import of_move
from mooring.operators.redis.cluster.explain import lines, policy
from mooring.operators.redis.cluster.moves import InSync, Record, Resize, Verdict
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.saved import dump
from mooring.operators.redis.cluster.saved import load as read
from mooring.operators.redis.cluster.snapshot import Scaling, Snapshot, Wanted
from mooring.operators.redis.cluster.status import recorded
from mooring.operators.redis.cluster.topology import Load, read_nodes
from mooring.operators.redis.cluster.types import (
    ClusterAutoscaleSpec,
    RedisClusterSpec,
    RedisClusterStatus,
    SlotPlan,
    size_of,
)
from mooring.operators.workload.autoscale import AutoscaleStatus, Policy

AT_ONCE = Policy(minimum=6, maximum=12, up_after_s=0, down_after_s=0)
MEMORY: Mapping[str, float] = {"MemoryPercent": 50.0}
WORK: Mapping[str, float] = {"OperationsPerSecond": 100.0}


def loaded(
    *used: int,
    members: Sequence[Member] | None = None,
    limit: int = 100,
    targets: Mapping[str, float] = MEMORY,
    rates: Mapping[str, float] | None = None,
    policy: Policy = AT_ONCE,
    before: AutoscaleStatus | None = None,
    **how: Any,
) -> Snapshot:
    """A cluster at rest at a moment of measurement, each of whose masters uses so many bytes of its limit."""
    made = list(members or whole(len(used)))
    for at, memory in enumerate(used):
        told = Load(memory=memory, limit=limit, commands=0, process="a")
        made = change(made, at, server=(("load", told),))
    scaling = Scaling(policy=policy, targets=targets, cooldown_s=how.pop("cooldown_s", 0.0))
    seen = snapshot(
        made, scaling=how.pop("scaling", scaling), plan=how.pop("plan", None), nodes=how.pop("nodes", None)
    )
    seen = replace(seen, recorded=replace(seen.recorded, autoscale=before), rates=rates or {})
    return replace(seen, **how)


def called(verdict: Verdict) -> int | None:
    """The number of nodes that is recorded."""
    assert isinstance(verdict, Record)
    assert verdict.autoscale is not None
    return verdict.autoscale.replicas


def rolling(seen: Snapshot) -> Snapshot:
    return replace(seen, wanted=replace(seen.wanted, revision="new"))


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_masters_are_added_in_proportion_and_each_brings_its_replica() -> None:
    seen = loaded(75, 75, 75)
    verdict = next_step(seen)
    assert called(verdict) == 10  # three masters at 75 of 50 percent call for five
    assert isinstance(verdict, Record)
    assert "from 6 to 10 nodes (3 to 5 masters): MemoryPercent 75% of 50% calls for 5" in verdict.why
    [note] = of_move(verdict, seen)
    assert (note.reason, note.warning) == ("Autoscaled", False)
    status = recorded(RedisClusterStatus(), verdict, NOW)
    assert status.autoscale is not None
    assert status.autoscale.last_scale_time == NOW
    assert "from 6 to 10 nodes" in (status.autoscale.message or "")
    spec = RedisClusterSpec(replicas=6, autoscale=ClusterAutoscaleSpec(min_replicas=6, max_replicas=12))
    assert size_of(spec, status) == 10
    grown = replace(seen, wanted=replace(seen.wanted, nodes=10), rates=None)
    assert isinstance(next_step(grown), Resize)


def test_the_operations_are_an_average_of_the_masters_alone() -> None:
    busy = {"demo-0": 150.0, "demo-1": 150.0, "demo-2": 90.0, "demo-3": 9000.0}
    assert called(next_step(loaded(1, 1, 1, targets=WORK, rates=busy))) == 8
    unknown = load.decision(loaded(1, 1, 1, targets=WORK, rates={"demo-0": 9000.0}))
    assert unknown is not None
    assert (unknown.replicas, unknown.reason) == (3, "SignalUnknown")


@pytest.mark.parametrize(
    "seen",
    [
        loaded(75, 75, 75, plan=SlotPlan(kind="Rebalance", replicas=6, total=1)),
        loaded(75, 75, 75, members=change(whole(), 1, silent=True)),
        loaded(75, 75, 75, members=change(whole(), 5, server=(("link_up", False),))),
        rolling(loaded(75, 75, 75, members=change(whole(), 5, pod=(("revision", "old"),)))),
        loaded(75, 75, 75, missed={"demo-1": 1}),
        replace(loaded(75, 75, 75), rates=None),
    ],
    ids=["slots move", "a master is silent", "a replica syncs", "a roll", "a missed beat", "not measured"],
)
def test_nothing_is_decided_while_anything_else_goes_on(seen: Snapshot) -> None:
    verdict = next_step(seen)
    assert not isinstance(verdict, Record) or verdict.autoscale is None


def test_masters_are_removed_as_far_as_the_data_fits_with_a_margin() -> None:
    four = loaded(30, 30, 30, 30)
    assert called(next_step(four)) == 6
    # Five at 45 percent call for four by a target of 60; four would hold 56 of 100 each, three 75, two 112.
    assert [
        load.least_that_holds(loaded(*[used] * 5), Scaling(policy=AT_ONCE, targets={})) for used in (45, 50)
    ] == [3, 4]
    full = loaded(45, 45, 45, 90, targets=WORK, rates={f"demo-{at}": 0.0 for at in range(4)})
    assert called(next_step(full)) == 6
    fuller = loaded(*[65] * 4, targets=WORK, rates={f"demo-{at}": 0.0 for at in range(4)})
    assert isinstance(next_step(fuller), InSync)
    told = load.shown(fuller)
    assert told is not None
    assert (told.replicas, told.reason) == (8, "ScaleInHeld")
    assert "more than 80% of their memory" in (told.message or "")


def test_no_master_is_removed_where_nobody_knows_what_fits() -> None:
    idle = {f"demo-{at}": 0.0 for at in range(4)}
    seen = loaded(1, 1, 1, 1, limit=0, targets=WORK, rates=idle)
    assert isinstance(next_step(seen), InSync)
    told = load.shown(seen)
    assert told is not None
    assert told.reason == "ScaleInHeld"
    assert "set MAXMEMORY" in (told.message or "")
    by_container = Scaling(policy=AT_ONCE, targets=WORK, limit=100)
    assert called(next_step(loaded(1, 1, 1, 1, limit=0, scaling=by_container, rates=idle))) == 6


def test_bounds_and_steps_count_nodes() -> None:
    assert called(next_step(loaded(99, 99, 99, policy=replace(AT_ONCE, maximum=8)))) == 8
    assert called(next_step(loaded(99, 99, 99, policy=replace(AT_ONCE, max_step_up=2)))) == 8
    most = loaded(99, 99, 99, policy=replace(AT_ONCE, maximum=6))
    told = load.shown(most)
    assert told is not None
    assert (told.reason, told.message) == (
        "AtMaximum",
        "the load calls for more than 6 nodes; raise spec.autoscale.maxReplicas",
    )


def test_a_further_replica_stays_one() -> None:
    seven = [*whole(), Member(ordinal=6, master=0)]
    assert called(next_step(loaded(66, 66, 66, members=seven))) == 9


def test_a_wish_waits_for_its_window_and_an_idle_cluster_writes_nothing_new() -> None:
    patient = replace(AT_ONCE, up_after_s=60)
    told = load.shown(loaded(75, 75, 75, policy=patient))
    assert told == AutoscaleStatus(replicas=6, desired=10, since=NOW, reason="ScaleOut")
    early = loaded(75, 75, 75, policy=patient, before=structs.replace(told, since=ago(59)))
    assert isinstance(next_step(early), InSync)
    assert (
        called(next_step(loaded(75, 75, 75, policy=patient, before=structs.replace(told, since=ago(60)))))
        == 10
    )
    rest = AutoscaleStatus(replicas=6, message="ScaleIn: from 8 to 6 nodes", last_scale_time=ago(1000))
    assert load.shown(loaded(51, 49, 50, before=rest)) == rest
    assert load.shown(replace(loaded(75, 75, 75, before=rest), rates=None)) == rest


def test_after_a_change_the_next_one_waits_for_the_cooldown() -> None:
    changed = AutoscaleStatus(
        replicas=6, desired=10, since=ago(200), reason="ScaleOut", last_scale_time=ago(299)
    )
    assert isinstance(next_step(loaded(75, 75, 75, before=changed, cooldown_s=300)), InSync)
    later = structs.replace(changed, last_scale_time=ago(300))
    assert called(next_step(loaded(75, 75, 75, before=later, cooldown_s=300))) == 10


def test_it_stands_still_while_another_one_sets_the_number_and_says_so_before_anything_is_scaled() -> None:
    before = AutoscaleStatus(replicas=6)
    seen = loaded(75, 75, 75, before=before, nodes=8, size_owner="kube-controller-manager")
    verdict = next_step(seen)
    assert isinstance(verdict, Record)
    [note] = of_move(verdict, seen)
    assert (note.reason, note.warning) == ("AutoscaleContested", True)
    assert "kube-controller-manager sets spec.replicas" in note.message
    status = recorded(RedisClusterStatus(autoscale=before), verdict, NOW)
    spec = RedisClusterSpec(replicas=8, autoscale=ClusterAutoscaleSpec(min_replicas=6, max_replicas=6))
    assert size_of(spec, status) == 8  # what is declared counts, bounds or not
    stands = loaded(75, 75, 75, before=status.autoscale, size_owner="kube-controller-manager")
    assert isinstance(next_step(stands), InSync)
    back = next_step(loaded(75, 75, 75, before=status.autoscale))
    assert isinstance(back, Record)
    assert recorded(status, back, NOW).autoscale is None


def test_a_saved_decision_about_load_is_decided_alike() -> None:
    seen = loaded(75, 75, 75, before=AutoscaleStatus(replicas=6, last_scale_time=ago(5)))
    assert read(dump(seen)) == seen
    assert next_step(read(dump(seen))) == next_step(seen)


def test_why_says_size_target_and_reason() -> None:
    status = {"autoscale": {"replicas": 8, "message": "ScaleOut: from 6 to 8 nodes (3 to 4 masters): ..."}}
    assert list(lines(status)) == ["ScaleOut: from 6 to 8 nodes (3 to 4 masters): ..."]
    spec = {
        "autoscale": {
            "minReplicas": 6,
            "maxReplicas": 8,
            "metrics": [{"type": "MemoryPercent", "target": 60}],
        }
    }
    assert list(policy(spec)) == ["The load chooses 6 to 8 nodes; targets per master: MemoryPercent 60"]


async def chosen(cluster: Servers, nodes: int) -> int:
    """The number of nodes that the memory of these servers calls for, each of which may use 8 MiB."""
    scaling = Scaling(policy=replace(AT_ONCE, maximum=8), targets={"MemoryPercent": 60.0}, limit=8 << 20)
    seen = await cluster.snapshot(cluster.dial, Wanted(nodes=nodes, scaling=scaling))
    pods = [one.pod for one in seen.seen.nodes]
    asked = replace(seen, seen=await read_nodes(cluster.dial, pods, password="", load=True), rates={})
    decided = load.follow(asked)
    return nodes if decided is None else called(decided) or 0


async def comes_to_choose(cluster: Servers, nodes: int, wanted: int) -> None:
    """Buffers count as memory in use: a server frees those of a client that has gone a moment later."""
    async with asyncio.timeout(60):
        while await chosen(cluster, nodes) != wanted:
            await asyncio.sleep(0.2)


@pytest.mark.full
@pytest.mark.timeout(700)
async def test_real_masters_are_added_and_removed_by_the_memory_that_they_use(cluster: Servers) -> None:
    large = [f"large:{at}" for at in range(130)]
    assert await chosen(cluster, 6) == 6
    for at, slots in (await cluster.owned()).items():
        mine = [key for key in large if slots >> key_slot(key.encode()) & 1]
        async with cluster.dial.link(cluster.address(at)) as link:
            assert set(await link.pipeline([("SET", key, "x" * 60_000) for key in mine])) == {"OK"}
    assert await chosen(cluster, 6) == 8
    assert await cluster.operate(8, seconds=300, pipeline=100)
    assert await cluster.sizes() == [4096] * 4
    assert await chosen(cluster, 8) == 8
    for at, slots in (await cluster.owned()).items():
        mine = [key for key in large if slots >> key_slot(key.encode()) & 1]
        async with cluster.dial.link(cluster.address(at)) as link:
            assert set(await link.pipeline([("DEL", key) for key in mine])) == {1}
    await comes_to_choose(cluster, 8, 6)
    assert await cluster.operate(6, seconds=300, pipeline=100)
    assert await cluster.kept(KEYS) == len(KEYS)
