"""The beds of the chart's tests: the embedded plane, and a real cluster with a node that all of them share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from hack.build import helm
from hack.images.recipes import build
from hack.kubernetes.controlplane import ControlPlane
from hack.operations import IMAGES, embedded
from hack.released import NAMESPACE
from tests.charts.helm import Helm, Provided
from tests.embedded.conftest import _logging

from mooring.kube import NotFound
from mooring.kube.objects.core import Namespace, PersistentVolumeClaim
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.bed import Bed, ClusterBed

__all__ = ["_logging"]

EMBEDDED = pytest.param("embedded", marks=[pytest.mark.full, pytest.mark.embedded])
BY_NIGHT = pytest.param("embedded", marks=[pytest.mark.nightly, pytest.mark.embedded])
CLUSTER = pytest.param("cluster", marks=pytest.mark.cluster)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on both beds, each in its tier; its marker may say on which, and that one of them waits for the night."""
    beds = [EMBEDDED, CLUSTER]
    for marker, chosen in (
        ("real_node", [CLUSTER]),
        ("embedded_alone", [EMBEDDED]),
        ("embedded_by_night", [BY_NIGHT, CLUSTER]),
    ):
        if metafunc.definition.get_closest_marker(marker):
            beds = chosen
    if "provided" in metafunc.fixturenames:
        metafunc.parametrize("provided", beds, indirect=True, scope="module")


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[ControlPlane]:
    """A cluster with a node, Mooring's image and Redis, and a log of every request."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    images = [build(name) for name in IMAGES]
    with ControlPlane(images=images, audit="Metadata") as plane:
        yield plane


@asynccontextmanager
async def _started(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Bed | ClusterBed]:
    """Something that runs pods, without operators of its own; its kubeconfig is in the directory."""
    if request.param == "embedded":
        async with embedded(directory / "plane", directory / "kubeconfig") as running:
            yield running
        return
    plane: ControlPlane = request.getfixturevalue("real_cluster")
    (directory / "kubeconfig").write_bytes(plane.kubeconfig.read_bytes())
    async with ClusterBed(directory / "plane", plane.kubeconfig) as cluster:
        try:
            yield cluster
        finally:
            await _clear(cluster)


@asynccontextmanager
async def _helm_of(bed: Bed | ClusterBed, directory: Path) -> AsyncIterator[Helm]:
    """helm, built on first use; what it installed on a bed that stays goes at the end."""
    made = Helm(await asyncio.to_thread(helm, 3), directory / "kubeconfig", directory)
    yield made
    if isinstance(bed, ClusterBed):
        for name in await made.releases():
            await made("uninstall", name, "--wait")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provided(request: pytest.FixtureRequest) -> AsyncIterator[Provided]:
    """One bed for all tests of a module, and helm on it; on the real cluster as if it were a new one."""
    with tempfile.TemporaryDirectory(prefix="mooring-bed-", ignore_cleanup_errors=True) as place:
        directory = Path(place)
        async with _started(request, directory) as running, _helm_of(running, directory) as used:
            # All that the chart brings, its hooks too, is within what the restricted standard allows.
            labels = {"pod-security.kubernetes.io/enforce": "restricted"}
            await running.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
            )
            yield Provided(bed=running, helm=used, kubeconfig=directory / "kubeconfig")


async def _clear(bed: ClusterBed) -> None:
    """Leave the shared cluster without clusters, claims and namespaces of a test."""
    client = bed.client
    with contextlib.suppress(NotFound):  # the kind is not there before the first release
        for one in (await client.list(RedisCluster)).items:
            name, namespace = one.metadata.name or "", one.metadata.namespace or ""
            with contextlib.suppress(NotFound):
                await client.delete(RedisCluster, name, namespace=namespace)
    kept = {"default", "kube-system", "kube-public", "kube-node-lease", NAMESPACE}

    async def gone() -> bool:
        return not await bed.pods("default", "app.kubernetes.io/managed-by=redis-operator")

    await bed.until(gone, "the pods are gone", within=90)
    for claim in (await client.list(PersistentVolumeClaim, namespace="default")).items:
        with contextlib.suppress(NotFound):  # it was on its way out
            await client.delete(PersistentVolumeClaim, claim.metadata.name or "", namespace="default")
    for space in (await client.list(Namespace)).items:
        if (space.metadata.name or "") not in kept:
            with contextlib.suppress(NotFound):
                await client.delete(Namespace, space.metadata.name or "")
