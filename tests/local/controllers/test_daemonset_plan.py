"""On which nodes daemons run, and how they are exchanged."""

from __future__ import annotations

from typing import Any

import pytest
from tests.local.controllers.builders import NOW, make, merged, terminating, with_status

from mooring.kube.objects.apps import DaemonSet
from mooring.kube.objects.core import Node, Pod, PodTemplateSpec
from mooring.local.controllers.daemonset.plan import Plan, belongs, node_of, plan, pod_for


def daemons(pod: dict[str, Any] | None = None, **spec: Any) -> DaemonSet:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [], **(pod or {})}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    return make(
        DaemonSet, "d", {"spec": {"template": template, "updateStrategy": strategy, **spec}}, generation=1
    )


def node(name: str, *, taints: list[dict[str, str]] | None = None, **labels: str) -> Node:
    return make(Node, name, {"spec": {"taints": taints or []}}, labels=labels)


NODES = [node(f"n{number}") for number in range(3)]
TAINT = {"key": "k", "effect": "NoSchedule"}
FITS: list[tuple[str, dict[str, Any], Node, tuple[bool, bool]]] = [
    ("plain", {}, node("n"), (True, True)),
    ("selector", {"nodeSelector": {"a": "b"}}, node("n"), (False, False)),
    ("selector fits", {"nodeSelector": {"a": "b"}}, node("n", a="b"), (True, True)),
    ("tainted", {}, node("n", taints=[TAINT]), (False, True)),
    ("tolerated", {"tolerations": [{"operator": "Exists"}]}, node("n", taints=[TAINT]), (True, True)),
    ("evicting", {}, node("n", taints=[{"key": "k", "effect": "NoExecute"}]), (False, False)),
    (
        "cordoned",
        {},
        node("n", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        (True, True),
    ),
    (
        "lost",
        {},
        node("n", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
        (True, True),
    ),
]


@pytest.mark.parametrize(("case", "pod", "place", "answer"), FITS, ids=[f[0] for f in FITS])
def test_a_node(case: str, pod: dict[str, Any], place: Node, answer: tuple[bool, bool]) -> None:
    assert belongs(daemons(pod), place) == answer


def daemon(of: DaemonSet, on: str, *, revision: str = "r1", ready: bool = True) -> Pod:
    template = (of.spec.template if of.spec else None) or PodTemplateSpec()
    made = pod_for(of, template, node=on, revision=revision)
    return with_status(merged(made, {"metadata": {"name": f"d-{on}"}}), ready=ready)


def act(of: DaemonSet, *pods: Pod, revision: str = "r1", nodes: list[Node] | None = None) -> Plan:
    return plan(of, NODES if nodes is None else nodes, list(pods), revision=revision, collisions=0, now=NOW)


def names(pods: tuple[Pod, ...]) -> list[str | None]:
    return [pod.metadata.name for pod in pods]


def test_every_fitting_node_gets_one_pod_that_names_it_before_it_is_bound() -> None:
    of = daemons()
    assert act(of).create == ("n0", "n1", "n2")
    assert node_of(daemon(of, "n1")) == "n1"
    made = act(of, daemon(of, "n0"), terminating(daemon(of, "n1")))
    assert made.create == ("n2",)


def test_pods_that_ended_are_on_the_wrong_node_or_are_one_too_many_go() -> None:
    of = daemons()
    failed = with_status(daemon(of, "n0"), phase="Failed", ready=False)
    twin = merged(
        daemon(of, "n1"), {"metadata": {"name": "twin", "creationTimestamp": "2030-01-01T00:00:00Z"}}
    )
    made = act(of, failed, daemon(of, "n1"), twin, daemon(of, "gone"))
    assert sorted(map(str, names(made.delete))) == ["d-gone", "d-n0", "twin"]
    assert made.create == ("n2",)


def test_an_update_takes_down_no_more_than_allowed_and_broken_pods_first() -> None:
    of = daemons()
    all_up = [daemon(of, each.metadata.name or "") for each in NODES]
    assert names(act(of, *all_up, revision="r2").delete) == ["d-n0"]
    broken = [all_up[0], daemon(of, "n1", ready=False), all_up[2]]
    assert names(act(of, *broken, revision="r2").delete) == ["d-n1"]
    half = [daemon(of, "n0", revision="r2", ready=False), *all_up[1:]]
    assert names(act(of, *half, revision="r2").delete) == []
    on_delete = merged(of, {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    assert names(act(on_delete, *all_up, revision="r2").delete) == []


def test_status_counts() -> None:
    of = daemons()
    made = act(
        of,
        daemon(of, "n0", revision="r2"),
        daemon(of, "n1", ready=False),
        nodes=[*NODES, node("x", taints=[TAINT])],
    )
    status = made.status
    assert status.desired_number_scheduled == 3
    assert status.current_number_scheduled == 2
    assert (status.number_ready, status.number_available, status.number_unavailable) == (1, 1, 2)
    assert status.updated_number_scheduled == 1
    assert status.number_misscheduled == 0
