"""ACL users of servers, and the accounts that replicas and sentinels present: see `mooring.operators.redis.users`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mooring.operators.redis.sentinel.moves import (
    TellSentinels,
    Verdict,
    Wait,
    data_target,
    sentinel_target,
)
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server
from mooring.operators.redis.users.plan import ServerUsers, grace_left, next_users
from mooring.operators.redis.versions import capabilities

__all__ = ["changing", "keep", "servers_of"]


def keep(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Bring the users of every server to what is declared, one step at a time; restarted ones too."""
    state, change = snapshot.observed.password, snapshot.recorded.password
    move = next_users(
        snapshot.observed.users,
        servers_of(snapshot.answering),
        now=snapshot.now,
        refused=snapshot.recorded.refused_users,
        sentinels=True,
        calm=change is None and not state.staged and not state.differs,
    )
    if move is None:
        return None
    if isinstance(move, TellSentinels):
        told = [
            one
            for one in snapshot.watchers
            if one.sentinel and one.sentinel.master and not one.sentinel.locked
        ]
        if any(
            one.sentinel and one.sentinel.version and not capabilities(one.sentinel.version).acl
            for one in snapshot.watchers
        ):
            return None  # they are rolled after the servers, and until then know the password alone
        return replace(move, targets=tuple(map(sentinel_target, told)))
    return replace(
        move, targets=tuple(data_target(one) for one, _ in snapshot.answering if one.name in move.targets)
    )


def servers_of(answering: Sequence[tuple[Member, Server]]) -> list[ServerUsers]:
    """The servers that answered, with their users."""
    return [ServerUsers(name=one.name, version=it.version, users=it.users) for one, it in answering]


def changing(snapshot: Snapshot) -> Wait | None:
    """While an old password of a user is still valid."""
    left = grace_left(snapshot.observed.users, snapshot.now)
    if not left:
        return None
    until = snapshot.later(left).strftime("%H:%M:%S")
    message = f"the old password of a user is valid until {until} UTC; then the new one alone is"
    return Wait("PasswordChanging", message, after=left)
