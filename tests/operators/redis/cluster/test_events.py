"""Which Event is told when: where something begins, ends or fails, and once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.operators.redis.cluster.builders import NOW, Member, change, id_of, snapshot, whole

from mooring.operators.redis.cluster import moves
from mooring.operators.redis.cluster.events import (
    of_beginning,
    of_change,
    of_deletion,
    of_failure,
    of_move,
)
from mooring.operators.redis.cluster.moves import InSync, Target, Verdict, Wait
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.report import step_failed
from mooring.operators.redis.cluster.retries import after_success
from mooring.operators.redis.cluster.slots import Transfer, span
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.status import phase_of
from mooring.operators.redis.cluster.types import RedisClusterStatus, SlotPlan, SlotRange
from mooring.operators.redis.dial import Address

HERE = Target(name="demo-0", address=Address("10.0.0.1", 6379), id=id_of(0))
STUCK = Wait(reason="PodsStarting", message="demo-5: ImagePullBackOff", stalled=True)
NEWCOMERS = [*whole(), Member(ordinal=6), Member(ordinal=7)]


def empty(number: int) -> list[Member]:
    return [Member(ordinal=at) for at in range(number)]


def plan(kind: str) -> SlotPlan:
    part = SlotRange(slots="0-1", source=id_of(0), target=id_of(1))
    return SlotPlan(kind=kind, replicas=6, moves=[part], total=2)


def step(seen: Snapshot) -> moves.Move:
    verdict = next_step(seen)
    assert isinstance(verdict, moves.Move)
    return verdict


def slots_moved(kind: str) -> tuple[moves.Move, Snapshot]:
    transfer = Transfer(source=id_of(0), target=id_of(1), slots=span(0, 1))
    move = moves.MoveSlots(transfer=transfer, source=HERE, target=HERE, masters=(HERE,), pipeline=10)
    return move, snapshot(whole(), plan=plan(kind))


def planned(seen: Snapshot) -> tuple[moves.Move, Snapshot]:
    return step(seen), seen


#: The step, and the Event that tells of it; its twin tells that it did not get through.
STEPS: dict[str, tuple[moves.Move, Snapshot]] = {
    "InitCluster": planned(snapshot(empty(6), formed=False)),
    "AddSlave": planned(snapshot([*whole()[:3], *(Member(ordinal=at) for at in (3, 4, 5))], formed=False)),
    "AddMaster": planned(snapshot(NEWCOMERS, alone=[6, 7])),
    "ScalePod": planned(snapshot(whole(), nodes=8)),
    "DeleteNode": planned(snapshot([*whole(3, replicas=2)], nodes=6)),
    "DeletePod": planned(snapshot(change(whole(), 5, pod=(("revision", "old"),)), revision="new")),
    "Failover": planned(snapshot(change(whole(), 0, pod=(("terminating", True),)))),
}


@pytest.mark.parametrize("event", STEPS)
def test_a_step_is_told_of_by_its_name(event: str) -> None:
    move, seen = STEPS[event]
    [told] = of_move(move, seen)
    assert (told.reason, told.message, told.warning) == (event, move.why, False)


@pytest.mark.parametrize("event", STEPS)
def test_a_step_that_does_not_get_through_is_told_of_by_its_twin(event: str) -> None:
    move, seen = STEPS[event]
    told = of_failure(move, seen, "demo-1 does not answer")
    assert told is not None
    assert (told.reason, told.warning) == (f"{event}Failed", True)
    assert "demo-1 does not answer" in told.message


def test_a_step_that_fails_again_and_again_is_told_of_once_until_one_gets_through() -> None:
    attach, claim = STEPS["AddSlave"], STEPS["InitCluster"]
    status, at = RedisClusterStatus(), NOW

    def told(step: tuple[moves.Move, Snapshot], error: str) -> list[str]:
        nonlocal status, at
        at += timedelta(seconds=10)
        status, notes = step_failed(status, step[1], step[0], error, now=at)
        return [one.reason for one in notes]

    assert told(attach, "no answer") == ["AddSlaveFailed"]
    assert told(attach, "refused") == []
    assert told(claim, "busy") == ["InitClusterFailed"]
    assert told(claim, "busy") == []
    status = after_success(status, claim[0])
    assert told(claim, "busy") == ["InitClusterFailed"]


@pytest.mark.parametrize(
    ("kind", "event"),
    [("Rebalance", "RebalanceSlots"), ("Drain", "RebalanceSlots"), ("Reshard", "ReshareSlots")],
)
def test_a_move_of_slots_is_told_of_when_it_is_planned_and_when_a_part_fails(kind: str, event: str) -> None:
    [begins] = of_move(moves.Record(plan=plan(kind), why="2 slots"), snapshot(whole()))
    assert (begins.reason, begins.message) == (event, "2 slots")

    move, seen = slots_moved(kind)
    assert of_move(move, seen) == []
    failed = of_failure(move, seen, "BUSYKEY")
    assert failed is not None
    assert failed.reason == f"{event}Failed"


@pytest.mark.parametrize(
    ("move", "event"),
    [
        (moves.WriteTemplate(component="redis", why="w"), "UpgradeClusterFailed"),
        (
            moves.RestoreTemplate(component="redis", inputs="restored", revision="a", why="w"),
            "RollbackClusterFailed",
        ),
    ],
)
def test_templates_are_told_of_by_the_phase_and_a_refusal_by_its_name(move: moves.Move, event: str) -> None:
    assert of_move(move, snapshot(whole())) == []
    failed = of_failure(move, snapshot(whole()), "quota")
    assert failed is not None
    assert failed.reason == event


def test_healing_adds_nobody() -> None:
    """Nodes that meet at new addresses, or a replica that finds a master again, are no new ones."""
    moved = snapshot(whole())
    meet = moves.Meet(pairs=((HERE, Address("10.0.0.2", 6379)),), why="new addresses")
    assert of_move(meet, moved) == []
    again = moves.Attach(pairs=((replace(HERE, id=id_of(3)), id_of(0)),), why="follows no node that serves")
    assert of_move(again, moved) == []
    assert of_failure(again, moved, "no answer") is None
    assert of_move(moves.Record(formed=True), moved) == []


def test_masters_that_join_are_told_of_once() -> None:
    meet, _ = STEPS["AddMaster"]
    assert of_move(meet, snapshot(NEWCOMERS)) == [], "everybody has heard of them by now"


def test_a_cluster_begins_and_a_lost_statefulset_is_made_again() -> None:
    assert [one.reason for one in of_beginning(nodes=6, formed=False)] == ["CreateClusterStart", "CreatePod"]
    assert [one.reason for one in of_beginning(nodes=6, formed=True)] == ["CreatePod"]


@pytest.mark.parametrize("go", [True, False])
def test_a_deletion_says_what_becomes_of_the_data(go: bool) -> None:
    told = of_deletion(claims_go=go)
    wanted = ["DeleteClusterStart", "DeleteResources", *(["DeleteData"] if go else [])]
    assert [one.reason for one in told] == wanted
    assert ("its claims go" if go else "its claims stay") in told[0].message


# --- what phases tell --------------------------------------------------------------------------------------


def reasons(*history: tuple[Snapshot, Verdict], phase: str = "Running") -> list[str]:
    """The Events of one look after the other, from a cluster in this phase."""
    status, said = RedisClusterStatus(phase=phase, formed_cluster_before=phase != "Creating"), []
    for seen, verdict in history:
        after = phase_of(status, seen, verdict)
        said += [one.reason for one in of_change(status, after, verdict)]
        status = after
    return said


MORE = snapshot(whole(), nodes=8)
REST = snapshot(whole())
GROW: tuple[Snapshot, Verdict] = (
    MORE,
    moves.Resize(component="redis", replicas=8, why="8 nodes are declared, 6 there"),
)
AWAY = snapshot(change(whole(), 5, silent=True))
WAITS = Wait(reason="PodsStarting", message="5 of 6 nodes answer")
RENEW: tuple[Snapshot, Verdict] = (
    snapshot(whole(), stale_template=True),
    moves.WriteTemplate(component="redis", why="new image"),
)
BACK: tuple[Snapshot, Verdict] = (
    AWAY,
    moves.RestoreTemplate(component="redis", inputs="restored", revision="old", why="demo-5 did not come up"),
)
UNFORMED = snapshot(empty(6), formed=False)


@pytest.mark.parametrize(
    ("phase", "history", "wanted"),
    [
        ("Creating", [(UNFORMED, WAITS), (AWAY, WAITS), (REST, InSync())], ["CreateClusterSuccess"]),
        ("Creating", [(UNFORMED, STUCK), (UNFORMED, STUCK)], ["CreateClusterFailed", "CreatePodFailed"]),
        (
            "Running",
            [GROW, GROW, (AWAY, WAITS), (REST, InSync())],
            ["UpgradeClusterStart", "UpgradeClusterSuccess"],
        ),
        (
            "Running",
            [RENEW, (AWAY, WAITS), (REST, InSync())],
            ["UpgradeClusterStart", "UpgradeClusterSuccess"],
        ),
        ("Scaling", [(MORE, STUCK), (MORE, STUCK)], ["UpgradeClusterFailed", "CreatePodFailed"]),
        (
            "Upgrading",
            [BACK, BACK, (AWAY, WAITS), (REST, InSync())],
            ["UpgradeClusterFailed", "RollbackClusterStart", "RollbackClusterSuccess"],
        ),
        ("Rollbacking", [(AWAY, STUCK)], ["RollbackClusterFailed", "CreatePodFailed"]),
        ("Running", [(AWAY, WAITS), (REST, InSync())], []),
        ("Running", [(REST, InSync()), (REST, InSync())], []),
        ("Failed", [(AWAY, WAITS), (REST, InSync())], []),
    ],
)
def test_phases_tell_what_begins_ends_and_fails(
    phase: str, history: list[tuple[Snapshot, Verdict]], wanted: list[str]
) -> None:
    assert reasons(*history, phase=phase) == wanted


@pytest.mark.parametrize(
    ("reason_type", "success"),
    [
        ("InitClusterFailed", "CreateClusterSuccess"),
        ("UpgradeFailed", "UpgradeClusterSuccess"),
        ("RollbackFailed", "RollbackClusterSuccess"),
    ],
)
def test_what_took_too_long_and_ends_well_all_the_same_is_told_by_its_name(
    reason_type: str, success: str
) -> None:
    late = RedisClusterStatus(phase="Failed", reason_type=reason_type, formed_cluster_before=True)
    between = phase_of(late, AWAY, WAITS)
    assert of_change(late, between, WAITS) == []
    after = phase_of(between, REST, InSync())
    assert [one.reason for one in of_change(between, after, InSync())] == [success]


def test_an_upgrade_that_is_refused_is_told_of_though_the_cluster_runs() -> None:
    runs = RedisClusterStatus(phase="Running", formed_cluster_before=True)
    refused = RedisClusterStatus(
        phase="Running", reason_type="UpgradeFailed", reason="redis:5.0 cannot read the files of 7.0.15"
    )
    [told] = of_change(runs, refused, InSync())
    assert (told.reason, told.message) == ("UpgradeClusterFailed", refused.reason)
    assert of_change(refused, refused, InSync()) == []


def test_a_running_one_that_takes_too_long_to_heal_is_told_of_by_its_reason() -> None:
    runs = RedisClusterStatus(phase="Restarting", formed_cluster_before=True)
    late = RedisClusterStatus(phase="Failed", reason_type="UnexpectedError", reason="still Restarting")
    assert [one.reason for one in of_change(runs, late, WAITS)] == ["UnexpectedError"]
