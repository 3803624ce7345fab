"""Slots of an abandoned move. Pure rules."""

from __future__ import annotations

from mooring.operators.redis.cluster.moves import Settle, Verdict
from mooring.operators.redis.cluster.scale import head_of
from mooring.operators.redis.cluster.slots import Slots, show
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of

__all__ = ["settle"]


def settle(snapshot: Snapshot) -> Verdict | None:
    """Marks of an abandoned move, once every node that may have keys of the slots can be asked.

    A plan under way continues what its slots' owner is giving away; a mark that the owner knows nothing of hinders it,
    since the node that bears it does not learn who owns the slot. A server that was dead while its replica took over
    makes such marks itself, for keys that it finds in slots of others.
    """
    if snapshot.seen.absent_owners:
        return None
    marks = snapshot.seen.marks()
    waiting = {mark.slot for _, mark in marks if _may_return(snapshot, mark.peer)}
    meant = {(at.id, mark.slot): head_of(snapshot, mark.peer) for at, mark in marks if mark.outgoing}
    halfway: dict[tuple[str, str], Slots] = {}
    for bearer, mark in marks:
        owner = next((id for id, slots in snapshot.seen.owners.items() if slots >> mark.slot & 1), "")
        giver = bearer.id if mark.outgoing else mark.peer
        goes_on = snapshot.recorded.plan is not None and giver == owner and (owner, mark.slot) in meant
        if not owner or mark.slot in waiting or goes_on:
            continue
        both = owner, meant.get((owner, mark.slot), "")
        halfway[both] = halfway.get(both, 0) | 1 << mark.slot
    if not halfway:
        return None
    (owner, heir), slots = next(iter(halfway.items()))
    one = snapshot.seen.by_id[owner]
    return Settle(
        slots=slots,
        owner=target_of(one),
        masters=tuple(target_of(one) for one in snapshot.seen.live if one.is_master),
        meant=heir,
        why=f"slots {show(slots)} of {one.name} were left half-way",
    )


def _may_return(snapshot: Snapshot, id: str) -> bool:
    """It does not answer now, and its pod may come back under this id."""
    node = snapshot.node_of(id)
    return id not in snapshot.seen.by_id and node is not None and node.server is None
