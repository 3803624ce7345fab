"""A CNSet follows its load: what counts, when it is not known, what goes through to a group, and who may interfere."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.operators.matrixone import builders
from tests.operators.matrixone.test_cnset_rules import NOW, member

from mooring.actor.verdict import InSync
from mooring.kube import Client, MergePatch
from mooring.kube.object import decode, to_dict
from mooring.local.api.server import ApiServer
from mooring.operators.host import apply_crds
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.cluster.stages import held_back
from mooring.operators.matrixone.cnset.autoscale import (
    CONTESTED,
    autoscale_status,
    decided,
    signals_of,
    steps_noted,
)
from mooring.operators.matrixone.cnset.inputs import Inputs, snapshot_of
from mooring.operators.matrixone.cnset.plan import decide
from mooring.operators.matrixone.cnset.status import report
from mooring.operators.matrixone.explain import lines
from mooring.operators.matrixone.look import Seen
from mooring.operators.matrixone.specs import ClusterSpecs
from mooring.operators.matrixone.types import (
    CNPool,
    CNSet,
    CNSetSpec,
    CNSetStatus,
    LogSet,
    MatrixOneCluster,
)
from mooring.operators.matrixone.validate import validate
from mooring.operators.workload.autoscale import AutoscaleStatus
from mooring.operators.workload.ownership import SizeOwners

POLICY = {
    "minReplicas": 1,
    "maxReplicas": 3,
    "metrics": [{"type": "sessions", "target": 10}],
    "scaleUp": {"stabilizationSeconds": 0},
    "scaleDown": {"stabilizationSeconds": 60},
}


def spec(replicas: int = 1, **changes: Any) -> CNSetSpec:
    return msgspec.convert({"replicas": replicas, "autoscale": {**POLICY, **changes}}, CNSetSpec)


def in_force(count: int, **fields: Any) -> CNSetStatus:
    return CNSetStatus(autoscale=AutoscaleStatus(replicas=count, **fields))


def test_sessions_of_a_pod_that_drains_count() -> None:
    scale = spec().autoscale
    assert scale is not None
    members = [member(0, sessions=4), member(1, "Draining", sessions=8)]
    [signal] = signals_of(scale, members, 2)
    assert (signal.name, signal.value, signal.target) == ("sessions", 6.0, 10.0)


@pytest.mark.parametrize(
    "silent",
    [
        member(1, sessions=None),
        member(1, None, sessions=None, serving_since=NOW),
    ],
    ids=["does not answer", "HAKeeper gave it up"],
)
def test_a_pod_that_does_not_answer_makes_the_load_unknown(silent: Any) -> None:
    scale = spec().autoscale
    assert scale is not None
    assert signals_of(scale, [member(0, sessions=4), silent], 2)[0].value is None


def test_a_pod_that_starts_has_no_sessions_yet() -> None:
    scale = spec().autoscale
    assert scale is not None
    assert signals_of(scale, [member(0, sessions=8), member(1, None, sessions=None)], 2)[0].value == 4.0


def test_pipelines_can_be_followed_beside_sessions() -> None:
    both = [{"type": "sessions", "target": 10}, {"type": "pipelines", "target": 2}]
    scale = spec(metrics=both)
    step = decided(scale, CNSetStatus(), [member(0, sessions=1, pipelines=5)], revision="new", now=NOW)
    assert (step.replicas, step.reason) == (3, "ScaleOut")


def test_the_cpu_of_the_nodes_can_be_followed_and_its_absence_is_reported() -> None:
    followed = spec(metrics=[{"type": "cpu", "target": 60}])
    members = [replace(member(0), cpu=90.0), replace(member(1), cpu=70.0)]
    step = decided(followed, in_force(2), members, revision="new", now=NOW)
    assert (step.replicas, step.numbers) == (3, "cpu 80% of 60% calls for 3")
    blind = [replace(one, cpu=None) for one in members]
    step = decided(followed, in_force(2), blind, revision="new", now=NOW, cpu_unknown="no metrics-server")
    status = autoscale_status(followed, in_force(2), step, now=NOW)
    assert status is not None
    assert (step.replicas, status.reason, status.message) == (2, "SignalUnknown", "cpu: no metrics-server")
    [said] = lines({"autoscale": {"replicas": 2, "reason": status.reason, "message": status.message}})
    assert said == "SignalUnknown: cpu: no metrics-server; while that is so, no compute node is removed"


def test_the_number_in_force_counts_not_the_declared_one() -> None:
    members = [member(at, sessions=9) for at in range(2)]
    step = decided(spec(1), in_force(2), members, revision="new", now=NOW)
    assert (step.replicas, step.reason) == (2, "AtTarget")


def test_fewer_wait_for_their_window_and_are_remembered() -> None:
    members = [member(at, sessions=1) for at in range(2)]
    first = decided(spec(), in_force(2), members, revision="new", now=NOW)
    assert (first.replicas, first.reason, first.after) == (2, "ScaleInSoon", 60)
    status = autoscale_status(spec(), in_force(2), first, now=NOW)
    assert status is not None
    assert (status.replicas, status.desired, status.since) == (2, 1, NOW)
    later = NOW + timedelta(seconds=61)
    then = decided(spec(), CNSetStatus(autoscale=status), members, revision="new", now=later)
    assert (then.replicas, then.reason) == (1, "ScaleIn")
    [note] = steps_noted(2, then)
    assert note.message == "2 to 1 compute nodes: sessions 1 of 10 calls for 1"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([member(0, sessions=1), replace(member(1, sessions=1), revision="old")], "pods are rolled"),
        ([member(0, sessions=1)], "the last change is not done yet"),
    ],
)
def test_nothing_is_removed_while_pods_change(members: list[Any], why: str) -> None:
    step = decided(spec(), in_force(2), members, revision="new", now=NOW)
    assert (step.replicas, step.reason) == (2, "ScaleInHeld")
    assert step.numbers.endswith(why)


def test_at_rest_the_status_stays_the_same() -> None:
    before = in_force(1, last_scale_time=datetime(2025, 1, 1, tzinfo=UTC))
    for seconds, sessions in ((0, 10), (15, 9), (30, 10)):
        now = NOW + timedelta(seconds=seconds)
        step = decided(spec(), before, [member(0, sessions=sessions)], revision="new", now=now)
        assert autoscale_status(spec(), before, step, now=now) == before.autoscale


def declared(status: CNSetStatus | None = None, **notes: str) -> CNSet:
    made = msgspec.convert({"metadata": {"name": "t", "namespace": "ns", "annotations": notes}}, CNSet)
    return msgspec.structs.replace(made, spec=spec(2), status=status)


def looked_at(cn_set: CNSet, **changes: Any) -> Inputs:
    log = msgspec.convert({"metadata": {"name": "mo", "namespace": "ns"}, "spec": {"replicas": 1}}, LogSet)
    return replace(Inputs(cn_set=cn_set, log_set=log, revision="new"), **changes)


def test_the_declared_number_counts_while_somebody_else_scales_and_that_is_reported() -> None:
    inputs = looked_at(declared(in_force(3)), contested="kube-controller-manager")
    snapshot = snapshot_of(inputs, Seen(error="not asked"), gave_locks=(), now=NOW)
    assert (snapshot.replicas, snapshot.scaling) == (2, None)
    status = report(inputs, snapshot, decide(snapshot)).status
    [condition] = [one for one in status.conditions or () if one.type == CONTESTED]  # type: ignore[attr-defined]
    assert condition.status == "True"
    assert (condition.message or "").startswith("kube-controller-manager sets spec.replicas")
    again = looked_at(declared(status))  # type: ignore[arg-type]
    snapshot = snapshot_of(again, Seen(error="not asked"), gave_locks=(), now=NOW)
    assert snapshot.replicas == 2, "it goes on from the declared number, not from the one of before"
    status = report(again, snapshot, InSync()).status
    assert CONTESTED not in {one.type for one in status.conditions or ()}  # type: ignore[attr-defined]


def test_another_number_is_recorded_before_a_pod_is_made_for_it() -> None:
    for number, recorded in ((0, True), (1, False)):
        inputs = looked_at(declared(in_force(number)))
        snapshot = snapshot_of(inputs, Seen(error="not asked"), gave_locks=(), now=NOW)
        made = report(inputs, snapshot, decide(snapshot))
        assert (made.status.autoscale.replicas, made.record) == (1, recorded)  # type: ignore[attr-defined]


def test_a_paused_set_keeps_its_number() -> None:
    inputs = looked_at(declared(in_force(3), **{"mooring.dev/pause": ""}))
    snapshot = snapshot_of(inputs, Seen(error="not asked"), gave_locks=(), now=NOW)
    assert (snapshot.replicas, snapshot.scaling) == (3, None)


async def test_whoever_scales_by_the_subresource_is_found() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="mooring")
        await apply_crds(client, [OPERATOR])
        raw = builders.declared("CNSet", "t", spec__autoscale=POLICY)
        del raw["metadata"]["uid"]
        made = await client.create(decode(raw, CNSet))
        namespace, owners = made.metadata.namespace or "", SizeOwners(client, "replicas")
        assert await owners.of(made) == ""
        another = Client(server.transport(), field_manager="kube-controller-manager")
        body = MergePatch({"spec": {"replicas": 3}})
        await another.patch(CNSet, "t", body, namespace=namespace, subresource="scale")
        found = await client.get(CNSet, "t", namespace=namespace)
        assert await owners.of(found) == "kube-controller-manager"
        found = await client.patch(CNSet, "t", MergePatch({"spec": {"replicas": 2}}), namespace=namespace)
        assert await owners.of(found) == "", "the remedy that the condition names helps"


def test_why_says_what_the_load_calls_for() -> None:
    status = {"autoscale": {"replicas": 2, "desired": 1, "since": "2026-01-01T12:00:00Z"}}
    said = "The load calls for 1 compute nodes since 2026-01-01T12:00:00Z; 2 are in force"
    assert list(lines(status)) == [said]
    assert list(lines({"autoscale": {"replicas": 2}})) == []


def cluster(**group: Any) -> MatrixOneCluster:
    groups = [{"name": "one", "replicas": 1, **group}]
    body = {"version": "1.2.4", "logService": {"replicas": 1}, "tn": {"replicas": 1}, "cnGroups": groups}
    return msgspec.convert({"metadata": {"name": "mo", "namespace": "ns"}, "spec": body}, MatrixOneCluster)


def test_a_group_passes_its_policy_on_and_a_change_of_it_rolls_nothing() -> None:
    [before] = ClusterSpecs(cluster()).cn_sets()
    [after] = ClusterSpecs(cluster(autoscale=POLICY)).cn_sets()
    assert after.spec is not None
    assert after.spec.autoscale == spec().autoscale
    assert to_dict(after)["spec"]["autoscale"] == POLICY, "what it requires is sent on, also where it is 1"
    assert held_back(after, before) is after


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metrics": []}, "spec.autoscale.metrics"),
        ({"metrics": [{"type": "memory", "target": 50}]}, "spec.autoscale.metrics[0].type"),
        ({"minReplicas": 4}, "spec.autoscale.minReplicas"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    one = msgspec.structs.replace(declared(), spec=spec(**change))
    assert field in [problem.field for problem in validate(one)]
    group = cluster(autoscale={**POLICY, **change})
    wanted = field.replace("spec.", "spec.cnGroups[0].", 1)
    assert wanted in [problem.field for problem in validate(group)]


def test_a_pool_decides_by_its_claims_alone() -> None:
    pool = msgspec.convert(
        {"spec": {"template": {"image": "a:1.2.4", "replicas": 1, "autoscale": POLICY}}}, CNPool
    )
    assert "spec.template.autoscale" in [problem.field for problem in validate(pool)]
