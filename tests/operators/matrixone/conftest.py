"""A real MatrixOne for the tests here, built before the first of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hack.kubernetes.binaries import BuildError
from hack.mo_service import build

from mooring.testing.matrixone import BareCluster

HERE = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the server before the first test that needs it: it takes longer than a test may."""
    needed = any(
        HERE in item.path.parents and item.get_closest_marker("mo_service") for item in session.items
    )
    if needed and not session.config.option.collectonly:
        with suppress(BuildError):  # the fixture raises it
            build()


@pytest.fixture(scope="session")
def mo_service() -> Path:
    """MatrixOne's server."""
    return build()


@pytest.fixture(scope="module")
def cluster(mo_service: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """One log store, one TN, two CNs and a proxy; tests of a module share it, in their order."""
    shared = BareCluster(mo_service, tmp_path_factory.mktemp("mo"))
    try:
        shared.start()
        yield shared
    finally:
        shared.close()
