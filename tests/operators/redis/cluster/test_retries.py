"""Moves of slots that fail: what is said, and when it is tried again; and where it is known before that they would."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operators.redis.cluster.builders import NOW, snapshot, whole
from tests.operators.redis.cluster.test_status import MOVE, moving

from mooring.kube.object import Key
from mooring.operators.redis.cluster.migration import immovable
from mooring.operators.redis.cluster.moves import InSync, Verdict, Wait
from mooring.operators.redis.cluster.retries import Tries, failed, got_through, said_of
from mooring.operators.redis.cluster.types import RedisClusterStatus
from mooring.runtime import secrets
from mooring.testing.clock import VirtualClock

KEY, OTHER = Key("default", "demo"), Key("default", "other")
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


def test_the_time_of_failing_begins_with_the_first_failure_and_ends_with_success() -> None:
    status = RedisClusterStatus(slot_plan=moving())
    first = failed(status, "one", now=NOW)
    assert first.slot_plan is not None
    assert (first.slot_plan.failure, first.slot_plan.failing) == ("one", NOW)
    assert failed(first, "one", now=NOW.replace(hour=5)) == first, "the same failure is nothing to write down"
    assert got_through(first) == status
    assert failed(RedisClusterStatus(), "one", now=NOW) == RedisClusterStatus()


def waited(verdict: Verdict) -> float:
    return verdict.after if isinstance(verdict, Wait) else 0.0


async def test_tries_are_further_and_further_apart_and_begin_anew_after_success() -> None:
    clock = VirtualClock()
    tries, seen = Tries(clock), snapshot(whole(), plan=moving(minutes=0))
    gaps = []
    for _ in range(8):
        tries.failed(KEY)
        gaps.append(waited(tries.spaced(KEY, MOVE, seen)))
        await clock.advance(gaps[-1])
        assert tries.spaced(KEY, MOVE, seen) is MOVE
    assert gaps == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
    tries.forget(KEY)
    tries.failed(KEY)
    assert waited(tries.spaced(KEY, MOVE, seen)) == pytest.approx(0.2)


def test_a_wait_for_the_next_try_says_what_failed_and_holds_up_nothing_else() -> None:
    tries, seen = Tries(VirtualClock()), snapshot(whole(), plan=moving(minutes=0, kind="Reshard"))
    tries.failed(KEY)
    wait = tries.spaced(KEY, MOVE, seen)
    assert isinstance(wait, Wait)
    assert (wait.reason, wait.message, wait.stalled) == ("ReshareSlotsFailed", "slot 7: OOM", False)
    assert tries.spaced(OTHER, MOVE, seen) is MOVE
    healing = InSync()
    assert tries.spaced(KEY, healing, seen) is healing


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
