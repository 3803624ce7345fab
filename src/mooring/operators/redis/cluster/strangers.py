"""Nodes that joined the cluster and belong to none of its pods: they are forgotten, and what they took is taken back.

A Redis Cluster node takes in every node that introduces itself by CLUSTER MEET, on the cluster bus, without a password.
Such a node may then claim slots with a higher configuration epoch, and their owner deletes the keys it has of them.
Pure rules.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from mooring.operators.redis.cluster.moves import Expel, Target
from mooring.operators.redis.cluster.slots import Slots, count, show
from mooring.operators.redis.cluster.snapshot import target_of

if TYPE_CHECKING:
    from mooring.operators.redis.address import Address
    from mooring.operators.redis.cluster.snapshot import Snapshot
    from mooring.operators.redis.cluster.topology import Live

__all__ = ["expel"]


def expel(snapshot: Snapshot) -> Expel | None:
    """Forget strangers on every node, and give the slots they took back to the owners the status names.

    A former node of ours is no stranger: what it has is not recorded as another node's. It is left to `rescue` and
    `forget`, which wait for its data.
    """
    if not _all_known(snapshot):
        return None
    strangers = _strangers(snapshot)
    back = _taken(snapshot, strangers)
    if not strangers and not back:
        return None
    said = [f"{at} ({id[:8]})" for id, at in sorted(strangers.items())]
    whys = [f"{', '.join(said)} joined the cluster and belongs to no pod of it"] if said else []
    whys += [f"slots {show(slots)} go back to {one.name}" for one, slots in back.items()]
    return Expel(
        ids=tuple(sorted(strangers)),
        addresses=tuple(sorted(set(strangers.values()))),
        targets=tuple(target_of(one) for one in snapshot.seen.live),
        back=tuple(back.items()),
        why="; ".join(whys),
    )


def _all_known(snapshot: Snapshot) -> bool:
    """The id of every pod that is to be there is known, so any other id is none of theirs."""
    known = {node.pod.ordinal for node in snapshot.seen.nodes if node.id}
    known |= {int(tail) for name in snapshot.recorded.ids if (tail := name.rpartition("-")[2]).isdigit()}
    return known >= set(range(max(snapshot.wanted.nodes, snapshot.wanted.pods)))


def _strangers(snapshot: Snapshot) -> dict[str, str]:
    """Ids of strangers that claim slots which the status records as ours, and their addresses.

    One without slots cannot be told from a former node of ours: `forget` removes both once every slot is served.
    """
    addresses: dict[str, Address] = {}
    for one in snapshot.seen.live:
        addresses |= {peer.id: peer.address for peer in one.server.peers.values()}
    ours = {node.address for node in snapshot.seen.nodes}
    followed = {one.master for one in snapshot.seen.live}  # Redis: "Can't forget my master!"
    recorded: Slots = 0
    for one in snapshot.seen.live:
        recorded |= snapshot.recorded.slots.get(one.id, 0)
    return {
        id: str(addresses[id])
        for id, slots in snapshot.seen.absent_owners.items()
        if id not in snapshot.ids | followed and addresses[id] not in ours and not slots & ~recorded
    }


def _taken(snapshot: Snapshot, strangers: Collection[str]) -> dict[Target, Slots]:
    """Slots that live nodes had, and that strangers or no nodes have now, by who is to have them."""
    found: dict[Target, Slots] = {}
    others: Slots = 0
    for id, slots in snapshot.seen.absent_owners.items():
        others |= 0 if id in strangers else slots
    for one in snapshot.seen.live:
        if not (lost := snapshot.lost_by(one.id) & ~others):
            continue
        taker = _heir(snapshot, one)
        if taker is not None:
            found[target_of(taker)] = found.get(target_of(taker), 0) | lost
    return found


def _heir(snapshot: Snapshot, one: Live) -> Live | None:
    """The node itself or its present master; else the master with the fewest slots."""
    head = snapshot.seen.by_id.get(one.master) if one.master else one
    if head is not None and head.is_master:
        return head
    return min(snapshot.owners, key=lambda other: count(other.slots), default=None)
