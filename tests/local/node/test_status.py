"""Phase, conditions and patches, without processes."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.kube.object import decode, to_dict
from mooring.kube.objects.core import ContainerStatus, Pod, PodStatus
from mooring.local.node.backoff import CrashBackoff
from mooring.local.node.fields import expand
from mooring.local.node.status import Situation, phase_of, qos_class, status_of, status_patch

from .bed import pod

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


def container(state: dict[str, Any], **more: Any) -> ContainerStatus:
    import msgspec

    return msgspec.convert({"name": "main", "state": state, **more}, ContainerStatus)


@pytest.mark.parametrize(
    ("policy", "states", "over", "phase"),
    [
        ("Always", [WAITING], False, "Pending"),
        ("Always", [RUNNING, WAITING], False, "Pending"),
        ("Always", [RUNNING], False, "Running"),
        ("Always", [ended(1)], False, "Running"),
        ("OnFailure", [ended(1)], False, "Running"),
        ("OnFailure", [ended(0), RUNNING], False, "Running"),
        ("OnFailure", [ended(0)], True, "Succeeded"),
        ("Never", [ended(0), ended(1)], True, "Failed"),
    ],
)
def test_phase(policy: str, states: list[dict[str, Any]], over: bool, phase: str) -> None:
    spec = pod(containers=[{}], restartPolicy=policy).spec
    assert spec is not None
    situation = Situation(initialized=True, main=[container(state) for state in states], ended=over)
    assert phase_of(spec, situation) == phase


def test_a_container_in_back_off_keeps_its_pod_running() -> None:
    spec = pod(containers=[{}]).spec
    assert spec is not None
    looping = container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(1))
    assert phase_of(spec, Situation(initialized=True, main=[looping])) == "Running"


def known(before: Pod, situation: Situation, now: str) -> Pod:
    plain = to_dict(before)
    plain["status"] = to_dict(status_of(before, situation, now=now))
    return decode(plain, Pod)


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    unready = Situation(initialized=True, main=[container(RUNNING, ready=False)])
    ready = Situation(initialized=True, main=[container(RUNNING, ready=True)])
    first = known(pod(containers=[{}]), unready, "2026-01-01T00:00:00Z")
    assert status_patch(first, status_of(first, unready, now="2026-01-01T00:05:00Z")) is None
    patch = status_patch(first, status_of(first, ready, now="2026-01-01T00:05:00Z"))
    assert patch is not None
    by_type = {c["type"]: c for c in patch["status"]["conditions"]}
    assert by_type["Ready"]["lastTransitionTime"] == "2026-01-01T00:05:00Z"
    assert by_type["Ready"]["reason"] is None, "a merged condition must lose its old reason"
    assert set(by_type) == {"Ready", "ContainersReady"}


def test_a_new_address_replaces_the_old_one() -> None:
    first = known(pod(containers=[{}]), Situation(address="10.99.1.1"), "2026-01-01T00:00:00Z")
    patch = status_patch(first, status_of(first, Situation(address="10.99.1.2"), now="2026-01-01T00:00:00Z"))
    assert patch is not None
    assert patch["status"]["podIPs"] == [{"$patch": "replace"}, {"ip": "10.99.1.2"}]


def test_a_readiness_gate_holds_readiness_back() -> None:
    gated = pod(containers=[{}], readinessGates=[{"conditionType": "example.com/linked"}])
    status = status_of(gated, Situation(initialized=True, main=[container(RUNNING, ready=True)]), now="x")
    ready = next(c for c in status.conditions or () if c.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "ReadinessGatesNotReady")


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    ],
)
def test_quality_of_service(resources: dict[str, Any], quality: str) -> None:
    spec = pod(containers=[{"resources": resources}]).spec
    assert spec is not None
    assert qos_class(spec) == quality


def test_back_off_doubles_to_its_cap_and_resets_after_a_long_run() -> None:
    backoff, now, waits = CrashBackoff(initial=10, cap=300), 0.0, []
    for _ in range(8):
        wait = backoff.wait(now=now, ended=now)
        waits.append(wait)
        now += wait
        backoff.started(now=now)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.wait(now=now + 601, ended=now + 601) == 0


def test_references_expand_once_and_unknown_ones_stay() -> None:
    assert expand("$(A) $$(A) $(B) $$", {"A": "$(A)"}) == "$(A) $(A) $(B) $"


def test_an_empty_status_is_sent_whole() -> None:
    fresh = pod(containers=[{}])
    patch = status_patch(fresh, status_of(fresh, Situation(main=[container(WAITING)]), now="x"))
    assert patch is not None
    assert patch["metadata"] == {"uid": fresh.metadata.uid}
    assert patch["status"]["phase"] == "Pending"
    assert PodStatus() == PodStatus()
