"""Phases: what is called Failed, and when it no longer is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.operators.redis.cluster.builders import NOW, change, look, whole

from mooring.cache import rfc3339
from mooring.kube.objects.meta import Condition
from mooring.operators.redis.cluster.moves import InSync, Verdict, Wait
from mooring.operators.redis.cluster.report import phase_of
from mooring.operators.redis.cluster.types import RedisClusterStatus, SlotPlan

STARTING = Wait(reason="PodsStarting", message="5 of 6 nodes answer")


def after(
    minutes: float, verdict: Verdict, *, formed: bool = False, plan: SlotPlan | None = None
) -> RedisClusterStatus:
    """The status when it has been under way for so long."""
    since = rfc3339(NOW - timedelta(minutes=minutes))
    progressing = Condition(type="Progressing", status="True", last_transition_time=since)
    members = change(whole(), 5, silent=True)
    seen = look(members, formed=formed, plan=plan)
    before = RedisClusterStatus(phase="Running" if formed else "Creating", standard_conditions=[progressing])
    return phase_of(before, seen, verdict, None)


def test_a_cluster_that_is_made_for_longer_than_the_timeout_is_failed_and_the_reason_says_what_is_missing() -> (
    None
):
    assert after(19, STARTING).phase == "Creating"
    late = after(21, STARTING)
    assert (late.phase, late.reason_type) == ("Failed", "InitClusterFailed")
    assert "5 of 6 nodes answer" in (late.reason or "")


def test_a_running_one_is_failed_too_and_runs_again_as_soon_as_it_is_whole() -> None:
    assert after(21, STARTING, formed=True).reason_type == "UnexpectedError"
    whole_again = after(21, InSync(), formed=True)
    assert (whole_again.phase, whole_again.reason_type) == ("Running", None)


@pytest.mark.parametrize("minutes", [21, 600])
def test_a_move_of_slots_may_take_as_long_as_it_takes(minutes: float) -> None:
    plan = SlotPlan(kind="Rebalance", replicas=8, total=4096)
    assert after(minutes, STARTING, formed=True, plan=plan).phase != "Failed"
