"""Which store with an empty volume may start. Pure; a store whose volume has data passes its gate by itself.

A store that lost its disk and starts at once panics its shards' followers and may vote with a forgotten log, since its
identity follows from its ordinal. HAKeeper replaces the replicas of a silent store after its timeout (5 minutes by
default); only a store that is a member of no shard may start empty.
"""

from __future__ import annotations

from mooring.actor.verdict import Wait
from mooring.operators.matrixone.logset.moves import Release
from mooring.operators.matrixone.logset.snapshot import Member, Snapshot

__all__ = ["START_EMPTY", "held_back", "release"]

START_EMPTY = "mooring.dev/start-empty"
"""Annotation of a LogSet: pods, joined by commas, that a person lets start with an empty volume."""


def release(snapshot: Snapshot) -> Release | None:
    """Open the gates that may be opened now."""
    free = [
        one for one in snapshot.members if one.held and not one.pod.terminating and _may_start(snapshot, one)
    ]
    if not free:
        return None
    names = ", ".join(one.pod.name for one in free)
    return Release(
        pods=tuple((one.pod.name, one.pod.uid) for one in free),
        why=f"{names} may start with an empty volume",
    )


def _may_start(snapshot: Snapshot, member: Member) -> bool:
    if member.pod.name in snapshot.start_empty:
        return True
    if snapshot.view is not None and snapshot.view.shards:
        return not snapshot.view.shards_of(member.uuid)
    return _founding(snapshot)


def _founding(snapshot: Snapshot) -> bool:
    """No HAKeeper ever answered, and no volume can hold one's data: the stores found the cluster together."""
    if snapshot.formed or len(snapshot.members) < snapshot.replicas:
        return False
    return all(one.pod.fresh for one in snapshot.members)


def held_back(snapshot: Snapshot) -> Wait | None:
    """What a store at its gate waits for, and what a person can do."""
    held = [one for one in snapshot.members if one.held and not _may_start(snapshot, one)]
    if not held:
        return None
    names = ",".join(one.pod.name for one in held)
    if not snapshot.formed and not any(one.pod.fresh is False for one in snapshot.members):
        missing = snapshot.replicas - len(snapshot.members)
        return Wait("StoresStarting", f"the first start needs all stores; {missing} are missing", after=1.0)
    if snapshot.view is not None and snapshot.shard_replicas > 1:
        shards = sorted({shard for one in held for shard in sorted(snapshot.view.shards_of(one.uuid))})
        text = (
            f"{names} has an empty volume and is still a member of the shards {shards}: it starts once HAKeeper has "
            "replaced it there (log-store-timeout, 5 minutes by default)"
        )
        return Wait("StoreHeldBack", text, after=5.0)
    text = (
        f"{names} has an empty volume, and HAKeeper does not say whether its data is needed ({snapshot.error or 'one replica'}). "
        "Bring the other stores or their volumes back; to give up the data that is only there, set the annotation "
        f"{START_EMPTY}={names}"
    )
    return Wait("StoreHeldBack", text, after=5.0, stalled=True)
