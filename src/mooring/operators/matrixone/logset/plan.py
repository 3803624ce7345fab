"""The next safe move of a LogSet. Pure."""

from __future__ import annotations

from typing import Final

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.kube.quantity import parse_quantity
from mooring.operators.matrixone.logset.gate import held_back, release
from mooring.operators.matrixone.logset.moves import GrowClaim
from mooring.operators.matrixone.logset.quorum import leads, unsettled
from mooring.operators.matrixone.logset.repair import repair
from mooring.operators.matrixone.logset.scale import give_up_claims, scale
from mooring.operators.matrixone.logset.snapshot import Snapshot
from mooring.operators.workload.rollout import HandOver, hopeless
from mooring.operators.workload.waits import while_paused

__all__ = ["LOOK_AGAIN", "PAUSE", "decide"]

PAUSE: Final = "mooring.dev/pause"
LOOK_AGAIN: Final = 15.0
"""Seconds between two reconciles at rest: no watch reports what HAKeeper sees."""


def decide(snapshot: Snapshot) -> Verdict:
    """What is to be done, or what would be where the set is paused."""
    verdict = _decide(snapshot)
    return while_paused(verdict, PAUSE) if snapshot.paused else verdict


def _decide(snapshot: Snapshot) -> Verdict:
    """Gates first, they cost nothing; then templates, so that a correction of the spec is never held back by a failed store."""
    rollout = snapshot.rollout
    trouble = repair(snapshot)
    leaving = give_up_claims(snapshot)
    step: Verdict | HandOver | None = (
        release(snapshot)
        or rollout.begin()
        or _only_move(trouble)
        or scale(snapshot)
        or _only_move(leaving)
        or rollout.advance(wait=_before_roll(snapshot, leaving), leading=_leading(snapshot))
    )
    if isinstance(step, HandOver):
        # There is no way to hand over: its followers elect one of themselves, and one write waits 10 s.
        pod = next(one for one in rollout.pods if one.name == step.pod)
        step = rollout.recreate(pod, "it runs an older template and leads; all followers are rolled")
    return (
        step
        or rollout.end()
        or held_back(snapshot)
        or trouble
        or rollout.halt()
        or _starting(snapshot)
        or leaving
        or grow(snapshot)
        or _unsettled(snapshot)
        or InSync(again=LOOK_AGAIN)
    )


def _only_move(found: Move | Wait | None) -> Move | None:
    return found if isinstance(found, Move) else None


def _before_roll(snapshot: Snapshot, leaving: Move | Wait | None) -> Wait | None:
    """What keeps the next store from being recreated."""
    if isinstance(leaving, Wait):
        return leaving
    text = unsettled(snapshot)
    return Wait("RollWaiting", text, after=0.5) if text else None


def _leading(snapshot: Snapshot) -> frozenset[str]:
    """Pods that lead a shard."""
    if snapshot.view is None:
        return frozenset()
    return frozenset(one.pod.name for one in snapshot.members if leads(snapshot.view, one.uuid))


def _starting(snapshot: Snapshot) -> Wait | None:
    if snapshot.placed is None or len(snapshot.members) < snapshot.placed:
        text = f"{len(snapshot.members)} of {snapshot.placed or snapshot.replicas} stores have a pod"
        return Wait("StoresStarting", text, after=2.0)
    for member in snapshot.members:
        pod = member.pod
        if pod.terminating or not pod.running:
            stuck = hopeless(pod, snapshot.now)
            text = pod.trouble_message or "it is starting"
            return Wait(
                pod.trouble if stuck else "StoresStarting", f"{pod.name}: {text}", after=1.0, stalled=stuck
            )
    return None


def _unsettled(snapshot: Snapshot) -> Wait | None:
    """Not all replicas run where they should; it passes by itself."""
    text = unsettled(snapshot) if snapshot.replicas else ""
    return Wait("ShardsNotSettled", text, after=1.0) if text else None


def grow(snapshot: Snapshot) -> GrowClaim | None:
    """A claim that is smaller than declared."""
    for claim in snapshot.claims.values():
        if claim.terminating or not snapshot.size or not claim.size:
            continue
        if parse_quantity(claim.size) < parse_quantity(snapshot.size):
            return GrowClaim(claim=claim, size=snapshot.size, why=f"{claim.name} has {claim.size}")
    return None
