"""The chart's life, with helm itself: installed, upgraded, scaled, broken, removed and installed again.

Every test runs on the embedded plane, and on a real kubelet and containerd with the image of this tree. They share one
bed, and each begins with a release as the chart's values have it.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from hack.kubernetes.controlplane import ControlPlane
from hack.released import NAMESPACE, a_leader, frozen, holder, operators, struck, writes_of
from tests.charts.helm import CHART, Helm, Provided, processes, tell
from tests.standstill import Standstill

from mooring.kube import NotFound
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Namespace, Pod
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.operators.redis.dial import DialError
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.bed import Bed, ClusterBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

#: Values of what the chart makes only when asked to.
BESIDE = ("networkPolicy", "serviceMonitor", "prometheusRule", "dashboards")
QUICK = ("down-after-milliseconds 1500", "failover-timeout 3000")


@pytest.fixture
def bed(provided: Provided) -> Bed | ClusterBed:
    """Something that runs pods."""
    return provided.bed


@pytest.fixture
def helm(provided: Provided) -> Helm:
    """helm."""
    return provided.helm


@pytest_asyncio.fixture(loop_scope="module")
async def release(helm: Helm) -> str:
    """The one release that is there, as the chart's values have it; `mooring` where there was none."""
    name = next(iter(await helm.releases()), "mooring")
    said = await helm.upgrade(name, "--install", "--create-namespace", "--reset-values")
    assert "STATUS: deployed" in said
    return name


async def demo(bed: Bed | ClusterBed, name: str) -> RedisStage:
    """A cluster that is as declared."""
    await bed.apply(manifest(name, password="s3cret", sentinel_settings=QUICK))
    stage = RedisStage(bed, name, password="s3cret")
    await stage.exact(120)
    return stage


@pytest.mark.embedded_by_night
async def test_a_release_is_upgraded_and_scaled_and_hands_over_while_its_cluster_runs_on(
    bed: Bed | ClusterBed, helm: Helm, release: str, stood: Standstill, request: pytest.FixtureRequest
) -> None:
    listed = (await helm.releases())[release]
    assert listed["status"] == "deployed"
    stage = await demo(bed, "served")
    running = await processes(stage)

    # Another version of everything in the pods, and a second one, with all that can be had beside them.
    for definition in map(monitoring, ("ServiceMonitor", "PrometheusRule")):
        await bed.apply(definition)
    beside = ",".join(f"{name}.enabled=true" for name in BESIDE)
    await helm.upgrade(release, "--set", f"replicaCount=2,podAnnotations.version=next,{beside}")
    assert int((await helm.releases())[release]["revision"]) == int(listed["revision"]) + 1
    await bed.until(lambda: spared(bed, release), "the budget lets one of two go", within=30)
    if isinstance(bed, Bed):
        pods = [await bed.get(Pod, name, NAMESPACE) for name in await operators(bed)]
        assert len({pod.spec.node_name for pod in pods if pod.spec}) == 2

    orderly = await struck(bed, signal.SIGTERM)
    assert orderly - stood.within(orderly) < 1.0
    # The container comes back in place before it is killed again.
    killed = await struck(bed, signal.SIGKILL)
    tell(f"handed over in {orderly:.2f} s by SIGTERM, in {killed:.1f} s by SIGKILL")

    # One that is frozen past its Lease has nothing to say when it wakes.
    plane: ControlPlane | None = None
    if isinstance(bed, ClusterBed):
        plane = request.getfixturevalue("real_cluster")
    async with frozen(bed) as stopped:
        await stage.patch({"config": {"maxclients": "322"}})
        await stage.exact(60)
        before, held = await versions(bed), await holder(bed)
        since = plane.audit_log.stat().st_size if plane else 0
    assert await versions(bed) == before
    assert await holder(bed) == held
    assert plane is None or writes_of(plane.audit_log, since, stopped.pod) == []
    assert await processes(stage) == running


async def spared(bed: Bed | ClusterBed, release: str) -> bool:
    """Whether the operators' budget counts two of them and lets one go."""
    budget = await bed.get(
        PodDisruptionBudget, release if "mooring" in release else f"{release}-mooring", NAMESPACE
    )
    status = budget.status
    return status is not None and (status.current_healthy, status.disruptions_allowed) == (2, 1)


def monitoring(kind: str) -> dict[str, Any]:
    """The definition of one of the Prometheus operator's kinds, which takes anything."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
            ],
        },
    }


async def versions(bed: Bed | ClusterBed) -> dict[str, str | None]:
    """What a write to the cluster's children would change."""
    sets = (await bed.client.list(StatefulSet, namespace="default")).items
    return {one.metadata.name or "": one.metadata.resource_version for one in sets}


@pytest.mark.nightly
async def test_a_version_that_does_not_start_is_rolled_back(
    bed: Bed | ClusterBed, helm: Helm, release: str
) -> None:
    good = await a_leader(bed)
    working = int((await helm.releases())[release]["revision"])
    uid = (await bed.get(Pod, good, NAMESPACE)).metadata.uid

    broken = ("--set", "image.repository=nowhere", "--set", "crds.apply=false")
    said = await helm("upgrade", release, CHART, "--atomic", "--timeout", "15s", *broken, fails=True)

    assert "rolled back" in said
    listed = (await helm.releases())[release]
    assert (listed["status"], int(listed["revision"])) == ("deployed", working + 2)
    # The one that works never went.
    assert await a_leader(bed) == good
    assert (await bed.get(Pod, good, NAMESPACE)).metadata.uid == uid


@pytest.mark.embedded_by_night
async def test_clusters_outlive_the_release_and_the_next_takes_them_up(
    bed: Bed | ClusterBed, helm: Helm, release: str
) -> None:
    await bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    away = manifest("away", persistence=False)
    away["metadata"]["namespace"] = "elsewhere"
    for one in (away, manifest("second", persistence=False)):
        await bed.apply(one)
    stage = await demo(bed, "lasting")
    await RedisStage(bed, "second").exact(90)
    master = await stage.master()

    await helm("uninstall", release, "--wait")
    assert await helm.releases() == {}

    async def gone() -> bool:
        return not await bed.pods(NAMESPACE, "app.kubernetes.io/name=mooring")

    await bed.until(gone, "no operator runs", within=60)
    assert await stage.call(master, "SET", "still", "there") == "OK"

    # What is deleted while nobody is there goes, with all that belongs to it.
    await bed.client.delete(RedisCluster, "second", namespace="default")
    await bed.client.delete(Namespace, "elsewhere")

    async def deleted() -> bool:
        left = await bed.pods("default", "app.kubernetes.io/name=second")
        try:
            await bed.get(Namespace, "elsewhere")
        except NotFound:
            return not left
        return False

    await bed.until(deleted, "the cluster and the namespace are gone", within=120)

    # The sentinels fail over by themselves.
    await bed.client.delete(Pod, master, namespace="default")
    survivor: list[str] = []

    async def failed_over() -> bool:
        for pod in await stage.pods("redis"):
            name = pod.metadata.name or ""
            with suppress(DialError):  # it may be on its way, or slow
                if name != master and (await stage.call(name, "ROLE"))[0] == "master":
                    survivor[:] = [name]
                    return True
        return False

    await bed.until(failed_over, "a replica leads", within=60)
    running = {name: it for name, it in (await processes(stage)).items() if name != master}

    await helm.install("other" if release == "mooring" else "mooring")
    await stage.patch({"config": {"maxclients": "321"}})
    await stage.exact(90)
    assert await stage.config(survivor[0], "maxclients") == "321"
    assert await stage.call(await stage.master(), "GET", "still") == "there"
    assert {name: it for name, it in (await processes(stage)).items() if name != master} == running


async def test_values_that_do_not_exist_or_fit_are_refused(helm: Helm, release: str) -> None:
    wrongs = (("replicas=2", "replicas"), ("scope=everything", "scope"), ("workers=0", "workers"))
    # What the chart cannot make rules for: they would be those of nobody, or of everybody.
    for wrong, said in (
        *wrongs,
        (r"operators=*\,-redis-cluster", "operators"),
        ("operators=redis9", "operators"),
    ):
        assert said in await helm("upgrade", release, CHART, "--set", wrong, fails=True)


@pytest.mark.nightly
async def test_a_release_takes_its_clusters_along_when_told_to_and_leaves_their_volumes(
    bed: Bed | ClusterBed, helm: Helm, release: str
) -> None:
    assert "Succeeded" in await helm("test", release, "--logs")
    declared = manifest("doomed")
    declared["spec"]["storage"]["keepAfterDeletion"] = False
    await bed.apply(declared)
    stage = RedisStage(bed, "doomed")
    await stage.healthy(120)
    claims = await stage.claims()
    assert len(claims) == 3

    told = await helm.upgrade(release, "--reuse-values", "--set", "uninstall.deleteClusters=true")
    assert "DELETES" in told
    await helm("uninstall", release, "--wait", "--timeout", "300s")

    assert await helm.releases() == {}
    assert (await bed.client.list(RedisCluster)).items == []
    assert await stage.pods() == []
    assert await stage.claims() == claims
