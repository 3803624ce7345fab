"""A step that succeeds and changes nothing is named and spaced out."""

from __future__ import annotations

from mooring.kube.object import Key
from mooring.operators.redis.repeats import FEW, Repeats
from mooring.operators.redis.verdicts import InSync, Move, Wait
from mooring.testing.clock import VirtualClock

KEY, OTHER = Key("default", "demo"), Key("default", "other")
STEP = Move(why="redis-0 must take the password in force and no other")


def after(times: int, clock: VirtualClock) -> Repeats:
    repeats = Repeats(clock)
    for _ in range(times):
        assert repeats.spaced(KEY, STEP) == STEP
        repeats.succeeded(KEY, STEP)
    return repeats


def test_the_same_step_a_few_times_in_a_row_is_taken_at_once() -> None:
    assert after(FEW - 1, VirtualClock()).spaced(KEY, STEP) == STEP


async def test_a_step_without_effect_is_named_and_waits_twice_as_long_each_time() -> None:
    clock = VirtualClock()
    repeats = after(FEW, clock)
    waited = []
    for _ in range(8):
        verdict = repeats.spaced(KEY, STEP)
        assert isinstance(verdict, Wait)
        assert (verdict.reason, verdict.stalled) == ("StepWithoutEffect", True)
        assert STEP.why in verdict.message
        waited.append(verdict.after)
        await clock.advance(verdict.after)
        assert repeats.spaced(KEY, STEP) == STEP
        repeats.succeeded(KEY, STEP)
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60]


def test_another_verdict_ends_the_row() -> None:
    for other in (InSync(), Wait(reason="Loading", message="a server is loading"), Move(why="another")):
        clock = VirtualClock()
        repeats = after(FEW, clock)
        assert repeats.spaced(KEY, other) == other
        assert repeats.spaced(KEY, STEP) == STEP


def test_clusters_are_counted_apart() -> None:
    repeats = after(FEW, VirtualClock())
    assert repeats.spaced(OTHER, STEP) == STEP
