"""Who is released from its gate: a server that waits there may be all there is of some slots. Pure rules."""

from __future__ import annotations

from typing import Final

from mooring.operators.redis.cluster.failover import first_move, take_over
from mooring.operators.redis.cluster.members import mesh
from mooring.operators.redis.cluster.moves import Release, Verdict
from mooring.operators.redis.cluster.slots import ALL
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.cluster.topology import Node
from mooring.operators.redis.versions import capabilities

__all__ = ["release"]

LATELY: Final = 5
"""Seconds since a replica lost its master until that one is awaited instead: its restart is then as quick."""


def release(snapshot: Snapshot) -> Verdict | None:
    """Release the servers that are safe to start. A server that may hold older data waits until its replica has taken over."""
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
        return Release(as_is=tuple(as_is), fresh=tuple(fresh), founding=founding, why=f"{names} may start")
    if rescue and (verdict := mesh(snapshot)):
        return verdict  # nodes that do not know one another cannot vote
    return first_move(
        take_over(
            snapshot,
            _ghost_at(snapshot, node) or node.id,
            why=f"{node.name} restarts"
            if node.gate and node.gate.disk == "full"
            else f"{node.name} came back without its data",
        )
        for node in rescue
    )


def _hold(snapshot: Snapshot, node: Node) -> str:
    """``as is``, ``fresh``, or "" to hold it back for now."""
    assert node.gate is not None
    if not node.gate.id and (ghost := _ghost_at(snapshot, node)):
        return "" if node.gate.disk == "none" or _may_have_copies(snapshot, ghost) else "as is"
    if node.gate.disk == "full" and _succeeds(snapshot, node.gate.id):
        return ""
    if node.gate.disk == "full" or not node.gate.id:
        return "fresh" if node.gate.disk != "none" and _left_earlier(snapshot, node.gate.id) else "as is"
    if not snapshot.seen.live:
        # No node says who has its slots. Those with data start; if none has any, there is nothing to guard.
        others = [one for one in snapshot.seen.nodes if one is not node]
        answered = [one for one in others if one.gate is not None]
        best = max((_RANK[one.gate.disk] for one in answered if one.gate), default=0)
        silent = len(answered) < len(others)
        return "as is" if not silent and _RANK[node.gate.disk] >= best else ""
    if node.gate.id not in snapshot.seen.absent_owners:
        known = [one.server.peers.get(node.gate.id) for one in snapshot.seen.live]
        if not any(known) and node.gate.disk != "none" and snapshot.seen.covered != ALL:
            return "as is"  # nodes that know nothing yet do not prove that its data is old
        follows = any(peer is not None and peer.master for peer in known)
        return "as is" if follows else "fresh"
    return "" if _may_have_copies(snapshot, node.gate.id) else "as is"


def _left_earlier(snapshot: Snapshot, id: str) -> bool:
    """Data of a node that was taken out, or of none: no node knows it, and others serve every slot."""
    known = any(id in one.server.peers for one in snapshot.seen.live)
    return snapshot.recorded.formed and snapshot.seen.covered == ALL and not known


def _succeeds(snapshot: Snapshot, owner: str) -> bool:
    """Its replicas were in sync until it died a moment ago: one of them serves seconds before a restarted master may.

    A restarted master refuses writes for two seconds. Every replica has to answer: a write that WAIT confirmed may be
    on any of them, and the one with the most data is chosen. Before 4.0 the master is awaited: a password with a space does
    not let it follow (`Capabilities.inline_auth`).
    """
    replicas = snapshot.seen.replicas_of(owner)
    return (
        owner in snapshot.seen.absent_owners
        and snapshot.majority()
        and _followers(snapshot, owner) <= {one.id for one in replicas}
        and bool(replicas)
        and all(
            0 <= one.server.cut <= LATELY and not one.server.syncing and not one.server.loading
            for one in replicas
        )
        and not any(capabilities(one.server.version).inline_auth for one in replicas)
    )


def _followers(snapshot: Snapshot, owner: str) -> set[str]:
    """Ids of the nodes that anybody knows as its replicas."""
    return {
        peer.id for one in snapshot.seen.live for peer in one.server.peers.values() if peer.master == owner
    }


_RANK: Final = {"none": 0, "part": 1, "full": 2}


def _ghost_at(snapshot: Snapshot, node: Node) -> str:
    """The id of an absent owner of slots that other nodes still know at this node's address, or ""."""
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
    return any(
        (node := snapshot.node_of(id)) is not None and node.server is None and not _emptied(node)
        for id in _followers(snapshot, owner)
    )


def _emptied(node: Node) -> bool:
    return node.gate is not None and node.gate.disk == "none"
