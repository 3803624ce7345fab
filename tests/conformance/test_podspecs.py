"""Quick ones of Kubernetes' own conformance specs that need pods, on the embedded control plane with nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hack.images import pods
from hack.kubernetes.embedded import plane_with_nodes
from hack.kubernetes.specs import PODS_LIST, Programs, load, run_all

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

#: One or two of each area, of those that take a few seconds; all of them: `make specs PODS=1`.
CHOSEN = (
    "should be able to deny attaching pod",
    "should allow to use the pod failure policy on exit code to fail the job early",
    "with successPolicy should succeeded when all indexes succeeded",
    "should be consumable as environment variable names with various prefixes",
    "should report termination message from log output if TerminationMessagePolicy FallbackToLogsOnError",
    "should invoke init containers on a RestartNever pod",
    "should write entries to /etc/hosts",
    "should contain environment variables for services",
    "Projected downwardAPI should provide container's memory limit",
    "Subpath Atomic writer volumes should support subpaths with secret pod",
)


@pytest.fixture(scope="module")
def spec_programs() -> Programs:
    """Built before the first test (see conftest.py): it takes minutes on a machine that never did."""
    return Programs.built()


@pytest.fixture(scope="module")
def pod_images() -> list[Path]:
    """Built before the first test as well."""
    return pods.build_all()


def test_chosen_specs_with_pods_pass(spec_programs: Programs, pod_images: list[Path]) -> None:
    chosen = [spec for spec in load(PODS_LIST) if any(words in spec.name for words in CHOSEN)]
    assert len(chosen) >= len(CHOSEN)
    with plane_with_nodes(pod_images) as kubeconfig:
        verdicts = run_all(chosen, kubeconfig, programs=spec_programs, jobs=3)
    assert {verdict.spec.name: verdict.why for verdict in verdicts if verdict.why} == {}
    assert {verdict.spec.name for verdict in verdicts} == {spec.name for spec in chosen}


def test_the_images_have_the_names_that_the_specs_ask_for(spec_programs: Programs) -> None:
    asked = spec_programs.images()
    for recipe in pods.IMAGES.values():
        config = recipe.config()
        assert {config.name, *config.aliases} <= asked
