"""Which compute nodes have to go, and why; which declaration new ones are made from. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mooring.operators.matrixone.cnset.pooling import may_go
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE, TERMINATING
from mooring.operators.workload.rollout import hopeless

__all__ = ["COMES_UP_WITHIN", "due", "failed_pod", "leaving", "revision_for_new", "staying"]

COMES_UP_WITHIN: Final = 600.0
"""Seconds a new pod may take to register."""
_OLDER: Final = "it runs an older declaration"


def due(snapshot: Snapshot) -> dict[str, str]:
    """Pods that have to go and why, by name; the first one goes first."""
    found: dict[str, str] = {}
    halted = failed_pod(snapshot)
    for member in snapshot.alive:
        if snapshot.pooled and not (may_go(member) or member.phase == TERMINATING):
            if member.pod.failed:
                found[member.pod.name] = "it ended"
            continue
        if member.phase == TERMINATING:
            found[member.pod.name] = "it was told to go"
        elif reason := _reason(snapshot, member, halted=halted is not None):
            found[member.pod.name] = reason
    stay = staying(snapshot, found)
    surplus = len(stay) - snapshot.replicas
    free = [one for one in stay if may_go(one)]
    for member in sorted(free, key=lambda one: _cost(snapshot, one))[: max(0, surplus)]:
        found[member.pod.name] = f"{snapshot.replicas} compute nodes are declared"
    if snapshot.replicas == 0:
        gone = [one for one in snapshot.alive if snapshot.ending is not None or may_go(one)]
        found |= {one.pod.name: "no compute node is declared" for one in gone}
    return found


def leaving(snapshot: Snapshot) -> dict[str, str]:
    """Idle and claimed pods that have to leave and why, by name: no claim moves to them, and those that have one leave it.

    Of claimed pods with an older declaration no more than the surge are left at a time; those that are left stay chosen.
    """
    halted = failed_pod(snapshot) is not None
    found: dict[str, str] = {}
    older: list[Member] = []
    for member in snapshot.alive if snapshot.pooled and snapshot.ending is None else ():
        if member.phase not in (IDLE, BOUND) or member.pod.failed:
            continue
        why = _reason(snapshot, member, halted=halted)
        if why == _OLDER and member.phase == BOUND:
            older.append(member)
        elif why:
            found[member.pod.name] = why
    under_way = [one for one in snapshot.alive if one.phase == DRAINING and one.revision != snapshot.revision]
    at_once = max(1, snapshot.surge) - len(under_way)
    older.sort(key=lambda one: not one.leaves)
    for at, member in enumerate(older):
        if at < at_once or member.leaves == _OLDER:
            found[member.pod.name] = _OLDER
    return found


def staying(snapshot: Snapshot, going: Collection[str]) -> list[Member]:
    """The pods that count for the declared number: those that have no reason to go, nor to serve nobody."""
    halted = failed_pod(snapshot)
    stay = [one for one in snapshot.alive if one.pod.name not in going and not one.set_aside]
    if halted in stay and any(one.revision != snapshot.revision for one in stay):
        stay.remove(halted)  # beside older ones that serve, it shows what is wrong with the declaration
    return stay


def _reason(snapshot: Snapshot, member: Member, *, halted: bool) -> str:
    if member.handed_over is not None:
        return "it has given its lock tables away and serves no writes until it is restarted"
    if member.pod.failed:
        return f"it ended: {member.pod.trouble}"
    if member.cordoned:
        return "its node is cordoned"
    if member.revision == snapshot.revision or snapshot.pause_update or snapshot.waiting:
        return ""
    if halted and snapshot.heard(member):
        return ""
    return _OLDER


def _cost(snapshot: Snapshot, member: Member) -> tuple[bool, bool, bool, int, float]:
    """What its going costs: named pods first, then those that serve nobody, that drain already, that have few sessions."""
    created = member.pod.created.timestamp() if member.pod.created is not None else 0.0
    return (
        not member.first_to_go,
        snapshot.heard(member),
        not member.draining,
        member.sessions if member.sessions is not None else 1 << 30,
        -created,
    )


def failed_pod(snapshot: Snapshot) -> Member | None:
    """A pod of the present declaration that does not come up: the roll-out stops there."""
    for member in snapshot.alive:
        if member.revision != snapshot.revision or snapshot.heard(member):
            continue
        created = member.pod.created
        age = (snapshot.now - created).total_seconds() if created is not None else 0.0
        if hopeless(member.pod, snapshot.now) or (snapshot.view is not None and age > COMES_UP_WITHIN):
            return member
    return None


def revision_for_new(snapshot: Snapshot) -> str:
    """The declaration that the next pod is made from: a failed one is not tried again while others work."""
    failed = failed_pod(snapshot)
    if failed is None and not snapshot.pause_update:
        return snapshot.revision
    working = [one for one in snapshot.alive if snapshot.heard(one) and one.revision != snapshot.revision]
    newest = max(working, key=lambda one: one.pod.created or snapshot.now, default=None)
    return newest.revision if newest is not None else snapshot.revision
