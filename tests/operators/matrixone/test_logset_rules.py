"""The rules of a LogSet on a model: stores, shards and claims, and a HAKeeper that moves members after its timeout."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mooring.actor.verdict import InSync, Wait
from mooring.operators.matrixone.identity import log_uuid
from mooring.operators.matrixone.logset.moves import DeleteClaim, GrowClaim, Release, Repair
from mooring.operators.matrixone.logset.plan import decide
from mooring.operators.matrixone.logset.quorum import has_quorum, unsettled
from mooring.operators.matrixone.logset.snapshot import Claim, Member, Snapshot
from mooring.operators.matrixone.topology import LogStore, Shard, Topology
from mooring.operators.workload.moves import DeletePod, Resize, WriteTemplate
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import RecordRolls, Roll, Rollout, SetState

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def pod(at: int, **changes: Any) -> Pod:
    made = Pod(
        name=f"mo-log-{at}", ordinal=at, uid=f"uid-{at}", created=ago(3600), started=ago(3600), ready=True,
        revision="r1", fresh=True, lasting=True,
    )  # fmt: skip
    return replace(made, **changes)


def shard(number: int, stores: int = 3, leader: int = 0) -> Shard:
    members = {100 * number + at: log_uuid(at) for at in range(stores)}
    return Shard(id=number, members=members, leader=log_uuid(leader), epoch=7)


def store(at: int, shards: tuple[int, ...] = (0, 1)) -> LogStore:
    replicas = {one: 100 * one + at for one in shards}
    return LogStore(
        uuid=log_uuid(at), address="", heard=0.5, replicas=replicas, epochs=dict.fromkeys(shards, 7)
    )


def view(stores: int = 3, leader: int = 0, members: int = 3) -> Topology:
    return Topology(
        tick=1000,
        shards={one: shard(one, min(members, stores), leader) for one in (0, 1)},
        logs={log_uuid(at): store(at, (0, 1) if at < members else ()) for at in range(stores)},
        tns={},
        cns={},
        proxies={},
    )


def snapshot(count: int = 3, *, roll: dict[str, Any] | None = None, **changes: Any) -> Snapshot:
    members = changes.pop("members", tuple(Member(pod=pod(at)) for at in range(count)))
    state = SetState(replicas=count, update_revision="r1", inputs="new", asked="new")
    fields = {"state": state, "rolls": {}, **(roll or {})}
    made = Snapshot(
        replicas=count,
        shard_replicas=3 if count >= 3 else 1,
        placed=count,
        members=members,
        claims={at: Claim(name=f"mo-data-mo-log-{at}", uid=f"c{at}", size="10Gi") for at in range(count)},
        view=view(count),
        formed=True,
        size="10Gi",
        rollout=Rollout(component="log", pods=[one.pod for one in members], now=NOW, **fields),
        now=NOW,
    )
    return replace(made, **changes)


def with_pod(one: Snapshot, at: int, *, held: bool = False, **changes: Any) -> Snapshot:
    members = tuple(
        replace(member, held=held, pod=replace(member.pod, **changes)) if member.pod.ordinal == at else member
        for member in one.members
    )
    return replace(one, members=members, rollout=replace(one.rollout, pods=[each.pod for each in members]))


def seen(one: Snapshot, **changes: Any) -> Snapshot:
    assert one.view is not None
    return replace(one, view=replace(one.view, **changes))


def with_store(one: Snapshot, at: int, **changes: Any) -> Snapshot:
    assert one.view is not None
    stores = dict(one.view.logs)
    stores[log_uuid(at)] = replace(stores[log_uuid(at)], **changes)
    return seen(one, logs=stores)


def without(one: Snapshot, at: int) -> Snapshot:
    """HAKeeper has taken a store out of every shard."""
    assert one.view is not None
    shards = {
        key: replace(each, members={rid: uuid for rid, uuid in each.members.items() if uuid != log_uuid(at)})
        for key, each in one.view.shards.items()
    }
    return seen(one, shards=shards)


def test_nothing_is_done_at_rest() -> None:
    assert isinstance(decide(snapshot()), InSync)
    assert isinstance(decide(snapshot(1)), InSync)


# --- the start gate --------------------------------------------------------------------------------------


def founding(**changes: Any) -> Snapshot:
    made = snapshot(view=None, error="connection refused", formed=False, **changes)
    for at in range(3):
        made = with_pod(made, at, held=True, running=False, started=None, ready=False)
    return made


def test_stores_found_a_cluster_together_once_all_are_there_and_none_can_hold_data() -> None:
    step = decide(founding())
    assert isinstance(step, Release)
    assert [name for name, _ in step.pods] == ["mo-log-0", "mo-log-1", "mo-log-2"]


def test_a_store_with_an_older_claim_is_not_released_into_a_new_cluster() -> None:
    step = decide(with_pod(founding(), 1, held=True, running=False, started=None, fresh=False))
    assert isinstance(step, Wait)
    assert step.stalled
    assert "mooring.dev/start-empty=" in step.message


def test_a_store_with_an_empty_disk_is_held_while_a_shard_lists_it() -> None:
    held = with_pod(snapshot(), 2, held=True, running=False, started=None, ready=False)
    step = decide(with_store(held, 2, heard=90.0))
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("StoreHeldBack", False)
    step = decide(without(with_store(held, 2, heard=400.0), 2))
    assert isinstance(step, Release)
    assert step.pods == (("mo-log-2", "uid-2"),)


def test_a_store_with_an_empty_disk_is_held_while_hakeeper_does_not_answer() -> None:
    held = with_pod(snapshot(view=None, error="timeout"), 2, held=True, running=False, started=None)
    step = decide(held)
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("StoreHeldBack", True)
    assert isinstance(decide(replace(held, start_empty=frozenset({"mo-log-2"}))), Release)


def test_an_answer_without_shards_is_no_reason_to_release_a_store() -> None:
    held = with_pod(seen(snapshot(), shards={}), 2, held=True, running=False, started=None)
    assert not isinstance(decide(held), Release)


# --- the roll --------------------------------------------------------------------------------------------

ROLL = Roll(inputs="new", good="old", revision="r0")


def rolling(*old: int, leader: int = 0, count: int = 3) -> Snapshot:
    made = snapshot(count, roll={"rolls": {"log": ROLL}}, view=view(count, leader=leader))
    for at in old:
        made = with_pod(made, at, revision="r0")
    return made


def test_followers_are_rolled_first_and_the_leader_last() -> None:
    gone = []
    left = [0, 1, 2]
    while left:
        step = decide(rolling(*left, leader=2))
        assert isinstance(step, DeletePod)
        gone.append(step.pod)
        left.remove(int(step.pod[-1]))
    assert gone == ["mo-log-1", "mo-log-0", "mo-log-2"]


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("HAKeeper does not answer", lambda one: replace(one, view=None, error="timeout")),
        ("its clock stands still", lambda one: replace(one, advances=False)),
        ("a store was not heard since its start", lambda one: with_pod(with_store(one, 2, heard=4.0), 2, started=ago(3))),
        ("its last word may be from the second before its start", lambda one: with_pod(with_store(one, 2, heard=2.5), 2, started=ago(3))),
        ("a store is silent", lambda one: with_store(one, 1, heard=30.0)),
        ("a store does not run its replica yet", lambda one: with_store(one, 2, replicas={0: 2})),
        ("a store runs a replica that was replaced", lambda one: with_store(one, 2, replicas={0: 2, 1: 102, 2: 202}, epochs={0: 7, 1: 7, 2: 7})),
        ("a store has not taken over the newest membership", lambda one: with_store(one, 2, epochs={0: 7, 1: 6})),
        ("a shard misses a member", lambda one: without(one, 2)),
        ("a shard has no leader", lambda one: seen(one, shards={0: shard(0), 1: replace(shard(1), leader=None)})),
        ("a store is held at its gate", lambda one: with_pod(one, 2, held=True)),
    ],
)  # fmt: skip
def test_no_store_is_stopped_while_the_shards_are_not_settled(case: str, change: Any) -> None:
    one = change(rolling(0, 1))
    assert unsettled(one), case
    step = decide(one)
    assert not isinstance(step, DeletePod), case


def test_a_bad_image_is_corrected_by_editing_the_spec_even_with_one_store() -> None:
    """The only store cannot run; nothing waits for it to be repaired first."""
    broken = snapshot(1, view=None, error="connection refused", repair_after=0.0)
    broken = with_pod(
        broken, 0, running=False, ready=False, started=None, trouble="ErrImagePull", revision="r0"
    )
    asked = SetState(replicas=1, update_revision="r0", current=False, inputs="bad", asked="good")
    step = decide(replace(broken, rollout=replace(broken.rollout, state=asked)))
    assert isinstance(step, RecordRolls)
    recorded = replace(broken.rollout, state=asked, rolls=step.rolls)
    assert isinstance(decide(replace(broken, rollout=recorded)), WriteTemplate)
    written = SetState(replicas=1, update_revision="r1", inputs="good", asked="good")
    step = decide(replace(broken, rollout=replace(recorded, state=written)))
    assert isinstance(step, DeletePod)


# --- scale -----------------------------------------------------------------------------------------------


def test_stores_are_added_at_once() -> None:
    step = decide(snapshot(3, replicas=5))
    assert step == Resize(component="log", replicas=5, why="5 stores are declared")


def test_a_store_leaves_only_after_the_shards_are_settled_and_its_claim_stays_until_it_is_replaced() -> None:
    four = snapshot(4, replicas=3, view=view(4, members=4), shard_replicas=3)
    assert isinstance(decide(with_store(four, 1, heard=20.0)), Wait)
    step = decide(four)
    assert isinstance(step, Resize)
    assert step.replicas == 3
    stopped = replace(four, placed=3, members=four.members[:3], rollout=snapshot(3).rollout)
    stopped = with_store(stopped, 3, heard=40.0)
    step = decide(stopped)
    assert isinstance(step, Wait)
    assert step.reason == "StoreLeaving"
    assert "still a member of the shards [0, 1]" in step.message
    step = decide(without(stopped, 3))
    assert isinstance(step, DeleteClaim)
    assert step.claim.name == "mo-data-mo-log-3"
    assert isinstance(decide(replace(without(stopped, 3), keeps_claims=True)), InSync)
    assert not isinstance(decide(replace(without(stopped, 3), view=None, error="timeout")), DeleteClaim)


def test_a_spare_leaves_without_a_membership_change() -> None:
    four = snapshot(4, replicas=3, view=view(4, members=3), shard_replicas=3)
    step = decide(with_store(four, 1, heard=20.0))
    assert isinstance(step, Resize)


def test_scale_in_below_the_replicas_of_a_shard_is_refused_and_to_nothing_is_a_stop() -> None:
    step = decide(snapshot(3, replicas=2, shard_replicas=3))
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("ScaleRefused", True)
    step = decide(snapshot(3, replicas=0, shard_replicas=3))
    assert isinstance(step, Resize)
    stopped = replace(snapshot(3, replicas=0, shard_replicas=3), placed=0, members=(), view=None)
    assert not isinstance(decide(stopped), DeleteClaim)


# --- repair ----------------------------------------------------------------------------------------------


def failed(**changes: Any) -> Snapshot:
    made = with_store(snapshot(**changes), 1, heard=700.0)
    return with_pod(made, 1, running=False, ready=False, started=None, trouble="CrashLoopBackOff")


def test_a_failed_store_keeps_its_volume_until_no_shard_lists_it() -> None:
    step = decide(failed())
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("StoreFailed", False)
    step = decide(without(failed(), 1))
    assert isinstance(step, Repair)
    assert step.claim is not None
    assert step.claim.name == "mo-data-mo-log-1"


@pytest.mark.parametrize("silent", [0.0, 599.0])
def test_a_store_is_not_repaired_before_its_time(silent: float) -> None:
    assert not isinstance(decide(without(with_store(failed(), 1, heard=silent), 1)), Repair)


def test_volumes_that_are_to_be_kept_are_given_up_by_annotation_only() -> None:
    kept = without(failed(repairs=False), 1)
    step = decide(kept)
    assert isinstance(step, Wait)
    assert "mooring.dev/repair=mo-log-1" in step.message
    assert isinstance(decide(replace(kept, repair=frozenset({"mo-log-1"}))), Repair)


def test_no_volume_is_given_up_when_more_than_a_minority_failed() -> None:
    two = with_pod(with_store(without(failed(), 1), 2, heard=700.0), 2, running=False)
    step = decide(two)
    assert isinstance(step, Wait)
    assert step.stalled
    assert "more than a minority" in step.message
    assert not isinstance(decide(replace(without(failed(), 1), view=None, error="timeout")), Repair)


def test_a_failed_store_does_not_hold_back_a_new_store() -> None:
    assert isinstance(decide(failed(replicas=4)), Resize)


def test_a_new_volume_does_not_cure_a_missing_image() -> None:
    one = with_pod(without(failed(), 1), 1, running=False, trouble="ErrImagePull")
    assert not isinstance(decide(one), Repair)


# --- readiness -------------------------------------------------------------------------------------------


def test_the_service_is_ready_with_a_quorum_and_not_by_all_pods() -> None:
    assert has_quorum(snapshot()) == ""
    assert has_quorum(failed()) == ""
    assert "no quorum" in has_quorum(with_store(failed(), 2, heard=60.0))
    assert "no leader" in has_quorum(seen(snapshot(), shards={0: replace(shard(0), leader=None)}))
    assert "does not answer" in has_quorum(snapshot(view=None, error="timeout"))


def test_claims_grow() -> None:
    step = decide(snapshot(size="20Gi"))
    assert isinstance(step, GrowClaim)
    assert step.size == "20Gi"
    assert isinstance(decide(snapshot(size="5Gi")), InSync)
