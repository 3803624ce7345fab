"""Conditions and the status patch: nothing moves that need not."""

from datetime import UTC, datetime, timedelta

from mooring.actor.conditions import PROGRESSING, READY, STALLED, conclude, merged
from mooring.actor.outcome import InSync, Terminal, Wait
from mooring.actor.status import merge_diff

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_second_pass_with_the_same_outcome_changes_nothing() -> None:
    states = conclude(InSync(), None)
    first = merged([], states, generation=1, now=NOW)
    second = merged(first, states, generation=1, now=NOW + timedelta(hours=1))
    assert second == first


def test_the_transition_time_moves_only_when_the_status_flips() -> None:
    first = merged([], conclude(Wait("PodsNotReady", "1/3"), None), generation=1, now=NOW)
    later = NOW + timedelta(minutes=1)
    second = merged(first, conclude(Wait("RollWaiting", "2/3"), None), generation=1, now=later)
    third = merged(second, conclude(InSync(), None), generation=1, now=later)
    assert [c["lastTransitionTime"] for c in second] == [c["lastTransitionTime"] for c in first]
    moved = {
        c["type"]
        for c, d in zip(third, second, strict=True)
        if c["lastTransitionTime"] != d["lastTransitionTime"]
    }
    assert moved == {READY, PROGRESSING}


def test_a_wrong_declaration_is_stalled_and_not_progressing() -> None:
    conditions = {
        c["type"]: c
        for c in merged([], conclude(Terminal("BadSize", "spec.size"), None), generation=1, now=NOW)
    }
    assert conditions[STALLED]["status"] == "True"
    assert conditions[PROGRESSING]["status"] == "False"


def test_other_conditions_stay_and_come_first() -> None:
    legacy = [{"type": "Healthy", "status": "True"}]
    result = merged([], conclude(InSync(), None), generation=None, now=NOW, others=legacy)
    assert [c["type"] for c in result] == ["Healthy", READY, PROGRESSING, STALLED]


def test_the_patch_holds_only_what_changed_and_nulls_what_went() -> None:
    old = {"a": 1, "b": {"c": 1, "d": 2}, "gone": [1]}
    new = {"a": 1, "b": {"c": 1, "d": 3}}
    assert merge_diff(old, new) == {"b": {"d": 3}, "gone": None}
    assert merge_diff(new, dict(new)) == {}
