"""Which taints a node has, and how long a pod may stay."""

from __future__ import annotations

from typing import Any

import pytest
from tests.local.controllers.builders import NOW, ago, make, pod

from mooring.kube.objects.core import Node, Taint
from mooring.local.controllers.nodes import eviction_delay, taints_of

READY = {
    "True": [],
    "False": [("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")],
    "Unknown": [
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    ],
}


def node(ready: str, *conditions: dict[str, str], **spec: Any) -> Node:
    status = {"conditions": [{"type": "Ready", "status": ready}, *conditions]}
    return make(Node, "n", {"spec": spec, "status": status})


def shown(of: Node) -> list[tuple[str | None, str | None]]:
    return [(taint.key, taint.effect) for taint in taints_of(of, NOW)]


@pytest.mark.parametrize("ready", READY)
def test_readiness_shows_as_taints(ready: str) -> None:
    assert shown(node(ready)) == READY[ready]


def test_other_peoples_taints_stay_and_ours_that_no_longer_hold_go() -> None:
    mine = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    stale = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": ago(60)}
    assert shown(node("True", taints=[mine, stale])) == [("dedicated", "NoSchedule")]


def test_a_taint_that_holds_keeps_the_time_it_was_added() -> None:
    held = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": ago(60)}
    found = {taint.effect: taint.time_added for taint in taints_of(node("False", taints=[held]), NOW)}
    assert found == {"NoExecute": ago(60), "NoSchedule": ago(0)}


def test_pressure_and_cordon_show_as_taints() -> None:
    pressed = node("True", {"type": "DiskPressure", "status": "True"}, unschedulable=True)
    assert shown(pressed) == [
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ]


EXECUTE = Taint(key="k", value="v", effect="NoExecute", time_added=ago(100))
DELAYS: list[tuple[str, list[Taint], list[dict[str, Any]], float | None]] = [
    ("no taint", [], [], None),
    ("only NoSchedule", [Taint(key="k", effect="NoSchedule")], [], None),
    ("not tolerated", [EXECUTE], [], 0.0),
    ("tolerated for ever", [EXECUTE], [{"key": "k", "operator": "Exists"}], None),
    ("for a while", [EXECUTE], [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}], 200.0),
    ("no longer", [EXECUTE], [{"key": "k", "operator": "Exists", "tolerationSeconds": 60}], 0.0),
    (
        "the shortest counts",
        [EXECUTE],
        [
            {"operator": "Exists", "tolerationSeconds": 300},
            {"key": "k", "value": "v", "tolerationSeconds": 150},
        ],
        50.0,
    ),
    ("another value", [EXECUTE], [{"key": "k", "value": "w"}], 0.0),
]


@pytest.mark.parametrize(("case", "taints", "tolerations", "delay"), DELAYS, ids=[d[0] for d in DELAYS])
def test_a_pod_leaves(
    case: str, taints: list[Taint], tolerations: list[dict[str, Any]], delay: float | None
) -> None:
    staying = pod("p", {"spec": {"nodeName": "n", "tolerations": tolerations}})
    assert eviction_delay(staying, taints, NOW) == delay
