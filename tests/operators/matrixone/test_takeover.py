"""Clusters of upstream's operator: when nothing is written, and in which steps they are taken over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.operators.matrixone.builders import IMAGE
from tests.operators.matrixone.test_buckets import declare, operating, runs, stalled
from tests.operators.matrixone.upstream import DEFINITIONS
from tests.operators.redis.sentinel.test_actor import eventually

from mooring.actor import InSync, Wait
from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.object import Object, decode
from mooring.kube.objects import apps
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import (
    Container,
    PersistentVolumeClaim,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    Volume,
)
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.operators.matrixone import deployed, kruise
from mooring.operators.matrixone.names import INPUTS
from mooring.operators.matrixone.stateful import Found, _in_place
from mooring.operators.matrixone.takeover import (
    LEASE,
    OLDER,
    TAKE_OVER,
    TAKEN_OVER,
    Abandon,
    FreePods,
    KeepClaims,
    Left,
    MarkPods,
    SettlePods,
    decide,
    lease_held,
    made_for,
    not_asked,
    orphans,
    reserved_trouble,
    settle,
    without_upstreams,
)
from mooring.operators.matrixone.types import LogSet, MatrixOneCluster
from mooring.operators.workload.moves import DeletePod
from mooring.operators.workload.pods import Pod as ProxyPod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIGEST = "d1"


def lease(renewed: datetime, *, seconds: int = 15) -> Lease:
    spec = LeaseSpec(
        holder_identity="upstream-0",
        renew_time=renewed.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        lease_duration_seconds=seconds,
    )
    return Lease(metadata=ObjectMeta(name=LEASE, namespace="default"), spec=spec)


def owner(kind: str = "StatefulSet", name: str = "mo-log", uid: str = "w") -> OwnerReference:
    return OwnerReference(
        api_version="apps.kruise.io/v1beta1", kind=kind, name=name, uid=uid, controller=True
    )


def pod(at: int = 0, *, owned: OwnerReference | None = None, image: str = IMAGE, mark: str = "") -> Pod:
    metadata = ObjectMeta(
        name=f"mo-log-{at}",
        namespace="default",
        uid=f"p{at}",
        annotations={TAKEN_OVER: mark} if mark else None,
        owner_references=[owned or owner()],
    )
    return Pod(metadata=metadata, spec=PodSpec(containers=[Container(name="main", image=image)]))


def claim(at: int = 0, *, owned: bool = True) -> PersistentVolumeClaim:
    metadata = ObjectMeta(name=f"mo-data-mo-log-{at}", owner_references=[owner()] if owned else None)
    return PersistentVolumeClaim(metadata=metadata)


def workload(*, keeps: str = "Retain", going: bool = False, **spec: Any) -> kruise.StatefulSet:
    policy = kruise.RetentionPolicy(when_deleted=keeps, when_scaled=keeps)
    metadata = ObjectMeta(
        name="mo-log", uid="w", deletion_timestamp="2026-01-01T12:00:00Z" if going else None
    )
    made = kruise.WorkloadSpec(replicas=3, persistent_volume_claim_retention_policy=policy, **spec)
    return kruise.StatefulSet(metadata=metadata, spec=made)


def left(**changes: Any) -> Left:
    made = Left(
        owner="LogSet mo",
        ask="MatrixOneCluster mo",
        allowed=True,
        main="mo-log",
        kind=kruise.StatefulSet,
        workload=workload(),
        pods=[pod(at, mark=DIGEST) for at in range(3)],
        claims=[claim(at, owned=False) for at in range(3)],
        digest=DIGEST,
        declared=PodTemplateSpec(spec=PodSpec(containers=[Container(name="main", image=IMAGE)])),
    )
    return changed(made, **changes)


def waits(verdict: object) -> Wait:
    assert isinstance(verdict, Wait)
    return verdict


# --- when nothing is written ---------------------------------------------------------------------------------


def test_a_live_lease_of_upstreams_operator_stops_everything_and_an_old_one_nothing() -> None:
    held = lease_held([lease(NOW - timedelta(seconds=5))], now=NOW)
    assert held is not None
    assert (held.reason, held.stalled) == ("LegacyOperatorRunning", True)
    assert lease_held([lease(NOW - timedelta(seconds=60))], now=NOW) is None


async def test_nothing_is_made_while_upstreams_operator_runs() -> None:
    async with operating() as client:
        await client.create(lease(datetime.now(UTC), seconds=3600))
        await declare(client, "mo")
        assert "upstream's operator runs" in await eventually(lambda: stalled(client, "mo", "default"))
        assert not await runs(client, "mo")


def test_nothing_is_done_unasked_and_the_wait_says_what_would_be_and_how_to_ask() -> None:
    wait = waits(decide(left(allowed=False, workload=None)))
    assert (wait.reason, wait.stalled) == ("NotAdopted", True)
    assert f"{TAKE_OVER}=true on the MatrixOneCluster mo" in wait.message
    assert "mo-log-0, mo-log-1, mo-log-2" in wait.message
    assert "and 2 more" in not_asked("a", "b", [f"p{at}" for at in range(7)]).message


def test_what_openkruise_has_nothing_of_is_not_held_up() -> None:
    assert decide(left(workload=None, pods=[], allowed=False)) is None


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"unknown": "this operator may not read"}, "may not read"),
        ({"refusal": "spec.replicas: 1"}, "spec.replicas"),
        ({"pods": [pod(owned=owner("StatefulSet", "other"))]}, "StatefulSet other"),
        ({"pods": [pod(owned=owner("DaemonSet"))]}, "DaemonSet mo-log"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_with_the_reason(case: dict[str, Any], said: str) -> None:
    wait = waits(decide(left(**case)))
    assert (wait.reason, wait.stalled) == ("TakeOverRefused", True)
    assert said in wait.message
    assert "nothing is changed" in wait.message


def test_the_workload_of_a_log_service_without_a_quorum_stays() -> None:
    case = left(trouble="1 of 3 members of shard 0 are heard: no quorum", claims=[claim()])
    wait = waits(decide(case))
    assert (wait.reason, wait.stalled) == ("TakeOverWaiting", False)
    assert "no quorum" in wait.message


def test_a_half_done_take_over_goes_on_without_a_quorum() -> None:
    assert isinstance(decide(left(trouble="no quorum", workload=None)), FreePods)
    assert waits(decide(left(trouble="no quorum", workload=workload(going=True)))).reason == "TakingOver"


# --- the steps -----------------------------------------------------------------------------------------------


def test_claims_are_kept_before_the_workload_goes() -> None:
    first = decide(left(workload=workload(keeps="Delete"), claims=[claim(0), claim(1, owned=False)]))
    assert isinstance(first, KeepClaims)
    assert (first.policy, [one.metadata.name for one in first.claims]) == (True, ["mo-data-mo-log-0"])
    again = decide(left(claims=[claim(1)]))
    assert isinstance(again, KeepClaims)
    assert not again.policy
    assert isinstance(decide(left(workload=None, claims=[claim(0)])), KeepClaims)


def test_pods_are_marked_with_what_they_run_before_the_workload_goes() -> None:
    verdict = decide(left(pods=[pod(0, mark=DIGEST), pod(1), pod(2, image="matrixorigin/matrixone:1.2.3")]))
    assert isinstance(verdict, MarkPods)
    assert verdict.pods == {"p1": DIGEST, "p2": OLDER}


def test_a_pod_with_other_resources_than_declared_is_older() -> None:
    more = Container(name="main", image=IMAGE, resources=ResourceRequirements(requests={"memory": "2Gi"}))
    verdict = decide(left(pods=[pod()], declared=PodTemplateSpec(spec=PodSpec(containers=[more]))))
    assert isinstance(verdict, MarkPods)
    assert verdict.pods == {"p0": OLDER}


def test_the_workload_goes_last_and_its_end_is_awaited() -> None:
    assert isinstance(decide(left()), Abandon)
    assert waits(decide(left(workload=workload(going=True)))).reason == "TakingOver"


def test_pods_of_a_workload_that_is_gone_are_set_free() -> None:
    verdict = decide(left(workload=None))
    assert isinstance(verdict, FreePods)
    assert len(verdict.pods) == 3


@pytest.mark.parametrize(
    ("reserved", "kept", "said"),
    [
        ([1], [1], "mo-data-mo-log-1 holds the log"),
        ([1], [0, 2, 3], ""),
        (["1-2"], [2], "mo-data-mo-log-2"),
        (["one"], [], "form that is not known"),
        (None, [0, 1, 2], ""),
    ],
)
def test_a_replaced_store_is_not_brought_back_with_its_old_log(
    reserved: list[int | str] | None, kept: list[int], said: str
) -> None:
    text = reserved_trouble(workload(reserve_ordinals=reserved), [claim(at) for at in kept])
    assert (said in text) if said else not text


# --- under Mooring's own workloads ---------------------------------------------------------------------------


def ours(*, inputs: str = DIGEST, seen: int = 1) -> apps.StatefulSet:
    return apps.StatefulSet(
        metadata=ObjectMeta(name="mo-log", uid="s", generation=1, annotations={INPUTS: inputs}),
        status=apps.StatefulSetStatus(observed_generation=seen, update_revision="mo-log-new", replicas=1),
    )


def taken(at: int, mark: str = DIGEST) -> Pod:
    mine = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="mo-log", uid="s", controller=True)
    return pod(at, owned=mine, mark=mark)


def test_no_pod_is_rolled_before_all_are_taken_in() -> None:
    loose = replace(
        pod(1, mark=DIGEST), metadata=replace(pod(1, mark=DIGEST).metadata, owner_references=None)
    )
    for found, pods in (
        (ours(), [taken(0), loose]),
        (ours(seen=0), [taken(0)]),
        (replace(ours(), status=None), [taken(0)]),
    ):
        assert waits(settle(found, pods)).reason == "TakingOver"
    assert settle(ours(), [replace(loose, metadata=replace(loose.metadata, annotations=None))]) is None


def test_pods_that_run_what_is_declared_count_as_rolled_and_others_do_not() -> None:
    verdict = settle(ours(), [taken(0), taken(1, OLDER)])
    assert isinstance(verdict, SettlePods)
    assert verdict.pods == {"mo-log-0": ("p0", "mo-log-new"), "mo-log-1": ("p1", "")}
    later = settle(ours(inputs="d2"), [taken(0)])
    assert isinstance(later, SettlePods)
    assert later.pods == {"mo-log-0": ("p0", "")}


def test_a_pod_that_ends_meanwhile_holds_nothing_up() -> None:
    gone = pod(1, mark=DIGEST)
    gone = replace(gone, metadata=replace(gone.metadata, deletion_timestamp="2026-01-01T12:00:00Z"))
    assert isinstance(settle(ours(), [taken(0), gone]), SettlePods)
    assert settle(ours(), [gone]) is None


def test_a_new_set_is_asked_for_every_pod_that_an_old_one_left() -> None:
    declared = apps.StatefulSet(metadata=ObjectMeta(name="mo-log"), spec=apps.StatefulSetSpec(replicas=3))
    loose: Callable[[int], Pod] = lambda at: replace(  # noqa: E731
        pod(at), metadata=replace(pod(at).metadata, owner_references=None)
    )
    numbers = {
        "those after a repair": [loose(0), loose(2), loose(3)],
        "fewer": [loose(0)],
        "of another workload": [pod(7)],
    }
    made = {}
    for case, pods in numbers.items():
        (one,) = _in_place([declared], Found(set=None, pods=tuple(pods)))
        assert isinstance(one, apps.StatefulSet)
        assert one.spec is not None
        made[case] = one.spec.replicas
    assert made == {"those after a repair": 4, "fewer": 3, "of another workload": 3}
    assert [one.metadata.name for one in orphans([loose(0), pod(1)])] == ["mo-log-0"]


def test_a_left_proxy_goes_once_the_deployment_serves_and_one_at_a_time() -> None:
    old = (ProxyPod(name="mo-proxy-a", ordinal=0, uid="a"), ProxyPod(name="mo-proxy-b", ordinal=0, uid="b"))
    starts = deployed.Snapshot(now=NOW, replicas=1, there=1, updated=1, seen=True, left=old)
    assert waits(deployed.decide(starts)).reason == "PodsStarting"
    serves = changed(starts, ready=1)
    first = deployed.decide(serves)
    assert isinstance(first, DeletePod)
    assert (first.pod, first.uid) == ("mo-proxy-a", "a")
    ending = changed(serves, left=(changed(old[0], terminating=True), old[1]))
    assert waits(deployed.decide(ending)).reason == "PodsEnding"
    assert isinstance(deployed.decide(changed(serves, left=())), InSync)


def test_a_claim_that_other_pods_mount_too_is_not_taken_for_the_pods_own() -> None:
    claims = {
        "mo-data": "mo-data-mo-log-0",
        "shared": "mo-shared",
        "more": "more-mo-log-0",
        "other": "mo-data-mo-log-1",
    }
    volumes = [
        Volume(name=name, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim))
        for name, claim in claims.items()
    ]
    one = replace(pod(), spec=PodSpec(containers=[], volumes=volumes))
    assert made_for(one) == ["mo-data-mo-log-0", "more-mo-log-0"]


def test_upstreams_finalizers_alone_are_taken_off() -> None:
    given = [
        "matrixorigin.io/logset",
        "matrixorigin.io/CN-1a2b3c4",
        "matrixorigin.io/cnset",
        "example.com/keep",
    ]
    one = decode({"metadata": {"name": "mo", "finalizers": given}}, LogSet)
    assert without_upstreams(one) == ["matrixorigin.io/cnset", "example.com/keep"]


# --- on an API server ----------------------------------------------------------------------------------------


def log_set(name: str) -> LogSet:
    """A LogSet that upstream's operator has seen."""
    spec = {
        "image": IMAGE,
        "replicas": 1,
        "volume": {"size": "1Gi"},
        "sharedStorage": {"fileSystem": {"path": "/shared"}},
    }
    metadata = {"name": name, "namespace": "default", "finalizers": ["matrixorigin.io/logset"]}
    return decode({"metadata": metadata, "spec": spec}, LogSet)


async def test_a_set_of_which_nothing_is_left_is_made_again_and_loses_upstreams_finalizer() -> None:
    async with operating() as client:
        await client.create(log_set("mo"))
        await eventually(lambda: runs(client, "mo"))

        async def released() -> bool:
            return not (await client.get(LogSet, "mo", namespace="default")).metadata.finalizers

        await eventually(released)


async def test_a_workload_without_pods_holds_a_set_back_until_a_person_asks() -> None:
    async with operating() as client:
        for one in DEFINITIONS:
            body = msgspec.json.encode(one)
            await client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)
        left = kruise.StatefulSet(
            metadata=ObjectMeta(name="mo-log", namespace="default"), spec=kruise.WorkloadSpec(replicas=0)
        )

        async def served() -> bool:
            try:
                await client.create(left)
            except NotFound:
                return False
            return True

        await eventually(served)
        await client.create(log_set("mo"))
        assert TAKE_OVER in await eventually(lambda: stalled(client, "mo", "default"))
        asked = MergePatch({"metadata": {"annotations": {TAKE_OVER: "true"}}})
        await client.patch(LogSet, "mo", asked, namespace="default")

        async def going() -> bool:
            found = await client.get(kruise.StatefulSet, "mo-log", namespace="default")
            return found.metadata.finalizers == ["orphan"]

        await eventually(going)
        assert not await runs(client, "mo")


def given(kind: type[Object], name: str, *finalizers: str, **more: Any) -> Any:
    """An object as upstream's operator has left it."""
    metadata = {
        "name": name,
        "namespace": "default",
        "finalizers": list(finalizers),
        **more.pop("metadata", {}),
    }
    return decode({"metadata": metadata, **more}, kind)


async def said(client: Client, kind: type[Any], name: str) -> dict[str, str]:
    """Messages of the conditions by their reasons."""
    found = await client.get(kind, name, namespace="default")
    listed = (found.status.conditions if found.status else None) or ()
    return {one.reason or "": one.message or "" for one in listed}


CLUSTER = {
    "version": "1.2.4",
    "logService": {
        "replicas": 1,
        "volume": {"size": "1Gi"},
        "sharedStorage": {"fileSystem": {"path": "/shared"}},
    },
    "tn": {"replicas": 1},
}


async def test_a_cluster_that_is_deleted_before_it_is_taken_over_keeps_its_sets_and_says_why() -> None:
    """Nobody else takes upstream's finalizers off a set, and what is being deleted is not taken over any more."""
    async with operating() as client:
        mo = await client.create(given(MatrixOneCluster, "mo", spec=CLUSTER))
        await eventually(lambda: runs(client, "mo"))
        note = MergePatch({"metadata": {"annotations": {"mooring.dev/pause": "true"}}})
        await client.patch(LogSet, "mo", note, namespace="default")
        held = MergePatch({"metadata": {"finalizers": ["matrixorigin.io/logset"]}})
        await client.patch(LogSet, "mo", held, namespace="default")
        await client.delete(MatrixOneCluster, "mo", namespace="default", uid=mo.metadata.uid)

        async def waits_for_it() -> bool:
            return "LogSet mo (matrixorigin.io/logset)" in (await said(client, MatrixOneCluster, "mo")).get(
                "NotAdopted", ""
            )

        await eventually(waits_for_it)
        found = await client.get(LogSet, "mo", namespace="default")
        assert found.metadata.finalizers == ["matrixorigin.io/logset"]
        assert found.metadata.deletion_timestamp is None
        on = MergePatch({"metadata": {"annotations": {"mooring.dev/pause": None}}})
        await client.patch(LogSet, "mo", on, namespace="default")

        async def gone() -> bool:
            return not (await client.list(MatrixOneCluster, namespace="default")).items

        await eventually(gone)
