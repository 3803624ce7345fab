"""UCloud's newest condition: what it says of a moment, in its own words."""

from __future__ import annotations

from dataclasses import replace

from tests.operators.redis.sentinel.builders import NOW, Scene, healthy

from mooring.operators.redis.sentinel.legacy import Head, headed, legacy_head
from mooring.operators.redis.sentinel.moves import InSync, Record, Resize, Verdict, Wait
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.status import readiness
from mooring.operators.redis.sentinel.topology import Topology
from mooring.operators.redis.sentinel.types import LegacyCondition, RedisClusterSpec, RedisClusterStatus
from mooring.operators.workload.rollout import Roll, SetState

HEALTHY = Head("Healthy", "Cluster available", "Cluster ok")
SCALING_UP = Head("Scaling", "Scaling up", "Scaling up form: 3 to: 5")
STARTING = Wait(reason="RedisNotAnswering", message="redis-3 is starting")


def said(scene: Scene, verdict: Verdict, *before: Head) -> Head:
    """The head that follows those that were shown before, the last of them on top."""
    conditions: list[LegacyCondition] = []
    for head in before:
        conditions = headed(conditions, head, now=NOW)
    topology = Topology(members=tuple(scene.members.values()), watchers=tuple(scene.watchers.values()))
    snapshot = Snapshot(scene.wanted, replace(scene.observed, topology=topology), scene.recorded, NOW)
    status = RedisClusterStatus(conditions=conditions)
    return legacy_head(status, RedisClusterSpec(image="redis:7.0"), snapshot, verdict, readiness(snapshot))


def test_growth_is_called_scaling_from_the_resize_until_all_is_well() -> None:
    scene = healthy().want(size=5).see(redis_set=SetState(replicas=3))
    assert said(scene, Resize(component="redis", replicas=5), HEALTHY) == SCALING_UP
    scene = scene.see(redis_set=SetState(replicas=5))
    assert said(scene, STARTING, HEALTHY, SCALING_UP) == SCALING_UP
    assert said(scene, InSync(), HEALTHY, SCALING_UP) == HEALTHY


def test_pods_that_are_missing_without_a_change_of_size_were_removed() -> None:
    scene = healthy().gone("redis-2").see(redis_set=SetState(replicas=3))
    removed = said(scene, STARTING, SCALING_UP, HEALTHY)
    assert removed.message.endswith("be removed by user, restart (1 of 3 redis pods missing)")


def test_what_ended_a_server_is_said_with_ucloud_s_words_and_stays_said_while_pods_come_back() -> None:
    scene = healthy().dead("redis-1").see(redis_set=SetState(replicas=3))
    crashed = said(scene, STARTING, HEALTHY)
    assert crashed.message.endswith("be removed by user, restart (redis-1: timed out)")
    assert said(healthy().gone("redis-2"), STARTING, HEALTHY, crashed) == crashed


def test_shrinking_is_told_once_with_where_it_began() -> None:
    scene = healthy(size=5).want(size=3).see(redis_set=SetState(replicas=5))
    down = said(scene, Resize(component="redis", replicas=3), HEALTHY)
    assert down == Head("Scaling", "Scaling down", "Scaling down form: 5 to: 3")
    scene = scene.gone("redis-4").see(redis_set=SetState(replicas=3))
    assert said(scene, STARTING, HEALTHY, down) == down


def test_more_sentinels_are_called_scaling_too() -> None:
    up = Head("Scaling", "Scaling up", "Scaling up form: 3 to: 5 sentinels")
    scene = healthy().want(sentinels=5).see(sentinel_set=SetState(replicas=3))
    assert said(scene, Resize(component="sentinel", replicas=5), HEALTHY) == up
    scene = scene.see(sentinel_set=SetState(replicas=5))
    assert said(scene, STARTING, HEALTHY, up) == up
    assert said(scene, InSync(), HEALTHY, up) == HEALTHY


def test_a_roll_that_is_only_noted_is_no_longer_healthy() -> None:
    noted = Record(rolls={"redis": Roll(inputs="new", good="old")})
    assert said(healthy(), noted, HEALTHY) == Head("Upgrading", "Cluster upgrading", "Upgrading to redis:7.0")
