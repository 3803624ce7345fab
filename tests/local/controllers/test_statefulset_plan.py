"""What a StatefulSet does next, as tables and as whole histories."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.local.controllers.builders import NOW, make, merged, stateful_set, terminating, with_status

from mooring.kube.objects.apps import ControllerRevision, StatefulSet
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.local.controllers.revisions import choose, compact_json, new_revision, sort_revisions
from mooring.local.controllers.statefulset.identity import ordinal_of, revision_of
from mooring.local.controllers.statefulset.plan import (
    CreateClaim,
    CreatePod,
    DeletePod,
    OwnClaim,
    Plan,
    RepairPod,
    plan,
)


@dataclass
class Cluster:
    """Applies plans to objects in memory; ``log`` is what was done to pods, in order."""

    sts: StatefulSet
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    revisions: list[ControllerRevision] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def plan(self) -> Plan:
        status = self.sts.status
        collisions = (status.collision_count or 0) if status else 0
        chosen = choose(
            self.sts, self.sts.spec.template if self.sts.spec else None, self.revisions, collisions
        )
        update = chosen.update
        if chosen.create:
            self.revisions = sort_revisions([*self.revisions, update])
        if chosen.renumber is not None:
            self.revisions.remove(update)
            update = msgspec.structs.replace(update, revision=chosen.renumber)
            self.revisions = sort_revisions([*self.revisions, update])
        named = status.current_revision if status else None
        current = next((r for r in self.revisions if r.metadata.name == named), update)
        return plan(
            self.sts,
            list(self.pods.values()),
            claims=self.claims,
            current=current,
            update=update,
            collisions=collisions,
            now=NOW,
        )

    def step(self) -> Plan:
        made = self.plan()
        for action in made.steps:
            match action:
                case CreateClaim(claim=claim):
                    self.claims[claim.metadata.name or ""] = claim
                case CreatePod(pod=pod, claims=claims):
                    for created in claims:
                        self.claims[created.claim.metadata.name or ""] = created.claim
                    name = pod.metadata.name or ""
                    self.pods[name] = with_status(pod, phase="Pending", ready=False)
                    self.log.append(f"+{name}")
                case DeletePod(pod=pod):
                    name = pod.metadata.name or ""
                    self.pods[name] = terminating(self.pods[name])
                    self.log.append(f"-{name}")
                case OwnClaim() | RepairPod():
                    pass
        self.sts = msgspec.structs.replace(self.sts, status=made.status)
        return made

    def ready(self, *names: str) -> None:
        for name in names or list(self.pods):
            self.pods[name] = with_status(self.pods[name])

    def reap(self) -> None:
        self.pods = {n: p for n, p in self.pods.items() if p.metadata.deletion_timestamp is None}

    def settle(self, *, rounds: int = 60) -> None:
        """Let the node do its work between passes until nothing is left to do."""
        for _ in range(rounds):
            before = (dict(self.pods), self.sts)
            self.step()
            self.reap()
            self.ready()
            if (self.pods, self.sts) == before:
                return
        raise AssertionError(f"did not settle: {self.log}")

    def edit(self, **spec: Any) -> None:
        self.sts = merged(self.sts, {"spec": spec})
        generation = (self.sts.metadata.generation or 0) + 1
        self.sts = merged(self.sts, {"metadata": {"generation": generation}})

    def image(self, image: str) -> None:
        self.edit(template={"spec": {"containers": [{"name": "main", "image": image}]}})

    def images(self) -> dict[str, str | None]:
        return {
            name: pod.spec.containers[0].image
            for name, pod in sorted(self.pods.items())
            if pod.spec and pod.spec.containers
        }


def names(steps: Iterable[object]) -> list[str]:
    return [
        f"{type(s).__name__} {s.pod.metadata.name}" for s in steps if isinstance(s, CreatePod | DeletePod)
    ]


def test_ordered_pods_are_created_one_after_the_other_each_waiting_for_its_predecessor() -> None:
    cluster = Cluster(stateful_set())
    assert names(cluster.step().steps) == ["CreatePod web-0"]
    assert not cluster.step().steps
    cluster.pods["web-0"] = with_status(cluster.pods["web-0"], ready=False)
    assert not cluster.step().steps
    cluster.ready("web-0")
    assert names(cluster.step().steps) == ["CreatePod web-1"]


def test_parallel_pods_are_created_at_once() -> None:
    cluster = Cluster(stateful_set(podManagementPolicy="Parallel"))
    made = cluster.step()
    assert names(made.steps) == ["CreatePod web-0", "CreatePod web-1", "CreatePod web-2"]
    assert made.parallel


def test_a_created_pod_has_identity_labels_host_name_claims_and_owner() -> None:
    claim = {"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    cluster = Cluster(stateful_set(replicas=1, volumeClaimTemplates=[claim], ordinals={"start": 5}))
    step = cluster.step().steps[0]
    assert isinstance(step, CreatePod)
    pod = step.pod
    revision = cluster.revisions[0].metadata.name
    assert pod.metadata.name == "web-5"
    assert pod.metadata.generate_name == "web-"
    assert pod.metadata.labels == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-5",
        "apps.kubernetes.io/pod-index": "5",
        "controller-revision-hash": revision,
    }
    assert pod.spec is not None
    assert (pod.spec.hostname, pod.spec.subdomain) == ("web-5", "web")
    assert [msgspec.to_builtins(v) for v in pod.spec.volumes or ()] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-5"}}
    ]
    assert step.claims[0].claim.metadata.labels == {"x": "y", "app": "web"}
    owner = (pod.metadata.owner_references or [])[0]
    assert (owner.kind, owner.uid, owner.controller) == ("StatefulSet", cluster.sts.metadata.uid, True)


def test_a_claim_that_is_being_deleted_blocks_its_pod() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {}}
    cluster = Cluster(stateful_set(replicas=1, volumeClaimTemplates=[claim]))
    cluster.claims["data-web-0"] = terminating(make(PersistentVolumeClaim, "data-web-0"))
    step = cluster.plan().steps[0]
    assert isinstance(step, CreatePod)
    assert step.blocked == "data-web-0"


def test_scaling_down_deletes_from_the_highest_ordinal_and_waits_for_each() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    cluster.log.clear()
    cluster.edit(replicas=1)
    assert names(cluster.step().steps) == ["DeletePod web-2"]
    assert not cluster.step().steps
    cluster.reap()
    assert names(cluster.step().steps) == ["DeletePod web-1"]


def test_scaling_down_stops_at_an_unhealthy_pod_unless_it_is_the_one_to_go() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    cluster.edit(replicas=1)
    cluster.pods["web-1"] = with_status(cluster.pods["web-1"], ready=False)
    assert names(cluster.plan().steps) == ["DeletePod web-2"]
    cluster.pods["web-1"] = with_status(cluster.pods["web-1"])
    cluster.pods["web-2"] = with_status(cluster.pods["web-2"], ready=False)
    assert names(cluster.plan().steps) == ["DeletePod web-2"]
    cluster.pods["web-0"] = with_status(cluster.pods["web-0"], ready=False)
    assert not cluster.plan().steps


def test_a_rolling_update_goes_down_from_the_highest_ordinal_and_then_moves_the_current_revision() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    old = cluster.sts.status
    assert old is not None
    assert old.current_revision == old.update_revision
    cluster.log.clear()
    cluster.image("b")
    cluster.settle()
    assert cluster.log == ["-web-2", "+web-2", "-web-1", "+web-1", "-web-0", "+web-0"]
    status = cluster.sts.status
    assert status is not None
    assert status.current_revision == status.update_revision != old.current_revision
    assert (status.current_replicas, status.updated_replicas, status.observed_generation) == (3, 3, 2)


def test_a_rolling_update_waits_for_an_unavailable_pod() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    cluster.image("b")
    cluster.pods["web-1"] = with_status(cluster.pods["web-1"], ready=False)
    assert not cluster.plan().steps


def test_a_broken_update_stops_after_one_pod_and_a_rollback_needs_that_pod_to_go() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    cluster.image("broken")
    cluster.step()
    cluster.reap()
    cluster.step()
    assert cluster.images() == {"web-0": "a", "web-1": "a", "web-2": "broken"}
    cluster.image("a")
    assert cluster.plan().steps == ()  # as Kubernetes: the broken pod must be deleted by hand
    assert len(cluster.revisions) == 2
    assert cluster.revisions[-1].revision == 3


def test_the_partition_keeps_lower_ordinals_and_recreates_them_at_the_current_revision() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    cluster.edit(updateStrategy={"rollingUpdate": {"partition": 2}})
    cluster.image("b")
    cluster.settle()
    assert cluster.images() == {"web-0": "a", "web-1": "a", "web-2": "b"}
    status = cluster.sts.status
    assert status is not None
    assert status.current_revision != status.update_revision
    assert (status.current_replicas, status.updated_replicas) == (2, 1)
    del cluster.pods["web-1"]
    cluster.settle()
    assert cluster.images()["web-1"] == "a"


def test_on_delete_changes_nothing_by_itself_and_never_moves_the_current_revision() -> None:
    cluster = Cluster(stateful_set(updateStrategy={"type": "OnDelete"}))
    cluster.settle()
    first = cluster.sts.status
    assert first is not None
    cluster.image("b")
    cluster.settle()
    assert cluster.images() == {"web-0": "a", "web-1": "a", "web-2": "a"}
    for name in ("web-2", "web-1", "web-0"):
        del cluster.pods[name]
        cluster.settle()
    assert cluster.images() == {"web-0": "b", "web-1": "b", "web-2": "b"}
    status = cluster.sts.status
    assert status is not None
    assert status.current_revision == first.current_revision
    assert status.update_revision != first.current_revision
    assert (status.current_replicas, status.updated_replicas) == (None, 3)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_an_ended_pod_is_deleted_and_made_again_once_it_is_gone(phase: str, policy: str) -> None:
    cluster = Cluster(stateful_set(podManagementPolicy=policy))
    cluster.settle()
    cluster.pods["web-1"] = with_status(cluster.pods["web-1"], phase=phase, ready=False)
    assert names(cluster.step().steps) == ["DeletePod web-1"]
    assert names(cluster.step().steps) == []
    cluster.reap()
    assert names(cluster.step().steps) == ["CreatePod web-1"]


def test_a_terminating_pod_is_waited_for_in_order() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    cluster.pods["web-0"] = terminating(cluster.pods["web-0"])
    del cluster.pods["web-2"]
    assert not cluster.plan().steps
    cluster.reap()
    assert names(cluster.plan().steps) == ["CreatePod web-0"]


def test_min_ready_seconds_holds_the_next_pod_and_says_when_to_look_again() -> None:
    cluster = Cluster(stateful_set(minReadySeconds=30))
    cluster.step()
    cluster.pods["web-0"] = with_status(cluster.pods["web-0"], since=10)
    made = cluster.step()
    assert not made.steps
    assert made.after == 20
    assert (made.status.ready_replicas, made.status.available_replicas) == (1, 0)
    cluster.pods["web-0"] = with_status(cluster.pods["web-0"], since=30)
    assert names(cluster.step().steps) == ["CreatePod web-1"]


def test_a_set_being_deleted_only_reports() -> None:
    cluster = Cluster(stateful_set())
    cluster.settle()
    cluster.sts = terminating(cluster.sts)
    cluster.pods.clear()
    made = cluster.plan()
    assert not made.steps
    assert made.status.replicas == 0


def _claim_with(policy: dict[str, str]) -> Cluster:
    claim = {"metadata": {"name": "data"}, "spec": {}}
    cluster = Cluster(
        stateful_set(replicas=2, volumeClaimTemplates=[claim], persistentVolumeClaimRetentionPolicy=policy)
    )
    cluster.settle()
    return cluster


def _owners(made: Plan) -> dict[str | None, list[str | None]]:
    return {
        step.claim.metadata.name: [owner.kind for owner in step.owners]
        for step in made.steps
        if isinstance(step, OwnClaim)
    }


RETENTION: list[tuple[str, str, dict[str, list[str]], dict[str, list[str]]]] = [
    ("Retain", "Retain", {}, {}),
    ("Retain", "Delete", {"data-web-0": ["StatefulSet"], "data-web-1": ["StatefulSet"]}, {}),
    ("Delete", "Retain", {}, {"data-web-1": ["Pod"]}),
    (
        "Delete",
        "Delete",
        {"data-web-0": ["StatefulSet"], "data-web-1": ["StatefulSet"]},
        {"data-web-1": ["Pod"]},
    ),
]


@pytest.mark.parametrize(("scaled", "deleted", "full", "after_scaling"), RETENTION)
def test_claims_are_owned_as_the_retention_policy_says(
    scaled: str, deleted: str, full: dict[str, list[str]], after_scaling: dict[str, list[str]]
) -> None:
    cluster = _claim_with({"whenScaled": scaled, "whenDeleted": deleted})
    made = cluster.plan()
    assert _owners(made) == full
    for step in made.steps:
        if isinstance(step, OwnClaim):
            owners = [msgspec.to_builtins(owner) for owner in step.owners]
            name = step.claim.metadata.name or ""
            cluster.claims[name] = merged(step.claim, {"metadata": {"ownerReferences": owners}})
    assert _owners(cluster.plan()) == {}
    cluster.edit(replicas=1)
    assert _owners(cluster.plan()) == after_scaling


def test_every_history_with_random_failures_ends_with_all_pods_at_the_newest_revision() -> None:
    import random

    for seed in range(30):
        rng = random.Random(seed)
        cluster = Cluster(stateful_set(podManagementPolicy=rng.choice(["Parallel", "OrderedReady"])))
        events: list[Callable[[], object]] = [
            lambda c=cluster: c.ready(),  # type: ignore[misc]
            lambda c=cluster: c.reap(),  # type: ignore[misc]
            lambda c=cluster, r=rng: c.image(r.choice("abc")),  # type: ignore[misc]
            lambda c=cluster, r=rng: c.edit(replicas=r.randint(0, 4)),  # type: ignore[misc]
            lambda c=cluster, r=rng: c.pods.pop(r.choice([*c.pods, ""]), None),  # type: ignore[misc]
        ]
        for _ in range(40):
            rng.choice(events)()
            cluster.step()
        cluster.reap()
        cluster.ready()
        cluster.settle()
        update = cluster.sts.status.update_revision if cluster.sts.status else None
        assert cluster.sts.spec is not None
        assert {revision_of(p) for p in cluster.pods.values()} <= {update}
        assert sorted(map(ordinal_of, cluster.pods.values())) == list(range(cluster.sts.spec.replicas or 0))


def test_a_revision_is_written_as_kubernetes_writes_it() -> None:
    container = {"name": "c", "image": "i", "args": ["<&>"]}
    body = {
        "spec": {
            "template": {"metadata": {"labels": {"b": "1", "a": "2"}}, "spec": {"containers": [container]}}
        }
    }
    sts = make(StatefulSet, "web", body)
    assert sts.spec is not None
    revision = new_revision(sts, sts.spec.template, number=1, collisions=0)
    written = msgspec.json.encode(revision.data)
    assert written == compact_json(revision.data).replace(b"\\u003c\\u0026\\u003e", b"<&>")
    assert written.startswith(
        b'{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"2","b":"1"}}'
    )
