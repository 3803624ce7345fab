"""The chart's life, with helm itself: installed, upgraded, scaled, broken, removed and installed again.

Every test runs on the embedded plane, and on a real kubelet and containerd with the image of this tree. They share one
bed, and each begins with a release as the chart's values have it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest
import pytest_asyncio
from tests.charts.helm import CHART, NAMESPACE, Helm, Provided, holder, leader, operators, processes, tell

from mooring.kube import NotFound
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Namespace, Pod
from mooring.operators.redis.dial import DialError
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.bed import Bed, ClusterBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

#: Seconds of the operators' Lease.
LEASE_SECONDS = 15
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


def pid_of(bed: Bed | ClusterBed, pod: str) -> int:
    """The operator's process in a pod."""
    return bed.plane.agent.program_pid(NAMESPACE, pod, "operator")


async def taken_over(bed: Bed | ClusterBed, old: str, *, within: float) -> float:
    """Wait until another process holds the Lease than `old`; the seconds it took."""

    async def led() -> bool:
        return await holder(bed) not in ("", old)

    return await bed.until(led, f"another one than {old} leads", within=within)


async def a_leader(bed: Bed | ClusterBed, *, pods: int = 1) -> str:
    """Wait until one leads and as many pods are ready, the others to take over; its name."""

    async def led() -> bool:
        there, ready = await operators(bed), await operators(bed, ready=True)
        return bool(await leader(bed)) and len(there) == len(ready) == pods

    await bed.until(led, f"one of {pods} leads", within=60)
    return await leader(bed)


async def demo(bed: Bed | ClusterBed, name: str) -> RedisStage:
    """A cluster that is as declared."""
    await bed.apply(manifest(name, password="s3cret", sentinel_settings=QUICK))
    stage = RedisStage(bed, name, password="s3cret")
    await stage.exact(120)
    return stage


async def test_a_release_is_upgraded_and_scaled_and_hands_over_while_its_cluster_runs_on(
    bed: Bed | ClusterBed, helm: Helm, release: str
) -> None:
    listed = (await helm.releases())[release]
    assert listed["status"] == "deployed"
    stage = await demo(bed, "served")
    running = await processes(stage)

    # Another version of everything in the pods, and a second one.
    await helm.upgrade(release, "--set", "replicaCount=2", "--set", "podAnnotations.version=next")
    assert int((await helm.releases())[release]["revision"]) == int(listed["revision"]) + 1
    old = await a_leader(bed, pods=2)

    held = await holder(bed)
    os.kill(pid_of(bed, old), signal.SIGTERM)
    orderly = await taken_over(bed, held, within=5)
    assert orderly < 1.0

    # The container comes back in place before it is killed again.
    old = await a_leader(bed, pods=2)
    held = await holder(bed)
    os.kill(pid_of(bed, old), signal.SIGKILL)
    killed = await taken_over(bed, held, within=LEASE_SECONDS + 20)
    tell(f"handed over in {orderly:.2f} s by SIGTERM, in {killed:.1f} s by SIGKILL")

    # One that is frozen past its Lease has nothing to say when it wakes.
    old = await a_leader(bed, pods=2)
    held, frozen = await holder(bed), pid_of(bed, old)
    os.kill(frozen, signal.SIGSTOP)
    try:
        await taken_over(bed, held, within=LEASE_SECONDS + 20)
        await stage.patch({"config": {"maxclients": "322"}})
        await stage.exact(60)
        before = await versions(bed)
    finally:
        os.kill(frozen, signal.SIGCONT)

    async def ended() -> bool:
        return not _lives(frozen)

    await bed.until(ended, "what was frozen ends", within=20)
    assert await versions(bed) == before
    assert await holder(bed) != held
    assert await processes(stage) == running


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def versions(bed: Bed | ClusterBed) -> dict[str, str | None]:
    """What a write to the cluster's children would change."""
    sets = (await bed.client.list(StatefulSet, namespace="default")).items
    return {one.metadata.name or "": one.metadata.resource_version for one in sets}


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
    for wrong, said in (("replicas=2", "replicas"), ("scope=everything", "scope"), ("workers=0", "workers")):
        assert said in await helm("upgrade", release, CHART, "--set", wrong, fails=True)


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
