"""Pods of a pool: ready to be claimed, serving while they are claimed, and cleaned before the next claim. Pure.

A pod changes from one phase to another by a write that is fenced by its version. So nothing goes that was claimed
meanwhile, and nothing is claimed that goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from mooring.actor.verdict import Move, Wait
from mooring.operators.matrixone.cnset.gates import gate
from mooring.operators.matrixone.cnset.moves import (
    ClearLabels,
    Drain,
    OnStore,
    SetLeave,
    SetPhase,
    SetWorking,
    Several,
)
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE, TERMINATING, UNKNOWN
from mooring.operators.matrixone.rpc.messages import WorkState

__all__ = ["AT_ONCE", "mark", "may_go", "returning", "serves_claims", "tend", "warm"]

AT_ONCE: Final = 8
"""Pods that one step changes at most: a claim that comes meanwhile waits for its end."""

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
    """The next step for the pods of a pool: what is to be done for all claimed ones, else for some of the others.

    Claimed pods first: those that serve and whose gate is closed, then the ones that have been quiet longest. So pods that
    are claimed and given back again and again never keep another claim waiting.
    """
    if not snapshot.pooled or snapshot.view is None:
        return None
    return _together(_of_claimed(snapshot)) or _together(_of_others(snapshot, going))


def serves_claims(snapshot: Snapshot) -> bool:
    """Claimed pods have what they need: there is time to ask the others what still runs on them."""
    return not _of_claimed(snapshot)


def _of_claimed(snapshot: Snapshot) -> list[OnStore]:
    found = sorted((one for one in snapshot.alive if one.phase == BOUND), key=_turn)
    return [step for one in found if (step := _next(snapshot, one, {})) is not None]


def _of_others(snapshot: Snapshot, going: Mapping[str, str]) -> list[OnStore]:
    found = sorted((one for one in snapshot.alive if one.phase != BOUND), key=_turn)
    return [step for one in found if (step := _next(snapshot, one, going)) is not None]


def _together(steps: Sequence[OnStore]) -> Move | None:
    """So many steps at once; a pod goes by a step of its own, since that is decided from those that are there."""
    alike = list(takewhile(lambda one: not (isinstance(one, SetPhase) and one.phase == TERMINATING), steps))
    if len(alike) < 2:
        return steps[0] if steps else None
    some = alike[:AT_ONCE]
    why, state = "; ".join(one.why for one in some), ",".join(one.state for one in some)
    return Several(moves=tuple(some), why=why, state=state)


def _turn(member: Member) -> tuple[bool, datetime]:
    return member.phase != DRAINING, member.draining_since or _NOT_QUIET


def _next(snapshot: Snapshot, member: Member, going: Mapping[str, str]) -> OnStore | None:
    if member.phase in (UNKNOWN, IDLE) and member.pod.name in going:
        return _go(member, going[member.pod.name]) if _replaced(snapshot, member, going) else None
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


def _serve(snapshot: Snapshot, member: Member) -> OnStore | None:
    store, pod = member.store, member.pod
    assert store is not None
    if member.set_aside or member.handed_over is not None:
        return None
    right = store.state is WorkState.WORKING and dict(store.labels) == dict(member.claim_labels)
    if right and member.draining_since is None:
        return None
    return SetWorking(
        pod=pod.name,
        uid=pod.uid,
        uuid=member.uuid,
        labels=member.claim_labels,
        opens=member.gate is not True,
        why=f"{pod.name} is claimed",
        state=f"{member.tenure} {dict(member.claim_labels)}",
    )


def _quiet(member: Member, why: str) -> OnStore | None:
    """Send it no sessions; since when is noted for the drain's limit."""
    if member.draining:
        return None
    return _drain(member, f"{member.pod.name}: {why}")


def _drain(member: Member, why: str) -> Drain:
    pod = member.pod
    return Drain(pod=pod.name, uid=pod.uid, uuid=member.uuid, why=why, state=member.tenure)


def _ready(member: Member, why: str) -> OnStore | None:
    """A pod is idle when it is known to have nothing to do."""
    if member.sessions != 0 or member.pipelines != 0:
        return None
    if member.store is not None and member.store.labels:
        return ClearLabels(
            pod=member.pod.name,
            uid=member.pod.uid,
            uuid=member.uuid,
            why=f"{member.pod.name}: labels of its former user are left",
            state=member.tenure,
        )
    return _phase(member, IDLE, f"{member.pod.name}: {why}")


def _clean(snapshot: Snapshot, member: Member) -> OnStore | None:
    if not member.draining or member.draining_since is None:
        return _drain(member, f"{member.pod.name} is given back")
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


def _replaced(snapshot: Snapshot, member: Member, going: Mapping[str, str]) -> bool:
    """Those that stay are ready, or it is of no use."""
    if snapshot.replicas == 0 or not snapshot.heard(member):
        return True
    there = [one for one in snapshot.alive if one.phase != TERMINATING]
    stay = [one for one in there if one.pod.name not in going]
    return len(there) > snapshot.replicas and all(one.phase != UNKNOWN for one in stay)


def _go(member: Member, why: str) -> SetPhase:
    return _phase(member, TERMINATING, f"{member.pod.name}: {why}")


def _phase(member: Member, phase: str, why: str) -> SetPhase:
    pod = member.pod
    return SetPhase(
        pod=pod.name,
        uid=pod.uid,
        uuid=member.uuid,
        version=pod.version,
        phase=phase,
        why=why,
        state=member.tenure,
    )


def returning(member: Member) -> Wait | None:
    """What a pod that was given back waits for."""
    if member.phase != DRAINING:
        return None
    load = "an unknown number of" if member.sessions is None else str(member.sessions)
    return Wait("PodsReturning", f"{member.pod.name} was given back; {load} sessions are left", after=1.0)
