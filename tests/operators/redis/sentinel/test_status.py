"""UCloud's newest condition: what it says of a moment, in its own words."""

from __future__ import annotations

from dataclasses import replace

from tests.operators.redis.sentinel.builders import NOW, Scene, healthy

from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.events import notes_of
from mooring.operators.redis.sentinel.inputs import Inputs
from mooring.operators.redis.sentinel.legacy import Head, headed, legacy_head
from mooring.operators.redis.sentinel.moves import InSync, Record, Resize, Verdict, Wait
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.specs import Found
from mooring.operators.redis.sentinel.status import readiness, report
from mooring.operators.redis.sentinel.topology import Topology
from mooring.operators.redis.sentinel.types import (
    LegacyCondition,
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
)
from mooring.operators.redis.tls import TlsProgress
from mooring.operators.workload.credentials import PasswordState
from mooring.operators.workload.rollout import Roll, SetState
from mooring.operators.workload.surroundings import Surroundings

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


# --- a whole report --------------------------------------------------------------------------------------


def inputs(scene: Scene, status: RedisClusterStatus | None = None) -> Inputs:
    cluster = RedisCluster(
        metadata=ObjectMeta(name="shop", namespace="web"), spec=RedisClusterSpec(), status=status
    )
    return Inputs(
        cluster=cluster,
        around=Surroundings([]),
        wanted=scene.wanted,
        found=Found(),
        password=PasswordState(),
    )


def test_a_new_cluster_is_ready_in_the_write_that_calls_it_healthy() -> None:
    """Who waits for Ready and looks then sees no STATUS Creating."""
    for verdict, ready, shown in ((STARTING, False, "Creating"), (InSync(), True, "Healthy")):
        made = report(inputs(healthy()), healthy().snapshot, verdict, entry=None, unknown=())
        assert isinstance(made.status, RedisClusterStatus)
        assert made.status.conditions
        assert (made.ready.status, made.status.conditions[0].type) == (ready, shown)


def test_the_record_of_a_failover_names_the_new_master_in_the_same_write() -> None:
    """A server that hangs delays every further pass, so nothing may be left for the next one."""
    scene = healthy().silent("redis-0", seconds=6).server("redis-1", role="master", master=None)
    scene = scene.server("redis-1", replid="newer", replid2="line")
    for name in scene.watchers:
        scene = scene.sentinel(name, master=Address("10.0.0.2", 6379), epoch=1)
    record = scene.decide()
    assert isinstance(record, Record)
    assert record.lineage is not None

    shown = report(inputs(scene), scene.snapshot, record, entry=None, unknown=())

    assert shown.record
    status = shown.status
    assert isinstance(status, RedisClusterStatus)
    assert (status.master, status.master_ip) == ("redis-1", "10.0.0.2")
    assert status.lineage == record.lineage
    assert status.last_failover == record.last_failover


def test_a_master_that_is_only_to_be_promoted_is_not_shown_as_one() -> None:
    scene = healthy().dead("redis-0").blind("sentinel-0", "sentinel-1", "sentinel-2")
    scene = scene.operation("FailOver", "redis-0", seconds=5)
    record = scene.decide()
    assert isinstance(record, Record)
    assert record.operation is not None
    assert record.operation.kind == "Promote"

    status = report(inputs(scene), scene.snapshot, record, entry=None, unknown=()).status

    assert isinstance(status, RedisClusterStatus)
    assert status.master is None


def test_each_phase_of_turning_tls_on_is_announced_and_shown() -> None:
    scene, status = healthy().want(ports="tls"), RedisClusterStatus()
    opening = scene.decide()
    assert isinstance(opening, Record)
    shown = report(inputs(scene, status), scene.snapshot, opening, entry=None, unknown=())
    assert isinstance(shown.status, RedisClusterStatus)
    assert shown.status.tls == TlsProgress(transport="plain", phase="Opening")
    notes = [one.message for one in shown.notes if one.reason == "TlsChanging"]
    assert notes == ["Opening: TLS is turned on: first, every pod opens both ports"]

    done = Record(tls=TlsProgress(transport="tls"), why="every pod has the declared ports open")
    for before, announced in (("Closing", [done.why]), ("", [])):  # the record of a new cluster is no news
        known = RedisClusterStatus(tls=TlsProgress(transport="tls", phase=before)) if before else status
        found = notes_of(inputs(scene, known), done, None)
        assert [one.message for one in found if one.reason == "TlsChanging"] == announced
