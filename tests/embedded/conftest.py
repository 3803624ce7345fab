"""Beds for the tests with real processes; each has its own data directory and leaves nothing.

With ``MOORING_TEST_BED=kubernetes`` the tests of clusters run on a real kube-apiserver and kube-controller-manager
instead of the embedded plane, the pods on a node of ours (``./mooring test --tier clusters``).
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog
from hack.kubernetes.controlplane import ControlPlane
from tests.operators.redis.cluster import stage as rec

from mooring.local.node.images import Catalog
from mooring.local.node.node import Settings
from mooring.operators.mysql import OPERATOR as MYSQL
from mooring.operators.mysql.topology import Flavor
from mooring.operators.registry import Operator
from mooring.runtime import configure_logging
from mooring.runtime.log import Secrets, secrets
from mooring.testing.bed import QUICK, Bed, KubernetesBed
from mooring.testing.mysql_stage import MySQLStage
from mooring.testing.mysql_stage import manifest as mysql_manifest
from mooring.testing.redis import RedisStage, manifest

__all__ = ["QUICK_SENTINELS", "REAL", "Make", "MakeCluster", "MakeMySQL", "bed_with", "make_bed", "real_bed"]

#: Run the tests of clusters on a real control plane.
REAL = os.environ.get("MOORING_TEST_BED") == "kubernetes"
HERE = Path(__file__).resolve().parent
DEFINITIONS = HERE.parents[1] / "crds"
#: Address ranges of this worker's real control plane.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
SERVICES, PODS = f"10.{171 + 2 * _WORKER}.0.0/16", f"10.{172 + 2 * _WORKER}.0.0/16"

#: Files about MatrixOne whose module's bed is the one that was asked for.
_MATRIXONE = ("test_matrixone_life.py", "test_matrixone_backup.py")
#: Sentinels that decide fast; with the defaults' 5 s the tests would mostly wait.
QUICK_SENTINELS = ("down-after-milliseconds 1500", "failover-timeout 3000")

MakeCluster = Callable[..., Awaitable[RedisStage]]
Make = Callable[..., Awaitable[rec.Stage]]
_NUMBERS = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on the real control plane when that is asked for, and say why the rest does not."""
    for item in items if REAL else ():
        matrixone = item.path.name in _MATRIXONE
        if item.path.parent == HERE and (
            matrixone or item.path.name.startswith(("test_redis_", "test_rec_", "test_mysql_"))
        ):
            item.add_marker(pytest.mark.clusters)
            item.add_marker(pytest.mark.kubernetes)
            asked = {"shared_bed", "old_bed", "plane", "mysql_plane"} & set(getattr(item, "fixturenames", ()))
            if not matrixone and not asked:
                item.add_marker(pytest.mark.skip(reason="is about an embedded plane of its own"))


@pytest.fixture(scope="session")
def real_kubernetes() -> Iterator[Path]:
    """The administrator's kubeconfig of a real control plane that has known our kinds from its start."""
    with ControlPlane(definitions=DEFINITIONS, services=SERVICES) as plane:
        yield plane.kubeconfig


@pytest.fixture(autouse=True, scope="module")
def _logging() -> Iterator[None]:
    """One line per message: pretty tracebacks take seconds of the event loop.

    Nothing of it outlives the module, passwords like "first" neither: tests of other files, in the same process, read
    what is logged.
    """
    configure_logging(level="warning", json=True)
    structlog.configure(cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
    vars(secrets).update(vars(Secrets()))


@pytest.fixture
def directory() -> Iterator[Path]:
    """A data directory with a short path (socket files live below it)."""
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def make_bed(
    request: pytest.FixtureRequest,
    directory: Path,
    *,
    operators: Sequence[Operator] | None = None,
    settings: Settings = QUICK,
    catalog: Catalog | None = None,
) -> Bed | KubernetesBed:
    """The bed that tests of clusters run on."""
    if not REAL:
        return Bed(directory, operators=operators, settings=settings, catalog=catalog)
    kubeconfig = request.getfixturevalue("real_kubernetes")
    return real_bed(directory, kubeconfig, operators=operators, settings=settings, catalog=catalog)


def real_bed(directory: Path, kubeconfig: Path, **how: Any) -> KubernetesBed:
    """A bed on this worker's real control plane."""
    return KubernetesBed(directory, kubeconfig, services=SERVICES, pods=PODS, **how)


@pytest.fixture
async def bed(directory: Path) -> AsyncIterator[Bed]:
    """A running control plane with all operators."""
    async with Bed(directory) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_bed(request: pytest.FixtureRequest) -> AsyncIterator[Bed | KubernetesBed]:
    """One control plane for all tests of a module that break nothing but their own cluster."""
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with make_bed(request, path) as running:
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def cluster_on(bed: Bed | KubernetesBed, **how: Any) -> AsyncIterator[RedisStage]:
    """A cluster of its own name with quick sentinels; deleted at the end, its claims too."""
    name = f"c{next(_NUMBERS)}"
    how.setdefault("sentinel_settings", QUICK_SENTINELS)
    stage = RedisStage(bed, name, password=how.get("password", ""))
    try:
        await bed.apply(manifest(name, **how))
        yield stage
    finally:
        await stage.delete(claims=True)


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(shared_bed: Bed | KubernetesBed) -> AsyncIterator[MakeCluster]:
    """Makes clusters on the shared bed; `exact=False` does not wait for them."""
    async with AsyncExitStack() as stack:

        async def make(*, exact: bool = True, **how: Any) -> RedisStage:
            stage = await stack.enter_async_context(cluster_on(shared_bed, **how))
            if exact:
                await stage.exact()
            return stage

        yield make
        await shared_bed.plane.agent.heal()


# --- Redis Clusters


@asynccontextmanager
async def bed_with(request: pytest.FixtureRequest, operator: Operator) -> AsyncIterator[Bed | KubernetesBed]:
    """A control plane with one operator."""
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with make_bed(request, path, operators=[operator]) as running:
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def operator() -> Operator:
    """That of the module's plane; a module that wants it otherwise has a fixture of this name."""
    return rec.OPERATOR


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(request: pytest.FixtureRequest, operator: Operator) -> AsyncIterator[Bed | KubernetesBed]:
    """One control plane for all tests of a module about Redis Clusters."""
    async with bed_with(request, operator) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def make(plane: Bed | KubernetesBed) -> AsyncIterator[Make]:
    """Makes Redis Clusters; they go with the test."""
    async with AsyncExitStack() as stack:

        async def one(*, replicas: int = 6, exact: bool = True, **how: Any) -> rec.Stage:
            stage = rec.Stage(plane, f"r{next(_NUMBERS)}", password=how.get("password", ""))
            stack.push_async_callback(stage.delete)
            await plane.apply(rec.manifest(stage.name, replicas=replicas, **how))
            if exact:
                await stage.exact(replicas)
            return stage

        yield one


# --- MySQL and MariaDB

#: Seconds that a new cluster may take until it is whole: each server of MySQL makes its files first, also on a busy machine.
_MADE = 120.0
#: The same where it begins with a backup: a Job makes the files, starts a server on them and ends it, before any pod is made.
_RESTORED = 240.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mysql_plane(request: pytest.FixtureRequest) -> AsyncIterator[Bed | KubernetesBed]:
    """One control plane for all tests of a module about MySQLClusters."""
    async with bed_with(request, MYSQL) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _handed_on(
    mysql_plane: Bed | KubernetesBed, request: pytest.FixtureRequest
) -> AsyncIterator[MySQLStage]:
    stage = MySQLStage(mysql_plane, "demo", flavor=_flavor_of(request))
    await mysql_plane.apply(mysql_manifest("demo", image=_image_of(request)))
    yield stage
    await stage.delete(claims=True)


@pytest_asyncio.fixture(loop_scope="module")
async def mysql(_handed_on: MySQLStage) -> MySQLStage:
    """The module's cluster of three, whole: a test leaves it such that it becomes so again by itself."""
    await _handed_on.exact(within=_MADE)
    return _handed_on


def _flavor_of(request: pytest.FixtureRequest) -> Flavor:
    return "mysql" if _image_of(request).startswith("mysql") else "mariadb"


def _image_of(request: pytest.FixtureRequest) -> str:
    """What a module's clusters run."""
    return str(getattr(request.module, "IMAGE", "mariadb:10.11"))


MakeMySQL = Callable[..., Awaitable[MySQLStage]]


@pytest_asyncio.fixture(loop_scope="module")
async def make_mysql(
    mysql_plane: Bed | KubernetesBed, request: pytest.FixtureRequest
) -> AsyncIterator[MakeMySQL]:
    """Makes further clusters; they go with the test."""
    async with AsyncExitStack() as stack:

        async def one(*, exact: bool = True, **how: Any) -> MySQLStage:
            stage = MySQLStage(mysql_plane, f"m{next(_NUMBERS)}", flavor=_flavor_of(request))
            stack.push_async_callback(stage.delete, claims=True)
            await mysql_plane.apply(mysql_manifest(stage.name, **{"image": _image_of(request), **how}))
            if exact:
                await stage.exact(within=_RESTORED if "restoreFrom" in how else _MADE)
            return stage

        yield one
