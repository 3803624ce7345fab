"""HorizontalPodAutoscalers before the real kube-controller-manager and before ours: the same decisions.

The figures are objects of a definition that serves metrics.k8s.io, and the targets custom resources with a
scale subresource, so that nothing but the autoscaler moves. The real controller looks for the first time
15 seconds after an autoscaler was made, so all of them are made at once, and knows of a new definition
after 30 seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.local.controllers.bed import running

from mooring.kube import AlreadyExists, Client, Config, HttpTransport, NotFound, TooManyRequests

Json = dict[str, Any]

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly]

NAMESPACE = "autoscalers"
LONG_AGO = "2020-01-01T00:00:00Z"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
GADGETS = f"/apis/scaled.example.com/v1/namespaces/{NAMESPACE}/gadgets"
METRICS = f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Case:
    """A target with pods that use something, and the autoscaler for it."""

    replicas: int
    usage: tuple[str | None, ...] = ()
    metrics: tuple[Json, ...] = ()
    resource: str = "cpu"
    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "100m", "memory": "100Mi"})
    spec: Json = field(default_factory=dict)
    target: Json = field(default_factory=dict)
    selector: bool = True
    ready: tuple[bool, ...] = ()


def cpu(percent: int = 50) -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def average(name: str, value: str) -> Json:
    target = {"type": "AverageValue", "averageValue": value}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def policies(direction: str, *listed: tuple[str, int, int], **rules: Any) -> Json:
    made = [{"type": kind, "value": value, "periodSeconds": period} for kind, value, period in listed]
    return {"behavior": {direction: {"policies": made, **rules}}}


POD_METRIC = {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "1"}}
CASES: dict[str, Case] = {
    "grows": Case(2, ("90m", "90m"), (cpu(),)),
    "grows-at-most-twice": Case(1, ("900m",), (cpu(10),)),
    "stays-within-tolerance": Case(2, ("52m", "53m"), (cpu(),)),
    "shrinks-later": Case(3, ("10m", "10m", "10m"), (cpu(),)),
    "shrinks-at-once": Case(
        3, ("10m", "10m", "10m"), (cpu(),), spec=policies("scaleDown", ("Percent", 100, 15), stabilizationWindowSeconds=0)
    ),
    "shrinks-one-at-a-time": Case(
        4, ("5m",) * 4, (cpu(),), spec=policies("scaleDown", ("Pods", 1, 60), stabilizationWindowSeconds=0)
    ),
    "may-not-shrink": Case(
        2, ("5m", "5m"), (cpu(),),
        spec=policies("scaleDown", ("Pods", 1, 60), stabilizationWindowSeconds=0, selectPolicy="Disabled"),
    ),
    "grows-by-one": Case(2, ("400m", "400m"), (cpu(),), spec=policies("scaleUp", ("Pods", 1, 60))),
    "grows-by-the-smaller-policy": Case(
        4, ("400m",) * 4, (cpu(),), spec=policies("scaleUp", ("Pods", 3, 60), ("Percent", 25, 60), selectPolicy="Min")
    ),
    "waits-before-it-grows": Case(
        2, ("400m", "400m"), (cpu(),), spec=policies("scaleUp", ("Pods", 9, 60), stabilizationWindowSeconds=600)
    ),
    "tolerates-more": Case(2, ("70m", "70m"), (cpu(),), spec={"behavior": {"scaleUp": {"tolerance": "0.5"}}}),
    "uses-memory": Case(2, ("60Mi", "61Mi"), (average("memory", "40Mi"),), resource="memory"),
    "uses-memory-in-percent": Case(2, ("60Mi", "61Mi"), (
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 30}}},
    ), resource="memory"),
    "uses-cpu-in-cores": Case(2, ("1500m", "2500m"), (average("cpu", "1"),)),
    "of-a-container": Case(2, ("90m", "90m"), (
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main",
         "target": {"type": "Utilization", "averageUtilization": 50}}},
    )),
    "of-no-such-container": Case(1, ("90m",), (
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "other",
         "target": {"type": "Utilization", "averageUtilization": 50}}},
    )),
    "two-metrics": Case(2, ("90m", "90m"), (cpu(80), cpu(30))),
    "one-metric-fails": Case(2, ("90m", "90m"), (cpu(), average("memory", "1Mi"))),
    "one-fails-and-it-would-shrink": Case(2, ("10m", "10m"), (cpu(), average("memory", "1Mi"))),
    "a-pod-without-figures-when-growing": Case(3, ("90m", "90m", None), (cpu(),)),
    "a-pod-without-figures-when-shrinking": Case(3, ("10m", "10m", None), (cpu(),)),
    "an-unready-pod": Case(3, ("90m", "90m", "5m"), (cpu(),), ready=(True, True, False)),
    "no-figures": Case(2, (None, None), (cpu(),)),
    "no-pods": Case(2, (), (cpu(),)),
    "no-requests": Case(1, ("10m",), (cpu(),), requests={"memory": "1Mi"}),
    "too-many": Case(9, (), (cpu(),), spec={"maxReplicas": 5}),
    "too-few": Case(1, (), (cpu(),), spec={"minReplicas": 3}),
    "switched-off": Case(0, (), (cpu(),)),
    "full": Case(2, ("900m", "900m"), (cpu(),), spec={"maxReplicas": 3}),
    "no-selector": Case(2, (), (cpu(),), selector=False),
    "no-such-target": Case(1, (), (cpu(),), target={"name": "nothing"}),
    "no-such-kind": Case(1, (), (cpu(),), target={"kind": "Thing"}),
    "custom-metric": Case(1, ("1m",), ({"type": "Pods", "pods": POD_METRIC},)),
}  # fmt: skip


def definition(group: str, version: str, kind: str, plural: str, **options: Any) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    one = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **options}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [one],
        },
    }


SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
DEFINITIONS = (
    definition("metrics.k8s.io", "v1beta1", "PodMetrics", "pods"),
    definition("scaled.example.com", "v1", "Gadget", "gadgets", subresources={"scale": SCALE}),
)


@dataclass
class Side:
    """One of the two control planes."""

    client: Client

    async def call(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> Json:
        data = json.dumps(body).encode() if body is not None else None
        answer = await self.client.request(method, path, body=data, content_type=content)
        found: Json = json.loads(answer.body)
        return found

    async def prepare(self) -> None:
        with contextlib.suppress(AlreadyExists):
            await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for each in DEFINITIONS:
            with contextlib.suppress(AlreadyExists):
                await self.call("POST", CRDS, each)
        async with asyncio.timeout(20):
            for path in (METRICS, GADGETS, CORE + "/serviceaccounts/default"):
                while True:
                    with contextlib.suppress(NotFound, TooManyRequests):
                        await self.call("GET", path)
                        break
                    await asyncio.sleep(0.05)

    async def remove(self) -> None:
        await self.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        for each in DEFINITIONS:
            await self.call("DELETE", f"{CRDS}/{each['metadata']['name']}")

    async def make(self, name: str, case: Case) -> None:
        """Make a target, its pods and their figures, then the autoscaler."""
        labels = {"app": name}
        status = {"selector": f"app={name}"} if case.selector else {}
        await self.call("POST", GADGETS, {
            "apiVersion": "scaled.example.com/v1", "kind": "Gadget", "metadata": {"name": name},
            "spec": {"replicas": case.replicas}, "status": status,
        })  # fmt: skip
        for index, used in enumerate(case.usage):
            ready = case.ready[index] if case.ready else True
            await self._pod(f"{name}-{index}", labels, case, used, ready=ready)
        target = {"apiVersion": "scaled.example.com/v1", "kind": "Gadget", "name": name, **case.target}
        spec = {"scaleTargetRef": target, "maxReplicas": 10, "metrics": list(case.metrics), **case.spec}
        body = {"metadata": {"name": name}, "spec": spec}
        await self.call("POST", HPAS, body)

    async def _pod(self, name: str, labels: Json, case: Case, used: str | None, *, ready: bool) -> None:
        container = {"name": "main", "image": "a", "resources": {"requests": dict(case.requests)}}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}
        await self.call("POST", CORE + "/pods", body)
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": LONG_AGO}
        status = {"phase": "Running", "startTime": LONG_AGO, "conditions": [condition]}
        path = f"{CORE}/pods/{name}/status"
        await self.call("PATCH", path, {"status": status}, content="application/merge-patch+json")
        if used is not None:
            await self.call("POST", METRICS, {
                "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
                "metadata": {"name": name, "labels": labels}, "timestamp": "2020-01-02T00:00:00Z", "window": "15s",
                "containers": [{"name": "main", "usage": {case.resource: used}}],
            })  # fmt: skip

    async def decided(self) -> dict[str, Json]:
        """Wait until every autoscaler was looked at, then return what came of it, by case."""
        async with asyncio.timeout(60):
            while True:
                found = {item["metadata"]["name"]: item for item in (await self.call("GET", HPAS))["items"]}
                if all((item.get("status") or {}).get("conditions") for item in found.values()):
                    break
                await asyncio.sleep(0.1)
        events: list[Json] = []
        looks = 0
        while looks < 10:  # events are sent a moment later
            await asyncio.sleep(0.1)
            before, events = events, (await self.call("GET", CORE + "/events?limit=1000"))["items"]
            looks = looks + 1 if events == before else 0
        targets = {item["metadata"]["name"]: item for item in (await self.call("GET", GADGETS))["items"]}
        return {
            name: {
                "status": _timeless(found[name]["status"]),
                "events": sorted(
                    f"{e['type']} {e['reason']} {_reporter(e)}: {e['message']}"
                    for e in events
                    if (e["involvedObject"]["kind"], e["involvedObject"]["name"])
                    == ("HorizontalPodAutoscaler", name)
                ),
                "replicas": targets[name]["spec"]["replicas"],
                "v1": _old_form(await self.call("GET", f"{HPAS}/{name}".replace("/v2/", "/v1/"))),
            }
            for name in CASES
        }


def _reporter(event: Json) -> str:
    named: str = event["source"].get("component") or event["reportingComponent"]
    return named.removeprefix("mooring.dev/")


def _old_form(found: Json) -> Json:
    annotations = {k: json.loads(v) for k, v in found["metadata"].get("annotations", {}).items()}
    conditions = annotations.get("autoscaling.alpha.kubernetes.io/conditions", [])
    annotations["conditions"] = [list(each) for each in sorted(conditions, key=lambda c: str(c["type"]))]
    annotations.pop("autoscaling.alpha.kubernetes.io/conditions", None)
    return {
        "spec": found["spec"],
        "status": _timeless(found["status"]),
        "annotations": {key: json.dumps(value) for key, value in annotations.items()},
    }


def _timeless(status: Json) -> Json:
    shown = {key: value for key, value in status.items() if key != "lastScaleTime"}
    shown["scaled"] = "lastScaleTime" in status
    if "conditions" in shown:
        shown["conditions"] = [
            {key: value for key, value in condition.items() if key != "lastTransitionTime"}
            for condition in sorted(shown["conditions"], key=lambda c: str(c["type"]))
        ]
    return shown


async def _play(client: Client, *, notices: float = 0.0) -> dict[str, Json]:
    """Return what was decided; ``notices``: seconds until the controllers know of a new definition."""
    side = Side(client)
    await side.prepare()
    await asyncio.sleep(notices)
    try:
        for name, case in CASES.items():
            await side.make(name, case)
        return await side.decided()
    finally:
        await side.remove()


@pytest.mark.nightly
async def test_autoscalers_decide_as_the_real_controller_does(real_kubernetes: Path, tmp_path: Path) -> None:
    transport = HttpTransport(Config.load(real_kubernetes))
    try:
        theirs = await _play(Client(transport, field_manager="test"), notices=31.0)
    finally:
        await transport.close()
    async with running(tmp_path, nodes=(), kubelet=False) as (bed, _):
        ours = await _play(bed.client)

    wrong = {name: (ours[name], theirs[name]) for name in CASES if ours[name] != theirs[name]}
    assert not wrong, "\n".join(
        f"{name}: {part}\n  ours   {json.dumps(mine[part])}\n  theirs {json.dumps(their[part])}"
        for name, (mine, their) in wrong.items()
        for part in mine
        if mine[part] != their[part]
    )
