"""The rules of pooled pods, pools and claim sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operators.matrixone.test_cnset_rules import ago, member, node, snapshot

from mooring.actor.verdict import InSync, Move, Wait
from mooring.operators.matrixone.cnset.members import due, failed_pod, leaving
from mooring.operators.matrixone.cnset.moves import (
    ClearLabels,
    CreatePod,
    Drain,
    HandOver,
    SetGate,
    SetLeave,
    SetPhase,
    SetWorking,
    Several,
    Stop,
)
from mooring.operators.matrixone.cnset.plan import decide
from mooring.operators.matrixone.cnset.pooling import AT_ONCE, serves_claims
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.pool import replicas, warm
from mooring.operators.matrixone.pool.claim import decide as decide_claim
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE, TERMINATING, UNKNOWN
from mooring.operators.matrixone.pool.moves import Bind, ChoosePod, Dress, GiveBack, MoveClaim, Record
from mooring.operators.matrixone.pool.snapshot import Candidate, ClaimSnapshot

OLDER = "it runs an older declaration"


def pooled(at: int, phase: str, state: str | None = "Draining", **changes: Any) -> Member:
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


def test_no_claim_waits_for_pods_that_are_claimed_and_given_back_again_and_again() -> None:
    """Every other step would come back in a busy pool: what finishes a claim, and the claim that waits longest, come first."""
    closed = pooled(9, BOUND, "Working", gate=False)
    fresh, given_back = pooled(0, BOUND, draining_since=ago(1)), pooled(1, DRAINING, "Working", gate=True)
    step = decide(pool(fresh, given_back, closed))
    assert isinstance(step, Several)
    assert [(type(one), one.pod) for one in step.moves] == [(SetGate, "t-cn-9"), (SetWorking, "t-cn-0")]
    waits = [pooled(20 + at, BOUND, draining_since=ago(50 - at)) for at in range(AT_ONCE)]
    step = decide(pool(fresh, given_back, *waits))
    assert isinstance(step, Several)
    assert [one.pod for one in step.moves] == [one.pod.name for one in waits]


def test_a_claimed_pod_is_opened_in_the_step_that_makes_it_serve() -> None:
    step = decide(pool(pooled(0, BOUND)))
    assert isinstance(step, SetWorking)
    assert step.opens
    changed = pooled(0, BOUND, "Working", claim_labels={"account": ("b",)})
    step = decide(pool(changed))
    assert isinstance(step, SetWorking)
    assert not step.opens


def test_pods_that_were_given_back_are_cleaned_together_once_every_claim_is_served() -> None:
    back = [pooled(at, DRAINING, draining_since=ago(20 + at)) for at in range(3)]
    step = decide(pool(*back))
    assert isinstance(step, Several)
    assert [(type(one), one.pod) for one in step.moves] == [(SetPhase, f"t-cn-{at}") for at in (2, 1, 0)]
    claimed = pooled(7, BOUND)
    assert not serves_claims(pool(*back, claimed))
    assert isinstance(decide(pool(*back, claimed)), SetWorking)


def test_a_pod_goes_by_a_step_of_its_own_however_many_others_have_one() -> None:
    """Which one may go follows from those that are there: of two at once the second would be one too many."""
    old = [pooled(at, DRAINING, draining_since=ago(20), revision="old") for at in range(2)]
    step = decide(pool(*old))
    assert isinstance(step, SetPhase)
    assert step.phase == TERMINATING
    fit = pooled(2, DRAINING, draining_since=ago(99))
    step = decide(pool(*old, fit))
    assert isinstance(step, SetPhase)
    assert (step.pod, step.phase) == ("t-cn-2", IDLE)


SAME_STEP = {
    "serve": pooled(0, BOUND),
    "drain": pooled(0, DRAINING, "Working"),
    "close": pooled(0, DRAINING, gate=True, draining_since=ago(1)),
    "clean": pooled(0, DRAINING, draining_since=ago(20)),
}


@pytest.mark.parametrize("made", SAME_STEP.values(), ids=SAME_STEP)
def test_a_step_that_comes_again_while_a_pod_has_the_same_claim_is_a_repetition(made: Member) -> None:
    """Every claim is something new: each pod of a busy pool is claimed and given back many times a minute."""

    def again(version: str, tenure: str) -> Move:
        pod = replace(made.pod, version=version)
        step = decide(pool(replace(made, pod=pod, tenure=tenure)))
        assert isinstance(step, Move)
        return step

    first, second, third = again("7", "one"), again("8", "one"), again("9", "another")
    assert (first.name, first.why, first.state) == (second.name, second.why, second.state)
    assert (first.name, first.why) == (third.name, third.why)
    assert first.state != third.state


@pytest.mark.parametrize("phase", [UNKNOWN, DRAINING, IDLE])
def test_no_pod_can_be_claimed_while_the_gate_of_its_former_claim_is_open(phase: str) -> None:
    """Otherwise the next claim is Ready at once, on a pod that HAKeeper sends no sessions to."""
    open = pooled(0, phase, "Drained", gate=True, draining_since=ago(60), sessions=0, pipelines=0)
    step = decide(pool(open))
    assert isinstance(step, SetGate)
    assert not step.open
    done = decide(pool(replace(open, gate=False)))
    assert isinstance(done, InSync) if phase == IDLE else isinstance(done, SetPhase)


def test_the_gate_of_a_pod_that_was_given_back_before_it_opened_stays_closed() -> None:
    assert isinstance(decide(pool(pooled(0, DRAINING, "Working", gate=False))), Drain)


def test_a_claimed_pod_goes_neither_by_a_roll_nor_by_a_scale_in_but_its_claim_is_asked_to_leave() -> None:
    bound = pooled(0, BOUND, "Working", first_to_go=True)
    assert isinstance(decide(pool(bound, replicas=0)), InSync)
    for changes, why in (({"cordoned": True}, "its node is cordoned"), ({"revision": "old"}, OLDER)):
        step = decide(pool(replace(bound, **changes), replicas=0))
        assert isinstance(step, SetLeave)
        assert (step.pod, step.leave) == ("t-cn-0", why)
        for declared in (0, 1):
            told = decide(pool(replace(bound, leaves=why, **changes), replicas=declared))
            assert isinstance(told, Wait)
            assert told.reason == "ClaimsMoving"


def test_a_pod_that_may_stay_again_is_told_so_and_an_idle_one_that_has_to_leave_is_marked_first() -> None:
    step = decide(pool(pooled(0, BOUND, "Working", leaves="its node is cordoned")))
    assert isinstance(step, SetLeave)
    assert step.leave == ""
    idle = decide(pool(pooled(0, IDLE, cordoned=True), pooled(1, IDLE), replicas=1))
    assert isinstance(idle, SetLeave)


def test_a_roll_moves_as_many_claims_at_a_time_as_the_surge_and_those_on_a_cordoned_node_at_once() -> None:
    old = [pooled(at, BOUND, "Working", revision="old") for at in range(3)]
    assert leaving(pool(*old)) == {"t-cn-0": OLDER}
    assert leaving(pool(*old, surge=2)) == {"t-cn-0": OLDER, "t-cn-1": OLDER}
    assert leaving(pool(old[0], replace(old[1], leaves=OLDER), old[2])) == {"t-cn-1": OLDER}
    drained = pooled(0, DRAINING, revision="old")
    assert leaving(pool(drained, *old[1:])) == {}
    assert leaving(pool(*old, pause_update=True)) == {}
    assert leaving(pool(*(replace(one, cordoned=True) for one in old))) == {
        f"t-cn-{at}": "its node is cordoned" for at in range(3)
    }


def test_claims_stay_where_they_are_while_the_new_declaration_does_not_come_up() -> None:
    old = pooled(0, BOUND, "Working", revision="old")
    broken = pooled(1, UNKNOWN, None, running=False, started=None, trouble="ErrImagePull")
    assert failed_pod(pool(old, broken)) is not None
    assert leaving(pool(old, broken)) == {}


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
        pytest.param({"cordoned": True}, id="its node is cordoned"),
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
    old = pooled(0, IDLE, revision="old", leaves=OLDER)
    assert isinstance(decide(pool(old)), CreatePod)
    starting = pooled(1, UNKNOWN, sessions=None)
    assert not isinstance(decide(pool(old, starting, replicas=1)), SetPhase)
    step = decide(pool(old, pooled(1, IDLE), replicas=1))
    assert isinstance(step, SetPhase)
    assert (step.pod, step.phase) == ("t-cn-0", TERMINATING)


def test_a_pod_that_became_one_too_many_before_it_was_idle_goes() -> None:
    idle = [pooled(at, IDLE) for at in range(2)]
    step = decide(pool(*idle, pooled(2, UNKNOWN, first_to_go=True), replicas=2))
    assert isinstance(step, SetPhase)
    assert (step.pod, step.phase) == ("t-cn-2", TERMINATING)


ORDER: dict[str, dict[str, Any]] = {
    "the template names it": {"first_to_go": True},
    "it is not heard": {"state": None, "running": False},
    "it has fewer sessions": {"sessions": 0},
    "it is the newest": {"created": ago(60)},
}
"""Why an idle pod goes before another one, the strongest reason first."""


@pytest.mark.parametrize("reason", range(len(ORDER)), ids=ORDER)
def test_of_the_idle_pods_of_a_pool_that_shrinks_the_one_that_costs_least_goes_first(reason: int) -> None:
    """A weaker reason of another pod does not count."""
    stronger, *weaker = list(ORDER.values())[reason:]
    rest: dict[str, Any] = {"sessions": 1}
    for one in reversed(weaker):
        rest |= one
    others = [pooled(at, IDLE, **{"state": "Draining", **rest}) for at in (0, 2)]
    first = pooled(1, IDLE, **{"state": "Draining", "sessions": 1, **stronger})
    members = (others[0], first, others[1])
    assert list(due(pool(*members, replicas=2))) == ["t-cn-1"]
    bound = pooled(3, BOUND, "Working", first_to_go=True)
    assert list(due(pool(*members, bound, replicas=3))) == ["t-cn-1"]


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


def test_a_pod_that_gave_its_lock_tables_away_is_bound_to_no_claim() -> None:
    """It refuses writes until its process is another one; a pod that has to leave for another reason still serves."""
    spent = pod("a", handed_over=True, leaves="it has given its lock tables away")
    step = decide_claim(claim(spent))
    assert isinstance(step, Wait)
    assert step.reason == "NoIdlePod"
    asked = decide_claim(claim(spent, pod_name="a"))
    assert isinstance(asked, Wait)
    assert "is replaced" in asked.message
    cordoned = decide_claim(claim(spent, pod("b", leaves="its node is cordoned")))
    assert isinstance(cordoned, Bind)
    assert cordoned.pod == "b"


def test_what_a_claim_asks_of_its_pod_in_vain_is_said() -> None:
    step = decide_claim(claim(mine(kept=("zone",)), pod_name="p", pod_uid="u-p"))
    assert isinstance(step, InSync)
    assert "spec.additionalPodLabels zone" in step.message
    assert "remove them" in step.message


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


def test_labels_of_a_claim_follow() -> None:
    bound = {"pod_name": "p", "pod_uid": "u-p"}
    assert isinstance(decide_claim(claim(mine(dressed=False), **bound)), Dress)


# --- moves of claims --------------------------------------------------------------------------------------


LEAVES = mine(leaves="its node is cordoned")
BOUND_TO_P = {"pod_name": "p", "pod_uid": "u-p"}


def taken(**changes: Any) -> Candidate:
    """The pod that a claim moves to, once it is bound."""
    return mine("q", **{"token": "u-q/9", "known": True, **changes})


def moving(*pods: Candidate, **changes: Any) -> ClaimSnapshot:
    return claim(*pods, **{**BOUND_TO_P, "token": "u-q/9", **changes})


def test_a_claim_chooses_then_binds_then_serves_then_changes_over_and_gives_back() -> None:
    step = decide_claim(claim(LEAVES, pod("q"), **BOUND_TO_P))
    assert isinstance(step, ChoosePod)
    assert (step.token, step.version) == ("u-q/9", "9")
    step = decide_claim(moving(LEAVES, pod("q")))
    assert isinstance(step, Bind)
    assert (step.pod, step.version, step.token) == ("q", "3", "u-q/9")
    step = decide_claim(moving(LEAVES, taken(known=False)))
    assert isinstance(step, Wait)
    assert (step.reason, step.stalled) == ("Moving", False)
    step = decide_claim(moving(LEAVES, taken()))
    assert isinstance(step, MoveClaim)
    assert (step.pod.name, step.left, step.version) == ("q", "p", "9")
    step = decide_claim(claim(LEAVES, taken(), pod_name="q", pod_uid="u-q"))
    assert isinstance(step, GiveBack)
    assert (step.pod, step.version) == ("p", "3")
    assert isinstance(decide_claim(claim(taken(), pod_name="q", pod_uid="u-q")), InSync)


@pytest.mark.parametrize(
    ("asks", "moves"),
    [
        ({"source_name": "p"}, True),
        ({"pod_name": "q"}, True),
        ({"source_name": "q"}, False),
        ({}, False),
    ],
)
def test_a_user_asks_for_a_move(asks: dict[str, str], moves: bool) -> None:
    step = decide_claim(claim(mine(), pod("q"), **{**BOUND_TO_P, **asks}))
    assert isinstance(step, ChoosePod if moves else InSync)


def test_a_claim_serves_on_its_pod_until_there_is_one_to_move_to() -> None:
    for others in ((), (pod("q", leaves="it runs an older declaration"),), (pod("q", matches=False),)):
        step = decide_claim(claim(LEAVES, *others, **BOUND_TO_P))
        assert isinstance(step, Wait)
        assert (step.reason, step.stalled) == ("NoIdlePod", False)
        assert "its node is cordoned" in step.message
    asked = claim(mine(), mine("q", claimed_by="d", claim_uid="u-d"), **{**BOUND_TO_P, "pod_name": "q"})
    step = decide_claim(asked)
    assert isinstance(step, Wait)
    assert step.reason == "PodNotIdle"


def test_a_claim_with_no_name_of_its_pod_gets_it_again() -> None:
    assert isinstance(decide_claim(claim(mine(), pod_uid="u-p")), Record)


def test_a_pod_that_an_earlier_move_bound_is_not_moved_to_but_given_back() -> None:
    earlier = taken(token="u-q/5")
    step = decide_claim(moving(LEAVES, earlier))
    assert isinstance(step, GiveBack)
    assert step.pod == "q"
    # Two moves to the same pod never look alike.
    first, second = (
        decide_claim(claim(LEAVES, pod("q"), **BOUND_TO_P, version=version)) for version in ("5", "9")
    )
    assert isinstance(first, ChoosePod)
    assert isinstance(second, ChoosePod)
    assert first.token != second.token


def test_a_move_goes_on_when_its_reason_is_gone_only_if_the_new_pod_is_bound() -> None:
    assert isinstance(decide_claim(moving(mine(), taken())), MoveClaim)
    step = decide_claim(moving(mine(), pod("q")))
    assert isinstance(step, ChoosePod)
    assert step.token == ""


def test_another_pod_is_chosen_when_the_first_is_gone_taken_or_not_what_the_user_asks_for() -> None:
    another = mine("q", claimed_by="d", claim_uid="u-d")
    for found in ((), (another,), (taken(terminating=True),)):
        step = decide_claim(moving(LEAVES, *found, pod("r")))
        assert isinstance(step, ChoosePod)
        assert step.token == "u-r/9"
    step = decide_claim(moving(LEAVES, taken(), pod("r"), pod_name="r"))
    assert isinstance(step, ChoosePod)
    assert step.token == "u-r/9"


def test_a_move_saves_a_claim_whose_old_pod_dies_meanwhile() -> None:
    assert isinstance(decide_claim(moving(pod("q"))), Bind)
    assert isinstance(decide_claim(moving(taken(known=False))), MoveClaim)
    step = decide_claim(moving(mine("q", claimed_by="d", claim_uid="u-d")))
    assert isinstance(step, Wait)
    assert step.reason == "Lost"


def test_a_move_that_takes_too_long_needs_a_person_and_names_the_way_out() -> None:
    step = decide_claim(moving(LEAVES, taken(known=False), late=True))
    assert isinstance(step, Wait)
    assert step.stalled
    assert "delete the pod q" in step.message


def test_a_claim_that_changed_since_it_was_seen_decides_nothing() -> None:
    assert isinstance(decide_claim(moving(taken(token="u-q/5"), stale=True)), Wait)


def test_both_pods_of_a_move_get_the_labels_and_are_given_back_at_the_end() -> None:
    step = decide_claim(moving(LEAVES, taken(dressed=False)))
    assert isinstance(step, Dress)
    assert step.pod == "q"
    assert isinstance(decide_claim(moving(LEAVES, taken(), ending=True)), GiveBack)
    assert isinstance(decide_claim(moving(taken(), ending=True)), GiveBack)


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
