"""The quick ones of Kubernetes' own conformance specs, on the embedded control plane without nodes."""

from __future__ import annotations

import pytest
from hack.kubernetes.embedded import EmbeddedPlane
from hack.kubernetes.specs import FAST_SECONDS, Programs, load, run_all

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spec_programs() -> Programs:
    """Built before the first test (see conftest.py): it takes minutes on a machine that never did."""
    return Programs.built()


def test_every_quick_spec_passes(spec_programs: Programs) -> None:
    quick = [spec for spec in load() if spec.seconds <= FAST_SECONDS]
    with EmbeddedPlane() as plane:
        verdicts = run_all(quick, plane.kubeconfig, programs=spec_programs, jobs=3)
    assert {verdict.spec.name: verdict.why for verdict in verdicts if verdict.why} == {}
    assert {verdict.spec.name for verdict in verdicts} == {spec.name for spec in quick}
