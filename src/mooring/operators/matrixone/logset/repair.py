"""What becomes of a store that failed: the same ordinal comes back on a new volume. Pure.

Nothing here holds back other rules: a repair that is not possible is a wait that others pass.
"""

from __future__ import annotations

from mooring.actor.verdict import Move, Wait
from mooring.operators.matrixone.logset.moves import Repair
from mooring.operators.matrixone.logset.quorum import has_quorum
from mooring.operators.matrixone.logset.snapshot import Member, Snapshot

__all__ = ["REPAIR", "down_for", "repair"]

REPAIR = "mooring.dev/repair"
"""Annotation of a LogSet: pods, joined by commas, whose volume a person gives up."""
_OF_TEMPLATE = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
    }
)
"""Troubles that a new volume does not cure."""


def down_for(snapshot: Snapshot, member: Member) -> float:
    """Seconds for which a store has not been heard, 0 when it serves or waits at its gate."""
    if member.held or snapshot.serves(member) or snapshot.view is None:
        return 0.0
    store = snapshot.view.logs.get(member.uuid)
    if store is not None:
        return store.heard
    created = member.pod.created
    return (snapshot.now - created).total_seconds() if created is not None else 0.0


def repair(snapshot: Snapshot) -> Move | Wait | None:
    """The next step for a failed store; at most one at a time, and only while the others have a quorum."""
    failed = [one for one in snapshot.members if down_for(snapshot, one) >= snapshot.repair_after]
    if not failed or snapshot.view is None:
        return None
    names = ", ".join(one.pod.name for one in failed)
    if len(failed) > snapshot.shard_replicas // 2:
        return _wait(
            f"{names} failed, more than a minority: no volume is given up; bring their nodes or volumes back"
        )
    if text := has_quorum(snapshot):
        return _wait(f"{names} failed and is not repaired now: {text}")
    for member in failed:
        if member.pod.terminating:
            text = (
                f"{member.pod.name} ends and does not: its node may be gone; delete the pod by force if it is"
            )
            return _wait(text)
        if member.pod.trouble in _OF_TEMPLATE:
            return _wait(f"{member.pod.name}: {member.pod.trouble}: {member.pod.trouble_message}")
        if shards := sorted(snapshot.view.shards_of(member.uuid)):
            return _wait(
                f"{member.pod.name} failed and is still a member of the shards {shards}: its volume is kept until "
                "HAKeeper has replaced it there",
                stalled=False,
            )
        confirmed = member.pod.name in snapshot.repair
        if not snapshot.repairs and not confirmed:
            return _wait(
                f"{member.pod.name} failed, and its pod and volume are to be kept: to give them up, set the annotation "
                f"{REPAIR}={member.pod.name}"
            )
        return Repair(
            pod=member.pod.name,
            uid=member.pod.uid,
            claim=snapshot.claims.get(member.pod.ordinal),
            why=f"{member.pod.name} was not heard for {down_for(snapshot, member):.0f} s and is a member of no shard",
        )
    return None


def _wait(text: str, *, stalled: bool = True) -> Wait:
    return Wait("StoreFailed", text, after=5.0, stalled=stalled)
