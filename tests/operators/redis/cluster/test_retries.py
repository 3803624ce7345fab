"""Moves of slots that fail: what is said, and when it is tried again; and where it is known before that they would."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import json
from msgspec.structs import replace as replace_part
from tests.operators.redis.cluster.builders import NOW, snapshot, whole
from tests.operators.redis.cluster.test_status import MOVE, moving

from mooring.actor import Note
from mooring.operators.redis.cluster.migration import immovable
from mooring.operators.redis.cluster.moves import InSync, Move, Resize, Settle, Unfollow, Verdict, Wait
from mooring.operators.redis.cluster.retries import (
    after_failure,
    after_success,
    failing_for_long,
    said_of,
    spaced,
    still_needed,
)
from mooring.operators.redis.cluster.types import RedisClusterStatus
from mooring.runtime import secrets

FULL = "slot 7: 10.0.0.1:6379: MIGRATE refused: Target instance replied with error: OOM command not allowed"


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (FULL, "demo-6 is at its maxmemory: raise it there"),
        (
            "slot 7: 10.0.0.1:6379: MIGRATE refused: IOERR error or timeout writing",
            "split or delete the large one",
        ),
        ("slot 7: 10.0.0.1:6379: MIGRATE refused: syntax error", "Redis before 4.0.7"),
    ],
)
def test_what_is_said_names_both_pods_the_servers_words_and_what_helps(error: str, helps: str) -> None:
    said = said_of(MOVE, error)
    assert said.startswith(f"slots from demo-0 to demo-6: {error}; ")
    assert helps in said


def test_what_is_said_has_no_password_in_it() -> None:
    secrets.add("a-password-of-the-test")
    assert "a-password-of-the-test" not in said_of(MOVE, "AUTH a-password-of-the-test")


def failed(status: RedisClusterStatus, said: str, seconds: float = 0.0) -> RedisClusterStatus:
    """A move of slots fails so many seconds later."""
    note = Note(reason="RebalanceSlotsFailed", message=said, warning=True)
    return after_failure(status, MOVE, said, note=note, now=NOW + timedelta(seconds=seconds))


def test_the_time_of_failing_begins_with_the_first_failure_and_ends_with_success() -> None:
    status = RedisClusterStatus(slot_plan=moving())
    first = failed(status, "one")
    assert first.slot_plan is not None
    assert (first.slot_plan.failure, first.slot_plan.failing) == ("one", NOW)
    assert failed(first, "one", 5).slot_plan == first.slot_plan, "it fails since then"
    assert after_success(first, MOVE) == status
    assert failed(RedisClusterStatus(), "one").slot_plan is None


def spaced_at(status: RedisClusterStatus, seconds: float, verdict: Verdict = MOVE) -> Verdict:
    """What becomes of a verdict so many seconds later, in another process."""
    kept = json.decode(json.encode(status), type=RedisClusterStatus)
    seen = snapshot(whole(), plan=kept.slot_plan)
    now = NOW + timedelta(seconds=seconds)
    return spaced(replace(seen, recorded=replace(seen.recorded, retry=kept.retry), now=now), verdict)


def test_tries_are_further_and_further_apart_and_begin_anew_after_success() -> None:
    first = failed(RedisClusterStatus(slot_plan=moving(minutes=0)), "slot 7: OOM")
    status = first
    for second in range(10):
        assert spaced_at(status, second) is MOVE, "it may pass by itself"
        status = failed(status, "slot 7: OOM", second)
    assert status == first, "and is written once"
    for failures, at in enumerate((10.0, 15.0, 20.0), start=2):
        assert spaced_at(status, at) is MOVE
        status = failed(status, "slot 7: OOM", at)
        assert status.retry is not None
        assert (status.retry.failures, status.retry.since) == (failures, NOW)
        wait = spaced_at(status, at + 1)
        assert isinstance(wait, Wait)
        assert wait.after == pytest.approx(4.0)
    again = failed(after_success(status, MOVE), "slot 7: OOM", 21)
    assert spaced_at(again, 21) is MOVE
    assert again.retry is not None
    assert again.retry.failures == 1


def test_a_wait_for_the_next_try_says_what_failed_and_holds_up_nothing_else() -> None:
    status = failed(RedisClusterStatus(slot_plan=moving(minutes=0, kind="Reshard")), "slot 7: OOM")
    status = failed(status, "slot 7: OOM", 10)
    wait = spaced_at(status, 10.5)
    assert isinstance(wait, Wait)
    assert (wait.reason, wait.message, wait.stalled) == ("ReshareSlotsFailed", "slot 7: OOM", False)
    healing = InSync()
    assert spaced_at(status, 10.5, healing) is healing
    assert spaced_at(status, -600.0) is MOVE, "the clock was set back: nobody waits for ten minutes"


# --- steps that are tried again at once --------------------------------------------------------------------

STEP = Settle(slots=1, owner=MOVE.source, masters=(), why="slot 0 was left half-way")
OTHER = Unfollow(target=MOVE.source, why="another step")


def stuck(*seconds: float, step: Move = STEP) -> RedisClusterStatus:
    """The status after a step failed at these times."""
    status = RedisClusterStatus()
    for at in seconds:
        status = after_failure(status, step, "no answer", note=None, now=NOW + timedelta(seconds=at))
    return status


def said_at(status: RedisClusterStatus, seconds: float) -> str:
    return failing_for_long(status.retry, NOW + timedelta(seconds=seconds))


def test_a_step_that_fails_for_long_is_said_until_one_gets_through() -> None:
    assert said_at(stuck(0), 0) == "" == said_at(stuck(0, 9), 9)
    long = stuck(0, 4, 8, 11, 12)
    assert said_at(long, 11) == f"{STEP.why}: failed, and is retried: no answer"
    assert said_at(long, 80) == "", "it was not tried lately"
    assert said_at(stuck(0, 4, 8, 11, 80), 80) == "", "that is another failure"
    assert after_success(long, OTHER) == long, "another step got through"
    assert said_at(after_success(long, STEP), 12) == ""


def test_failures_are_recorded_at_once_and_every_few_seconds_afterwards() -> None:
    first = stuck(0)
    assert first.retry is not None
    assert (first.retry.step, first.retry.failures, first.retry.last) == ("Settle", 1, NOW)
    assert stuck(0, 0.2, 0.4, 9.9) == first
    later = replace_part(first.retry, failures=2, last=NOW + timedelta(seconds=10.1))
    assert stuck(0, 0.2, 10.1, 12).retry == later
    assert after_failure(first, OTHER, "no", note=None, now=NOW + timedelta(seconds=2)) == first
    other = after_failure(first, OTHER, "no", note=None, now=NOW + timedelta(seconds=3))
    assert other.retry is not None
    assert (other.retry.step, other.retry.failures) == ("Unfollow", 1)
    refused = after_failure(first, OTHER, "quota", note=None, now=NOW, refused=True)
    assert refused.retry is not None
    assert (refused.retry.step, refused.retry.failures) == ("Unfollow", 1)


def test_two_steps_that_fail_in_turn_are_recorded_as_seldom_as_one_and_reported_since_the_first() -> None:
    status, written = RedisClusterStatus(), []
    for second in range(61):
        step = (STEP, OTHER)[second % 2]
        before = status
        now = NOW + timedelta(seconds=second)
        status = after_failure(status, step, "no answer", note=None, now=now)
        if status != before:
            written.append(second)
        if second >= 15:
            assert "no answer" in said_at(status, second)
    assert written == [0, 3, 13, 23, 33, 43, 53]
    assert status.retry is not None
    assert status.retry.since == NOW


def test_what_the_api_server_refuses_is_told_of_once_until_it_is_accepted() -> None:
    note = Note(reason="ScalePodFailed", message="quota", warning=True)
    step = Resize(component="redis", replicas=8, why="8 nodes are declared")
    status, told = RedisClusterStatus(), []
    for seconds in (0, 1, 300, 600):
        now = NOW + timedelta(seconds=seconds)
        status = replace_part(status, retry=still_needed(status.retry, MOVE, now))
        before = status
        status = after_failure(status, step, "quota", note=note, now=now, refused=True)
        told.append(status != before and (before.retry is None or before.retry.event != note.reason))
        assert status.retry is not None
        assert (status == before) is (seconds == 1), "and not written for every try"
    assert told == [True, False, False, False]
    assert failing_for_long(status.retry, NOW + timedelta(seconds=600)) == "", "the reason says it already"
    assert after_success(status, step).retry is None


def test_what_failed_is_kept_until_nothing_is_left_to_do_or_it_was_not_tried_for_a_minute() -> None:
    retry, waits = stuck(0).retry, Wait(reason="PodsStarting", message="5 of 6 nodes answer")
    assert still_needed(retry, waits, NOW + timedelta(seconds=60)) is retry
    assert still_needed(retry, waits, NOW + timedelta(seconds=61)) is None
    assert still_needed(retry, InSync(), NOW) is None


# --- servers that cannot move keys -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "password", "nodes", "refused"),
    [
        ("3.2.12", "secret", 8, True),
        ("4.0.6", "secret", 8, True),
        ("4.0.7", "secret", 8, False),
        ("7.0.15", "secret", 8, False),
        ("3.2.12", "", 8, False),
        ("3.2.12", "secret", 7, False),
    ],
)
def test_servers_that_move_no_keys_with_a_password_are_asked_for_no_other_masters(
    version: str, password: str, nodes: int, refused: bool
) -> None:
    members = [replace(one, server=(("version", version),)) for one in whole()]
    why = immovable(snapshot(members).seen, nodes=nodes, password=password)
    assert bool(why) is refused
    if refused:
        assert f"Redis {version}" in why
        assert "4.0.7" in why
