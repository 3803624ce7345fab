"""Failed steps are retried at growing distances; what the status records is all that this needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from mooring.actor import InSync, Move, Wait
from mooring.operators.workload.retries import Failure, failed, spaced

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Change(Move):
    """Some step."""


MOVE = Change(why="a")


def after(times: int, move: Move = MOVE) -> Failure:
    failure = None
    for _ in range(times):
        failure = failed(failure, move, "refused", NOW)
    assert failure is not None
    return failure


@pytest.mark.parametrize(("times", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (50, 60)])
def test_a_failed_step_waits_twice_as_long_each_time_and_a_minute_at_most(times: int, seconds: int) -> None:
    just_before = NOW + timedelta(seconds=seconds - 0.5)
    waits = spaced(MOVE, after(times), just_before)
    assert isinstance(waits, Wait)
    assert waits.after == pytest.approx(0.5)
    assert "refused" in waits.message
    assert spaced(MOVE, after(times), NOW + timedelta(seconds=seconds)) is MOVE


def test_another_step_and_other_verdicts_go_on() -> None:
    other = Change(why="b")
    assert spaced(other, after(5), NOW) is other
    rest = InSync()
    assert spaced(rest, after(5), NOW) is rest
    assert spaced(MOVE, None, NOW) is MOVE


def test_two_steps_that_fail_in_turn_slow_down_as_one_does_and_say_since_when() -> None:
    steps = (MOVE, Change(why="b"))
    failure, writes, seconds, waits = None, 0, 0.0, None
    while seconds < 300:
        now = NOW + timedelta(seconds=seconds)
        step = steps[writes % 2]
        verdict = spaced(step, failure, now)
        if isinstance(verdict, Wait):
            waits = verdict
            seconds += verdict.after
            continue
        failure, writes = failed(failure, step, "refused", now), writes + 1
        seconds += 0.2
    assert writes <= 11, "one for each interval: 0, 1, 2, 4, ... 60 s"
    assert waits is not None
    assert "failing since 2026-01-01T00:00:00Z" in waits.message
    assert failure is not None
    assert failed(failure, MOVE, "refused", NOW + timedelta(hours=1)).since == NOW + timedelta(hours=1)


def test_the_first_failure_of_another_step_counts_as_one() -> None:
    assert failed(after(3), Change(why="b"), "refused", NOW).times == 1
    assert failed(after(3), MOVE, "refused", NOW).times == 4
