"""What every part of the suite shares: one real Kubernetes control plane for the tests that need it."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hack.build import prepare, versitygw
from hack.images import pods
from hack.images.debian import DebianError
from hack.kubernetes.binaries import SERVERS, BuildError, build
from hack.kubernetes.controlplane import ControlPlane
from hack.kubernetes.specs import Programs
from tests.by_operator import left_out, marker_of, names, note_seconds
from tests.by_tier import note_files, without_tests
from tests.standstill import Standstill, standstill

from mooring.runtime.log import secrets

__all__ = [
    "LONGEST",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_ignore_collect",
    "real_kubernetes",
    "stood",
]

TESTS = Path(__file__).resolve().parent
#: Files that take longest, the longest first: those of the embedded tier, then those of the unit tier.
LONGEST = (
    "embedded/test_redis_faults.py",
    "embedded/test_life.py",
    "embedded/test_redis_password.py",
    "embedded/test_redis_changes.py",
    "embedded/test_redis_tls.py",
    "testing/test_ledger.py",
    "embedded/test_mysql_backup.py",
    "embedded/test_rec_adopt.py",
    "embedded/test_mysql_archive.py",
    "embedded/test_redis_input.py",
    "operators/redis/cluster/test_strangers.py",
    "embedded/test_rec_scale.py",
    "embedded/test_rec_timeout.py",
    "operators/redis/sentinel/test_faults.py",
    "embedded/test_mysql_faults.py",
    "operators/redis/cluster/test_traps.py",
    "examples/test_guide.py",
    "embedded/test_redis_roll.py",
    "embedded/test_rec_input.py",
    "embedded/test_rec_life.py",
    "bench/test_matrixone_campaign.py",
    "operators/redis/cluster/test_mover.py",
    "runtime/test_handover.py",
    "hack/test_mutants.py",
    "console/test_oidc.py",
    "testing/test_campaign.py",
    "testing/test_planted_bugs.py",
    "operators/mysql/test_gate.py",
    "cli/test_services.py",
)
_BUILD_FAILED = pytest.StashKey[BuildError | DebianError]()


def pytest_configure(config: pytest.Config) -> None:
    """Register a marker per operator."""
    for name in names():
        config.addinivalue_line("markers", f"{name.replace('-', '_')}: of the operator {name}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of another operator where one was asked for, nor one that is known to have no test of this tier."""
    marked: str = config.option.markexpr
    return True if left_out(collection_path) or without_tests(collection_path, marked) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with the operator they are about, and begin with the longest files.

    A worker takes whole files: one that begins a long one at the end of a tier lets the others wait for it.
    The S3 server is compiled first, for minutes on a machine that never did: its tests are of the tier ``full``.
    """
    for item in items:
        if marker := marker_of(item.path):
            item.add_marker(marker)
        if "s3" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.full)
    note_files(items)
    rank = {TESTS / file: number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


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
            if "s3" in fixtures:
                versitygw()
            if "spec_programs" in fixtures:
                Programs.built()
            if "pod_images" in fixtures:
                pods.build_all()
        except (BuildError, DebianError) as failed:
            session.config.stash[_BUILD_FAILED] = failed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Seconds by operator, and what each file came to on the real control plane, with starts and ends."""
    reports = [one for found in terminalreporter.stats.values() for one in found]
    seconds_by = note_seconds(one for one in reports if isinstance(one, pytest.TestReport))
    if len(seconds_by) > 1:
        said = ", ".join(f"{name} {one:.0f} s" for name, one in sorted(seconds_by.items()))
        terminalreporter.write_line(f"by operator: {said}")
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


@pytest.fixture(autouse=True)
def _secrets_of_the_test() -> Iterator[None]:
    """What one test calls a secret is not cut out of the texts of the tests after it."""
    before = secrets._values.copy()
    yield
    if secrets._values != before:
        secrets._values, secrets._pattern = before, None


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
