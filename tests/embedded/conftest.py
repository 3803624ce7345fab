"""Beds for the tests with real processes; each has its own data directory and leaves nothing."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.redis import RedisStage, manifest

__all__ = ["QUICK_SENTINELS", "MakeCluster"]

#: Run the tests of clusters on a real control plane; nothing provisions claims there.
REAL = os.environ.get("MOORING_TEST_BED") == "kubernetes"

#: Sentinels that decide fast; with the defaults' 5 s the tests would mostly wait.
QUICK_SENTINELS = ("down-after-milliseconds 1500", "failover-timeout 3000")

MakeCluster = Callable[..., Awaitable[RedisStage]]
_NUMBERS = itertools.count(1)


@pytest.fixture(autouse=True, scope="session")
def _logging() -> None:
    """One line per message: pretty tracebacks take seconds of the event loop."""
    configure_logging(level="warning", json=True)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A data directory with a short path (socket files live below it)."""
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def bed(directory: Path) -> AsyncIterator[Bed]:
    """A running control plane with all operators."""
    async with Bed(directory) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_bed(request: pytest.FixtureRequest) -> AsyncIterator[Bed | KubernetesBed]:
    """One control plane for all tests of a module that break nothing but their own cluster.

    With ``MOORING_TEST_BED=kubernetes`` it is a real kube-apiserver and kube-controller-manager, with our nodes.
    """
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        bed = KubernetesBed(path, request.getfixturevalue("real_kubernetes")) if REAL else Bed(path)
        async with bed as running:
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def cluster_on(bed: Bed | KubernetesBed, **how: Any) -> AsyncIterator[RedisStage]:
    """A cluster of its own name with quick sentinels; deleted at the end, its claims too."""
    name = f"c{next(_NUMBERS)}"
    how.setdefault("sentinel_settings", QUICK_SENTINELS)
    if REAL:
        how.setdefault("storage", {"emptyDir": {}})
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
