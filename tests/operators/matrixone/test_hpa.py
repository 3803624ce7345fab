"""A HorizontalPodAutoscaler on a CNSet and on a CNClaimSet: API server, HPA controller and operator as on `mooring up`,
with modelled processes in the pods and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pytest
from tests.operators.matrixone.living import IMAGE, LOG, Life, living

from mooring.kube import Client
from mooring.kube.objects.autoscaling import HorizontalPodAutoscaler
from mooring.kube.objects.core import Pod
from mooring.local.controllers.autoscaler.controller import AutoscalerController
from mooring.local.controllers.context import Context
from mooring.local.controllers.kinds import Kinds
from mooring.operators.matrixone.cnset.autoscale import CONTESTED
from mooring.operators.matrixone.conditions import is_true
from mooring.operators.matrixone.pool.labels import CLAIM_SET
from mooring.operators.matrixone.types import CNClaim, CNClaimSet, CNPool, CNSet, DNSet, LogSet
from mooring.runtime import EventRecorder, Manager

pytestmark = pytest.mark.embedded

HPA = "kube-controller-manager"
DEPS = {"logSet": {"metadata": {"name": "mo"}}, "dnSet": {"metadata": {"name": "mo"}}}
#: What a pod may use on average, in cores.
TARGET = 0.15


@dataclass(frozen=True)
class Amount:
    """A use of CPU and memory."""

    cpu: float
    memory: int = 1 << 20


@dataclass(frozen=True)
class Measured:
    """What one pod used."""

    time: datetime
    parts: Mapping[str, Amount]
    window: float = 15.0


class Meter(dict[tuple[str, str], Measured]):
    """Says that the pods of a selector use so much CPU together, in cores, each the same."""

    def __init__(self, life: Life, selector: str) -> None:
        super().__init__()
        self.cpu = 0.0
        self.nodes: Mapping[str, Measured] = {}
        self._life, self._selector = life, selector

    @property
    def pods(self) -> Mapping[tuple[str, str], Measured]:
        """See `mooring.local.api.metrics.Meter`."""
        return self

    async def run(self) -> None:
        """Measure every few seconds."""
        while True:
            found = await self._life.client.list(Pod, namespace="default", label_selector=self._selector)
            names = [one.metadata.name or "" for one in found.items]
            used = Measured(self._life.plane.clock.now(), {"main": Amount(self.cpu / max(1, len(names)))})
            self.clear()
            self.update({("default", name): used for name in names})
            await asyncio.sleep(5)


@asynccontextmanager
async def autoscaled(life: Life, selector: str) -> AsyncIterator[Meter]:
    """The controller of HorizontalPodAutoscalers at work, and what says how much the pods use."""
    meter = Meter(life, selector)
    life.plane.server.serve_metrics(meter)
    client = Client(life.plane.transport(HPA))
    manager = Manager(client, name="autoscaler", clock=life.plane.clock, grace=0.0)
    recorder = EventRecorder(client, controller="hpa", clock=manager.clock, metrics=manager.metrics)
    context = Context(manager.client, manager.informers, manager.clock, lambda _: recorder)
    kinds = Kinds(context)
    manager.serve("kinds", kinds.run)
    manager.add(AutoscalerController(context, kinds).controller())
    recorder.start()
    tasks = [asyncio.create_task(manager.run()), asyncio.create_task(meter.run())]
    try:
        yield meter
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await recorder.stop()


async def scale_by_cpu(life: Life, kind: str, name: str, *, most: int = 4) -> None:
    cpu = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": f"{TARGET * 1000:.0f}m"}}
    spec = {
        "scaleTargetRef": {"apiVersion": "core.matrixorigin.io/v1alpha1", "kind": kind, "name": name},
        "maxReplicas": most,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 30}},
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    await life.make(HorizontalPodAutoscaler, "hpa", spec)


async def seen_by_hpa(life: Life) -> tuple[int, set[str]]:
    """How many replicas the HPA sees, and which of its conditions hold."""
    status = (await life.get(HorizontalPodAutoscaler, "hpa")).status
    assert status is not None
    held = {one.type or "" for one in status.conditions or () if one.status == "True"}
    return status.current_replicas or 0, held


async def selected(life: Life, kind: type[CNSet | CNClaimSet], name: str) -> set[str]:
    """The pods that the scale subresource selects, as the HPA and `kubectl` read it."""
    path = kind.resource.path(namespace="default", name=name, subresource="scale")
    scale = msgspec.json.decode((await life.client.request("GET", path)).body)
    text = scale["status"]["selector"]
    found = await life.client.list(Pod, namespace="default", label_selector=text)
    return {one.metadata.name or "" for one in found.items}


async def service_of(life: Life) -> None:
    """The log service and the transaction node that compute nodes need."""
    await life.make(LogSet, "mo", {**LOG, "image": IMAGE})
    await life.make(DNSet, "mo", {"image": IMAGE, "replicas": 1}, deps={"logSet": DEPS["logSet"]})


async def compute_set(life: Life, **spec: Any) -> None:
    await service_of(life)
    scaling = {"storeDrainEnabled": True, "minDelaySeconds": 2}
    made = {"image": IMAGE, "replicas": 1, "scalingConfig": scaling, **spec}
    await life.make(CNSet, "tp", made, deps=DEPS)
    await settles(life, CNSet, "tp", 1)


async def settles(life: Life, kind: type[CNSet | CNClaimSet], name: str, replicas: int) -> None:
    """Wait until so many replicas are declared and serve."""

    async def check() -> bool:
        found: Any = await life.get(kind, name)
        return (
            found.spec.replicas == replicas
            and found.status is not None
            and found.status.ready_replicas == found.status.replicas == replicas
            and is_true(found.status.conditions, "Synced")
        )

    await life.until(check, f"{name} has {replicas} replicas, and all serve", within=900)


async def test_an_hpa_scales_a_cn_set_by_what_its_pods_use() -> None:
    async with living() as life, autoscaled(life, "matrixorigin.io/instance=tp") as meter:
        await compute_set(life)
        meter.cpu = 3 * TARGET
        await scale_by_cpu(life, "CNSet", "tp")
        await settles(life, CNSet, "tp", 3)
        await life.until(lambda: shows(life, 3), "the HPA sees them")
        assert await selected(life, CNSet, "tp") == {"tp-cn-0", "tp-cn-1", "tp-cn-2"}
        meter.cpu = TARGET
        await settles(life, CNSet, "tp", 1)
        assert life.world.wrong == [], "pods go when their sessions have left"


async def shows(life: Life, replicas: int) -> bool:
    return await seen_by_hpa(life) == (replicas, {"AbleToScale", "ScalingActive"})


async def test_an_hpa_and_the_policy_of_a_cn_set_do_not_both_scale_it() -> None:
    async with living() as life, autoscaled(life, "matrixorigin.io/instance=tp") as meter:
        metrics = [{"type": "sessions", "target": 100}]
        await compute_set(life, autoscale={"minReplicas": 1, "maxReplicas": 2, "metrics": metrics})
        meter.cpu = 3 * TARGET
        await scale_by_cpu(life, "CNSet", "tp")

        async def contested() -> bool:
            return HPA in await contest(life)

        await life.until(contested, "the contest is reported")

        async def followed() -> bool:
            found = await life.get(CNSet, "tp")
            assert found.spec is not None
            assert found.status is not None
            return found.spec.replicas == found.status.ready_replicas == 3

        await life.until(followed, "the HPA's number counts")
        await life.plane.settle(120)
        assert await followed()
        status = (await life.get(CNSet, "tp")).status
        assert status is not None
        assert status.autoscale is not None
        assert status.autoscale.replicas is None
        assert HPA in (status.autoscale.message or "")
        await life.client.delete(HorizontalPodAutoscaler, "hpa", namespace="default")
        await life.edit(CNSet, "tp", {"autoscale": None})

        async def over() -> bool:
            return await contest(life) == ""

        await life.until(over, "the contest is over")
        await settles(life, CNSet, "tp", 3)


async def contest(life: Life) -> str:
    """What the condition `AutoscaleContested` says, "" where it does not hold."""
    status = (await life.get(CNSet, "tp")).status
    listed = (status.conditions if status is not None else None) or ()
    return next((one.message or "" for one in listed if one.type == CONTESTED and one.status == "True"), "")


async def test_an_hpa_scales_a_claim_set_by_what_its_claimed_pods_use() -> None:
    async with living() as life, autoscaled(life, f"{CLAIM_SET}=set") as meter:
        await service_of(life)
        pool = {
            "podLabels": {"pool": "default"},
            "deps": DEPS,
            "strategy": {"updateStrategy": {}, "scaleStrategy": {"maxIdle": 1}},
            "template": {"image": IMAGE, "scalingConfig": {"minDelaySeconds": 2}},
        }
        await life.make(CNPool, "warm", pool)
        claim = {"selector": {"matchLabels": {"pool": "default"}}}
        await life.make(CNClaimSet, "set", {"replicas": 1, "template": {"spec": claim}})
        await settles(life, CNClaimSet, "set", 1)
        meter.cpu = 3 * TARGET
        await scale_by_cpu(life, "CNClaimSet", "set")
        await settles(life, CNClaimSet, "set", 3)
        await life.until(lambda: shows(life, 3), "the HPA sees them")
        claims = (await life.client.list(CNClaim, namespace="default")).items
        bound = {one.spec.pod_name for one in claims if one.spec is not None}
        assert await selected(life, CNClaimSet, "set") == bound
        assert len(await life.names(Pod)) > len(bound), "idle pods are not the set's"
        meter.cpu = TARGET
        await settles(life, CNClaimSet, "set", 1)

        async def cleaned() -> bool:
            return len(await selected(life, CNClaimSet, "set")) == 1

        await life.until(cleaned, "pods that were given back are not the set's any more")
        assert life.world.wrong == []
