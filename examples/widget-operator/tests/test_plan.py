"""The planner alone: a snapshot goes in, a move comes out."""

from datetime import UTC, datetime
from typing import Any

from mooring.actor import InSync, Wait
from mooring.operators.workload.moves import DeletePod, WriteTemplate
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import RecordRolls, Roll, Rollout, SetState

from widget_operator.inputs import Inputs
from widget_operator.plan import next_step
from widget_operator.snapshot import Snapshot
from widget_operator.types import Spec, Status

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GOOD, ASKED = "one", "two"
BEGUN = Roll(inputs=ASKED, good=GOOD, revision="r1", since=NOW)


def pod(number: int, *, revision: str = "r1", ready: bool = True, **more: Any) -> Pod:
    return Pod(
        name=f"shop-{number}", ordinal=number, uid=f"u{number}", revision=revision, ready=ready, **more
    )


def snapshot(
    pods: list[Pod], *, inputs: str = GOOD, asked: str = GOOD, roll: Roll | None = None, paused: bool = False
) -> Snapshot:
    revision = "r1" if inputs == GOOD else "r2"
    state = SetState(
        replicas=3, update_revision=revision, current=inputs == asked, inputs=inputs, asked=asked
    )
    rolls = {"widget": roll} if roll is not None else {}
    rollout = Rollout(component="widget", state=state, pods=pods, rolls=rolls, now=NOW)
    read = Inputs(spec=Spec(replicas=3), status=Status(rolls=rolls), paused=paused, found=None, pods=())
    return Snapshot(inputs=read, rollout=rollout, now=NOW)


ALL = [pod(0), pod(1), pod(2)]


def test_nothing_is_done_while_all_is_as_declared() -> None:
    assert isinstance(next_step(snapshot(ALL)), InSync)


def test_a_missing_pod_is_awaited() -> None:
    step = next_step(snapshot(ALL[:2]))
    assert isinstance(step, Wait)
    assert step.reason == "Scaling"


def test_a_change_is_recorded_before_the_template_is_written() -> None:
    assert isinstance(next_step(snapshot(ALL, asked=ASKED)), RecordRolls)
    assert isinstance(next_step(snapshot(ALL, asked=ASKED, roll=BEGUN)), WriteTemplate)


def test_the_highest_pod_goes_first() -> None:
    step = next_step(snapshot(ALL, inputs=ASKED, asked=ASKED, roll=BEGUN))
    assert isinstance(step, DeletePod)
    assert (step.pod, step.uid) == ("shop-2", "u2")


def test_no_second_pod_goes_while_the_first_starts() -> None:
    pods = [pod(0), pod(1), pod(2, revision="r2", ready=False)]
    step = next_step(snapshot(pods, inputs=ASKED, asked=ASKED, roll=BEGUN))
    assert isinstance(step, Wait)
    assert "shop-2" in step.message


def test_nothing_is_changed_while_paused() -> None:
    step = next_step(snapshot(ALL, inputs=ASKED, asked=ASKED, roll=BEGUN, paused=True))
    assert isinstance(step, Wait)
    assert step.reason == "Paused"
