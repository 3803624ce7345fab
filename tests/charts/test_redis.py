"""Redis clusters with the operator as the chart installs it, on the embedded plane and on a real kubelet.

One release serves all tests here, each in a namespace of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hack.kubernetes.controlplane import ControlPlane
from hack.released import NAMESPACE, operators
from tests.charts.audit import asked, granted_in
from tests.charts.helm import CHART, Provided, processes, tell
from tests.charts.mesh import HIDDEN, mesh
from tests.charts.ucloud import Ucloud

from mooring.kube import MergePatch, NotFound, TooManyRequests
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Namespace, Node, Pod
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.operators.redis import SCOPE_ANNOTATION
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.bed import Bed, ClusterBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

Space = Callable[..., Awaitable[str]]
OURS = {SCOPE_ANNOTATION: "cluster-scoped"}
#: What the restricted pod security standard wants.
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 999,
    "runAsGroup": 999,
    "fsGroup": 999,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operated(provided: Provided) -> Provided:
    """The release that serves all tests here.

    Its scope is `cluster`, so that one of a single namespace can live beside it, and so that a cluster can be there
    before the operator looks at it.
    """
    await provided.helm.install("wide", "--set", "scope=cluster")
    return provided


@pytest_asyncio.fixture(loop_scope="module")
async def space(operated: Provided) -> AsyncIterator[Space]:
    """Makes namespaces; they go at the end, and what is in them."""
    made: list[str] = []

    async def make(name: str, **labels: str) -> str:
        metadata = {"name": name, "labels": labels}
        await operated.bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        made.append(name)
        return name

    yield make
    for name in made:
        try:
            await operated.bed.client.delete(Namespace, name)
        except NotFound:
            continue


async def cluster(bed: Bed | ClusterBed, namespace: str, name: str = "demo", **how: Any) -> RedisStage:
    """A cluster of the wide operator's, as declared."""
    declared = manifest(name, **how)
    declared["metadata"] |= {"namespace": namespace, "annotations": OURS}
    if security := how.get("securityContext"):
        declared["spec"]["sentinel"]["securityContext"] = security
    await bed.apply(declared)
    stage = RedisStage(bed, name, namespace=namespace, password=how.get("password", ""))
    await stage.exact(120)
    return stage


async def other_master(stage: RedisStage, old: str, *, within: float = 30) -> str:
    """Wait until the operator says that another pod leads."""

    async def moved() -> bool:
        return (await stage.status()).master not in (None, "", old)

    await stage.bed.until(moved, f"another master than {old}", within=within)
    return await stage.master()


async def evict(bed: Bed | ClusterBed, namespace: str, pod: str) -> None:
    """Ask for an eviction, as `kubectl drain` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    await bed.client.request("POST", path, body=msgspec.json.encode(body))


async def spared(stage: RedisStage) -> bool:
    """Whether the servers' budget counts three of them and lets one go."""
    found = await stage.bed.get(PodDisruptionBudget, stage.names.set_of("redis"), stage.namespace)
    status = found.status
    return status is not None and (status.current_healthy, status.disruptions_allowed) == (3, 1)


@pytest.mark.embedded_by_night
async def test_deleting_and_evicting_masters_under_a_writer_loses_nothing(
    operated: Provided, space: Space
) -> None:
    bed = operated.bed
    stage = await cluster(bed, await space("busy"), password="s3cret")
    async with stage.writing() as ledger:
        # Deleted, by somebody who does not know what it is.
        first = await stage.master()
        await bed.client.delete(Pod, first, namespace=stage.namespace)
        second = await other_master(stage, first)
        await stage.exact(90)

        # Evicted, as a node is drained: it hands over first, and the budget keeps the next one.
        await bed.until(lambda: spared(stage), "the budget lets one of three go", within=30)
        await evict(bed, stage.namespace, second)
        with pytest.raises(TooManyRequests):
            await evict(bed, stage.namespace, first)
        third = await other_master(stage, second)
        await stage.exact(90)

        # Deleted together with the operator's pod.
        for name in await operators(bed):
            await bed.client.delete(Pod, name, namespace=NAMESPACE)
        await bed.client.delete(Pod, third, namespace=stage.namespace)
        await other_master(stage, third, within=60)
        await stage.exact(90)
        await stage.writes(ledger, 100)

    report = await ledger.check()
    assert report.lost_confirmed == 0, report.text()
    assert report.lost_acknowledged == 0, report.text()


@pytest.mark.embedded_alone
async def test_a_node_is_drained_under_a_writer(operated: Provided, space: Space) -> None:
    bed = operated.bed
    stage = await cluster(bed, await space("moving"), persistence=False)
    async with stage.writing() as ledger:
        master = await stage.master()
        node = await node_of(bed, stage.namespace, master)
        await cordon(bed, node, away=True)

        # Everything on it at once, again and again while a budget says no.
        pods = [pod for pod in await bed.pods("") if pod.spec and pod.spec.node_name == node]
        assert (stage.namespace, master) in {(pod.metadata.namespace, pod.metadata.name) for pod in pods}
        await asyncio.gather(*(drained(bed, pod) for pod in pods))
        await other_master(stage, master)
        await stage.exact(90)
        await stage.writes(ledger, 100)

    report = await ledger.check()
    await cordon(bed, node, away=False)
    assert node not in {
        await node_of(bed, stage.namespace, pod.metadata.name or "") for pod in await stage.pods()
    }
    assert report.lost_confirmed == 0, report.text()
    assert report.lost_acknowledged == 0, report.text()


async def node_of(bed: Bed | ClusterBed, namespace: str, pod: str) -> str:
    found = await bed.get(Pod, pod, namespace)
    return (found.spec.node_name if found.spec else None) or ""


async def cordon(bed: Bed | ClusterBed, node: str, *, away: bool) -> None:
    await bed.client.patch(Node, node, MergePatch({"spec": {"unschedulable": away or None}}))


async def drained(bed: Bed | ClusterBed, pod: Pod) -> None:
    """Evict until the pod is gone, as `kubectl drain` does."""
    name, namespace = pod.metadata.name or "", pod.metadata.namespace or ""

    async def gone() -> bool:
        try:
            if (await bed.get(Pod, name, namespace)).metadata.uid != pod.metadata.uid:
                return True
            await evict(bed, namespace, name)
        except NotFound:
            return True
        except TooManyRequests:
            return False
        return False

    await bed.until(gone, f"{namespace}/{name} is evicted", within=90, every=0.5)


@pytest.mark.nightly
async def test_a_cluster_lives_in_a_restricted_namespace_within_its_limits(
    operated: Provided, space: Space
) -> None:
    namespace = await space("strict", **{"pod-security.kubernetes.io/enforce": "restricted"})
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "96Mi"}}
    how = {"securityContext": RESTRICTED, "resources": resources}
    stage = await cluster(operated.bed, namespace, "strict", **how)
    master = await stage.master()
    assert await stage.call(master, "SET", "a", "b") == "OK"
    assert memory_limit(stage.pid(master)) == 96 * 2**20


def memory_limit(pid: int) -> int:
    """Bytes that the cgroup of a process may use, whichever version rules memory on this machine."""
    top = Path("/sys/fs/cgroup")
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return int(Path(f"{top}/memory{path}/memory.limit_in_bytes").read_text())
        if not controllers and (limit := Path(f"{top}{path}/memory.max")).exists():
            return int(limit.read_text())
    raise LookupError(f"no cgroup rules the memory of {pid}")


async def test_a_namespace_goes_with_its_cluster_and_comes_again(operated: Provided, space: Space) -> None:
    bed = operated.bed
    namespace = await space("passing")
    await cluster(bed, namespace, persistence=False)
    before = {pod.metadata.uid: restarts(pod) for pod in await bed.pods(NAMESPACE)}

    await bed.client.delete(Namespace, namespace)

    async def gone() -> bool:
        try:
            await bed.get(Namespace, namespace)
        except NotFound:
            return True
        return False

    await bed.until(gone, "the namespace is gone", within=90)
    stage = await cluster(bed, await space("passing"), persistence=False)
    assert await stage.call(await stage.master(), "DBSIZE") == 0
    assert {pod.metadata.uid: restarts(pod) for pod in await bed.pods(NAMESPACE)} == before


def restarts(pod: Pod) -> int:
    statuses = (pod.status.container_statuses if pod.status else None) or ()
    return sum(one.restart_count or 0 for one in statuses)


@pytest.mark.nightly
async def test_a_cluster_in_a_mesh_hands_over_though_nobody_sees_where_others_are(
    operated: Provided, space: Space
) -> None:
    # Given a webhook that adds containers, and servers that see every connection come from one address.
    bed = operated.bed
    namespace = await space("meshed")
    async with mesh(bed, namespace):
        stage = await cluster(bed, namespace, password="s3cret")
        for pod in await stage.pods():
            assert pod.spec is not None
            assert (pod.spec.containers or [])[0].name == "proxy"
            assert [one.name for one in pod.spec.init_containers or ()][:1] == ["prepare"]
        old = await stage.master()
        clients = await stage.call(old, "CLIENT", "LIST")
        assert set(re.findall(r" addr=([\d.]+):", clients)) == {HIDDEN}

        # Replicas and sentinels are known by the addresses they announce.
        async with stage.writing() as ledger:
            await bed.client.delete(Pod, old, namespace=namespace)
            await other_master(stage, old)
            await stage.exact(90)
            await stage.writes(ledger, 100)

    report = await ledger.check()
    assert report.lost_confirmed == 0, report.text()


@pytest.mark.embedded_by_night
@pytest.mark.nightly
async def test_what_ucloud_left_is_taken_over_without_a_restart_and_rolled_clean_by_the_first_change(
    operated: Provided, space: Space
) -> None:
    # Given a cluster as UCloud's operator made it, with data; nobody looks after it.
    bed = operated.bed
    left = Ucloud(bed, "old", namespace=await space("legacy"), password="s3cret")
    began = monotonic()
    master = await left.made()
    stage, made = left.stage, monotonic() - began
    assert await stage.call(master, "SET", "kept", "yes") == "OK"
    running, revisions, claims = await processes(stage), await revisions_of(stage), await stage.claims()

    # When it is given to our operator, nothing restarts.
    body = MergePatch({"metadata": {"annotations": OURS}})
    await bed.client.patch(RedisCluster, "old", body, namespace=stage.namespace)
    taken = await stage.exact(90)
    assert await stage.master() == master
    assert await processes(stage) == running
    assert await revisions_of(stage) == revisions
    assert await traces(stage) != []
    first = (await stage.status()).conditions or []
    assert (first[0].type, first[0].message) == ("Healthy", "Cluster ok")

    # When the user changes something, the roll leaves nothing of UCloud's in the pods, and all of the data.
    async with stage.writing() as ledger:
        requests = {"requests": {"cpu": "10m", "memory": "20Mi"}}
        await stage.patch({"resources": requests, "sentinel": {"resources": requests}})
        rolled = await stage.exact(180)
    tell(f"made in {made:.0f} s, taken over in {taken:.1f} s, rolled in {rolled:.0f} s")
    report = await ledger.check()
    assert {uid for uid, _ in (await processes(stage)).values()} & {
        uid for uid, _ in running.values()
    } == set()
    assert await traces(stage) == []
    assert await stage.claims() == claims
    assert await stage.call(await stage.master(), "GET", "kept") == "yes"
    assert report.lost_confirmed == 0, report.text()
    assert report.lost_acknowledged == 0, report.text()


async def revisions_of(stage: RedisStage) -> list[str | None]:
    sets = [
        await stage.bed.get(StatefulSet, name, stage.namespace)
        for name in (stage.names.redis, stage.names.sentinel)
    ]
    return [one.status.update_revision if one.status else None for one in sets]


async def traces(stage: RedisStage) -> list[str]:
    """What UCloud's templates had and ours have not, in templates and pods."""
    specs = [pod.spec for pod in await stage.pods()]
    for name in (stage.names.redis, stage.names.sentinel):
        one = await stage.bed.get(StatefulSet, name, stage.namespace)
        specs.append(one.spec.template.spec if one.spec and one.spec.template else None)
    found: list[str] = []
    for spec in specs:
        assert spec is not None
        found += [volume.name or "" for volume in spec.volumes or ()]
        found += [one.name or "" for one in spec.init_containers or ()]
        for container in spec.containers or ():
            found += [env.name or "" for env in container.env or ()]
            found += container.command or ()
    theirs = (
        "--requirepass",
        "redis-shutdown-volume",
        "readiness-probe",
        "sentinel-config",
    )
    return [one for one in found if one == "REDIS_PASSWORD" or one.startswith(theirs)]


@pytest.mark.embedded_by_night
@pytest.mark.nightly
async def test_a_release_of_one_namespace_lives_beside_one_of_the_cluster(
    operated: Provided, space: Space, request: pytest.FixtureRequest
) -> None:
    bed = operated.bed
    await space("team")
    plane: ControlPlane | None = None
    if isinstance(bed, ClusterBed):
        plane = request.getfixturevalue("real_cluster")
    since = plane.audit_log.stat().st_size if plane else 0
    await operated.helm.install("team", "--set", "scope=namespaced,namespaces={team}")

    own = manifest("own", persistence=False)
    own["metadata"]["namespace"] = "team"
    everyones = manifest("demo", persistence=False)
    everyones["metadata"] |= {"namespace": "team", "annotations": OURS}
    for one in (own, everyones):
        await bed.apply(one)
    for name in ("own", "demo"):
        await RedisStage(bed, name, namespace="team").exact(120)

    if plane is not None:
        # Each made what is its own, and was refused nothing there.
        for account in ("wide-mooring", "team-mooring"):
            there = await asyncio.to_thread(list, asked(plane, since, account, namespace="team"))
            assert {right for right, status in there if status == 403} == set()
            assert ("apps", "statefulsets", "create") in {right for right, _ in there}
        # Each used the rights that its scope has and that of all, where all are proved to be needed, has not.
        proved = granted_in(
            await operated.helm("template", "any", CHART, "--kube-version", "1.36"), "mooring"
        )
        for account in ("wide-mooring", "team-mooring"):
            manifest_of = await operated.helm("get", "manifest", account.partition("-")[0])
            used = {right for right, _ in await asyncio.to_thread(list, asked(plane, since, account))}
            assert granted_in(manifest_of, account) - proved - used == set()
    await operated.helm("uninstall", "team", "--wait")
