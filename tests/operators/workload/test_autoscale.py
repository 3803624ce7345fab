"""What a load calls for, and when a number of replicas may change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mooring.operators.workload.autoscale import (
    AutoscaleDirection,
    AutoscaleSpec,
    AutoscaleStatus,
    Decision,
    Policy,
    Signal,
    Wish,
    decide,
    policy_of,
    remembered,
    wish_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(minimum=1, maximum=9, up_after_s=60, down_after_s=300)
AT_ONCE = Policy(minimum=1, maximum=9, up_after_s=0, down_after_s=0)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def cpu(value: float | None) -> Signal:
    return Signal("cpu", value, 50, "%")


def connections(value: float | None) -> Signal:
    return Signal("connections", value, 100)


@pytest.mark.parametrize(
    ("value", "replicas"),
    [
        (50, 3),
        (55, 3),
        (45, 3),
        (56, 4),
        (66.7, 5),
        (100, 6),
        (44, 3),
        (33, 2),
        (16.6, 1),
        (0, 1),
        (1000, 9),
    ],
)
def test_a_signal_calls_for_replicas_in_proportion_outside_its_tolerance(value: float, replicas: int) -> None:
    assert decide(3, AT_ONCE, [cpu(value)], None, NOW).replicas == replicas


def test_a_rounding_error_of_the_division_adds_no_replica() -> None:
    assert 2 * (0.1 + 0.2) / 0.1 > 6
    assert decide(2, AT_ONCE, [Signal("ops", 0.1 + 0.2, 0.1)], None, NOW).replicas == 6


def test_the_highest_proposal_counts() -> None:
    assert decide(3, AT_ONCE, [cpu(10), connections(170)], None, NOW).replicas == 6
    assert decide(3, AT_ONCE, [cpu(10), connections(60)], None, NOW).replicas == 2


def test_an_unknown_signal_forbids_scaling_in() -> None:
    decision = decide(3, AT_ONCE, [cpu(None), connections(1)], None, NOW)
    assert (decision.replicas, decision.reason) == (3, "SignalUnknown")
    assert "cpu unknown" in decision.numbers


def test_an_unknown_signal_holds_back_no_other_one_that_scales_out() -> None:
    assert decide(3, AT_ONCE, [cpu(None), connections(200)], None, NOW).replicas == 6


def test_only_unknown_signals_change_nothing() -> None:
    decision = decide(3, AT_ONCE, [cpu(None)], Wish(5, NOW, "ScaleOut"), later(999))
    assert (decision.replicas, decision.wish, decision.reason) == (3, None, "SignalUnknown")


def test_no_signals_change_nothing() -> None:
    assert decide(3, AT_ONCE, [], None, NOW) == Decision(3, None, "AtTarget", "no signals")


def test_more_replicas_are_added_once_the_load_held_for_its_window() -> None:
    first = decide(3, POLICY, [cpu(100)], None, NOW)
    assert (first.replicas, first.reason, first.after) == (3, "ScaleOutSoon", 60)
    assert first.wish == Wish(6, NOW, "ScaleOut")
    just_before = decide(3, POLICY, [cpu(100)], first.wish, later(59.5))
    assert (just_before.replicas, just_before.after) == (3, 0.5)
    due = decide(3, POLICY, [cpu(100)], first.wish, later(60))
    assert (due.replicas, due.wish, due.reason) == (6, None, "ScaleOut")


def test_the_most_cautious_proposal_of_a_window_is_carried_out() -> None:
    out: Wish | None = None
    for second, value in ((0, 150), (10, 80), (20, 120)):
        out = decide(3, POLICY, [cpu(value)], out, later(second)).wish
    assert out == Wish(5, NOW, "ScaleOut")
    assert decide(3, POLICY, [cpu(150)], out, later(60)).replicas == 5
    back: Wish | None = None
    for second, value in ((0, 5), (10, 35), (20, 5)):
        back = decide(5, POLICY, [cpu(value)], back, later(second)).wish
    assert back == Wish(4, NOW, "ScaleIn")
    assert decide(5, POLICY, [cpu(5)], back, later(300)).replicas == 4


def test_a_load_that_returns_to_its_target_begins_its_window_again() -> None:
    wish = decide(3, POLICY, [cpu(100)], None, NOW).wish
    calm = decide(3, POLICY, [cpu(50)], wish, later(30))
    assert (calm.wish, calm.reason) == (None, "AtTarget")
    assert decide(3, POLICY, [cpu(100)], calm.wish, later(70)).wish == Wish(6, later(70), "ScaleOut")


def test_a_load_that_turns_begins_the_other_window() -> None:
    wish = decide(3, POLICY, [cpu(100)], None, NOW).wish
    turned = decide(3, POLICY, [cpu(10)], wish, later(90))
    assert (turned.replicas, turned.wish) == (3, Wish(1, later(90), "ScaleIn"))


def test_a_step_is_as_large_as_the_policy_allows() -> None:
    policy = Policy(minimum=1, maximum=9, up_after_s=0, down_after_s=0, max_step_up=1, max_step_down=2)
    assert decide(3, policy, [cpu(150)], None, NOW).replicas == 4
    assert decide(6, policy, [cpu(1)], None, NOW).replicas == 4


def test_the_bounds_count_at_once_and_before_the_load() -> None:
    policy = Policy(minimum=3, maximum=5)
    assert decide(1, policy, [cpu(None)], None, NOW).replicas == 3
    assert decide(9, policy, [cpu(100)], None, NOW).replicas == 5
    assert decide(5, policy, [cpu(100)], None, NOW) == Decision(
        5, None, "AtMaximum", "cpu 100% of 50% calls for 10"
    )
    assert decide(3, policy, [cpu(1)], None, NOW).reason == "AtMinimum"


def test_a_reason_to_keep_all_replicas_ends_the_wish_to_remove_some() -> None:
    wish = Wish(2, NOW, "ScaleIn")
    held = decide(3, POLICY, [cpu(10)], wish, later(999), keep="a replica is 40 s behind")
    assert (held.replicas, held.wish, held.reason) == (3, None, "ScaleInHeld")
    assert "40 s behind" in held.numbers
    assert decide(3, AT_ONCE, [cpu(100)], None, NOW, keep="a replica is 40 s behind").replicas == 6


def test_what_is_remembered_does_not_change_while_nothing_new_is_called_for() -> None:
    status: AutoscaleStatus | None = None
    seen = set()
    for second in range(0, 200, 10):
        calm = decide(3, POLICY, [cpu(50 + second / 100)], wish_of(status), later(second))
        status = remembered(status, calm, 3, later(second))
        seen.add(repr(status))
    assert len(seen) == 1
    assert status is not None
    assert status.replicas == 3
    assert status.last_scale_time is None


def test_what_is_remembered_carries_the_window_to_another_process() -> None:
    moment = later(0.4)
    status = remembered(None, decide(3, POLICY, [cpu(100)], None, moment), 3, moment)
    assert status.since == later(0)
    assert decide(3, POLICY, [cpu(100)], wish_of(status), later(59.9)).replicas == 3
    due = decide(3, POLICY, [cpu(100)], wish_of(status), later(60.4))
    status = remembered(status, due, 3, later(60.4))
    assert (status.replicas, status.desired, status.since) == (6, None, None)
    assert status.last_scale_time == later(60)


def test_what_is_not_declared_has_defaults() -> None:
    assert policy_of(AutoscaleSpec(min_replicas=2, max_replicas=4)) == Policy(
        minimum=2, maximum=4, up_after_s=60, down_after_s=300
    )
    declared = AutoscaleSpec(
        min_replicas=2,
        max_replicas=4,
        scale_up=AutoscaleDirection(stabilization_seconds=0, step=1),
        scale_down=AutoscaleDirection(stabilization_seconds=5, step=2),
    )
    assert policy_of(declared) == Policy(2, 4, 0, 5, max_step_up=1, max_step_down=2)
