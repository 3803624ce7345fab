"""What every part of the suite shares: one real Kubernetes control plane for the tests that need it."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hack.build import prepare
from hack.images import pods
from hack.images.debian import DebianError
from hack.kubernetes.binaries import SERVERS, BuildError, build
from hack.kubernetes.controlplane import ControlPlane
from hack.kubernetes.specs import Programs
from tests.standstill import Standstill, standstill

__all__ = ["pytest_collection_finish", "real_kubernetes", "stood"]

_BUILD_FAILED = pytest.StashKey[BuildError | DebianError]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what tests here need before the first of them: it takes longer than a test may."""
    on_a_node = any(item.get_closest_marker("cluster") for item in session.items)
    needed = on_a_node or any(item.get_closest_marker("kubernetes") for item in session.items)
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if not session.config.option.collectonly:
        try:
            if needed:
                build(SERVERS)
            if on_a_node and os.geteuid() == 0:
                prepare(["cluster"])
            if "spec_programs" in fixtures:
                Programs.built()
            if "pod_images" in fixtures:
                pods.build_all()
        except (BuildError, DebianError) as failed:
            session.config.stash[_BUILD_FAILED] = failed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each file came to on the real control plane, and how long it took with starts and ends."""
    asked = os.environ.get("MOORING_TEST_BED") == "kubernetes"
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: dict[str, float] = defaultdict(float)
    for outcome, reports in terminalreporter.stats.items() if asked else ():
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


@pytest.fixture
def stood() -> Iterator[Standstill]:
    """How long the machine stood still during this test, for those that hold the product to a time."""
    with standstill() as watch:
        yield watch


@pytest.fixture(scope="session")
def real_kubernetes(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The administrator's kubeconfig of a real control plane, shared by the session; marked `kubernetes`.

    Use a namespace of your own: other tests write to the same server.
    """
    if failed := request.config.stash.get(_BUILD_FAILED, None):
        raise failed
    with ControlPlane() as plane:
        yield plane.kubeconfig
