"""The rules of pooled pods, pools and claim sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operators.matrixone.test_cnset_rules import ago, member, node, snapshot

from mooring.actor.verdict import InSync, Wait
from mooring.operators.matrixone.cnset.moves import (
    ClearLabels,
    CreatePod,
    Drain,
    HandOver,
    SetGate,
    SetPhase,
    SetWorking,
    Stop,
)
from mooring.operators.matrixone.cnset.plan import decide
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.pool import replicas, warm
from mooring.operators.matrixone.pool.claim import Bind, Candidate, ClaimSnapshot, Dress, GiveBack, Record
from mooring.operators.matrixone.pool.claim import decide as decide_claim
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE, TERMINATING, UNKNOWN


def pooled(at: int, phase: str, state: str = "Draining", **changes: Any) -> Member:
    revision = changes.pop("revision", "new")
    made = member(at, state, **{"phase": phase, "gate": state == "Working", **changes})
    return replace(made, revision=revision)


def pool(*members: Member, **changes: Any) -> Snapshot:
    return snapshot(*members, **{"pooled": True, **changes})


# --- pods of a pool ---------------------------------------------------------------------------------------


def test_a_new_pod_is_idle_once_it_is_known_to_have_nothing_to_do() -> None:
    step = decide(pool(pooled(0, UNKNOWN)))
    assert isinstance(step, SetPhase)
    assert (step.phase, step.version) == (IDLE, "7")
    assert not isinstance(decide(pool(pooled(0, UNKNOWN, sessions=None))), SetPhase)
    assert isinstance(decide(pool(pooled(0, UNKNOWN, "Working"))), Drain)


def test_an_idle_pod_serves_nobody_and_is_left_alone() -> None:
    assert isinstance(decide(pool(pooled(0, IDLE))), InSync)
    assert isinstance(decide(pool(pooled(0, IDLE, "Working"))), Drain)


def test_a_bound_pod_serves_with_the_labels_of_its_claim() -> None:
    labels = {"account": ("a",)}
    step = decide(pool(pooled(0, BOUND, claim_labels=labels)))
    assert isinstance(step, SetWorking)
    assert step.labels == labels
    serving = pooled(0, BOUND, "Working", claim_labels=labels)
    assert isinstance(decide(pool(serving)), SetWorking)
    right = pooled(0, BOUND, "Working", store=node("cn-0", "Working", labels=labels), claim_labels=labels)
    assert isinstance(decide(pool(right)), InSync)


def test_a_claimed_pod_is_neither_rolled_nor_scaled_in_nor_moved_from_its_node() -> None:
    bound = pooled(0, BOUND, "Working", revision="old", cordoned=True, first_to_go=True)
    assert isinstance(decide(pool(bound, replicas=0)), InSync)
    assert isinstance(decide(pool(bound, replicas=1)), InSync)


def returned(**changes: Any) -> Snapshot:
    return pool(pooled(0, DRAINING, **{"draining_since": ago(20), **changes}))


def test_a_pod_that_was_given_back_is_drained_cleaned_and_used_again() -> None:
    assert isinstance(decide(returned(store=node("cn-0", "Working"), draining_since=None)), SetGate | Drain)
    step = decide(returned(sessions=2))
    assert isinstance(step, Wait)
    assert step.reason == "PodsReturning"
    assert "2 sessions" in step.message
    assert isinstance(decide(returned(sessions=None)), Wait)
    assert isinstance(decide(returned(pipelines=1)), Wait)
    assert isinstance(decide(returned(draining_since=ago(3))), Wait)
    labels = {"account": ("a",)}
    assert isinstance(decide(returned(store=node("cn-0", "Draining", labels=labels))), ClearLabels)
    step = decide(returned())
    assert isinstance(step, SetPhase)
    assert step.phase == IDLE


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"draining_since": ago(301), "sessions": 1}, id="sessions are left"),
        pytest.param({"handed_over": ago(5)}, id="it gave its locks away"),
        pytest.param({"replaced": True}, id="it is not to be used again"),
        pytest.param({"revision": "old"}, id="it is of an older declaration"),
    ],
)
def test_a_pod_that_cannot_be_used_again_is_replaced(changes: dict[str, Any]) -> None:
    step = decide(returned(**changes))
    assert isinstance(step, SetPhase)
    assert step.phase == TERMINATING


def test_an_idle_pod_is_taken_from_claims_before_it_goes() -> None:
    step = decide(pool(pooled(0, IDLE), pooled(1, IDLE), replicas=1))
    assert isinstance(step, SetPhase)
    assert (step.phase, step.version) == (TERMINATING, "7")
    going = pooled(1, TERMINATING)
    step = decide(pool(pooled(0, IDLE), going, replicas=1))
    assert isinstance(step, Drain)
    drained = pooled(1, TERMINATING, draining_since=ago(20))
    assert isinstance(decide(pool(pooled(0, IDLE), drained, replicas=1)), HandOver)
    done = pooled(1, TERMINATING, draining_since=ago(20), handed_over=ago(1), gave_locks=True)
    assert isinstance(decide(pool(pooled(0, IDLE), done, replicas=1)), Stop)


def test_idle_pods_are_rolled_after_their_successor_is_idle() -> None:
    old = pooled(0, IDLE, revision="old")
    assert isinstance(decide(pool(old)), CreatePod)
    starting = pooled(1, UNKNOWN, sessions=None)
    assert not isinstance(decide(pool(old, starting, replicas=1)), SetPhase)
    step = decide(pool(old, pooled(1, IDLE), replicas=1))
    assert isinstance(step, SetPhase)
    assert (step.pod, step.phase) == ("t-cn-0", TERMINATING)


# --- claims -----------------------------------------------------------------------------------------------


def pod(name: str = "p", **changes: Any) -> Candidate:
    return Candidate(**{"name": name, "uid": f"u-{name}", "version": "3", "phase": IDLE, **changes})


def mine(name: str = "p", **changes: Any) -> Candidate:
    return pod(name, **{"phase": BOUND, "claimed_by": "c", "claim_uid": "u-c", "serves": True, **changes})


def claim(*pods: Candidate, **changes: Any) -> ClaimSnapshot:
    return ClaimSnapshot(**{"name": "c", "uid": "u-c", "version": "9", "pods": pods, **changes})


def test_a_claim_takes_an_idle_pod_that_matches_as_it_was_seen() -> None:
    step = decide_claim(
        claim(pod("a", phase=BOUND), pod("b", matches=False), pod("c", terminating=True), pod("d"))
    )
    assert isinstance(step, Bind)
    assert (step.pod, step.uid, step.version) == ("d", "u-d", "3")
    none = decide_claim(claim(pod("a", phase=DRAINING), pod("b", phase=TERMINATING)))
    assert isinstance(none, Wait)
    assert none.reason == "NoIdlePod"


def test_the_owner_gets_its_last_pod_again() -> None:
    several = [pod(str(at)) for at in range(9)]
    step = decide_claim(claim(*several, pod("x", last_owner="me"), owner="me"))
    assert isinstance(step, Bind)
    assert step.pod == "x"


def test_a_bound_pod_is_recorded_and_one_too_many_goes_back() -> None:
    step = decide_claim(claim(mine("b"), mine("a")))
    assert isinstance(step, Record)
    assert (step.pod.name, step.version) == ("a", "9")
    step = decide_claim(claim(mine("b"), mine("a"), pod_name="a", pod_uid="u-a"))
    assert isinstance(step, GiveBack)
    assert step.pod == "b"


def test_a_claim_is_bound_once_and_lost_for_good() -> None:
    bound = {"pod_name": "p", "pod_uid": "u-p"}
    assert isinstance(decide_claim(claim(mine(), pod("q"), **bound)), InSync)
    again = pod("p", uid="u-later")
    step = decide_claim(claim(again, pod("q"), **bound))
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("Lost", True)
    earlier = mine(claim_uid="u-earlier")
    assert isinstance(decide_claim(claim(earlier)), Wait)


def test_a_claim_gives_its_pod_back_at_its_end() -> None:
    step = decide_claim(claim(mine(), pod_name="p", pod_uid="u-p", ending=True))
    assert isinstance(step, GiveBack)
    assert isinstance(decide_claim(claim(pod(), pod_name="p", pod_uid="u-p", ending=True)), InSync)


def test_labels_of_a_claim_follow_and_a_move_is_refused_by_name() -> None:
    bound = {"pod_name": "p", "pod_uid": "u-p"}
    assert isinstance(decide_claim(claim(mine(dressed=False), **bound)), Dress)
    step = decide_claim(claim(mine(), moves=True, **bound))
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("MigrationNotSupported", True)


# --- pools and claim sets ----------------------------------------------------------------------------------


def test_a_pool_keeps_idle_pods_beside_those_in_use() -> None:
    used = (mine("a"), pod("b", phase=DRAINING), pod("c"))
    known = {"c": "u-c"}
    assert warm.wanted(warm.PoolSnapshot(pods=used, waiting=2, max_idle=3)) == 7
    assert warm.wanted(warm.PoolSnapshot(pods=used, waiting=2, max_idle=3, max_pods=5)) == 5
    assert warm.wanted(warm.PoolSnapshot(pods=used, waiting=2, max_idle=3, ending=True)) == 2
    assert isinstance(warm.decide(warm.PoolSnapshot(pods=used, claims=known, max_idle=1)), InSync)
    full = warm.decide(warm.PoolSnapshot(pods=used, claims=known, waiting=1, max_idle=1, max_pods=2))
    assert isinstance(full, Wait)
    assert full.reason == "PoolExhausted"


def test_a_pool_waits_for_its_claims_at_its_end_and_gives_back_pods_of_claims_that_are_gone() -> None:
    held = warm.decide(warm.PoolSnapshot(pods=(mine(),), claims={"c": "u-c"}, ending=True))
    assert isinstance(held, Wait)
    assert "c" in held.message
    for known in ({}, {"c": "u-later"}):
        assert isinstance(warm.decide(warm.PoolSnapshot(pods=(mine(),), claims=known)), GiveBack)
    assert isinstance(warm.decide(warm.PoolSnapshot(pods=(pod(),), ending=True)), InSync)


def one(name: str, phase: str = "Bound", **changes: Any) -> replicas.SetClaim:
    fields = {"name": name, "uid": f"u-{name}", "version": "4", "phase": phase, "has_pod": phase == "Bound"}
    return replicas.SetClaim(
        **{**fields, "ready": phase == "Bound", "created": "2026-01-01T00:00:00Z", **changes}
    )


def claims(count: int, *given: replicas.SetClaim) -> replicas.SetSnapshot:
    return replicas.SetSnapshot(uid="u", name="s", replicas=count, claims=given)


def test_a_claim_set_makes_claims_by_names_that_everybody_chooses_alike() -> None:
    first, second = (replicas.decide(claims(2, *given)) for given in ((), ()))
    assert isinstance(first, replicas.CreateClaim)
    assert first == second
    third = replicas.decide(claims(2, one(first.claim)))
    assert isinstance(third, replicas.CreateClaim)
    assert third.claim != first.claim


def test_a_claim_set_deletes_claims_without_a_pod_first_then_the_newest() -> None:
    pending, later = one("p", "Pending"), one("z", created="2026-01-02T00:00:00Z")
    step = replicas.decide(claims(2, one("a"), later, pending))
    assert isinstance(step, replicas.DeleteClaim)
    assert (step.claim, step.version) == ("p", "4")
    step = replicas.decide(claims(1, one("a"), later))
    assert isinstance(step, replicas.DeleteClaim)
    assert step.claim == "z"


def test_a_lost_claim_is_replaced_before_it_is_deleted() -> None:
    lost = one("l", "Lost")
    assert isinstance(replicas.decide(claims(1, lost)), replicas.CreateClaim)
    step = replicas.decide(claims(1, lost, one("a")))
    assert isinstance(step, replicas.DeleteClaim)
    assert step.claim == "l"
