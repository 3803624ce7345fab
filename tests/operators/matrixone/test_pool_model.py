"""Two operators bind claims from stale caches, lose answers and die: no pod is bound to two claims.

A plain model of the API server with versions. Each operator sees claims and pods as they were at some earlier moment,
decides by the real planners, and writes later, when everything may have changed. ``MOORING_POOL_INTERLEAVINGS`` sets
the number of interleavings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from random import Random

from mooring.actor.verdict import Move
from mooring.operators.matrixone.pool.claim import (
    Bind,
    Candidate,
    ClaimSnapshot,
    GiveBack,
    Record,
    decide,
    lost,
)
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE
from mooring.operators.matrixone.pool.orphans import orphaned

INTERLEAVINGS = int(os.environ.get("MOORING_POOL_INTERLEAVINGS", "10000"))
STEPS = 100


@dataclass(frozen=True)
class Claim:
    name: str
    uid: str
    version: int
    pod: str = ""
    pod_uid: str = ""
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
        self.version = self.bound = self.refused = 0
        self.claims: dict[str, Claim] = {}
        self.pods: dict[str, Candidate] = {}
        self.operators = (Operator(), Operator())
        for at in range(2):
            self.put_pod(f"p{at}")
        for at in range(3):
            self.put_claim(f"c{at}")

    def tick(self) -> int:
        self.version += 1
        return self.version

    def put_pod(self, name: str) -> None:
        now = self.tick()
        self.pods[name] = Candidate(name=name, uid=f"{name}-{now}", version=str(now), phase=IDLE, serves=True)

    def put_claim(self, name: str) -> None:
        now = self.tick()
        self.claims[name] = Claim(name, f"{name}-{now}", now)

    def look(self, claim: Claim, pods: dict[str, Candidate]) -> ClaimSnapshot:
        return ClaimSnapshot(
            name=claim.name, uid=claim.uid, version=str(claim.version), pods=tuple(pods.values()), pod_name=claim.pod,
            pod_uid=claim.pod_uid, ending=claim.ending,
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
        if claim is None:
            return
        snapshot = self.look(claim, operator.pods)
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
        if isinstance(move, Record):
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
        else:
            after = replace(pod, phase=DRAINING, claimed_by="", claim_uid="")
            self.must_not_serve(pod)
        self.pods[pod.name] = replace(after, version=str(self.tick()))

    def record(self, uid: str, move: Record) -> None:
        for name, claim in self.claims.items():
            if claim.uid == uid and str(claim.version) == move.version:
                self.claims[name] = replace(
                    claim, version=self.tick(), pod=move.pod.name, pod_uid=move.pod.uid
                )

    def must_not_serve(self, pod: Candidate) -> None:
        """A pod is taken from no living claim that recorded it."""
        for claim in self.claims.values():
            assert claim.ending or claim.pod_uid != pod.uid, f"{pod} was taken from {claim}"

    def drained(self, name: str) -> None:
        pod = self.pods[name]
        if pod.phase == DRAINING:
            self.pods[name] = replace(pod, phase=IDLE, version=str(self.tick()))

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
                pod = self.pods.get(claim.pod)
                whose = pod.claim_uid if pod is not None and pod.uid == claim.pod_uid else claim.uid
                assert whose == claim.uid, f"{claim} holds {pod}"

    def step(self) -> None:
        dice, choose = self.random.random(), self.random.choice
        operator = choose(self.operators)
        if dice < 0.28:
            self.refresh(operator, choose(("c0", "c1", "c2", "p0", "p1")))
        elif dice < 0.58:
            self.passes(operator, choose(("c0", "c1", "c2")))
        elif dice < 0.9:
            self.arrive(operator)
        elif dice < 0.93:
            self.drained(choose(("p0", "p1")))
        elif dice < 0.96:
            self.delete(choose(("c0", "c1", "c2")))
        elif dice < 0.97:
            self.put_pod(choose(("p0", "p1")))
        elif dice < 0.98:
            operator.writes.clear()
        else:
            self.sweeps(operator)

    def settle(self) -> None:
        """No faults any more: every pod that can serve a claim does."""
        for _ in range(12):
            for operator in self.operators:
                for name in (*self.claims, *self.pods, *operator.claims):
                    self.refresh(operator, name)
            self.passes_all()
            for name in self.pods:
                self.drained(name)
        bound = [one for one in self.claims.values() if one.pod_uid and not lost(self.look(one, self.pods))]
        waiting = [one for one in self.claims.values() if not one.pod_uid]
        assert len(bound) == len(self.pods) or not waiting
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


def test_no_interleaving_binds_a_pod_to_two_claims() -> None:
    random = Random(25)
    bound = refused = 0
    for at in range(INTERLEAVINGS):
        world = World(random)
        for operator in world.operators:
            operator.claims, operator.pods = dict(world.claims), dict(world.pods)
        for _ in range(STEPS):
            world.step()
            world.check()
        bound += world.bound
        refused += world.refused
        if at % 20 == 0:
            world.settle()
    # The interleavings are worth something: claims are bound, and writes come too late.
    assert bound > INTERLEAVINGS
    assert refused > INTERLEAVINGS
