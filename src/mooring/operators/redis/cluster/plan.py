"""The rules: from one look at a cluster to the next safe step. Pure.

The order is the order of importance. Servers at their gate first, for they may be all there is; then the
cluster is founded, or healed; only a whole one is scaled, and only one at rest gets new pods. Each rule looks at
what there is and nothing else, so that a step interrupted anywhere is simply taken again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mooring.operators.redis.cluster.loss import found_again
from mooring.operators.redis.cluster.moves import (
    Attach,
    Claim,
    Forget,
    InSync,
    Meet,
    Move,
    Paused,
    Promote,
    Record,
    Release,
    Settle,
    Target,
    Verdict,
    Wait,
)
from mooring.operators.redis.cluster.pair import pair
from mooring.operators.redis.cluster.passwords import change_password
from mooring.operators.redis.cluster.placement import Place, best_master, choose_masters, matched
from mooring.operators.redis.cluster.retries import spaced
from mooring.operators.redis.cluster.roll import roll, turn_back
from mooring.operators.redis.cluster.scale import head_of, newcomers, scale
from mooring.operators.redis.cluster.slots import ALL, Slots, count, shares, show
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.cluster.strangers import expel
from mooring.operators.redis.cluster.stuck import pods_starting, replace_stuck, troubles
from mooring.operators.redis.cluster.topology import SILENCE, Live, Node, outranked

__all__ = ["next_step"]


def next_step(snapshot: Snapshot) -> Verdict:
    """What to do now; a corrected declaration comes after all that heals, and before any waiting.

    A password changes while there is nothing else to do, and a step that failed may have to wait for its next try.
    """
    verdict = _first_of_all(snapshot)
    if isinstance(verdict, Wait):
        verdict = replace_stuck(snapshot) or verdict
    if snapshot.wanted.paused:
        todo = f"; {verdict.name} is left undone: {verdict.why}" if isinstance(verdict, Move) else ""
        message = f"spec.pause: nothing is changed{todo}"
        return Paused(reason="Paused", message=message, decided=verdict)
    return spaced(snapshot, change_password(snapshot, verdict))


def _first_of_all(snapshot: Snapshot) -> Verdict:
    if snapshot.wanted.nodes == 2:
        return pair(snapshot)
    founding = (release, found)
    running = (release, found_again, heal, turn_back, scale, waiting, roll)
    rules = running if snapshot.recorded.formed else founding
    for rule in rules:
        verdict = rule(snapshot)
        if verdict is not None:
            return verdict
    return InSync()


# --- servers at their gate ---------------------------------------------------------------------------------


def release(snapshot: Snapshot) -> Verdict | None:
    """Whom nobody can be harmed by; who may bring less than others have waits until they have taken over."""
    as_is, fresh, rescue = [], [], []
    for node in snapshot.seen.nodes:
        if node.gate is None:
            continue
        how = _hold(snapshot, node)
        if how == "as is":
            as_is.append(target_of(node))
        elif how == "fresh":
            fresh.append(target_of(node))
        else:
            rescue.append(node)
    if as_is or fresh:
        names = ", ".join(one.name for one in (*as_is, *fresh))
        founding = not snapshot.recorded.formed
        return Release(as_is=tuple(as_is), fresh=tuple(fresh), founding=founding, why=f"{names} may begin")
    if rescue and (verdict := mesh(snapshot)):
        return verdict  # nobody is voted for by nodes that do not know one another
    return _first_move(
        take_over(
            snapshot, _ghost_at(snapshot, node) or node.id, why=f"{node.name} came back without its data"
        )
        for node in rescue
    )


def _first_move(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """What can be done for one; only if there is nothing, what is waited for: no shard holds up another."""
    waits = None
    for verdict in verdicts:
        if isinstance(verdict, Wait):
            waits = waits or verdict
        elif verdict is not None:
            return verdict
    return waits


def _hold(snapshot: Snapshot, node: Node) -> str:
    """``as is``, ``fresh``, or "" to hold it back for now."""
    assert node.gate is not None
    if not node.gate.id and (ghost := _ghost_at(snapshot, node)):
        return "" if node.gate.disk == "none" or _may_have_copies(snapshot, ghost) else "as is"
    if node.gate.disk == "full" or not node.gate.id:
        return "fresh" if node.gate.disk != "none" and _left_earlier(snapshot, node.gate.id) else "as is"
    if not snapshot.seen.live:
        # Nobody tells who has its slots. Those with data begin; if nobody has any, there is nothing to guard.
        others = [one for one in snapshot.seen.nodes if one is not node]
        answered = [one for one in others if one.gate is not None]
        best = max((_RANK[one.gate.disk] for one in answered if one.gate), default=0)
        silent = len(answered) < len(others)
        return "as is" if not silent and _RANK[node.gate.disk] >= best else ""
    if node.gate.id not in snapshot.seen.absent_owners:
        known = [one.server.peers.get(node.gate.id) for one in snapshot.seen.live]
        follows = any(peer is not None and peer.master for peer in known)
        return "as is" if follows else "fresh"
    return "" if _may_have_copies(snapshot, node.gate.id) else "as is"


def _left_earlier(snapshot: Snapshot, id: str) -> bool:
    """Data of a node that was taken out, or of none: nobody knows it, and others serve every slot."""
    known = any(id in one.server.peers for one in snapshot.seen.live)
    return snapshot.recorded.formed and snapshot.seen.covered == ALL and not known


_RANK: Final = {"none": 0, "part": 1, "full": 2}


def _ghost_at(snapshot: Snapshot, node: Node) -> str:
    """The id of an owner of slots whom others still know at this node's address, or ""."""
    for one in snapshot.seen.live:
        for peer in one.server.peers.values():
            if (
                peer.address.ip == node.pod.ip
                and peer.id in snapshot.seen.absent_owners
                and peer.id != node.id
            ):
                return peer.id
    return ""


def _may_have_copies(snapshot: Snapshot, owner: str) -> bool:
    """A replica of it answers, or one that does not answer may still."""
    if snapshot.seen.replicas_of(owner):
        return True
    followers = {
        peer.id for one in snapshot.seen.live for peer in one.server.peers.values() if peer.master == owner
    }
    return any(
        (node := snapshot.node_of(id)) is not None and node.server is None and not _emptied(node)
        for id in followers
    )


def _emptied(node: Node) -> bool:
    return node.gate is not None and node.gate.disk == "none"


# --- the beginning -----------------------------------------------------------------------------------------


def found(snapshot: Snapshot) -> Verdict | None:
    """Make a cluster of nodes that are none yet, from wherever an earlier attempt got to."""
    seen = snapshot.seen
    if not snapshot.complete and seen.assigned != ALL:
        return pods_starting(snapshot, answering=_answering(snapshot))
    # Strangers are left out: they wait for a person, and no other node waits for them.
    if verdict := mesh(snapshot):
        return verdict
    if seen.foreign:
        return _foreign(snapshot)
    if seen.assigned != ALL:
        return _claim(snapshot)
    if verdict := _attach_spare(snapshot):
        return verdict
    if not snapshot.complete:
        return pods_starting(snapshot, answering=_answering(snapshot))
    if verdict := snapshot.agreeing(serving=False):
        return verdict
    return Record(formed=True, why="all slots have an owner, and every node agrees")


def _claim(snapshot: Snapshot) -> Verdict:
    seen = snapshot.seen
    candidates = [snapshot.place(one) for one in seen.live if one.is_master and snapshot.stays(one.node)]
    fixed = [one.name for one in snapshot.owners]
    names = choose_masters(candidates, number=max(snapshot.masters, len(fixed)), fixed=fixed)
    takers = [one for one in seen.live if one.name in names and not one.slots]
    parts = [part for each in shares(snapshot.masters) if (part := each & ~seen.assigned)]
    if not takers:
        takers = [min(snapshot.owners, key=lambda one: count(one.slots))] * len(parts)
    given: dict[Target, int] = {}
    for at, part in enumerate(parts):
        taker = target_of(takers[min(at, len(takers) - 1)])
        given[taker] = given.get(taker, 0) | part
    shown = "; ".join(f"{one.name} {show(part)}" for one, part in given.items())
    return Claim(parts=tuple(given.items()), why=f"first slots: {shown}")


def _answering(snapshot: Snapshot) -> int:
    return sum(1 for one in snapshot.seen.live if snapshot.stays(one.node))


def _foreign(snapshot: Snapshot) -> Wait:
    names = ", ".join(f"{one.name} ({one.server.keys} keys)" for one in snapshot.seen.foreign)
    return Wait(
        reason="ForeignData",
        message=f"{names} has data and belongs to no cluster; empty it by FLUSHALL if the data may go. Files that were put "
        "onto its volume to be restored: keep a copy, FLUSHALL, and once the cluster runs start a redis-server on the copy "
        "and bring its keys in by redis-cli --cluster import",
        after=10.0,
        stalled=True,
    )


# --- healing -----------------------------------------------------------------------------------------------


def heal(snapshot: Snapshot) -> Verdict | None:
    """Everybody reachable, every slot served, every replica where it belongs."""
    handed = hand_over(snapshot)
    if handed is not None and not isinstance(handed, Wait):
        return handed
    for rule in (mesh, rescue, relieve, outrank, re_attach, expel, forget, _attach_spare, settle):
        if verdict := rule(snapshot):
            return verdict
    return handed


def hand_over(snapshot: Snapshot) -> Verdict | None:
    """A master whose pod is being deleted gives its slots to its replica while it still can."""
    return _first_move(
        snapshot.promote(heir, "", why=f"the pod of {one.name} is being deleted")
        for one in snapshot.owners
        if one.node.pod.terminating
        and not _outvoted(snapshot, one.id)
        and (heir := heir_of(snapshot, one.id))
    )


def heir_of(snapshot: Snapshot, master: str) -> Live | None:
    """The replica to take over in agreement: in sync, not leaving itself, with the highest offset."""
    ready = [
        one
        for one in snapshot.seen.replicas_of(master)
        if one.server.link_up
        and not (one.server.syncing or one.server.loading or one.node.pod.terminating)
        and snapshot.stays(one.node)
    ]
    return max(ready, key=_rank, default=None)


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
        return Wait(reason="Meeting", message=f"{meeting[0]} is getting to know the others", after=0.1)
    return None


def rescue(snapshot: Snapshot) -> Verdict | None:
    """Slots whose owner is gone for sure go to its replica without waiting for the node timeout."""
    return _first_move(
        take_over(snapshot, owner, why="its master is gone")
        for owner in snapshot.seen.absent_owners
        if _gone(snapshot, owner)
    )


def outrank(snapshot: Snapshot) -> Verdict | None:
    """A replica that took over under a number too low gets a higher one once its former master is lost.

    A replica counts the votes of its last election again if its master fails within two node timeouts after it. The
    others go on giving the slots to that master, whose number is higher, and only that one could put it right. It is
    told from a master that missed a change by this: all its slots are the others' for that one, it gives that one
    none, and it serves, which nobody does whom most masters do not hear.
    """
    return _first_move(
        Promote(
            target=target_of(one),
            how="BUMPEPOCH",
            owner=peer.id,
            slots=one.slots,
            failed=not _ended(snapshot, peer.id),
            why=f"{one.name} serves, and the others do not know: its number is too low",
        )
        for one in snapshot.seen.live
        if one.slots and one.server.covered and snapshot.most(len(snapshot.voters(one)))
        for peer in one.server.peers.values()
        if outranked(one.server, peer.id)
        and not one.slots & ~_claimed(snapshot, peer.id)
        and (
            _ended(snapshot, peer.id)
            or (_outvoted(snapshot, peer.id) and one.server.silence(peer.id) > SILENCE)
        )
    )


def _claimed(snapshot: Snapshot, id: str) -> Slots:
    """What others say this master has."""
    found = 0
    for one in snapshot.seen.live:
        if one.id != id and (peer := one.server.peers.get(id)) is not None:
            found |= peer.slots
    return found


def _ended(snapshot: Snapshot, id: str) -> bool:
    """It does not answer, and cannot be serving."""
    return id not in snapshot.seen.by_id and _gone(snapshot, id)


def relieve(snapshot: Snapshot) -> Verdict | None:
    """Slots of a master that most others call failed go to its replica, also where no votes are left to elect it.

    The servers do so by themselves, but whoever voted in a shard gives it no vote for two node timeouts, and a replica
    asks for none for four: after a hand-over that is a minute without the slots.
    """
    return _first_move(
        snapshot.promote(heir, "FORCE", why="most masters call its own failed", failed=True)
        for id in (*snapshot.seen.absent_owners, *snapshot.seen.owners)
        if _outvoted(snapshot, id) and (heir := _successor(snapshot, id))
    )


def _outvoted(snapshot: Snapshot, id: str) -> bool:
    """Most masters have had no answer from it for long, and if we have one, it says that it does not serve."""
    live = snapshot.seen.by_id.get(id)
    if (live is not None and live.server.covered) or _waits(snapshot, id):
        return False
    return snapshot.most(sum(1 for one in snapshot.owners if one.server.silence(id) > SILENCE))


def _successor(snapshot: Snapshot, id: str) -> Live | None:
    """The replica with the most data, if it was in sync until nobody heard its master, and most masters hear it."""
    one = max(snapshot.seen.replicas_of(id), key=_rank, default=None)
    if one is None or not one.server.link_up or one.server.loading or one.server.syncing:
        return None
    return one if one.server.silence(id) > SILENCE and snapshot.most(len(snapshot.voters(one))) else None


def _rank(one: Live) -> tuple[int, int]:
    """Of two replicas the one with more of its master's writes, then the first."""
    return one.server.offset, -one.node.pod.ordinal


def _gone(snapshot: Snapshot, id: str) -> bool:
    """It cannot be serving: silence alone proves nothing, Kubernetes' word that it ended does."""
    node = snapshot.node_of(id)
    if node is None or node.server is not None:
        return True  # no such pod any more, or the pod runs under another id
    if node.gate is not None:
        return False  # decided by `release`
    return snapshot.gone_for_sure(node)


def take_over(snapshot: Snapshot, owner: str, *, why: str) -> Verdict | None:
    """The best replica of an owner that is gone: by votes, or by itself where no majority is left to vote."""
    heirs = [one for one in snapshot.seen.replicas_of(owner) if not one.server.loading]
    if not heirs:
        return None
    if not snapshot.majority() and not all(
        _gone(snapshot, id) or _waits(snapshot, id) for id in snapshot.seen.absent_owners
    ):
        return Wait(
            reason="NoMajority",
            message="most masters do not answer, and some of them may be running: bring back their nodes",
            after=2.0,
            stalled=True,
        )
    best = max(heirs, key=_rank)
    if snapshot.majority():
        return snapshot.promote(best, "FORCE", why=why)
    return Promote(target=target_of(best), how="TAKEOVER", why=why)


def _waits(snapshot: Snapshot, id: str) -> bool:
    """Its server waits at its gate: it does not serve."""
    node = snapshot.node_of(id)
    return node is not None and node.gate is not None


def re_attach(snapshot: Snapshot) -> Verdict | None:
    """Replicas follow a master that serves, at the address it has now."""
    pairs = []
    serving = {one.id for one in snapshot.owners} | {one.id for one in newcomers(snapshot)}
    for one in snapshot.seen.live:
        if not one.master or not snapshot.stays(one.node):
            continue
        master = snapshot.seen.by_id.get(one.master)
        if one.master in snapshot.seen.absent_owners or (master is None and snapshot.seen.covered != ALL):
            continue  # it may have the only copy of slots that nobody serves
        if one.master not in serving:
            if choice := _best(snapshot, one):
                pairs.append((target_of(one), choice.id))
        elif master is not None and one.server.master not in (None, master.node.address):
            pairs.append((target_of(one), one.master))
    if pairs:
        names = ", ".join(one.name for one, _ in pairs)
        return Attach(pairs=tuple(pairs[:1]), why=f"{names} follows nobody who serves")
    return None


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
    """Ids that nobody will ever answer to again; none while a slot has no live owner, since it may be one of theirs."""
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


def _attach_spare(snapshot: Snapshot) -> Verdict | None:
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


def settle(snapshot: Snapshot) -> Verdict | None:
    """Marks of a move that nobody continues, once everybody who may have keys of the slots can be asked.

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


# --- at rest -----------------------------------------------------------------------------------------------


def waiting(snapshot: Snapshot) -> Verdict | None:
    """What keeps a cluster from being whole although nothing can be done about it now."""
    if snapshot.seen.foreign:
        return _foreign(snapshot)
    if lost := snapshot.seen.absent_owners:
        slots = sum(count(part) for part in lost.values())
        return Wait(
            reason="SlotsWithoutOwner",
            message=f"{slots} slots have no live owner{troubles(snapshot)}",
            after=0.5,
            stalled=not snapshot.missing or bool(snapshot.unmade),
        )
    if not snapshot.complete:
        return pods_starting(snapshot, answering=_answering(snapshot))
    if left := ALL & ~snapshot.seen.covered:
        return Wait(
            reason="SlotsWithoutOwner",
            message=f"no node knows of an owner of the slots {show(left)}; give them to one by CLUSTER ADDSLOTSRANGE",
            after=2.0,
            stalled=True,
        )
    if verdict := snapshot.agreeing():
        return verdict
    for one in snapshot.seen.live:
        if one.server.loading or (one.master and (one.server.syncing or not one.server.link_up)):
            return Wait(reason="Synchronising", message=f"{one.name} is not in sync yet", after=0.5)
    return None
