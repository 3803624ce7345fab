"""What a Deployment and its ReplicaSets do next: sizes as tables, roll-outs as histories."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.local.controllers.builders import NOW, ago, make, merged, pod, terminating, with_status

from mooring.kube.objects.apps import Deployment, ReplicaSet
from mooring.kube.objects.core import Pod
from mooring.local.controllers.deployment.plan import Create, Drop, Plan, Resize, Revise, plan
from mooring.local.controllers.deployment.sizes import fenceposts, size_of
from mooring.local.controllers.replicaset.plan import expendable
from mooring.local.controllers.replicaset.plan import plan as plan_replicas


def deployment(
    *, replicas: int = 4, image: str = "a", surge: Any = "25%", unavailable: Any = "25%", **spec: Any
) -> Deployment:
    body = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        },
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        },
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": 600,
        **spec,
    }
    return make(Deployment, "web", {"spec": body}, generation=1)


@dataclass
class Cluster:
    """Applies plans; ReplicaSets have the pods they are told to, broken images never become available."""

    deployment: Deployment
    sets: dict[str, ReplicaSet] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    now: datetime = NOW
    counts: list[tuple[int, int]] = field(default_factory=list)

    def plan(self) -> Plan:
        return plan(self.deployment, list(self.sets.values()), self.pods, now=self.now, collisions=0)

    def step(self) -> Plan:
        made = self.plan()
        for action in made.steps:
            match action:
                case Create(replica_set=each):
                    uid = {"uid": f"uid-{len(self.sets)}-{each.metadata.name}"}
                    stamp = f"2029-01-01T00:{len(self.log):02}:00Z"
                    each = merged(each, {"metadata": {**uid, "creationTimestamp": stamp}})
                    self.sets[each.metadata.name or ""] = each
                    self.log.append(f"{self.image_of(each)}+{size_of(each)}")
                case Resize(replica_set=each, size=size, annotations=annotations):
                    patch = {"spec": {"replicas": size}, "metadata": {"annotations": dict(annotations)}}
                    self.sets[each.metadata.name or ""] = merged(each, patch)
                    self.log.append(f"{self.image_of(each)}:{size_of(each)}>{size}")
                case Revise(replica_set=each, annotations=annotations):
                    present = self.sets[each.metadata.name or ""]
                    patch = {"metadata": {"annotations": dict(annotations)}}
                    self.sets[each.metadata.name or ""] = merged(present, patch)
                case Drop(replica_set=each):
                    del self.sets[each.metadata.name or ""]
        self.deployment = msgspec.structs.replace(self.deployment, status=made.status)
        if made.revision:
            annotation = {"deployment.kubernetes.io/revision": made.revision}
            self.deployment = merged(self.deployment, {"metadata": {"annotations": annotation}})
        return made

    def image_of(self, each: ReplicaSet) -> str:
        template = each.spec.template if each.spec else None
        assert template is not None
        assert template.spec is not None
        assert template.spec.containers
        return template.spec.containers[0].image or ""

    def work(self) -> None:
        """The ReplicaSets make and remove pods, which become available at once unless broken."""
        for name, each in self.sets.items():
            size = size_of(each)
            good = 0 if self.image_of(each) in self.broken else size
            status = {
                "replicas": size,
                "readyReplicas": good,
                "availableReplicas": good,
                "observedGeneration": 9,
            }
            self.sets[name] = merged(each, {"status": status})
        sizes = list(self.sets.values())
        available = sum((s.status.available_replicas or 0) for s in sizes if s.status)
        self.counts.append((sum(map(size_of, sizes)), available))

    def settle(self) -> None:
        for _ in range(60):
            before = (dict(self.sets), self.deployment)
            self.step()
            self.work()
            if (self.sets, self.deployment) == before:
                return
        raise AssertionError(f"did not settle: {self.log}")

    def image(self, image: str) -> None:
        self.edit(template={"spec": {"containers": [{"name": "c", "image": image}]}})

    def edit(self, **spec: Any) -> None:
        generation = (self.deployment.metadata.generation or 0) + 1
        self.deployment = merged(self.deployment, {"spec": spec, "metadata": {"generation": generation}})

    def condition(self, kind: str) -> tuple[str | None, str | None]:
        status = self.deployment.status
        found = [c for c in (status.conditions or ()) if c.type == kind] if status else []
        return (found[0].status, found[0].reason) if found else (None, None)

    def sizes(self) -> dict[str, int]:
        return {self.image_of(each): size_of(each) for each in self.sets.values()}


FENCES: list[tuple[int, Any, Any, tuple[int, int]]] = [
    (4, "25%", "25%", (1, 1)),
    (10, "25%", "25%", (3, 2)),
    (1, "25%", "25%", (1, 0)),
    (3, 0, 0, (0, 1)),
    (3, 2, "100%", (2, 3)),
    (2, 1, 5, (1, 2)),
]


@pytest.mark.parametrize(("replicas", "surge", "unavailable", "expected"), FENCES)
def test_surge_is_rounded_up_and_unavailable_down(
    replicas: int, surge: Any, unavailable: Any, expected: tuple[int, int]
) -> None:
    assert fenceposts(deployment(replicas=replicas, surge=surge, unavailable=unavailable)) == expected


def test_a_new_deployment_becomes_complete_and_says_so() -> None:
    cluster = Cluster(deployment())
    cluster.step()
    assert cluster.log == ["a+4"]
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetCreated")
    assert cluster.condition("Available") == ("False", "MinimumReplicasUnavailable")
    cluster.settle()
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetAvailable")
    assert cluster.condition("Available") == ("True", "MinimumReplicasAvailable")
    (only,) = cluster.sets.values()
    assert (only.metadata.annotations or {}).get("deployment.kubernetes.io/revision") == "1"
    assert (only.metadata.annotations or {}).get("deployment.kubernetes.io/max-replicas") == "5"
    name, digest = only.metadata.name or "", (only.metadata.labels or {})["pod-template-hash"]
    assert name == f"web-{digest}"
    assert only.spec is not None
    assert only.spec.selector is not None
    assert (only.spec.selector.match_labels or {})["pod-template-hash"] == digest


def test_a_roll_out_keeps_between_the_fences() -> None:
    cluster = Cluster(deployment())
    cluster.settle()
    cluster.counts.clear()
    cluster.image("b")
    cluster.settle()
    assert cluster.sizes() == {"a": 0, "b": 4}
    assert max(total for total, _ in cluster.counts) <= 5
    assert min(available for _, available in cluster.counts) >= 3


def test_a_broken_roll_out_stops_and_times_out_and_can_be_taken_back() -> None:
    cluster = Cluster(deployment(), broken={"b"})
    cluster.settle()
    cluster.image("b")
    cluster.settle()
    assert cluster.sizes() == {"a": 3, "b": 2}
    assert cluster.condition("Available") == ("True", "MinimumReplicasAvailable")
    after = cluster.plan().after
    assert after is not None
    cluster.now += timedelta(seconds=after)
    cluster.step()
    assert cluster.condition("Progressing") == ("False", "ProgressDeadlineExceeded")
    cluster.image("a")
    cluster.settle()
    assert cluster.sizes() == {"a": 4, "b": 0}
    revisions = {
        cluster.image_of(e): (e.metadata.annotations or {}).get("deployment.kubernetes.io/revision")
        for e in cluster.sets.values()
    }
    assert revisions == {"a": "3", "b": "2"}
    assert cluster.condition("Progressing") == ("True", "NewReplicaSetAvailable")


def test_recreate_waits_until_the_last_old_pod_has_gone() -> None:
    cluster = Cluster(deployment(strategy={"type": "Recreate"}))
    cluster.settle()
    (old,) = cluster.sets.values()
    cluster.pods = [terminating(pod("web-1", owner=old))]
    cluster.image("b")
    cluster.settle()
    assert cluster.sizes() == {"a": 0}
    cluster.pods.clear()
    cluster.settle()
    assert cluster.sizes() == {"a": 0, "b": 4}


def test_scaling_within_a_roll_out_is_proportional() -> None:
    cluster = Cluster(deployment(replicas=10, surge=3, unavailable=2), broken={"b"})
    cluster.settle()
    cluster.image("b")
    cluster.settle()
    assert cluster.sizes() == {"a": 8, "b": 5}
    cluster.edit(replicas=15)
    cluster.step()
    assert cluster.sizes() == {"a": 11, "b": 7}


def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    cluster = Cluster(deployment(paused=True))
    cluster.settle()
    assert cluster.sets == {}
    cluster.edit(paused=False)
    cluster.settle()
    cluster.edit(paused=True, replicas=6)
    cluster.image("b")
    cluster.settle()
    assert cluster.sizes() == {"a": 6}
    assert cluster.condition("Progressing") == ("Unknown", "DeploymentPaused")
    cluster.edit(paused=None)
    cluster.settle()
    assert cluster.sizes() == {"a": 0, "b": 6}


def test_old_replica_sets_beyond_the_limit_go() -> None:
    cluster = Cluster(deployment())
    for image in "abcde":
        cluster.image(image)
        cluster.settle()
    assert cluster.sizes() == {"c": 0, "d": 0, "e": 4}


def test_what_keeps_pods_from_being_made_is_shown() -> None:
    cluster = Cluster(deployment())
    cluster.step()
    ((name, only),) = cluster.sets.items()
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    cluster.sets[name] = merged(only, {"status": {"replicas": 0, "conditions": [condition]}})
    cluster.step()
    assert cluster.condition("ReplicaFailure") == ("True", "FailedCreate")


def replica_set(replicas: int = 2, **spec: Any) -> ReplicaSet:
    template = {"metadata": {"labels": {"app": "web"}}}
    return make(
        ReplicaSet, "web", {"spec": {"replicas": replicas, "template": template, **spec}}, generation=1
    )


def placed(
    name: str, *, node: str = "n", ready: bool = True, since: float = 60, phase: str = "Running", **meta: Any
) -> Pod:
    made = pod(
        name, {"spec": {"nodeName": node, "containers": []} if node else {}}, labels={"app": "web"}, **meta
    )
    return with_status(made, ready=ready, since=since, phase=phase)


def test_a_replica_set_makes_what_is_missing_and_does_not_count_what_is_going() -> None:
    pods = [placed("a"), terminating(placed("b")), with_status(placed("c"), phase="Failed", ready=False)]
    made = plan_replicas(replica_set(), pods, now=NOW)
    assert (made.create, made.delete) == (1, ())
    assert made.status.replicas == made.status.ready_replicas == 1
    assert made.status.terminating_replicas == 1


def test_availability_by_time_is_awaited() -> None:
    made = plan_replicas(replica_set(1, minReadySeconds=30), [placed("a", since=10)], now=NOW)
    assert (made.status.ready_replicas, made.status.available_replicas, made.after) == (1, None, 20)


def test_the_least_useful_pods_are_given_up_first() -> None:
    pods = [
        placed("old", since=600, creationTimestamp=ago(600)),
        placed("young", since=60, creationTimestamp=ago(60)),
        placed("crowded", node="m", since=600),
        placed("crowded-too", node="m", since=500),
        placed("cheap", since=600, annotations={"controller.kubernetes.io/pod-deletion-cost": "-1"}),
        placed("unready", ready=False),
        placed("pending", ready=False, phase="Pending"),
        placed("unbound", node="", ready=False, phase="Pending"),
    ]
    order = [each.metadata.name for each in expendable(pods, now=NOW)]
    assert order == ["unbound", "pending", "unready", "cheap", "young", "old", "crowded-too", "crowded"]
