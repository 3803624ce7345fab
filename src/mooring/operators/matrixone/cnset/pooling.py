"""Pods of a pool: ready to be claimed, serving while they are claimed, and cleaned before the next claim. Pure.

A pod changes from one phase to another by a write that is fenced by its version. So nothing goes that was claimed
meanwhile, and nothing is claimed that goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from mooring.actor.verdict import Move, Wait
from mooring.operators.matrixone.cnset.gates import gate
from mooring.operators.matrixone.cnset.moves import ClearLabels, Drain, SetLeave, SetPhase, SetWorking
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE, TERMINATING, UNKNOWN
from mooring.operators.matrixone.rpc.messages import WorkState

__all__ = ["mark", "may_go", "returning", "tend", "warm"]

_NOT_QUIET: Final = datetime.min.replace(tzinfo=UTC)


def may_go(member: Member) -> bool:
    """Nobody has claimed the pod, and it holds no sessions of a former user: it may go without being given back."""
    return member.phase in ("", UNKNOWN, IDLE)


def warm(snapshot: Snapshot, member: Member) -> bool:
    """The pod is as it should be: ready to be claimed, or claimed and serving."""
    if member.phase == BOUND:
        return snapshot.serves(member)
    return member.phase == IDLE and snapshot.heard(member)


def mark(snapshot: Snapshot, leaving: Mapping[str, str]) -> Move | None:
    """Note on the next pod whether it has to leave: its claim reads it there and moves."""
    for member in snapshot.alive if snapshot.pooled else ():
        pod, why = member.pod, leaving.get(member.pod.name, "")
        if member.phase in (BOUND, IDLE) and member.leaves != why:
            text = f"{pod.name} has to leave: {why}" if why else f"{pod.name} may stay"
            return SetLeave(pod=pod.name, uid=pod.uid, uuid=member.uuid, leave=why, why=text)
    return None


def tend(snapshot: Snapshot, going: Mapping[str, str]) -> Move | None:
    """The next step for the pods of a pool.

    Claimed pods first: those that serve and whose gate is closed, then the ones that have been quiet longest. So pods that
    are claimed and given back again and again never keep another claim waiting.
    """
    if not snapshot.pooled or snapshot.view is None:
        return None
    for member in sorted(snapshot.alive, key=_turn):
        if step := _next(snapshot, member, going):
            return step
    return None


def _turn(member: Member) -> tuple[bool, bool, datetime]:
    return member.phase != BOUND, member.phase != DRAINING, member.draining_since or _NOT_QUIET


def _next(snapshot: Snapshot, member: Member, going: Mapping[str, str]) -> Move | None:
    if member.phase in (UNKNOWN, IDLE) and member.pod.name in going:
        return _go(member, going[member.pod.name]) if _replaced(snapshot, member) else None
    if not snapshot.heard(member):
        return None
    match member.phase:
        case "Bound":
            return _serve(snapshot, member) or gate(snapshot, member)
        case "Draining":
            return _clean(snapshot, member)
        case "Unknown":
            step = _quiet(member, "it is not claimed") or gate(snapshot, member)
            return step or _ready(member, "it is ready to be claimed")
        case "Idle":
            return _quiet(member, "it is not claimed") or gate(snapshot, member)
    return None


def _serve(snapshot: Snapshot, member: Member) -> Move | None:
    store, pod = member.store, member.pod
    assert store is not None
    if member.set_aside or member.handed_over is not None:
        return None
    right = store.state is WorkState.WORKING and dict(store.labels) == dict(member.claim_labels)
    if right and member.draining_since is None:
        return None
    return SetWorking(
        pod=pod.name, uid=pod.uid, uuid=member.uuid, labels=member.claim_labels, why=f"{pod.name} is claimed"
    )


def _quiet(member: Member, why: str) -> Move | None:
    """Send it no sessions; since when is noted for the drain's limit."""
    if member.draining:
        return None
    return Drain(pod=member.pod.name, uid=member.pod.uid, uuid=member.uuid, why=f"{member.pod.name}: {why}")


def _ready(member: Member, why: str) -> Move | None:
    """A pod is idle when it is known to have nothing to do."""
    if member.sessions != 0 or member.pipelines != 0:
        return None
    if member.store is not None and member.store.labels:
        return ClearLabels(
            pod=member.pod.name,
            uid=member.pod.uid,
            uuid=member.uuid,
            why=f"{member.pod.name}: labels of its former user are left",
        )
    return _phase(member, IDLE, f"{member.pod.name}: {why}")


def _clean(snapshot: Snapshot, member: Member) -> Move | None:
    if not member.draining or member.draining_since is None:
        why = f"{member.pod.name} is given back"
        return Drain(pod=member.pod.name, uid=member.pod.uid, uuid=member.uuid, why=why)
    if step := gate(snapshot, member):
        return step  # the next claim takes an open gate for a pod that serves it
    drained_for = (snapshot.now - member.draining_since).total_seconds()
    if drained_for >= snapshot.drain_timeout:
        return _go(member, f"sessions are left after the drain's limit of {snapshot.drain_timeout:.0f} s")
    if member.sessions != 0 or member.pipelines != 0 or drained_for < snapshot.min_delay:
        return None
    if member.handed_over is not None:
        return _go(member, "it gave its lock tables away, and serves no writes until it is restarted")
    if member.replaced or member.cordoned or member.revision != snapshot.revision:
        return _go(member, "it is not used again")
    return _ready(member, "it is drained")


def _replaced(snapshot: Snapshot, member: Member) -> bool:
    """Its successor is ready, or it is one too many, or of no use."""
    if snapshot.replicas == 0 or not snapshot.heard(member):
        return True
    there = [one for one in snapshot.alive if one.phase != TERMINATING]
    return len(there) > snapshot.replicas and all(one.phase != UNKNOWN for one in there)


def _go(member: Member, why: str) -> SetPhase:
    return _phase(member, TERMINATING, f"{member.pod.name}: {why}")


def _phase(member: Member, phase: str, why: str) -> SetPhase:
    pod = member.pod
    return SetPhase(pod=pod.name, uid=pod.uid, uuid=member.uuid, version=pod.version, phase=phase, why=why)


def returning(member: Member) -> Wait | None:
    """What a pod that was given back waits for."""
    if member.phase != DRAINING:
        return None
    load = "an unknown number of" if member.sessions is None else str(member.sessions)
    return Wait("PodsReturning", f"{member.pod.name} was given back; {load} sessions are left", after=1.0)
