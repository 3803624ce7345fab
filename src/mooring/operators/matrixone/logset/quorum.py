"""What the shards still need before one more store may go away. Pure."""

from __future__ import annotations

from mooring.operators.matrixone.logset.snapshot import Snapshot
from mooring.operators.matrixone.topology import Shard, Topology

__all__ = ["has_quorum", "leads", "unsettled"]


def unsettled(snapshot: Snapshot) -> str:
    """Why no store may be stopped now, "" when one may.

    The four conditions: HAKeeper answers and its clock moves; every store was heard since its process started; every
    shard has all its members and a leader; each store runs exactly the replicas that its shards list. A look at the
    pods alone is not enough: a store is Ready seconds before its replicas have caught up, and stopping the next one then
    loses the quorum.
    """
    view = snapshot.view
    if view is None:
        return f"HAKeeper does not answer: {snapshot.error}"
    if not snapshot.advances:
        return "HAKeeper's clock stands still"
    if not view.shards:
        return "HAKeeper has no shards yet"
    for member in snapshot.members:
        if member.held:
            return f"{member.pod.name} is held back at its start gate"
        if not snapshot.serves(member):
            return f"{member.pod.name} has not been heard since it started"
    for shard in view.shards.values():
        if text := _incomplete(snapshot, view, shard):
            return text
    for member in snapshot.members:
        if not view.settled(member.uuid):
            return f"{member.pod.name} does not run exactly the replicas that the shards list"
    return ""


def _incomplete(snapshot: Snapshot, view: Topology, shard: Shard) -> str:
    if len(shard.members) < snapshot.shard_replicas:
        return f"shard {shard.id} has {len(shard.members)} of {snapshot.shard_replicas} members"
    if not shard.leader:
        return f"shard {shard.id} has no leader"
    for replica, uuid in shard.members.items():
        member = snapshot.member(uuid)
        if member is None:
            return f"shard {shard.id} has a member on a store that is gone; HAKeeper replaces it after its timeout"
        if view.logs[uuid].replicas.get(shard.id) != replica:
            return f"{member.pod.name} does not run its replica of shard {shard.id} yet"
    return ""


def has_quorum(snapshot: Snapshot) -> str:
    """Why the log service does not accept writes, "" when it does: a leader and a majority of every shard."""
    view = snapshot.view
    if view is None:
        return f"HAKeeper does not answer: {snapshot.error}"
    if not view.shards:
        return "HAKeeper has no shards yet"
    for shard in view.shards.values():
        heard = [
            one for one in snapshot.members if one.uuid in shard.members.values() and snapshot.serves(one)
        ]
        if not shard.leader:
            return f"shard {shard.id} has no leader"
        if len(heard) * 2 <= len(shard.members):
            return f"{len(heard)} of {len(shard.members)} members of shard {shard.id} are heard: no quorum"
    return ""


def leads(view: Topology, uuid: str) -> list[int]:
    """The shards that a store leads."""
    return sorted(one.id for one in view.shards.values() if one.leader == uuid)
