"""The rules: from one look at a cluster to the next safe step. Pure.

The order is the order of importance. Servers that are held back first, for they may be all there is; then the
cluster is founded, or healed; only a whole one is scaled, and only one at rest gets new pods. Each rule looks at
what there is and nothing else, so that a step interrupted anywhere is simply taken again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mooring.operators.redis.cluster.correct import correct, pods_starting, troubles
from mooring.operators.redis.cluster.look import Look, target_of
from mooring.operators.redis.cluster.moves import (
    Attach,
    Claim,
    Forget,
    InSync,
    LetIn,
    Meet,
    Promote,
    Record,
    Settle,
    Target,
    Verdict,
    Wait,
)
from mooring.operators.redis.cluster.pair import pair
from mooring.operators.redis.cluster.placement import Place, best_master, choose_masters, matched
from mooring.operators.redis.cluster.roll import roll, turn_back
from mooring.operators.redis.cluster.scale import head_of, newcomers, scale
from mooring.operators.redis.cluster.slots import ALL, Slots, count, shares, show
from mooring.operators.redis.cluster.strangers import expel
from mooring.operators.redis.cluster.topology import SILENCE, Live, Node, outranked

__all__ = ["next_step"]


def next_step(look: Look) -> Verdict:
    """What to do now; a corrected declaration comes after all that heals, and before any waiting."""
    verdict = _first_of_all(look)
    return (correct(look) or verdict) if isinstance(verdict, Wait) else verdict


def _first_of_all(look: Look) -> Verdict:
    if look.wanted.nodes == 2:
        return pair(look)
    rules = (let_in, found) if not look.recorded.formed else (let_in, heal, turn_back, scale, waiting, roll)
    for rule in rules:
        verdict = rule(look)
        if verdict is not None:
            return verdict
    return InSync()


# --- servers that are held back ----------------------------------------------------------------------------


def let_in(look: Look) -> Verdict | None:
    """Whom nobody can be harmed by; who may bring less than others have waits until they have taken over."""
    as_is, fresh, rescue = [], [], []
    for node in look.seen.nodes:
        if node.held is None:
            continue
        how = _hold(look, node)
        if how == "as is":
            as_is.append(target_of(node))
        elif how == "fresh":
            fresh.append(target_of(node))
        else:
            rescue.append(node)
    if as_is or fresh:
        names = ", ".join(one.name for one in (*as_is, *fresh))
        return LetIn(as_is=tuple(as_is), fresh=tuple(fresh), why=f"{names} may begin")
    if rescue and (verdict := mesh(look)):
        return verdict  # nobody is voted for by nodes that do not know one another
    return _first_move(
        take_over(look, _ghost_at(look, node) or node.id, why=f"{node.name} came back without its data")
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


def _hold(look: Look, node: Node) -> str:
    """``as is``, ``fresh``, or "" to hold it back for now."""
    assert node.held is not None
    if not node.held.id and (ghost := _ghost_at(look, node)):
        return "" if node.held.disk == "none" or _may_have_copies(look, ghost) else "as is"
    if node.held.disk == "full" or not node.held.id:
        return "fresh" if node.held.disk != "none" and _left_earlier(look, node.held.id) else "as is"
    if not look.seen.live:
        # Nobody tells who has its slots. Those with data begin; if nobody has any, there is nothing to guard.
        others = [one for one in look.seen.nodes if one is not node]
        answered = [one for one in others if one.held is not None]
        best = max((_RANK[one.held.disk] for one in answered if one.held), default=0)
        silent = len(answered) < len(others)
        return "as is" if not silent and _RANK[node.held.disk] >= best else ""
    if node.held.id not in look.seen.absent_owners:
        known = [one.server.peers.get(node.held.id) for one in look.seen.live]
        follows = any(peer is not None and peer.master for peer in known)
        return "as is" if follows else "fresh"
    return "" if _may_have_copies(look, node.held.id) else "as is"


def _left_earlier(look: Look, id: str) -> bool:
    """Data of a node that was taken out, or of none: nobody knows it, and others serve every slot."""
    known = any(id in one.server.peers for one in look.seen.live)
    return look.recorded.formed and look.seen.covered == ALL and not known


_RANK: Final = {"none": 0, "part": 1, "full": 2}


def _ghost_at(look: Look, node: Node) -> str:
    """The id of an owner of slots whom others still know at this node's address, or ""."""
    for one in look.seen.live:
        for peer in one.server.peers.values():
            if peer.address.ip == node.pod.ip and peer.id in look.seen.absent_owners and peer.id != node.id:
                return peer.id
    return ""


def _may_have_copies(look: Look, owner: str) -> bool:
    """A replica of it answers, or one that does not answer may still."""
    if look.seen.replicas_of(owner):
        return True
    followers = {
        peer.id for one in look.seen.live for peer in one.server.peers.values() if peer.master == owner
    }
    return any(
        (node := look.node_of(id)) is not None and node.server is None and not _emptied(node)
        for id in followers
    )


def _emptied(node: Node) -> bool:
    return node.held is not None and node.held.disk == "none"


# --- the beginning -----------------------------------------------------------------------------------------


def found(look: Look) -> Verdict | None:
    """Make a cluster of nodes that are none yet, from wherever an earlier attempt got to."""
    seen = look.seen
    if not look.complete and seen.assigned != ALL:
        return pods_starting(look, answering=_answering(look))
    if verdict := mesh(look):  # of those that are no strangers: these wait for a person, and nobody for them
        return verdict
    if seen.foreign:
        return _foreign(look)
    if seen.assigned != ALL:
        return _claim(look)
    if verdict := _attach_spare(look):
        return verdict
    if not look.complete:
        return pods_starting(look, answering=_answering(look))
    if verdict := look.agreeing(serving=False):
        return verdict
    return Record(formed=True, why="all slots have an owner, and every node agrees")


def _claim(look: Look) -> Verdict:
    seen = look.seen
    candidates = [look.place(one) for one in seen.live if one.is_master and look.stays(one.node)]
    fixed = [one.name for one in look.owners]
    names = choose_masters(candidates, number=max(look.masters, len(fixed)), fixed=fixed)
    takers = [one for one in seen.live if one.name in names and not one.slots]
    parts = [part for each in shares(look.masters) if (part := each & ~seen.assigned)]
    if not takers:
        takers = [min(look.owners, key=lambda one: count(one.slots))] * len(parts)
    given: dict[Target, int] = {}
    for at, part in enumerate(parts):
        taker = target_of(takers[min(at, len(takers) - 1)])
        given[taker] = given.get(taker, 0) | part
    shown = "; ".join(f"{one.name} {show(part)}" for one, part in given.items())
    return Claim(parts=tuple(given.items()), why=f"first slots: {shown}")


def _answering(look: Look) -> int:
    return sum(1 for one in look.seen.live if look.stays(one.node))


def _foreign(look: Look) -> Wait:
    names = ", ".join(f"{one.name} ({one.server.keys} keys)" for one in look.seen.foreign)
    return Wait(
        reason="ForeignData",
        message=f"{names} has data and belongs to no cluster; empty it by FLUSHALL if the data may go. Files that were put "
        "onto its volume to be restored: keep a copy, FLUSHALL, and once the cluster runs start a redis-server on the copy "
        "and bring its keys in by redis-cli --cluster import",
        after=10.0,
        stalled=True,
    )


# --- healing -----------------------------------------------------------------------------------------------


def heal(look: Look) -> Verdict | None:
    """Everybody reachable, every slot served, every replica where it belongs."""
    handed = hand_over(look)
    if handed is not None and not isinstance(handed, Wait):
        return handed
    for rule in (mesh, rescue, relieve, outrank, re_attach, expel, forget, _attach_spare, settle):
        if verdict := rule(look):
            return verdict
    return handed


def hand_over(look: Look) -> Verdict | None:
    """A master whose pod is being deleted gives its slots to its replica while it still can."""
    return _first_move(
        look.promote(heir, "", why=f"the pod of {one.name} is being deleted")
        for one in look.owners
        if one.node.pod.terminating and not _outvoted(look, one.id) and (heir := heir_of(look, one.id))
    )


def heir_of(look: Look, master: str) -> Live | None:
    """The replica to take over in agreement: in sync, not leaving itself, with the highest offset."""
    ready = [
        one
        for one in look.seen.replicas_of(master)
        if one.server.link_up
        and not (one.server.syncing or one.server.loading or one.node.pod.terminating)
        and look.stays(one.node)
    ]
    return max(ready, key=_rank, default=None)


def mesh(look: Look) -> Verdict | None:
    """Every live node knows every other one at the address it has now.

    Those that know each other and lost their connection make a new one by themselves, within a tenth of a second. A
    MEET would cut it once more: the connection that it comes by takes the place of the one before.
    """
    pairs, meeting = [], []
    for one in look.members:
        greeted = {peer.address.ip for peer in one.server.view if not peer.settled}
        for other in look.members:
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
        number = not look.recorded.formed and not look.seen.assigned
        return Meet(pairs=tuple(pairs), number=number, why=why)
    if meeting:
        return Wait(reason="Meeting", message=f"{meeting[0]} is getting to know the others", after=0.1)
    return None


def rescue(look: Look) -> Verdict | None:
    """Slots whose owner is gone for sure go to its replica without waiting for the node timeout."""
    return _first_move(
        take_over(look, owner, why="its master is gone")
        for owner in look.seen.absent_owners
        if _gone(look, owner)
    )


def outrank(look: Look) -> Verdict | None:
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
            failed=not _ended(look, peer.id),
            why=f"{one.name} serves, and the others do not know: its number is too low",
        )
        for one in look.seen.live
        if one.slots and one.server.covered and look.most(len(look.voters(one)))
        for peer in one.server.peers.values()
        if outranked(one.server, peer.id)
        and not one.slots & ~_claimed(look, peer.id)
        and (_ended(look, peer.id) or (_outvoted(look, peer.id) and one.server.silence(peer.id) > SILENCE))
    )


def _claimed(look: Look, id: str) -> Slots:
    """What others say this master has."""
    found = 0
    for one in look.seen.live:
        if one.id != id and (peer := one.server.peers.get(id)) is not None:
            found |= peer.slots
    return found


def _ended(look: Look, id: str) -> bool:
    """It does not answer, and cannot be serving."""
    return id not in look.seen.by_id and _gone(look, id)


def relieve(look: Look) -> Verdict | None:
    """Slots of a master that most others call failed go to its replica, also where no votes are left to elect it.

    The servers do so by themselves, but whoever voted in a shard gives it no vote for two node timeouts, and a replica
    asks for none for four: after a hand-over that is a minute without the slots.
    """
    return _first_move(
        look.promote(heir, "FORCE", why="most masters call its own failed", failed=True)
        for id in (*look.seen.absent_owners, *look.seen.owners)
        if _outvoted(look, id) and (heir := _successor(look, id))
    )


def _outvoted(look: Look, id: str) -> bool:
    """Most masters have had no answer from it for long, and if we have one, it says that it does not serve."""
    live = look.seen.by_id.get(id)
    if (live is not None and live.server.covered) or _waits(look, id):
        return False
    return look.most(sum(1 for one in look.owners if one.server.silence(id) > SILENCE))


def _successor(look: Look, id: str) -> Live | None:
    """The replica with the most data, if it was in sync until nobody heard its master, and most masters hear it."""
    one = max(look.seen.replicas_of(id), key=_rank, default=None)
    if one is None or not one.server.link_up or one.server.loading or one.server.syncing:
        return None
    return one if one.server.silence(id) > SILENCE and look.most(len(look.voters(one))) else None


def _rank(one: Live) -> tuple[int, int]:
    """Of two replicas the one with more of its master's writes, then the first."""
    return one.server.offset, -one.node.pod.ordinal


def _gone(look: Look, id: str) -> bool:
    """It cannot be serving: silence alone proves nothing, Kubernetes' word that it ended does."""
    node = look.node_of(id)
    if node is None or node.server is not None:
        return True  # no such pod any more, or the pod runs under another id
    if node.held is not None:
        return False  # decided by `let_in`
    return look.gone_for_sure(node)


def take_over(look: Look, owner: str, *, why: str) -> Verdict | None:
    """The best replica of an owner that is gone: by votes, or by itself where no majority is left to vote."""
    heirs = [one for one in look.seen.replicas_of(owner) if not one.server.loading]
    if not heirs:
        return None
    if not look.majority() and not all(_gone(look, id) or _waits(look, id) for id in look.seen.absent_owners):
        return Wait(
            reason="NoMajority",
            message="most masters do not answer, and some of them may be running: bring back their nodes",
            after=2.0,
            stalled=True,
        )
    best = max(heirs, key=_rank)
    if look.majority():
        return look.promote(best, "FORCE", why=why)
    return Promote(target=target_of(best), how="TAKEOVER", why=why)


def _waits(look: Look, id: str) -> bool:
    """Its server is held back: it does not serve."""
    node = look.node_of(id)
    return node is not None and node.held is not None


def re_attach(look: Look) -> Verdict | None:
    """Replicas follow a master that serves, at the address it has now."""
    pairs = []
    serving = {one.id for one in look.owners} | {one.id for one in newcomers(look)}
    for one in look.seen.live:
        if not one.master or not look.stays(one.node):
            continue
        master = look.seen.by_id.get(one.master)
        if one.master in look.seen.absent_owners or (master is None and look.seen.covered != ALL):
            continue  # it may have the only copy of slots that nobody serves
        if one.master not in serving:
            if choice := _best(look, one):
                pairs.append((target_of(one), choice.id))
        elif master is not None and one.server.master not in (None, master.node.address):
            pairs.append((target_of(one), one.master))
    if pairs:
        names = ", ".join(one.name for one, _ in pairs)
        return Attach(pairs=tuple(pairs[:1]), why=f"{names} follows nobody who serves")
    return None


def _best(look: Look, replica: Live) -> Live | None:
    """The master that needs a replica most."""
    masters = [one for one in (*look.owners, *newcomers(look)) if one.id in replica.server.peers]
    if not masters:
        return None
    have = look.replicas(staying=True)
    chosen = best_master(
        look.place(replica),
        [look.place(one) for one in masters],
        replicas={one.name: have[one.id] for one in masters},
    )
    return next(one for one in masters if one.name == chosen.name)


def forget(look: Look) -> Verdict | None:
    """Ids that nobody will ever answer to again; none while a slot has no live owner, since it may be one of theirs."""
    if look.seen.covered != ALL:
        return None
    silent = {
        id
        for node in look.seen.nodes
        if node.server is None
        for id in (node.id, look.recorded.ids.get(node.name))
    }
    kept = {*look.seen.by_id, *silent, *(one.master for one in look.seen.live)}
    ghosts: set[str] = set()
    knowing = []
    for one in look.seen.live:
        if theirs := {peer.id for peer in one.server.peers.values()} - kept:
            ghosts |= theirs
            knowing.append(target_of(one))
    absent = look.wanted.pods - len(look.seen.nodes)
    if not ghosts or absent > 0:
        return None
    return Forget(
        ids=tuple(sorted(ghosts)),
        targets=tuple(knowing),
        why=f"{len(ghosts)} ids belong to no pod any more",
    )


def _attach_spare(look: Look) -> Verdict | None:
    """Nodes without slots that are not about to get any follow a master."""
    new = newcomers(look)
    if look.recorded.formed and new and not look.complete:
        return None  # who becomes a master is best chosen among all
    free = [one for one in look.spare if one not in new]
    masters = [*look.owners, *new]
    if not free or not masters:
        return None
    if look.recorded.formed or any(look.replicas().values()):
        first = free[0]
        choice = _best(look, first)
        pairs = [(target_of(first), choice.id)] if choice else []
    else:
        by_name = {one.name: one for one in masters}
        places: list[Place] = [look.place(one) for one in masters]
        chosen = matched(places, [look.place(one) for one in free])
        pairs = [(target_of(one), by_name[chosen[one.name]].id) for one in free]
    if not pairs:
        return None
    names = ", ".join(one.name for one, _ in pairs)
    return Attach(
        pairs=tuple(pairs),
        why=f"{names} become{'s' if len(pairs) == 1 else ''} {'a replica' if len(pairs) == 1 else 'replicas'}",
    )


def settle(look: Look) -> Verdict | None:
    """Marks of a move that nobody continues, once everybody who may have keys of the slots can be asked.

    A plan under way continues what its slots' owner is giving away; a mark that the owner knows nothing of hinders it,
    since the node that bears it does not learn who owns the slot. A server that was dead while its replica took over
    makes such marks itself, for keys that it finds in slots of others.
    """
    if look.seen.absent_owners:
        return None
    marks = look.seen.marks()
    waiting = {mark.slot for _, mark in marks if _may_return(look, mark.peer)}
    meant = {(at.id, mark.slot): head_of(look, mark.peer) for at, mark in marks if mark.outgoing}
    halfway: dict[tuple[str, str], Slots] = {}
    for bearer, mark in marks:
        owner = next((id for id, slots in look.seen.owners.items() if slots >> mark.slot & 1), "")
        giver = bearer.id if mark.outgoing else mark.peer
        goes_on = look.recorded.plan is not None and giver == owner and (owner, mark.slot) in meant
        if not owner or mark.slot in waiting or goes_on:
            continue
        both = owner, meant.get((owner, mark.slot), "")
        halfway[both] = halfway.get(both, 0) | 1 << mark.slot
    if not halfway:
        return None
    (owner, heir), slots = next(iter(halfway.items()))
    one = look.seen.by_id[owner]
    return Settle(
        slots=slots,
        owner=target_of(one),
        masters=tuple(target_of(one) for one in look.seen.live if one.is_master),
        meant=heir,
        why=f"slots {show(slots)} of {one.name} were left half-way",
    )


def _may_return(look: Look, id: str) -> bool:
    """It does not answer now, and its pod may come back under this id."""
    node = look.node_of(id)
    return id not in look.seen.by_id and node is not None and node.server is None


# --- at rest -----------------------------------------------------------------------------------------------


def waiting(look: Look) -> Verdict | None:
    """What keeps a cluster from being whole although nothing can be done about it now."""
    if look.seen.foreign:
        return _foreign(look)
    if lost := look.seen.absent_owners:
        slots = sum(count(part) for part in lost.values())
        return Wait(
            reason="SlotsWithoutOwner",
            message=f"{slots} slots have no live owner{troubles(look)}",
            after=0.5,
            stalled=not look.missing or bool(look.unmade),
        )
    if not look.complete:
        return pods_starting(look, answering=_answering(look))
    if left := ALL & ~look.seen.covered:
        return Wait(
            reason="SlotsWithoutOwner",
            message=f"no node knows of an owner of the slots {show(left)}; give them to one by CLUSTER ADDSLOTSRANGE",
            after=2.0,
            stalled=True,
        )
    if verdict := look.agreeing():
        return verdict
    for one in look.seen.live:
        if one.server.loading or (one.master and (one.server.syncing or not one.server.link_up)):
            return Wait(reason="Synchronising", message=f"{one.name} is not in sync yet", after=0.5)
    return None
