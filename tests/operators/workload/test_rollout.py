"""A roll-out as any operator uses it: two components of names of its own, several pods that lead."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mooring.actor.verdict import Wait
from mooring.operators.workload.moves import DeletePod, RestoreTemplate, WriteTemplate
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import (
    COMES_UP_WITHIN,
    RESTART_AFTER,
    SERVES_WITHIN,
    Failure,
    HandOver,
    RecordRolls,
    Roll,
    Rollout,
    SetState,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BUSY = Wait(reason="Syncing", message="another pod is not back yet")
ROLL = Roll(inputs="new", good="old", revision="r1")


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def pods(*old: int, count: int = 4) -> list[Pod]:
    return [
        Pod(
            name=f"db-{at}",
            ordinal=at,
            uid=f"uid-{at}",
            version=f"v{at}",
            created=ago(3600),
            ready=True,
            revision="r1" if at in old else "r2",
        )
        for at in range(count)
    ]


def rollout(*old: int, **changes: Any) -> Rollout:
    """The template was written; these pods still run the one before."""
    state = SetState(replicas=4, update_revision="r2", inputs="new", asked="new")
    return replace(
        Rollout(component="db", state=state, pods=pods(*old), rolls={"db": ROLL}, now=NOW), **changes
    )


def changed(one: Rollout, name: str, **fields: Any) -> Rollout:
    return replace(one, pods=[replace(pod, **fields) if pod.name == name else pod for pod in one.pods])


def stuck(one: Rollout, name: str, **fields: Any) -> Rollout:
    return changed(one, name, running=False, ready=False, trouble="ErrImagePull", **fields)


def test_what_ran_before_is_recorded_before_the_template_is_written() -> None:
    asked = rollout(state=SetState(current=False, asked="new", inputs="old", update_revision="r1"), rolls={})
    assert asked.begin(allowed=False) is None
    assert asked.begin(wait=BUSY) == BUSY
    step = asked.begin()
    assert isinstance(step, RecordRolls)
    roll = step.rolls["db"]
    assert (roll.inputs, roll.good, roll.revision, roll.since) == ("new", "old", "r1", NOW)
    assert isinstance(replace(asked, rolls=step.rolls).begin(), WriteTemplate)


def test_pods_restart_for_a_file_system_that_waited_too_long_one_at_a_time_and_once_each() -> None:
    waits = {"resize_since": ago(RESTART_AFTER + 1)}
    one = rollout(rolls={})
    assert changed(one, "db-1", resize_since=ago(RESTART_AFTER - 1)).advance() is None
    late = changed(changed(one, "db-1", **waits), "db-3", **waits)
    step = late.advance(leading={"db-3"})
    assert isinstance(step, DeletePod)
    assert (step.pod, step.uid) == ("db-1", "uid-1")
    assert "volume" in step.why
    assert late.advance(wait=BUSY) == BUSY
    renewed = changed(
        late, "db-1", created=ago(60)
    )  # its file system may still wait: it is not restarted again
    found = renewed.advance(leading={"db-3"})
    assert isinstance(found, HandOver)
    assert found.pod == "db-3"
    assert changed(renewed, "db-3", created=ago(1)).advance() is None


def test_pods_go_one_by_one_from_the_highest_and_those_that_lead_last_after_handing_over() -> None:
    leading = {"db-1", "db-3"}
    gone = []
    left = [0, 1, 2, 3]
    while isinstance(step := rollout(*left).advance(leading=leading), DeletePod):
        gone.append(step.pod)
        left.remove(int(step.pod[-1]))
    assert gone == ["db-2", "db-0"]
    assert isinstance(step, HandOver)
    assert step.pod == "db-3"
    assert rollout().advance(leading=leading) is None


def test_no_pod_goes_while_the_database_needs_them_all() -> None:
    assert rollout(0, 1).advance(wait=BUSY) == BUSY


def test_the_pod_that_goes_is_exactly_the_one_that_was_seen() -> None:
    step = rollout(0, 2).advance()
    assert isinstance(step, DeletePod)
    assert (step.component, step.uid, step.version) == ("db", "uid-2", "v2")


def test_a_pod_whose_old_template_cannot_run_goes_at_once_unless_it_leads() -> None:
    one = stuck(rollout(0, 1), "db-0")
    step = one.advance(wait=BUSY)
    assert isinstance(step, DeletePod)
    assert step.pod == "db-0"
    assert one.advance(wait=BUSY, leading={"db-0"}) == BUSY


def test_a_new_pod_that_does_not_come_up_is_recorded_and_then_the_good_template_comes_back() -> None:
    one = stuck(rollout(0, 1), "db-3", trouble_message="no such image")
    step = one.advance()
    assert isinstance(step, RecordRolls)
    failed = step.rolls["db"]
    assert (failed.pod, failed.reason, failed.message) == ("db-3", "ErrImagePull", "no such image")
    restore = replace(one, rolls=step.rolls).begin()
    assert isinstance(restore, RestoreTemplate)
    assert (restore.revision, restore.inputs) == ("r1", "old")
    back = replace(one.state, inputs="old", update_revision="r1", current=False)
    halted = replace(one, rolls=step.rolls, state=back, pods=pods())
    assert halted.begin() is None
    wait = halted.halt()
    assert wait is not None
    assert wait.stalled
    assert "no such image" in wait.message


@pytest.mark.parametrize(
    ("late", "silent", "working", "failed"),
    [
        (True, True, False, True),
        (True, True, True, False),
        (True, False, False, False),
        (False, True, False, False),
    ],
)
def test_a_pod_has_its_time_to_serve(late: bool, silent: bool, working: bool, failed: bool) -> None:
    one = changed(
        rollout(0), "db-3", ready=False, created=ago(COMES_UP_WITHIN + 1 if late else COMES_UP_WITHIN - 1)
    )
    one = replace(
        one,
        silent={"db-3": COMES_UP_WITHIN} if silent else {},
        working={"db-3"} if working else (),
    )
    step = one.advance(wait=BUSY)
    assert isinstance(step, RecordRolls) is failed
    if failed:
        assert isinstance(step, RecordRolls)
        assert step.rolls["db"].reason == "NotInTime"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, True),
        ({"ready_changed": None, "created": ago(SERVES_WITHIN + 1)}, True),
        ({"ready_changed": ago(SERVES_WITHIN - 1)}, False),
        ({"ready_changed": None, "created": ago(SERVES_WITHIN - 1)}, False),
        ({"ready": True}, False),
        ({"terminating": True}, False),
        ({"revision": "r2"}, False),
    ],
)
def test_an_older_pod_that_runs_and_does_not_become_ready_is_named_after_a_while(
    changes: dict[str, Any], named: bool
) -> None:
    late = {"ready": False, "ready_changed": ago(SERVES_WITHIN + 1), **changes}
    one = changed(rollout(0, 1), "db-1", **late)
    wait = one.advance(wait=BUSY)
    assert isinstance(wait, Wait)
    assert replace(one, working={"db-1"}).advance(wait=BUSY) == BUSY, "it has all the time it needs"
    if not named:
        assert wait == BUSY
        return
    assert (wait.reason, wait.stalled) == ("RollBlocked", True)
    assert wait.message.startswith(f"{BUSY.message}; db-1 runs the older template")
    assert "delete the pod" in wait.message


def test_what_the_database_knows_of_a_pod_halts_the_roll_out_too() -> None:
    known = Failure(reason="VersionTooOld", message="it cannot read the files")
    step = rollout(0, failures={"db-2": known}).advance()
    assert isinstance(step, RecordRolls)
    assert step.rolls["db"].reason == "VersionTooOld"
    assert isinstance(rollout(0, failures={"db-0": known}).advance(), DeletePod), "it runs the old template"


def test_it_is_over_when_every_pod_runs_the_new_template() -> None:
    other = {"proxy": Roll(inputs="x")}
    step = rollout(rolls={"db": ROLL, **other}).end()
    assert isinstance(step, RecordRolls)
    assert step.rolls == other
    assert rollout(1).end() is None
    assert rollout(pods=pods(count=3)).end() is None


def test_a_declaration_that_is_taken_back_is_forgotten() -> None:
    state = SetState(current=True, inputs="old", asked="old", update_revision="r1")
    step = rollout(state=state, rolls={"db": replace_roll(pod="db-3")}).begin()
    assert isinstance(step, RecordRolls)
    assert step.rolls == {}


def replace_roll(**fields: Any) -> Roll:
    return Roll(**{"inputs": "new", "good": "old", "revision": "r1", **fields})


def test_pods_that_start_are_waited_for_unless_they_never_will() -> None:
    one = changed(rollout(0, 1), "db-1", running=False, ready=False, trouble="ContainerCreating")
    wait = one.starting()
    assert wait is not None
    assert wait.message == "db-1 is starting"
    assert stuck(rollout(0, 1), "db-1").starting() is None
