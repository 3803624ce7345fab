"""Configurations are named by their content: the newest five stay, and those that a pod or a template refers to."""

from __future__ import annotations

from typing import Any

from tests.operators.matrixone.living import IMAGE, LOG, Life, living

from mooring.kube.objects import apps
from mooring.kube.objects.core import ConfigMap, Pod
from mooring.operators.matrixone.stateful import KEPT
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, ProxySet

EDITS = range(7)
PREFIXES = ("mo-log-config-", "mo-main-cn-config-")


async def kept(life: Life, prefix: str) -> set[str]:
    """The configurations that are there."""
    return {one for one in await life.names(ConfigMap) if one.startswith(prefix)}


def mounted(spec: Any, prefix: str) -> set[str]:
    """The configurations that the pods of a spec need."""
    names = [one.config_map.name for one in spec.volumes or () if one.config_map is not None]
    return {one for one in names if one.startswith(prefix)}


def configured(at: int) -> dict[str, Any]:
    """A part of a spec with another configuration."""
    return {"config": f"[log]\nmax-backups = {at}\n"}


LOG_SET = {"logSet": {"metadata": {"name": "mo"}}}
BOTH = {**LOG_SET, "dnSet": {"metadata": {"name": "mo"}}}


async def test_seven_configurations_leave_the_newest_five_and_those_of_pods_that_run() -> None:
    async with living() as life:
        one = {"replicas": 1, "image": IMAGE, **configured(100)}
        await life.make(LogSet, "mo", {**LOG, **one})
        await life.make(DNSet, "mo", one, deps=LOG_SET)
        await life.make(CNSet, "mo-main", {**one, "pauseUpdate": True}, deps=BOTH)
        await life.until(lambda: pods_of(life, 3), "all three pods")
        first = {prefix: await kept(life, prefix) for prefix in PREFIXES}
        assert [len(found) for found in first.values()] == [1, 1]
        for at in EDITS:
            for kind, name in ((LogSet, "mo"), (CNSet, "mo-main")):
                await life.edit(kind, name, configured(at))
            await life.plane.settle(1.0)
        await life.plane.settle(10.0)
        pods = (await life.client.list(Pod, namespace="default")).items
        for prefix in PREFIXES:
            needed = {name for pod in pods for name in mounted(pod.spec, prefix)}
            left = await kept(life, prefix)
            assert needed <= left, f"the pods of {prefix} do not find what they are made from"
            if prefix.startswith("mo-main-cn"):
                assert needed == first[prefix], "the pod of a roll that is held back runs what it ran"
                assert len(left - needed) == KEPT
            else:
                assert len(left) == KEPT


async def pods_of(life: Life, count: int) -> bool:
    """So many pods are ready."""
    found = (await life.client.list(Pod, namespace="default")).items
    conditions = [one for pod in found for one in (pod.status.conditions if pod.status else None) or ()]
    return len([one for one in conditions if one.type == "Ready" and one.status == "True"]) == count


async def test_a_proxy_whose_roll_is_held_back_keeps_what_its_template_needs() -> None:
    async with living() as life:
        await life.make(LogSet, "mo", {**LOG, "image": IMAGE})
        await life.make(ProxySet, "mo", {"replicas": 1, "image": IMAGE}, deps=LOG_SET)
        prefix = "mo-proxy-config-"
        await life.until(lambda: pods_of(life, 2), "a log store and a proxy")
        (first,) = await kept(life, prefix)
        life.world.hosts.clear()  # no process can be reached, so the log service is not ready

        async def unready() -> bool:
            found = await life.get(LogSet, "mo")
            seen = (found.status.conditions if found.status is not None else None) or ()
            return ("Ready", "False") in {(one.type, one.status) for one in seen}

        await life.until(unready, "the log service is not ready")
        for at in EDITS:
            await life.edit(ProxySet, "mo", configured(at))
            await life.plane.settle(1.0)
        deployment = await life.get(apps.Deployment, "mo-proxy")
        assert deployment.spec is not None
        assert deployment.spec.template is not None
        assert mounted(deployment.spec.template.spec, prefix) == {first}, "the roll was held back"
        left = await kept(life, prefix)
        assert first in left, "a pod of the template in place could not start"
        assert len(left - {first}) == KEPT
