"""Beds for the tests with real processes; each has its own data directory and leaves nothing.

With ``MOORING_TEST_BED=kubernetes`` the tests of clusters run on a real kube-apiserver and kube-controller-manager
instead of the embedded plane, the pods on a node of ours (``./mooring test --tier clusters``).
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hack.kubernetes.controlplane import ControlPlane

from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.redis import RedisStage, manifest

__all__ = ["QUICK_SENTINELS", "REAL", "MakeCluster"]

#: Run the tests of clusters on a real control plane.
REAL = os.environ.get("MOORING_TEST_BED") == "kubernetes"
HERE = Path(__file__).resolve().parent
DEFINITIONS = HERE.parents[1] / "crds"

#: Sentinels that decide fast; with the defaults' 5 s the tests would mostly wait.
QUICK_SENTINELS = ("down-after-milliseconds 1500", "failover-timeout 3000")

MakeCluster = Callable[..., Awaitable[RedisStage]]
_NUMBERS = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on the real control plane when that is asked for, and say why the rest does not."""
    for item in items if REAL else ():
        if item.path.parent == HERE and item.path.name.startswith("test_redis_"):
            item.add_marker(pytest.mark.kubernetes)
            if not {"shared_bed", "old_bed"} & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.skip(reason="is about an embedded plane of its own"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each file came to on the real control plane, and how long it took with starts and ends."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: dict[str, float] = defaultdict(float)
    for outcome, reports in terminalreporter.stats.items() if REAL else ():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                seconds[file] += report.duration
                counts[file][outcome] += 1
    if counts:
        terminalreporter.section("on a real control plane")
    for file, outcomes in counts.items():
        said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if outcome)
        terminalreporter.write_line(f"{seconds[file]:6.1f} s  {file}: {said}")


@pytest.fixture(scope="session")
def real_kubernetes() -> Iterator[Path]:
    """The administrator's kubeconfig of a real control plane that has known our kinds from its start."""
    with ControlPlane(definitions=DEFINITIONS) as plane:
        yield plane.kubeconfig


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
    """One control plane for all tests of a module that break nothing but their own cluster."""
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
