"""ACL users of nodes, and the account that replicas present: see `mooring.operators.redis.users`. Pure rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.redis.cluster.moves import MoveSlots
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.cluster.topology import Node
from mooring.operators.redis.users.plan import ServerUsers, grace_left, next_users

__all__ = ["change_users", "servers_of"]


def change_users(snapshot: Snapshot, verdict: Verdict) -> Verdict:
    """The next step with users in place of a verdict that can wait for it; slots that move wait for it too."""
    if not snapshot.recorded.formed or (isinstance(verdict, Move) and not isinstance(verdict, MoveSlots)):
        return verdict
    state = snapshot.password
    move = next_users(
        snapshot.users,
        servers_of(snapshot.seen.nodes),
        now=snapshot.now,
        refused=snapshot.recorded.refused_users,
        sentinels=False,
        # A restore sends every key as the default user.
        calm=not state.changing and not state.differs and snapshot.restore is None,
    )
    if move is not None:
        names = set(move.targets)
        return replace(
            move, targets=tuple(target_of(one) for one in snapshot.seen.nodes if one.name in names)
        )
    if isinstance(verdict, InSync) and (left := grace_left(snapshot.users, snapshot.now)):
        message = "the old password of a user is valid for a while; then the new one alone is"
        return Wait(reason="PasswordChanging", message=message, after=left)
    return verdict


def servers_of(nodes: Sequence[Node]) -> list[ServerUsers]:
    """The servers that answered, with their users."""
    return [
        ServerUsers(name=one.name, version=one.server.version, users=one.users)
        for one in nodes
        if one.server is not None
    ]
