"""The rules of a CNSet on a model: pods, their stores in HAKeeper, and the sessions that proxies move."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.matrixone.cnset.moves import (
    CreatePod,
    DeleteStore,
    Drain,
    HandOver,
    SetGate,
    SetWorking,
    Stop,
)
from mooring.operators.matrixone.cnset.plan import decide
from mooring.operators.matrixone.cnset.snapshot import Gone, Member, Snapshot
from mooring.operators.matrixone.logset.moves import DeleteClaim
from mooring.operators.matrixone.logset.snapshot import Claim
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.operators.matrixone.topology import ComputeNode, Topology
from mooring.operators.workload.pods import Pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def node(uuid: str, state: str, heard: float = 0.5, **changes: Any) -> ComputeNode:
    work = WorkState[state.upper()]
    made = ComputeNode(
        uuid=uuid, heard=heard, sql_address="", query_address=None, state=work, labels={}, up_since=0.0
    )  # fmt: skip
    return replace(made, **changes)


def seen(computes: dict[str, ComputeNode]) -> Topology:
    return Topology(tick=1000, shards={}, logs={}, tns={}, cns=computes, proxies={})


def member(at: int, state: str | None = "Working", **changes: Any) -> Member:
    pod = Pod(
        name=f"t-cn-{at}", ordinal=at, uid=f"uid-{at}", version="7", created=ago(3600), started=ago(3600), ready=True
    )  # fmt: skip
    known = {one: changes.pop(one) for one in list(changes) if one in Pod.__dataclass_fields__}
    store = node(f"cn-{at}", state) if state else None
    made = Member(
        pod=replace(pod, **known), id=str(at), uuid=f"cn-{at}", revision="new", store=store, sessions=0, pipelines=0,
        gate=state == "Working", serving_since=ago(60) if state == "Working" else None,
    )  # fmt: skip
    return replace(made, **changes)


def snapshot(*members: Member, **changes: Any) -> Snapshot:
    computes = {one.uuid: one.store for one in members if one.store is not None}
    fields = {
        "replicas": len(members),
        "revision": "new",
        "members": members,
        "view": seen(computes),
        "now": NOW,
    }
    return Snapshot(**{**fields, **changes})


def test_nothing_is_done_at_rest() -> None:
    assert isinstance(decide(snapshot(member(0), member(1))), InSync)
    assert isinstance(decide(snapshot()), InSync)


def test_the_first_pods_wait_for_what_they_depend_on() -> None:
    step = decide(snapshot(replicas=2, waiting="LogSet ns/mo is not ready"))
    assert isinstance(step, Wait)
    assert (step.reason, step.message) == ("DependenciesNotReady", "LogSet ns/mo is not ready")
    step = decide(snapshot(replicas=2))
    assert isinstance(step, CreatePod)
    assert (step.id, step.revision) == ("0", "new")


def test_a_set_that_serves_replaces_a_pod_while_its_dependency_is_away() -> None:
    assert isinstance(decide(snapshot(member(0), replicas=2, waiting="LogSet ns/mo is not ready")), CreatePod)
    assert isinstance(decide(snapshot(replicas=1, waiting="LogSet ns/mo is rolled", begun=True)), CreatePod)


def test_a_new_store_is_made_to_serve_once_it_is_heard() -> None:
    fresh = member(0, "Draining", started=ago(3), gate=None)
    step = decide(snapshot(fresh))
    assert isinstance(step, SetWorking)
    early = replace(fresh, store=node("cn-0", "Draining", 4.0))
    assert isinstance(decide(snapshot(early)), Wait)


def test_labels_are_changed_live() -> None:
    labels = {"account": ("a", "b")}
    step = decide(snapshot(member(0), labels=labels))
    assert isinstance(step, SetWorking)
    assert step.labels == labels


def test_claims_that_pods_left_are_used_again_and_given_up_at_rest() -> None:
    claims = {at: Claim(name=f"mo-data-t-cn-{at}", uid=at) for at in ("0", "3", "q7")}
    step = decide(snapshot(member(0), replicas=2, claims=claims))
    assert isinstance(step, CreatePod)
    assert step.id == "3"
    step = decide(snapshot(member(0), claims=claims))
    assert isinstance(step, DeleteClaim)
    assert step.claim.name == "mo-data-t-cn-3"
    assert isinstance(decide(snapshot(member(0), claims=claims, reuses_claims=True)), InSync)


# --- scale-in --------------------------------------------------------------------------------------------


def test_scale_in_takes_named_pods_then_idle_ones() -> None:
    two = (member(0, sessions=3), member(1, sessions=9))
    step = decide(snapshot(*two, replicas=1))
    assert isinstance(step, Drain)
    assert step.pod == "t-cn-0"
    step = decide(snapshot(two[0], replace(two[1], first_to_go=True), replicas=1))
    assert isinstance(step, Drain)
    assert step.pod == "t-cn-1"


def drained(**changes: Any) -> Snapshot:
    going = member(1, "Draining", gate=False, draining_since=ago(20), first_to_go=True)
    return snapshot(member(0), replace(going, **changes), replicas=1)


def test_a_drained_pod_hands_over_then_stops() -> None:
    assert isinstance(decide(drained()), HandOver)
    assert isinstance(decide(drained(handed_over=ago(1))), Wait)
    step = decide(drained(handed_over=ago(1), gave_locks=True))
    assert isinstance(step, Stop)
    assert (step.pod, step.uid, step.version) == ("t-cn-1", "uid-1", "7")
    assert isinstance(decide(drained(handed_over=ago(11))), Stop)


@pytest.mark.parametrize(
    "fields",
    [
        {"sessions": None},
        {"pipelines": None},
        {"sessions": 1},
        {"pipelines": 2},
        {"draining_since": ago(5)},
    ],
)
def test_a_pod_is_not_stopped_while_it_has_sessions_or_nobody_knows(fields: dict[str, Any]) -> None:
    step = decide(drained(**fields))
    assert isinstance(step, Wait)
    assert step.reason == "Draining"


def test_a_drain_is_bounded() -> None:
    step = decide(drained(sessions=2, draining_since=ago(301)))
    assert isinstance(step, Stop)
    assert "2 sessions are left" in step.why
    assert isinstance(decide(drained(sessions=None, draining_since=ago(301))), Stop)


def test_a_pod_is_not_stopped_while_hakeeper_does_not_answer() -> None:
    one = replace(drained(), view=None, error="timeout")
    one = replace(one, members=tuple(replace(each, store=None, sessions=None) for each in one.members))
    assert not isinstance(decide(one), Stop)


def test_a_drain_is_taken_back_when_the_pod_is_to_stay_but_not_after_the_hand_over() -> None:
    step = decide(replace(drained(), replicas=2))
    assert isinstance(step, SetWorking)
    assert step.pod == "t-cn-1"
    step = decide(replace(drained(handed_over=ago(1)), replicas=2))
    assert not isinstance(step, SetWorking)


def test_the_last_working_node_goes_only_when_none_is_declared() -> None:
    one = member(0, cordoned=True)
    pending = member(1, None, running=False, started=None, trouble="Unschedulable", created=ago(3))
    step = decide(snapshot(one, pending, replicas=1))
    assert isinstance(step, Wait)
    assert isinstance(decide(snapshot(one, replicas=0)), Drain)


def test_a_store_is_forgotten_once_its_pod_is_gone() -> None:
    left = node("cn-9", "Draining", 3.0)
    one = snapshot(member(0), gone=(Gone(uuid="cn-9", pod="t-cn-9"),))
    assert isinstance(decide(one), InSync)
    assert one.view is not None
    step = decide(replace(one, view=replace(one.view, cns={**one.view.cns, "cn-9": left})))
    assert isinstance(step, DeleteStore)
    assert step.uuid == "cn-9"


def test_a_pod_that_somebody_deletes_is_drained_at_once() -> None:
    step = decide(snapshot(member(0, terminating=True), member(1)))
    assert isinstance(step, Drain)
    assert step.pod == "t-cn-0"


def deleted(**changes: Any) -> Snapshot:
    going = member(0, "Draining", terminating=True, gate=False, draining_since=ago(6))
    return snapshot(replace(going, **changes), member(1), member(2), replicas=2)


def test_a_pod_that_somebody_deletes_gives_its_locks_away_before_its_process_ends() -> None:
    step = decide(deleted())
    assert isinstance(step, HandOver)
    assert (step.pod, step.uuid) == ("t-cn-0", "cn-0")
    assert isinstance(decide(deleted(handed_over=ago(1))), Wait)


@pytest.mark.parametrize(
    "fields",
    [
        {"sessions": None},
        {"pipelines": None},
        {"sessions": 1},
        {"pipelines": 2},
        {"draining_since": ago(5)},
        {"draining_since": None},
        {"store": node("cn-0", "Draining", 30.0)},
    ],
)
def test_a_deleted_pod_keeps_its_locks_while_it_may_have_sessions(fields: dict[str, Any]) -> None:
    assert not isinstance(decide(deleted(**fields)), HandOver)


def test_a_pod_that_ended_for_good_is_replaced() -> None:
    ended = member(1, None, running=False, started=None, failed=True, trouble="Shutdown")
    assert isinstance(decide(snapshot(member(0), ended)), CreatePod)
    step = decide(snapshot(member(0), ended, member(2), replicas=2))
    assert isinstance(step, Stop)
    assert step.pod == "t-cn-1"


def test_a_pod_set_aside_serves_nobody_and_stays() -> None:
    step = decide(snapshot(member(0), member(1, set_aside=True), replicas=1))
    assert isinstance(step, Drain)
    assert step.pod == "t-cn-1"
    aside = member(1, "Draining", set_aside=True, gate=False, draining_since=ago(900))
    assert isinstance(decide(snapshot(member(0), aside, replicas=1)), InSync)
    assert isinstance(decide(snapshot(member(0), replace(aside, set_aside=False))), SetWorking)


def test_services_follow_what_serves() -> None:
    step = decide(snapshot(member(0), member(1, gate=None)))
    assert isinstance(step, SetGate)
    assert (step.pod, step.open) == ("t-cn-1", True)
    silent = replace(member(0), store=node("cn-0", "Working", 30.0))
    step = decide(snapshot(silent, member(1)))
    assert isinstance(step, SetGate)
    assert (step.open, step.why) == (False, "t-cn-0 is not heard")
    unknown = replace(snapshot(member(0, gate=True)), view=None, error="timeout")
    assert not isinstance(decide(unknown), SetGate)


# --- the roll --------------------------------------------------------------------------------------------


def old(at: int, **changes: Any) -> Member:
    return replace(member(at, **changes), revision="old")


def test_a_new_pod_serves_before_an_old_one_goes() -> None:
    step = decide(snapshot(old(0), old(1)))
    assert isinstance(step, CreatePod)
    assert step.revision == "new"
    starting = member(2, None, started=ago(1), created=ago(5), gate=None)
    step = decide(snapshot(old(0), old(1), starting, replicas=2))
    assert isinstance(step, Wait)
    step = decide(snapshot(old(0), old(1), member(2), replicas=2))
    assert isinstance(step, Drain)


def test_an_old_pod_is_not_drained_before_the_proxies_know_of_the_new_one() -> None:
    young = member(2, serving_since=ago(3))
    step = decide(snapshot(old(0), old(1), young, replicas=2))
    assert isinstance(step, Wait)
    assert step.reason == "DrainWaiting"


def test_the_roll_waits_for_what_the_set_depends_on() -> None:
    step = decide(snapshot(old(0), waiting="DNSet ns/mo is not as declared"))
    assert isinstance(step, Wait)
    assert step.reason == "DependenciesNotReady"


def test_a_paused_roll_changes_nothing_and_new_pods_are_made_as_the_old_ones() -> None:
    assert isinstance(decide(snapshot(old(0), pause_update=True)), InSync)
    step = decide(snapshot(old(0), replicas=2, pause_update=True))
    assert isinstance(step, CreatePod)
    assert step.revision == "old"


def test_a_new_pod_that_does_not_come_up_halts_the_roll_and_takes_no_old_one_with_it() -> None:
    bad = member(
        2, None, running=False, started=None, trouble="ErrImagePull", trouble_message="no such image"
    )
    step = decide(snapshot(old(0), old(1), bad, replicas=2))
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("RollHalted", True)
    assert isinstance(decide(snapshot(old(0), old(1), bad, replicas=2, unavailable=1)), Wait)
    step = decide(snapshot(old(0), bad, replicas=2, surge=1))
    assert isinstance(step, CreatePod)
    assert step.revision == "old"
    corrected = replace(bad, revision="bad")
    step = decide(snapshot(old(0), old(1), corrected, replicas=2))
    assert isinstance(step, Stop)
    assert step.pod == "t-cn-2"


def test_a_cordoned_node_is_left_with_a_surge() -> None:
    step = decide(snapshot(member(0, cordoned=True), member(1)))
    assert isinstance(step, CreatePod)
    step = decide(snapshot(member(0, cordoned=True), member(1), member(2), replicas=2))
    assert isinstance(step, Drain)
    assert step.pod == "t-cn-0"


def test_without_a_surge_only_as_many_go_as_may_be_missing() -> None:
    one = snapshot(old(0), old(1), old(2), surge=0, unavailable=1)
    step = decide(one)
    assert isinstance(step, Drain)
    going = old(0, state="Draining", gate=False, draining_since=ago(1), sessions=4)
    step = decide(snapshot(going, old(1), old(2), surge=0, unavailable=1))
    assert isinstance(step, Wait)


# --- the end ---------------------------------------------------------------------------------------------


def test_a_set_that_is_deleted_is_drained_within_its_limit_whatever_answers() -> None:
    busy = member(0, "Draining", gate=False, draining_since=ago(10), sessions=2)
    ending = snapshot(busy, replicas=0, ending=ago(10))
    assert isinstance(decide(ending), Wait)
    assert isinstance(decide(replace(ending, ending=ago(301))), Stop)
    silent = replace(member(0), store=None, sessions=None)
    gone = replace(snapshot(silent, replicas=0, ending=ago(301)), view=None, error="timeout")
    assert isinstance(decide(gone), Stop)
    assert isinstance(decide(snapshot(replicas=0, ending=ago(1))), InSync)


# --- a model of the whole --------------------------------------------------------------------------------


@dataclass
class Model:
    """Pods that start in 20 s and HAKeeper, which forgets nothing; proxies move sessions 8 s after a drain began."""

    replicas: int
    revision: str = "one"
    at: float = 0.0
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    least: int = 99

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.at)

    def look(self) -> Snapshot:
        members = []
        for id, one in sorted(self.pods.items()):
            age = self.at - one["born"]
            if age >= 20 and id not in self.stores:
                self.stores[id] = "Draining"
            started = NOW + timedelta(seconds=one["born"]) if age >= 1 else None
            moved = one["since"] is not None and self.at - one["since"] >= 8
            state = self.stores.get(id)
            members.append(
                Member(
                    pod=Pod(
                        name=f"t-cn-{id}",
                        ordinal=0,
                        uid=id,
                        created=started,
                        started=started,
                        running=age >= 1,
                    ),
                    id=id,
                    uuid=id,
                    revision=one["revision"],
                    store=node(id, state) if state else None,
                    sessions=0 if moved else 5,
                    pipelines=0,
                    draining_since=NOW + timedelta(seconds=one["since"])
                    if one["since"] is not None
                    else None,
                    handed_over=NOW + timedelta(seconds=one["handed"]) if one["handed"] is not None else None,
                    gave_locks=one["handed"] is not None and self.at - one["handed"] >= 2,
                    gate=one["gate"],
                    serving_since=NOW + timedelta(seconds=one["opened"])
                    if one["opened"] is not None
                    else None,
                )
            )
        gone = tuple(Gone(uuid=id, pod=f"t-cn-{id}") for id in self.stores if id not in self.pods)
        view = seen({id: node(id, state) for id, state in self.stores.items()})
        return Snapshot(
            replicas=self.replicas, revision=self.revision, members=tuple(members), gone=gone, view=view, now=self.now()
        )  # fmt: skip

    def do(self, move: Move) -> None:
        self.log.append(f"{move.name} {getattr(move, 'pod', getattr(move, 'id', ''))}")
        match move:
            case CreatePod(id=id, revision=revision):
                assert id not in self.pods
                self.pods[id] = {
                    "born": self.at,
                    "revision": revision,
                    "since": None,
                    "handed": None,
                    "gate": None,
                    "opened": None,
                }
            case SetWorking(uuid=id):
                assert self.pods[id]["handed"] is None
                self.stores[id] = "Working"
                self.pods[id] |= {"since": None}
            case Drain(uuid=id):
                self.stores[id] = "Draining"
                self.pods[id] |= {"since": self.at}
            case HandOver(uuid=id):
                self.pods[id] |= {"handed": self.at}
            case Stop(uuid=id):
                if self.stores.get(id):
                    assert self.pods[id]["handed"] is not None, "stopped without handing over its lock tables"
                del self.pods[id]
            case DeleteStore(uuid=id):
                assert id not in self.pods
                del self.stores[id]
            case SetGate(uuid=id, open=gate):
                self.pods[id] |= {"gate": gate, "opened": self.at if gate else None}

    def run(self, limit: float = 3600) -> Verdict:
        end = self.at + limit
        while self.at < end:
            verdict = decide(self.look())
            self.least = min(
                self.least, sum(state == "Working" for id, state in self.stores.items() if id in self.pods)
            )
            if isinstance(verdict, Move):
                self.do(verdict)
            elif isinstance(verdict, InSync):
                return verdict
            self.at += 0.5
        raise AssertionError(f"not at rest: {verdict}, {self.log[-10:]}")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_whole_roll_never_serves_with_fewer_than_declared(count: int) -> None:
    model = Model(count)
    model.run()
    assert sorted(model.pods) == [str(at) for at in range(count)]
    model.least, model.revision = 99, "two"
    model.run()
    assert {one["revision"] for one in model.pods.values()} == {"two"}
    assert len(model.pods) == count
    assert model.least == count


def test_scale_out_and_in_and_to_nothing() -> None:
    model = Model(1)
    model.run()
    model.replicas = 3
    model.run()
    assert len(model.pods) == 3
    model.replicas, model.least = 1, 99
    model.run()
    assert (len(model.pods), model.least) == (1, 1)
    model.replicas = 0
    model.run()
    assert (model.pods, model.stores) == ({}, {})


def test_compute_nodes_serve_on_when_somebody_sets_the_clock_back() -> None:
    """Their start and the opening of their gates lie ahead then, for as long as the clock was set back."""
    ahead = ago(-3600)
    now = [member(at, started=ahead, serving_since=ahead) for at in range(2)]
    there = snapshot(*now)
    assert [there.serves(one) and there.known(one) for one in now] == [True, True]
    assert isinstance(decide(there), InSync)


def test_a_heartbeat_of_the_process_before_does_not_count_where_clocks_differ_a_little() -> None:
    started = member(0, started=ago(-2), serving_since=ago(-2))
    assert not snapshot(started).serves(started)
