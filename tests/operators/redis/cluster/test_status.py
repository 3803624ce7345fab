"""Phases: what is called Failed, and when it no longer is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.operators.redis.cluster.builders import NOW, Member, change, id_of, snapshot, whole

from mooring.cache import rfc3339
from mooring.kube.objects.meta import Condition
from mooring.operators.redis.cluster.moves import InSync, MoveSlots, Settle, Target, Verdict, Wait
from mooring.operators.redis.cluster.names import Names, selector_of
from mooring.operators.redis.cluster.slots import Transfer, shares, span
from mooring.operators.redis.cluster.snapshot import Blocked
from mooring.operators.redis.cluster.status import described, phase_of, progress
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterStatus, Retry, SlotPlan, SlotRange
from mooring.operators.redis.dial import Address
from mooring.runtime.crd import crd_of

STARTING = Wait(reason="PodsStarting", message="5 of 6 nodes answer")


def after(
    minutes: float, verdict: Verdict, *, formed: bool = False, plan: SlotPlan | None = None
) -> RedisClusterStatus:
    """The status when it has been under way for so long."""
    since = rfc3339(NOW - timedelta(minutes=minutes))
    progressing = Condition(type="Progressing", status="True", last_transition_time=since)
    members = change(whole(), 5, silent=True)
    seen = snapshot(members, formed=formed, plan=plan)
    before = RedisClusterStatus(phase="Running" if formed else "Creating", standard_conditions=[progressing])
    return phase_of(before, seen, verdict)


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


def test_a_step_that_does_not_get_through_is_the_reason_as_long_as_nobody_else_is_needed() -> None:
    seen = snapshot(whole())
    said = "slot 0 was left half-way: does not get through"
    retry = Retry(step="Settle", message=said, since=NOW - timedelta(seconds=11), last=NOW)
    running = RedisClusterStatus(phase="Running", retry=retry)
    step = Settle(slots=1, owner=MOVE.source, masters=(), why="slot 0 was left half-way")
    waits = Wait(reason="Agreeing", message="the nodes differ")
    for verdict in (step, waits):
        status = phase_of(running, seen, verdict)
        assert (status.phase, status.reason_type, status.reason) == ("Restarting", "UnexpectedError", said)
    lacking = Wait(reason="PodsStarting", message="5 of 6 nodes answer")
    assert phase_of(running, seen, lacking).reason == "5 of 6 nodes answer"
    stalled = Wait(reason="NoMajority", message="bring back the nodes", stalled=True)
    assert phase_of(running, seen, stalled).reason == "bring back the nodes"
    refused = Blocked(reason="InvalidArgs", message="spec.replicas")
    assert phase_of(running, replace(seen, blocked=refused), step).reason == "spec.replicas"
    assert phase_of(running, seen, InSync()).reason is None


def test_a_pod_that_is_not_there_has_a_condition_that_says_since_when() -> None:
    def seen(seconds: int, before: RedisClusterStatus, *gone: int) -> RedisClusterStatus:
        members = [replace(one, gone=one.ordinal in gone) for one in whole()]
        later = replace(snapshot(members, pods=6), now=NOW + timedelta(seconds=seconds))
        return described(before, later, names=Names("demo"), namespace="default", hosts={})

    def told(status: RedisClusterStatus, pod: int) -> tuple[str | None, str | None, str | None]:
        one = (status.conditions or [])[pod]
        return one.status, one.reason, one.last_transition_time

    all_there = seen(0, RedisClusterStatus())
    one_gone = seen(10, all_there, 5)
    assert [one.name for one in one_gone.conditions or ()] == [f"demo-{at}" for at in range(6)]
    assert told(one_gone, 5) == ("False", "PodMissing", rfc3339(NOW + timedelta(seconds=10)))
    assert (one_gone.conditions or [])[5].node_id == id_of(5)
    assert seen(20, one_gone, 5) == one_gone
    assert told(seen(30, one_gone), 5) == ("True", "Running", rfc3339(NOW + timedelta(seconds=30)))

    never_made = seen(0, RedisClusterStatus(), 4)
    assert told(never_made, 4) == ("False", "PodMissing", rfc3339(NOW))
    assert (never_made.conditions or [])[4].domain_name == "demo-4.demo.default.svc.cluster.local"


def test_an_autoscaler_finds_the_pods_by_the_selector_that_the_scale_subresource_names() -> None:
    scale = crd_of(RedisCluster).scale
    assert scale is not None
    assert scale.render()["labelSelectorPath"] == ".status.selector"
    shown = described(
        RedisClusterStatus(), snapshot(whole()), names=Names("demo"), namespace="default", hosts={}
    )
    assert dict(one.split("=") for one in (shown.selector or "").split(",")) == selector_of("demo")


# --- slots that do not get through -------------------------------------------------------------------------

MOVE = MoveSlots(
    transfer=Transfer(source=id_of(0), target=id_of(6), slots=span(0, 99)),
    source=Target(name="demo-0", address=Address("10.0.0.1", 6379), id=id_of(0)),
    target=Target(name="demo-6", address=Address("10.0.0.7", 6379), id=id_of(6)),
    masters=(),
    pipeline=10,
)


def moving(
    *, moved: int = 0, minutes: float | None = None, kind: str = "Rebalance", since: float = 600.0
) -> SlotPlan:
    """A plan of a hundred slots; ``minutes``: its tries have failed for so long."""
    return SlotPlan(
        kind=kind,
        replicas=8,
        moves=[SlotRange(slots="0-99", source=id_of(0), target=id_of(6))],
        total=100,
        moved=moved,
        since=NOW - timedelta(minutes=since),
        failure=None if minutes is None else "slot 7: OOM",
        failing=None if minutes is None else NOW - timedelta(minutes=minutes),
    )


def growing(*, owned: int) -> list[Member]:
    """A newcomer that has so many of the hundred slots."""
    given = span(0, owned - 1) if owned else 0
    first = change(whole(), 0, slots=shares(3)[0] & ~given)
    return [*first, Member(ordinal=6, slots=given), Member(ordinal=7, master=6)]


def said_of(
    plan: SlotPlan, *, before: str = "Upgrading", blocked: Blocked | None = None
) -> RedisClusterStatus:
    seen = replace(snapshot(growing(owned=0), nodes=8, plan=plan), blocked=blocked)
    return phase_of(RedisClusterStatus(phase=before, slot_plan=plan), seen, MOVE)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("Rebalance", "RebalanceSlotsFailed"),
        ("Drain", "RebalanceSlotsFailed"),
        ("Reshard", "ReshareSlotsFailed"),
    ],
)
def test_slots_that_do_not_get_through_are_said_at_once_and_failed_after_the_timeout(
    kind: str, reason: str
) -> None:
    first = said_of(moving(minutes=0, kind=kind))
    assert (first.phase, first.reason_type, first.reason) == ("Upgrading", reason, "slot 7: OOM")

    late = said_of(moving(minutes=21, kind=kind))
    assert (late.phase, late.reason_type) == ("Failed", reason)
    assert (late.reason or "").startswith("slot 7: OOM; no slot was finished for 20 minutes")
    assert late == phase_of(late, snapshot(growing(owned=0), nodes=8, plan=late.slot_plan), MOVE)


def test_what_failed_is_forgotten_with_the_next_try_that_gets_through() -> None:
    late = said_of(moving(minutes=21))
    again = moving()
    mended = phase_of(late, snapshot(growing(owned=1), nodes=8, plan=again), MOVE)
    assert (mended.phase, mended.reason, mended.reason_type) == ("Upgrading", None, None)


def test_a_declaration_that_cannot_be_carried_out_is_said_before_slots_that_fail() -> None:
    said = said_of(moving(minutes=0), blocked=Blocked(reason="InvalidArgs", message="correct it"))
    assert (said.reason_type, said.reason) == ("InvalidArgs", "correct it")


# --- how far it is -----------------------------------------------------------------------------------------


def test_how_far_it_is_is_written_every_five_seconds_at_most() -> None:
    plan, written = moving(), []
    for second in range(31):  # three slots are finished in every second
        now = NOW + timedelta(seconds=second)
        seen = replace(snapshot(growing(owned=3 * second), nodes=8, plan=plan), now=now)
        after = progress(plan, seen)
        if after is not plan:
            plan = after
            written.append((second, after.moved))
    assert written == [(at, 3 * at) for at in range(1, 31, 5)]


def test_a_slot_that_was_finished_begins_the_time_of_failing_anew() -> None:
    seen = snapshot(growing(owned=10), nodes=8)
    assert progress(moving(moved=9, minutes=15), seen).failing == NOW
    assert progress(moving(moved=10, minutes=15), seen).failing == NOW - timedelta(minutes=15)
    assert progress(moving(moved=9), seen).failing is None


@pytest.mark.parametrize(
    "dead",
    [
        pytest.param(False, id="the target follows its heir"),
        pytest.param(True, id="the target is dead and its heir leads"),
    ],
)
def test_what_was_moved_is_counted_where_the_target_failed_over(dead: bool) -> None:
    members = change(growing(owned=10), 6, slots=0, master=7, silent=dead)
    members = change(members, 7, master=None, slots=span(0, 9))
    seen = snapshot(members, nodes=8, plan=moving(moved=5))
    assert progress(moving(moved=5), seen).moved == 10


def test_what_was_moved_stays_counted_while_nobody_has_taken_over_yet() -> None:
    members = change(growing(owned=10), 6, silent=True)
    assert progress(moving(moved=5), snapshot(members, nodes=8)).moved == 10
