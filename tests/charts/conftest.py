"""The beds of the chart's tests: the embedded plane, and a real cluster with a node that all of them share."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hack.images.recipes import build
from hack.kubernetes.binaries import build_module
from hack.kubernetes.controlplane import ControlPlane
from tests.charts.helm import NAMESPACE, ROOT, Helm
from tests.embedded.conftest import _logging, directory

from mooring.kube import NotFound
from mooring.kube.objects.core import Namespace, PersistentVolumeClaim
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.bed import Bed, ClusterBed

__all__ = ["_logging", "directory"]

#: Chosen by fixtures' parameters: a test runs on both, in the tier of each.
BEDS = [
    pytest.param("embedded", marks=[pytest.mark.full, pytest.mark.embedded]),
    pytest.param("cluster", marks=pytest.mark.cluster),
]
NODE_ONLY = [BEDS[1]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on both beds, or on the real node alone where it is marked `real_node`."""
    if "bed" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("real_node")
        metafunc.parametrize("bed", NODE_ONLY if alone else BEDS, indirect=True)


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[ControlPlane]:
    """A cluster with a node, Mooring's image and Redis, and a log of every request."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    images = [build(name) for name in ("mooring", "redis", "exporter")]
    with ControlPlane(images=images, audit="Metadata") as plane:
        yield plane


@pytest.fixture
async def bed(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Bed | ClusterBed]:
    """Something that runs pods, without operators of its own."""
    if request.param == "embedded":
        async with Bed(directory / "plane", operators=()) as running:
            running.plane.directory.write_kubeconfig(
                directory / "kubeconfig",
                server=f"https://{running.plane.ranges.pods[1]}:6443",
                authority=running.plane.certificates.authority,
            )
            yield running
        return
    plane: ControlPlane = request.getfixturevalue("real_cluster")
    (directory / "kubeconfig").write_bytes(plane.kubeconfig.read_bytes())
    async with ClusterBed(directory / "plane", plane.kubeconfig) as cluster:
        try:
            yield cluster
        finally:
            await _clear(cluster)


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


@pytest.fixture
async def helm(bed: Bed | ClusterBed, directory: Path) -> AsyncIterator[Helm]:
    """helm, built on first use; what it installed goes at the end."""
    program = await asyncio.to_thread(
        build_module, ROOT / "hack" / "helm", "helm", package="helm.sh/helm/v3/cmd/helm"
    )
    made = Helm(program, directory / "kubeconfig", directory)
    yield made
    if isinstance(bed, ClusterBed):
        for name in await made.releases():
            await made("uninstall", name, "--wait")
