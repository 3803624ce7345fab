"""How fast an autoscaler may move: windows and policies over time. What one look decides is compared with
the real controller in test_autoscaler_against_kubernetes.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from tests.local.controllers.bed import Bed, controlled, make_node, running
from tests.local.controllers.test_autoscaler_against_kubernetes import CASES, GADGETS, HPAS, METRICS, Side

from mooring.kube import Client
from mooring.kube.objects.apps import Deployment
from mooring.kube.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior
from mooring.kube.objects.core import Pod
from mooring.kube.patches import MergePatch
from mooring.local.api import ApiServer
from mooring.local.controllers.autoscaler.limits import History, normalized

Json = dict[str, Any]


def behavior(up: Json | None = None, down: Json | None = None) -> HorizontalPodAutoscalerBehavior:
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    rules = {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [percent],
            **(up or {}),
        },
        "scaleDown": {"selectPolicy": "Max", "policies": [percent], **(down or {})},
    }
    return msgspec.convert(rules, HorizontalPodAutoscalerBehavior)


class Target:
    """Something that is scaled; time passes when the test says so."""

    def __init__(self, replicas: int, rules: HorizontalPodAutoscalerBehavior | None = None) -> None:
        self.replicas, self.now = replicas, 1000.0
        self._rules = rules
        self._history = History([(self.now, replicas)])

    def wants(self, wanted: int, *, after: float = 15.0) -> int:
        self.now += after
        allowed = normalized(
            wanted, self._history, self._rules, current=self.replicas, least=1, most=100, now=self.now
        )
        if allowed.replicas != self.replicas:
            self._history.scaled(self.now, self.replicas, allowed.replicas, keep=1800)
            self.replicas = allowed.replicas
        return self.replicas


def test_replicas_go_down_when_five_minutes_asked_for_no_more() -> None:
    target = Target(6)

    assert [target.wants(2) for _ in range(20)] == [6] * 20
    assert target.wants(2) == 2


def test_a_short_peak_holds_the_replicas_for_its_own_five_minutes() -> None:
    target = Target(2)
    assert target.wants(4) == 4

    assert target.wants(1, after=290) == 4
    assert target.wants(1, after=20) == 1


def test_growth_without_a_behavior_at_most_doubles() -> None:
    target = Target(5)

    assert [target.wants(100) for _ in range(3)] == [10, 20, 40]


def test_a_policy_counts_what_its_period_has_seen() -> None:
    one_a_minute = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}
    target = Target(2, behavior(up=one_a_minute))

    assert target.wants(50) == 4
    assert [target.wants(50) for _ in range(3)] == [4, 4, 4]
    assert target.wants(50) == 6


def test_what_was_taken_away_meanwhile_may_be_given_back() -> None:
    ten_percent = {"policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]}
    target = Target(20, behavior(up=ten_percent, down={"stabilizationWindowSeconds": 0}))

    assert target.wants(22) == 22
    assert target.wants(10) == 10
    # The minute began with 20: a tenth more than those is allowed.
    assert target.wants(50) == 22


def test_both_windows_hold_a_wavering_wish_where_it_is() -> None:
    target = Target(
        5, behavior(up={"stabilizationWindowSeconds": 60}, down={"stabilizationWindowSeconds": 60})
    )

    assert [target.wants(wish) for wish in (9, 2, 9, 2)] == [5, 5, 5, 5]
    assert [target.wants(9) for _ in range(4)] == [5, 5, 5, 9]


async def test_an_autoscaler_follows_the_figures(tmp_path: Path) -> None:
    async with running(tmp_path, nodes=(), kubelet=False, autoscaler_period=0.1) as (bed, _):
        side = Side(bed.client)
        await side.prepare()
        await side.make("grows", CASES["grows"])

        async def replicas() -> int:
            return int((await side.call("GET", GADGETS + "/grows"))["spec"]["replicas"])

        async def grown() -> bool:
            return await replicas() == 4

        await bed.eventually(grown, "four replicas")
        for name in ("grows-0", "grows-1"):
            metrics = await side.call("GET", f"{METRICS}/{name}")
            metrics["containers"][0]["usage"]["cpu"] = "500m"
            await side.call("PUT", f"{METRICS}/{name}", metrics)

        async def full() -> bool:
            status = (await side.call("GET", HPAS + "/grows"))["status"]
            return await replicas() == 10 and status["currentReplicas"] == 10

        await bed.eventually(full, "the most replicas")


@dataclass(frozen=True)
class Amount:
    """A use of cpu and memory."""

    cpu: float
    memory: int


@dataclass(frozen=True)
class Measured:
    """What one pod used."""

    time: datetime
    window: float
    parts: Mapping[str, Amount]


class Meter:
    """Says that every pod uses 0.4 of a core."""

    def __init__(self, *names: str) -> None:
        used = Measured(datetime.now(UTC), 15.0, {"main": Amount(0.4, 1 << 20)})
        self.pods: Mapping[tuple[str, str], Measured] = {("default", name): used for name in names}
        self.nodes: Mapping[str, Measured] = {}


async def test_a_deployment_grows_by_the_figures_of_the_server_itself(tmp_path: Path) -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await make_node(client, "n1")
        async with controlled(server, tmp_path, autoscaler_period=0.1) as (bed, _):
            resources = {"requests": {"cpu": "200m"}}
            template = {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "a", "resources": resources}]},
            }
            spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
            await bed.create(Deployment, "web", {"spec": spec})
            ready = await bed.eventually(lambda: _running(bed), "a pod that runs")
            server.serve_metrics(Meter(*ready))
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
            cpu = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "150m"}}
            body = {
                "scaleTargetRef": target,
                "maxReplicas": 9,
                "metrics": [{"type": "Resource", "resource": cpu}],
            }
            await bed.create(HorizontalPodAutoscaler, "web", {"spec": body})

            async def grown() -> bool:
                found = await bed.get(Deployment, "web")
                return found.spec is not None and found.spec.replicas == 3

            await bed.eventually(grown, "three replicas")


async def _running(bed: Bed) -> list[str]:
    """The names of pods that have run for long, as far as their start tells."""
    names = []
    for pod in await bed.list(Pod):
        if pod.status is not None and pod.status.phase == "Running":
            long_ago = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
            status = {"startTime": "2020-01-01T00:00:00Z", "conditions": [long_ago]}
            name = pod.metadata.name or ""
            await bed.client.patch(
                Pod, name, MergePatch({"status": status}), namespace="default", subresource="status"
            )
            names.append(name)
    return names
