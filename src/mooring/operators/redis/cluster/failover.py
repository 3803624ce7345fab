"""Which replica takes over from a master, and how: promoted in agreement, by votes, or by itself. Pure rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mooring.operators.redis.cluster.moves import Promote, Tell, Verdict, Wait
from mooring.operators.redis.cluster.slots import Slots
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.cluster.topology import SILENCE, UNHEARD, Live, Node, outranked

__all__ = [
    "HUNG",
    "first_move",
    "hand_over",
    "outrank",
    "relieve",
    "replace_hung",
    "rescue",
    "suspects",
    "take_over",
]

HUNG: Final = 5
"""PINGs in a row that a master leaves unanswered, a second each, before it may be thought to hang: a fork of a large
server, or a slow disk, may hold one up for some seconds."""
DECIDED: Final = 20
"""From so many on the servers themselves have decided: the default of cluster-node-timeout is 15 s, plus the next ping."""
ASKED: Final = 2
"""Up to so many the other masters are asked for a sign of life. Later they are not: where only the operator is cut off,
each question costs them a connection."""


def hand_over(snapshot: Snapshot) -> Verdict | None:
    """A master whose pod is being deleted gives its slots to its replica while it still can."""
    return first_move(
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


def rescue(snapshot: Snapshot) -> Verdict | None:
    """Slots whose owner is gone for sure go to its replica without waiting for the node timeout."""
    return first_move(
        take_over(snapshot, owner, why="its master is gone")
        for owner in snapshot.seen.absent_owners
        if gone(snapshot, owner)
    )


def outrank(snapshot: Snapshot) -> Verdict | None:
    """A replica that took over under a number too low gets a higher one once its former master is lost.

    A replica counts the votes of its last election again if its master fails within two node timeouts after it. The
    others go on giving the slots to that master, whose number is higher, and only that one could put it right. It is
    told from a master that missed a change by this: all its slots are the others' for that one, it gives that one
    none, and it serves, which nobody does whom most masters do not hear.
    """
    return first_move(
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
    return id not in snapshot.seen.by_id and gone(snapshot, id)


def relieve(snapshot: Snapshot) -> Verdict | None:
    """Slots of a master that most others call failed go to its replica, also where no votes are left to elect it.

    The servers do so by themselves, but whoever voted in a shard gives it no vote for two node timeouts, and a replica
    asks for none for four: after a hand-over that is a minute without the slots.
    """
    return first_move(
        snapshot.promote(heir, "FORCE", why="most masters call its own failed", failed=True)
        for id in (*snapshot.seen.absent_owners, *snapshot.seen.owners)
        if _outvoted(snapshot, id) and (heir := _successor(snapshot, id))
    )


def replace_hung(snapshot: Snapshot) -> Verdict | None:
    """A master whose process stands still gives way before the node timeout has passed.

    It answers neither the operator nor most masters, which are told to introduce themselves again: by themselves they
    ask it only after some seconds. A master that works on something looks the same to all of them, a slow script or a
    fork; but its process runs, or did between two looks, and it is left to the node timeout.
    """
    return first_move(_replace(snapshot, id) for id in snapshot.seen.absent_owners)


def suspects(snapshot: Snapshot) -> list[Node]:
    """Masters that run, and have left so many PINGs unanswered that their process is to be looked at."""
    return [
        node
        for id in snapshot.seen.absent_owners
        if (node := _silent(snapshot, id)) and HUNG <= snapshot.missed.get(node.name, 0) <= DECIDED
    ]


def _silent(snapshot: Snapshot, id: str) -> Node | None:
    """The pod of a master that does not answer although it runs."""
    node = snapshot.node_of(id)
    if node is None or node.server is not None or node.gate is not None:
        return None
    return node if node.pod.ip and node.pod.running and not node.pod.terminating else None


def _replace(snapshot: Snapshot, id: str) -> Verdict | None:
    node = _silent(snapshot, id)
    if node is None:
        return None
    missed = snapshot.missed.get(node.name, 0)
    waiting = [
        one
        for one in snapshot.owners
        if any(new.address.ip == node.pod.ip for new in one.server.view if not new.settled)
        or ((peer := one.server.peers.get(id)) is not None and peer.doubted)
    ]
    if 0 < missed <= ASKED and (pairs := [one for one in snapshot.owners if one not in waiting]):
        return Tell(
            pairs=tuple((target_of(one), node.address) for one in pairs),
            why=f"{node.name} does not answer: the other masters ask it too",
        )
    if missed < HUNG or node.name not in snapshot.still or not snapshot.most(len(waiting)):
        return None
    heir = max(
        (
            one
            for one in snapshot.seen.replicas_of(id)
            if one.server.link_up and not (one.server.syncing or one.server.loading)
        ),
        key=_rank,
        default=None,
    )
    if heir is None or heir.node.pod.terminating or heir.server.last_io < UNHEARD:
        return None
    return snapshot.promote(heir, "FORCE", why=f"{node.name} hangs: its process does nothing", hung=True)


def _outvoted(snapshot: Snapshot, id: str) -> bool:
    """Most masters have had no answer from it for long, and if we have one, it says that it does not serve."""
    live = snapshot.seen.by_id.get(id)
    if (live is not None and live.server.covered) or waits(snapshot, id):
        return False
    return snapshot.most(sum(1 for one in snapshot.owners if one.server.silence(id) > SILENCE))


def _successor(snapshot: Snapshot, id: str) -> Live | None:
    """The replica with the most data, if it was in sync until its master fell silent and most masters hear it."""
    one = max(snapshot.seen.replicas_of(id), key=_rank, default=None)
    if one is None or not one.server.link_up or one.server.loading or one.server.syncing:
        return None
    return one if one.server.silence(id) > SILENCE and snapshot.most(len(snapshot.voters(one))) else None


def _rank(one: Live) -> tuple[int, int]:
    """Of two replicas the one with more of its master's writes, then the first."""
    return one.server.offset, -one.node.pod.ordinal


def gone(snapshot: Snapshot, id: str) -> bool:
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
        gone(snapshot, id) or waits(snapshot, id) for id in snapshot.seen.absent_owners
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


def waits(snapshot: Snapshot, id: str) -> bool:
    """Its server waits at its gate: it does not serve."""
    node = snapshot.node_of(id)
    return node is not None and node.gate is not None


def first_move(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """What can be done for one; only if there is nothing, what is waited for: no shard holds up another."""
    waits = None
    for verdict in verdicts:
        if isinstance(verdict, Wait):
            waits = waits or verdict
        elif verdict is not None:
            return verdict
    return waits
