"""Two operators bind and move claims from stale caches, lose answers and die: no pod is bound to two claims, none is lost.

A plain model of the API server with versions. Each operator sees claims and pods as they were at some earlier moment,
decides by the real planners, and writes later, when everything may have changed. ``MOORING_POOL_INTERLEAVINGS`` sets
the number of interleavings of a run; ``make nightly`` tries `NIGHTLY` others.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from mooring.actor.verdict import Move
from mooring.operators.matrixone.pool.claim import decide
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE
from mooring.operators.matrixone.pool.moves import Bind, ChoosePod, GiveBack, MoveClaim, Record
from mooring.operators.matrixone.pool.orphans import orphaned
from mooring.operators.matrixone.pool.snapshot import Candidate, ClaimSnapshot, gone, lost, spare

INTERLEAVINGS = int(os.environ.get("MOORING_POOL_INTERLEAVINGS", "6000"))
NIGHTLY = 10_000
STEPS = 100
PODS = ("p0", "p1", "p2", "p3")
CLAIMS = ("c0", "c1")


@dataclass(frozen=True)
class Claim:
    name: str
    uid: str
    version: int
    pod: str = ""
    pod_uid: str = ""
    token: str = ""
    ending: bool = False


@dataclass
class Operator:
    claims: dict[str, Claim] = field(default_factory=dict)
    pods: dict[str, Candidate] = field(default_factory=dict)
    writes: list[tuple[str, Move]] = field(default_factory=list)


class World:
    """The truth, two operators, and what must never happen."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.version = self.bound = self.refused = self.moved = self.returned = 0
        self.claims: dict[str, Claim] = {}
        self.pods: dict[str, Candidate] = {}
        self.operators = (Operator(), Operator())
        for name in PODS:
            self.put_pod(name)
        for name in CLAIMS:
            self.put_claim(name)
        if random.random() < 0.7:
            self.begin_bound()

    def begin_bound(self) -> None:
        """Every claim has a pod, and some pods have to leave."""
        for name, pod in zip(CLAIMS, PODS, strict=False):
            claim, taken = self.claims[name], self.pods[pod]
            self.claims[name] = replace(claim, pod=pod, pod_uid=taken.uid)
            taken = replace(taken, phase=BOUND, claimed_by=name, claim_uid=claim.uid, serves=True, known=True)
            self.pods[pod] = replace(taken, leaves=self.random.choice(("its node is cordoned", "")))

    def tick(self) -> int:
        self.version += 1
        return self.version

    def put_pod(self, name: str) -> None:
        now = self.tick()
        self.pods[name] = Candidate(name=name, uid=f"{name}-{now}", version=str(now), phase=IDLE)

    def put_claim(self, name: str) -> None:
        now = self.tick()
        self.claims[name] = Claim(name, f"{name}-{now}", now)

    def look(self, claim: Claim, pods: dict[str, Candidate]) -> ClaimSnapshot:
        return ClaimSnapshot(
            name=claim.name, uid=claim.uid, version=str(claim.version), pods=tuple(pods.values()), pod_name=claim.pod,
            pod_uid=claim.pod_uid, token=claim.token, ending=claim.ending,
        )  # fmt: skip

    # --- what may happen

    def refresh(self, operator: Operator, name: str) -> None:
        """The cache of one object catches up."""
        if (claim := self.claims.get(name)) is not None:
            operator.claims[name] = claim
        elif (pod := self.pods.get(name)) is not None:
            operator.pods[name] = pod
        else:
            operator.claims.pop(name, None)
            operator.pods.pop(name, None)

    def passes(self, operator: Operator, name: str) -> None:
        """One pass over one claim, whose write arrives later."""
        claim = operator.claims.get(name)
        if claim is None or len(operator.writes) > 3:
            return
        snapshot = self.look(claim, operator.pods)
        if not claim.ending and (gone(snapshot) or spare(snapshot)):
            # The pods are looked at past the cache before one counts as gone; after them the claim.
            if gone(snapshot):
                snapshot = self.look(claim, self.pods)
            now = self.claims.get(name)
            snapshot = replace(snapshot, stale=now is None or now.version != claim.version)
        verdict = decide(snapshot)
        if isinstance(verdict, Move):
            operator.writes.append((claim.uid, verdict))
        elif claim.ending and not any(
            # The finalizer goes after a look past the cache.
            one.claimed_by == name and one.claim_uid == claim.uid
            for one in self.pods.values()
        ):
            self.forget(claim)

    def forget(self, claim: Claim) -> None:
        now = self.claims.get(claim.name)
        if now is not None and now.uid == claim.uid and now.ending:
            del self.claims[claim.name]

    def sweeps(self, operator: Operator) -> None:
        """The pool looks after pods whose claims are gone, past the cache."""
        known = {one.name: one.uid for one in self.claims.values()}
        if move := orphaned(operator.pods.values(), known):
            operator.writes.append(("", move))

    def arrive(self, operator: Operator) -> None:
        """A write reaches the API server, or dies with its operator."""
        if not operator.writes:
            return
        uid, move = operator.writes.pop(self.random.randrange(len(operator.writes)))
        if self.random.random() < 0.05:
            return
        self.write(uid, move)
        if self.random.random() < 0.6:
            # The answer arrives too, and what else the cache had missed of these objects.
            self.refresh(operator, uid.partition("-")[0])
            pod = getattr(move, "pod", "")
            self.refresh(operator, pod if isinstance(pod, str) else pod.name)

    def write(self, uid: str, move: Move) -> None:
        if isinstance(move, Record | ChoosePod | MoveClaim):
            self.record(uid, move)
            return
        assert isinstance(move, Bind | GiveBack)
        pod = self.pods.get(move.pod)
        if pod is None or pod.uid != move.uid or pod.version != move.version:
            self.refused += 1
            return
        if isinstance(move, Bind):
            assert pod.phase == IDLE, f"{pod} was bound to {uid}"
            self.bound += 1
            after = replace(pod, phase=BOUND, claimed_by=uid.partition("-")[0], claim_uid=uid)
            after = replace(after, token=move.token)
        else:
            after = replace(pod, phase=DRAINING, claimed_by="", claim_uid="", token="")
            after = replace(after, serves=False, known=False)
            self.returned += 1
            self.must_not_serve(pod)
        self.pods[pod.name] = replace(after, version=str(self.tick()))

    def record(self, uid: str, move: Record | ChoosePod | MoveClaim) -> None:
        for name, claim in self.claims.items():
            if claim.uid != uid or str(claim.version) != move.version:
                continue
            now = self.tick()
            if isinstance(move, ChoosePod):
                self.claims[name] = replace(claim, version=now, token=move.token)
                continue
            if isinstance(move, MoveClaim):
                self.moved += 1
                new = next((one for one in self.pods.values() if one.uid == move.pod.uid), None)
                assert new is None or new.claim_uid == uid, f"{claim} moved to {new}"
                old = self.pods.get(claim.pod)
                there = old is not None and old.uid == claim.pod_uid
                assert not there or (old is not None and old.claim_uid == uid), f"{claim} was left by {old}"
                assert not there or new is None or new.known, f"{claim} left {old} for {new}"
            self.claims[name] = replace(claim, version=now, pod=move.pod.name, pod_uid=move.pod.uid, token="")

    def must_not_serve(self, pod: Candidate) -> None:
        """A pod is taken from no living claim that recorded it."""
        for claim in self.claims.values():
            assert claim.ending or claim.pod_uid != pod.uid, f"{pod} was taken from {claim}"

    def drained(self, name: str) -> None:
        pod = self.pods[name]
        if pod.phase == DRAINING:
            self.pods[name] = replace(pod, phase=IDLE, version=str(self.tick()))

    def serves(self, name: str) -> None:
        pod = self.pods[name]
        if pod.phase == BOUND and not pod.known:
            self.pods[name] = replace(pod, serves=True, known=True, version=str(self.tick()))

    def marks(self, name: str) -> None:
        """A pod has to leave, or may stay again."""
        pod = self.pods[name]
        leaves = "" if pod.leaves else "its node is cordoned"
        self.pods[name] = replace(pod, leaves=leaves, version=str(self.tick()))

    def asks(self, name: str, pod: str) -> None:
        """The user of a claim asks for a pod."""
        if (claim := self.claims.get(name)) is not None and not claim.ending:
            self.claims[name] = replace(claim, pod=pod, version=self.tick())

    def delete(self, name: str) -> None:
        claim = self.claims.get(name)
        if claim is None:
            self.put_claim(name)
        elif not claim.ending:
            self.claims[name] = replace(claim, ending=True, version=self.tick())

    # --- what must hold

    def check(self) -> None:
        recorded = [one.pod_uid for one in self.claims.values() if one.pod_uid and not one.ending]
        assert len(recorded) == len(set(recorded)), f"two claims have one pod: {self.claims}"
        for claim in self.claims.values():
            if claim.pod_uid and not claim.ending:
                pod = next((one for one in self.pods.values() if one.uid == claim.pod_uid), None)
                whose = pod.claim_uid if pod is not None else claim.uid
                assert whose == claim.uid, f"{claim} holds {pod}"

    def step(self) -> None:
        dice, choose = self.random.random(), self.random.choice
        operator = choose(self.operators)
        if dice < 0.24:
            self.refresh(operator, choose((*CLAIMS, *PODS)))
        elif dice < 0.28:
            for name in (*CLAIMS, *PODS):
                self.refresh(operator, name)
        elif dice < 0.56:
            self.passes(operator, choose(CLAIMS))
        elif dice < 0.82:
            self.arrive(operator)
        elif dice < 0.85:
            self.drained(choose(PODS))
        elif dice < 0.91:
            self.serves(choose(PODS))
        elif dice < 0.94:
            self.marks(choose(PODS))
        elif dice < 0.95:
            self.asks(choose(CLAIMS), choose((*PODS, "")))
        elif dice < 0.965:
            self.delete(choose(CLAIMS))
        elif dice < 0.975:
            self.put_pod(choose(PODS))
        elif dice < 0.98:
            operator.writes.clear()
        else:
            self.sweeps(operator)

    def settle(self) -> None:
        """No faults any more: every pod that can serve a claim does, and no move is left half done."""
        for name, claim in self.claims.items():
            if not claim.ending:
                recorded = next((one.name for one in self.pods.values() if one.uid == claim.pod_uid), "")
                self.claims[name] = replace(claim, pod=recorded, version=self.tick())
        for name, pod in self.pods.items():
            self.pods[name] = replace(pod, leaves="", version=str(self.tick()))
        for _ in range(12):
            for operator in self.operators:
                for name in (*self.claims, *self.pods, *operator.claims):
                    self.refresh(operator, name)
            self.passes_all()
            for name in self.pods:
                self.drained(name)
                self.serves(name)
        bound = [one for one in self.claims.values() if one.pod_uid and not lost(self.look(one, self.pods))]
        waiting = [one for one in self.claims.values() if not one.pod_uid]
        assert len(bound) == len(self.pods) or not waiting
        assert not any(one.token for one in bound)
        assert sorted(one.uid for one in bound) == sorted(
            one.claim_uid for one in self.pods.values() if one.claim_uid
        )

    def passes_all(self) -> None:
        operator = self.operators[0]
        for name in list(operator.claims):
            self.passes(operator, name)
        self.sweeps(operator)
        while operator.writes:
            self.arrive(operator)


def interleave(count: int, *, seed: int) -> None:
    random, seen = Random(seed), Counter[str]()
    for at in range(count):
        world = World(random)
        for operator in world.operators:
            operator.claims, operator.pods = dict(world.claims), dict(world.pods)
        for _ in range(STEPS):
            world.step()
            world.check()
        for one in ("bound", "refused", "moved", "returned"):
            seen[one] += getattr(world, one)
        if at % 20 == 0:
            world.settle()
    # The interleavings are worth something: claims are bound and moved, and writes come too late.
    assert min(seen["bound"], seen["refused"]) > count
    assert seen["returned"] > count / 2
    assert seen["moved"] > count / 20


def test_no_interleaving_binds_a_pod_to_two_claims() -> None:
    interleave(INTERLEAVINGS, seed=25)


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_none_of_ten_thousand_other_interleavings_does_either() -> None:
    interleave(NIGHTLY, seed=26)
