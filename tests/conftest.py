"""What every part of the suite shares: one real Kubernetes control plane for the tests that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hack.kubernetes.binaries import SERVERS, BuildError, build
from hack.kubernetes.controlplane import ControlPlane

__all__ = ["pytest_collection_finish", "real_kubernetes"]

_BUILD_FAILED = pytest.StashKey[BuildError]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the servers before the first test, when any needs them: it takes longer than a test may."""
    needed = any(item.get_closest_marker("kubernetes") for item in session.items)
    if needed and not session.config.option.collectonly:
        try:
            build(SERVERS)
        except BuildError as failed:
            session.config.stash[_BUILD_FAILED] = failed


@pytest.fixture(scope="session")
def real_kubernetes(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The administrator's kubeconfig of a real control plane, shared by the session; marked `kubernetes`.

    Use a namespace of your own: other tests write to the same server.
    """
    if failed := request.config.stash.get(_BUILD_FAILED, None):
        raise failed
    with ControlPlane() as plane:
        yield plane.kubeconfig
