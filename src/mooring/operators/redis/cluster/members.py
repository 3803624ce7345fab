"""Who belongs to the cluster: nodes meet at their present addresses, follow a master, and former ones are forgotten. Pure rules."""

from __future__ import annotations

from mooring.operators.redis.cluster.moves import Attach, Forget, Meet, Verdict, Wait
from mooring.operators.redis.cluster.placement import Place, best_master, matched
from mooring.operators.redis.cluster.scale import newcomers
from mooring.operators.redis.cluster.slots import ALL
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.cluster.topology import Live

__all__ = ["attach_spare", "forget", "mesh", "re_attach"]


def mesh(snapshot: Snapshot) -> Verdict | None:
    """Every live node knows every other one at the address it has now.

    Those that know each other and lost their connection make a new one by themselves, within a tenth of a second. A
    MEET would cut it once more: the connection that it comes by takes the place of the one before.
    """
    pairs, meeting = [], []
    for one in snapshot.members:
        greeted = {peer.address.ip for peer in one.server.view if not peer.settled}
        for other in snapshot.members:
            if one is other:
                continue
            peer = one.server.peers.get(other.id)
            if peer is not None and peer.address == other.node.address:
                continue
            if other.node.address.ip in greeted:
                meeting.append(one.name)
            else:
                pairs.append((target_of(one), other.node.address))
    if pairs:
        names = ", ".join(sorted({one.name for one, _ in pairs}))
        why = f"{names}: not all current addresses of the other nodes are known yet"
        # Numbered before anybody has slots alone: later the number would decide whose claim counts.
        number = not snapshot.recorded.formed and not snapshot.seen.assigned
        return Meet(pairs=tuple(pairs), number=number, why=why)
    if meeting:
        return Wait(reason="Meeting", message=f"{meeting[0]} is still meeting the other nodes", after=0.1)
    return None


def re_attach(snapshot: Snapshot) -> Verdict | None:
    """Replicas follow a master that serves, at the address it has now."""
    pairs = []
    serving = {one.id for one in snapshot.owners} | {one.id for one in newcomers(snapshot)}
    for one in snapshot.seen.live:
        if not one.master or not snapshot.stays(one.node):
            continue
        master = snapshot.seen.by_id.get(one.master)
        if one.master in snapshot.seen.absent_owners or (master is None and snapshot.seen.covered != ALL):
            continue  # it may have the only copy of slots that no node serves
        if one.master not in serving:
            if choice := _best(snapshot, one):
                pairs.append((target_of(one), choice.id))
        elif master is not None and one.server.master not in (None, master.node.address):
            pairs.append((target_of(one), one.master))
    if pairs:
        names = ", ".join(one.name for one, _ in pairs)
        return Attach(pairs=tuple(pairs[:1]), why=f"{names} follows no node that serves")
    return None


def attach_spare(snapshot: Snapshot) -> Verdict | None:
    """Nodes without slots that are not about to get any follow a master."""
    new = newcomers(snapshot)
    if snapshot.recorded.formed and new and not snapshot.complete:
        return None  # who becomes a master is best chosen among all
    free = [one for one in snapshot.spare if one not in new]
    masters = [*snapshot.owners, *new]
    if not free or not masters:
        return None
    if snapshot.recorded.formed or any(snapshot.replicas().values()):
        first = free[0]
        choice = _best(snapshot, first)
        pairs = [(target_of(first), choice.id)] if choice else []
    else:
        by_name = {one.name: one for one in masters}
        places: list[Place] = [snapshot.place(one) for one in masters]
        chosen = matched(places, [snapshot.place(one) for one in free])
        pairs = [(target_of(one), by_name[chosen[one.name]].id) for one in free]
    if not pairs:
        return None
    names = ", ".join(one.name for one, _ in pairs)
    return Attach(
        pairs=tuple(pairs),
        why=f"{names} become{'s' if len(pairs) == 1 else ''} {'a replica' if len(pairs) == 1 else 'replicas'}",
    )


def _best(snapshot: Snapshot, replica: Live) -> Live | None:
    """The master that needs a replica most."""
    masters = [one for one in (*snapshot.owners, *newcomers(snapshot)) if one.id in replica.server.peers]
    if not masters:
        return None
    have = snapshot.replicas(staying=True)
    chosen = best_master(
        snapshot.place(replica),
        [snapshot.place(one) for one in masters],
        replicas={one.name: have[one.id] for one in masters},
    )
    return next(one for one in masters if one.name == chosen.name)


def forget(snapshot: Snapshot) -> Verdict | None:
    """Ids that no server will ever answer to again; none while a slot has no live owner, since it may be one of theirs."""
    if snapshot.seen.covered != ALL:
        return None
    silent = {
        id
        for node in snapshot.seen.nodes
        if node.server is None
        for id in (node.id, snapshot.recorded.ids.get(node.name))
    }
    kept = {*snapshot.seen.by_id, *silent, *(one.master for one in snapshot.seen.live)}
    ghosts: set[str] = set()
    knowing = []
    for one in snapshot.seen.live:
        if theirs := {peer.id for peer in one.server.peers.values()} - kept:
            ghosts |= theirs
            knowing.append(target_of(one))
    absent = snapshot.wanted.pods - len(snapshot.seen.nodes)
    if not ghosts or absent > 0:
        return None
    return Forget(
        ids=tuple(sorted(ghosts)),
        targets=tuple(knowing),
        why=f"{len(ghosts)} ids belong to no pod any more",
    )
