"""The load chooses the number of servers: what is measured, and when a change may begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed
from tests.operators.mysql.builders import NOW, Scene, ago, healthy

from mooring.actor import InSync
from mooring.kube.object import Key
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.mysql import load
from mooring.operators.mysql.events import notes_of
from mooring.operators.mysql.explain import lines
from mooring.operators.mysql.moves import Record, Resize, Wait
from mooring.operators.mysql.snapshot import Scaling
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterSpec, MySQLClusterStatus, size_of
from mooring.operators.mysql.validate import validate
from mooring.operators.workload import rates
from mooring.operators.workload.autoscale import AutoscaleMetric, AutoscaleSpec, AutoscaleStatus, Policy
from mooring.operators.workload.cpu import CPU

KEY = Key("default", "demo")
AT_ONCE = Policy(minimum=2, maximum=5, up_after_s=0, down_after_s=0, aside=1)


def busy(
    *,
    connections: int = 100,
    policy: Policy = AT_ONCE,
    reads: Mapping[str, float] | None = None,
    **targets: float,
) -> Scene:
    """Three healthy servers, each replica with so many clients, at a moment of measurement."""
    scene = healthy().settled()
    for name in ("demo-1", "demo-2"):
        scene = scene.server(name, connections=connections + 1, max_connections=200)
    scaling = Scaling(policy=policy, targets=targets or {"Connections": 50.0})
    return scene.want(scaling=scaling).see(reads=reads or {})


def test_replicas_are_added_in_proportion_to_their_own_load() -> None:
    scene = busy(connections=75).server("demo-0", connections=5000)
    verdict = scene.decide()
    assert isinstance(verdict, Record)
    assert verdict.status.autoscale == AutoscaleStatus(replicas=4, last_scale_time=NOW)
    assert "from 3 to 4 servers: Connections 75 of 50 calls for 4" in verdict.why
    assert [note.reason for note in notes_of(scene.snapshot, verdict)] == ["Autoscaled"]
    grown = scene.wrote(verdict).want(size=4).see(reads=None)
    assert isinstance(grown.decide(), Resize)


@pytest.mark.parametrize(
    ("target", "servers"),
    [({"ConnectionsPercent": 25.0}, 5), ({"ConnectionsPercent": 50.0}, 3), ({"ReadsPerSecond": 20.0}, 4)],
)
def test_every_metric_is_an_average_of_the_replicas(target: Mapping[str, float], servers: int) -> None:
    scene = busy(connections=100, reads={"demo-0": 9000, "demo-1": 40, "demo-2": 20})
    scene = scene.want(scaling=Scaling(policy=AT_ONCE, targets=target))
    decided = load.decision(scene.snapshot)
    assert decided is not None
    assert decided.replicas == servers


def test_the_cpu_of_the_replicas_counts_and_what_is_not_measured_holds_back() -> None:
    scene = busy(CPU=50.0).see(cpu=CPU(percent={"demo-0": 900.0, "demo-1": 90.0, "demo-2": 60.0}))
    decided = load.decision(scene.snapshot)
    assert decided is not None
    assert (decided.replicas, decided.numbers) == (4, "CPU 75% of 50% calls for 4")
    for cpu in (CPU(percent={"demo-1": 1.0}), CPU(why="metrics.k8s.io is not served"), None):
        decided = load.decision(scene.see(cpu=cpu).snapshot)
        assert decided is not None
        assert (decided.replicas, decided.reason) == (3, "SignalUnknown")
        assert decided.unknown == (f"CPU: {cpu.why}" if cpu is not None and cpu.why else "")


def test_a_server_without_a_rate_makes_its_metric_unknown() -> None:
    scene = busy(reads={"demo-1": 0.0}, ReadsPerSecond=20.0)
    decided = load.decision(scene.snapshot)
    assert decided is not None
    assert (decided.replicas, decided.reason) == (3, "SignalUnknown")


def test_nothing_is_decided_while_something_else_is_to_be_done() -> None:
    missing = busy().pod("demo-2", ready=False)
    assert isinstance(missing.decide(), Wait)
    assert isinstance(busy().see(reads=None).decide(), InSync)


def test_no_server_is_removed_while_a_replica_is_behind() -> None:
    scene = busy(connections=1)
    assert isinstance(scene.decide(), Record)
    behind = scene.link("demo-2", lag=7.0)
    decided = load.decision(behind.snapshot)
    assert decided is not None
    assert (decided.replicas, decided.reason) == (3, "ScaleInHeld")
    assert "demo-2 is 7 s behind" in decided.numbers


def test_replicas_without_load_are_removed_down_to_the_minimum() -> None:
    scene = busy(connections=1)
    verdict = scene.decide()
    assert isinstance(verdict, Record)
    assert verdict.status.autoscale is not None
    assert verdict.status.autoscale.replicas == 2


def test_a_wish_is_remembered_and_an_idle_cluster_writes_nothing_new() -> None:
    patient = replace(AT_ONCE, up_after_s=60)
    scene = busy(policy=patient)
    wished = load.shown(scene.snapshot)
    assert wished == AutoscaleStatus(replicas=3, desired=5, since=NOW, reason="ScaleOut")
    waiting = scene.record(autoscale=changed(wished, since=ago(59)))
    assert isinstance(waiting.decide(), InSync)
    due = scene.record(autoscale=changed(wished, since=ago(60)))
    assert isinstance(due.decide(), Record)
    calm = busy(connections=50).record(autoscale=AutoscaleStatus(replicas=3))
    assert load.shown(calm.snapshot) == AutoscaleStatus(replicas=3)
    assert load.shown(calm.see(reads=None).snapshot) == AutoscaleStatus(replicas=3)


def test_the_policy_stands_still_while_an_autoscaler_sets_the_size() -> None:
    scene = busy().record(autoscale=AutoscaleStatus(replicas=3)).see(size_owner="kube-controller-manager")
    verdict = scene.decide()
    assert isinstance(verdict, Record)
    (note,) = notes_of(scene.snapshot, verdict)
    assert note.warning
    assert note.reason == "AutoscaleContested"
    assert "kube-controller-manager" in note.message
    assert "remove spec.autoscale" in note.message
    stands = scene.wrote(verdict)
    assert isinstance(stands.decide(), InSync)
    assert load.shown(stands.snapshot) == verdict.status.autoscale
    over = stands.see(size_owner="").decide()
    assert isinstance(over, Record)
    assert over.status.autoscale is None


def test_a_refused_declaration_keeps_the_chosen_number() -> None:
    scene = busy().record(autoscale=AutoscaleStatus(replicas=3)).want(scaling=None)
    assert isinstance(scene.decide(), InSync)
    assert load.shown(scene.snapshot) == AutoscaleStatus(replicas=3)


def cluster(spec: MySQLClusterSpec, status: MySQLClusterStatus | None = None) -> MySQLCluster:
    return MySQLCluster(metadata=ObjectMeta(name="demo", namespace="default"), spec=spec, status=status)


def test_the_number_in_force_is_the_chosen_one_within_its_bounds() -> None:
    policy = AutoscaleSpec(min_replicas=2, max_replicas=4)
    chosen = MySQLClusterStatus(autoscale=AutoscaleStatus(replicas=4))
    assert size_of(cluster(MySQLClusterSpec(size=3))) == 3
    assert size_of(cluster(MySQLClusterSpec(size=9, autoscale=policy))) == 4
    assert size_of(cluster(MySQLClusterSpec(size=3, autoscale=policy), chosen)) == 4
    lower = AutoscaleSpec(min_replicas=2, max_replicas=3)
    assert size_of(cluster(MySQLClusterSpec(size=2, autoscale=lower), chosen)) == 3
    assert size_of(cluster(MySQLClusterSpec(size=2), chosen)) == 2
    stands = MySQLClusterStatus(autoscale=AutoscaleStatus(reason="AutoscaleContested"))
    assert size_of(cluster(MySQLClusterSpec(size=7, autoscale=policy), stands)) == 7


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (AutoscaleSpec(min_replicas=4, max_replicas=3), "minReplicas"),
        (AutoscaleSpec(min_replicas=1, max_replicas=3), "minReplicas"),
        (AutoscaleSpec(min_replicas=2, max_replicas=10), "maxReplicas"),
    ],
)
def test_bounds_that_cannot_be_are_refused_with_the_field(policy: AutoscaleSpec, field: str) -> None:
    spec = changed(policy, metrics=[AutoscaleMetric(type="Connections", target=5)])
    (problem,) = validate(cluster(MySQLClusterSpec(autoscale=spec)))
    assert problem.field == f"spec.autoscale.{field}"


def test_an_unknown_metric_is_refused_with_the_known_ones() -> None:
    metrics = [AutoscaleMetric(type="Love", target=5)]
    (problem,) = validate(
        cluster(MySQLClusterSpec(autoscale=AutoscaleSpec(min_replicas=2, max_replicas=3, metrics=metrics)))
    )
    assert problem.field == "spec.autoscale.metrics[0].type"
    assert "ReadsPerSecond" in problem.message


def test_rates_come_from_two_measurements_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    time = [100.0]
    monkeypatch.setattr(rates, "monotonic", lambda: time[0])
    reads, scaling = load.Reads(), Scaling(policy=replace(AT_ONCE, up_after_s=10, down_after_s=10))
    scene = healthy().server("demo-1", selects=50)
    assert reads.of(KEY, scaling, scene.snapshot.topology) is None
    time[0] += 5
    assert reads.of(KEY, scaling, scene.snapshot.topology) is None
    time[0] += 5
    restarted = scene.server("demo-1", selects=150).server("demo-2", server_id=77)
    assert reads.of(KEY, scaling, restarted.snapshot.topology) == {"demo-0": 0.0, "demo-1": 10.0}
    assert reads.of(KEY, None, restarted.snapshot.topology) is None


def test_why_says_what_the_policy_waits_for() -> None:
    wish = {"replicas": 3, "desired": 5, "since": "2026-01-01T12:00:00Z", "reason": "ScaleOut"}
    assert any("calls for 5 instead of 3 since" in line for line in lines({"autoscale": wish}))
    unknown = {"reason": "SignalUnknown", "message": "CPU: metrics.k8s.io is not served"}
    [said] = [one for one in lines({"autoscale": unknown}) if one.startswith("SignalUnknown: CPU: ")]
    assert said.endswith("no server is removed")
