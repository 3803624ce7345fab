"""The next step with the users of a cluster. Pure rules, the same for both kinds.

First the operator's own accounts and the declared users, on every server that answers. Then replicas and sentinels
present their accounts. The default user is closed last, when nothing of the operator's needs it any more, and only where
every pod knows how to start so. A password that is no longer declared stays valid for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from mooring.actor import digest
from mooring.operators.redis.users.accounts import DEFAULT
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.users.moves import (
    PresentAccount,
    RemoveUsers,
    SetUsers,
    TellSentinels,
    UsersMove,
)
from mooring.operators.redis.users.seen import SeenUsers
from mooring.operators.redis.users.wanted import OPEN, WantedUser

__all__ = ["HeldState", "ServerUsers", "UsersState", "grace_left", "next_users", "state_of", "tried"]


@dataclass(frozen=True, kw_only=True)
class HeldState:
    """What is known of a user that servers accepted; no part of it is secret."""

    rules: tuple[str, ...] = ()
    enabled: bool = True
    shown: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    """Since when an old password is no longer declared."""
    same: bool = True
    """The declared passwords are those that servers accepted."""


@dataclass(frozen=True, kw_only=True)
class UsersState:
    """What is to be, and what servers accepted."""

    managed: bool = False
    wanted: tuple[WantedUser, ...] = ()
    held: Mapping[str, HeldState] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    presents: bool = False
    told: bool = False
    ready: bool = False
    """Every pod starts without a default user where it is off."""
    grace: float = 60.0
    """Seconds for which a password stays valid that is no longer declared."""


@dataclass(frozen=True, kw_only=True)
class ServerUsers:
    """A server that answers; ``users`` is ``None`` of one before 6.0."""

    name: str
    version: str
    users: SeenUsers | None = None


def state_of(access: Access, *, ready: bool, grace: float) -> UsersState:
    """What decisions need of it."""
    held = {
        name: HeldState(
            rules=one.rules,
            enabled=one.enabled,
            shown=one.shown,
            since=one.since if one.old else None,
            same=name == DEFAULT or set(access.valid(name)) == set(one.hashes),
        )
        for name, one in access.held.users.items()
    }
    return UsersState(
        managed=access.managed,
        wanted=access.wanted,
        held=held,
        removed=access.held.removed,
        presents=access.held.presents,
        told=access.held.told,
        ready=ready,
        grace=grace,
    )


def tried(user: WantedUser, versions: Sequence[str]) -> str:
    """What a refusal is about: it is not tried again before this changes."""
    return digest([user.rules, sorted(set(versions))])[:10]


def next_users(
    state: UsersState,
    servers: Sequence[ServerUsers],
    *,
    now: datetime,
    refused: Mapping[str, str],
    sentinels: bool,
    calm: bool,
) -> UsersMove | None:
    """The next step, with the names of the servers it is for; ``None`` when there is none, or none yet.

    ``refused``: what servers refused, by user (see `tried`). ``calm``: no password of the cluster is being changed.
    """
    able = [one for one in servers if one.users is not None]
    if not state.managed or not able:
        return None
    users = [
        one
        for user in state.wanted
        if user.name != DEFAULT and (one := _effective(state, user, able, refused)) is not None
    ]
    if step := _set(state, users, able) or _settle(state, users, able, now) or _remove(state, able):
        return step
    if len(able) < len(servers):  # servers of before 6.0 know the default user alone
        return None
    if (late := [one for one in able if one.users and not one.users.presents]) or not state.presents:
        names = ", ".join(one.name for one in late)
        why = f"{names} must present the account of replicas" if names else "every server presents it"
        return PresentAccount(targets=_names(late), why=why)
    if sentinels and not state.told:
        return TellSentinels(why="sentinels must present their account")
    return _default(state, able, refused) if calm else None


def _effective(
    state: UsersState, user: WantedUser, servers: Sequence[ServerUsers], refused: Mapping[str, str]
) -> WantedUser | None:
    """The user that servers can be given: without a password, or where its rules were refused, the one before."""
    known = state.held.get(user.name)
    if user.missing and known is None:
        return None
    if refused.get(user.name) != tried(user, [one.version for one in servers]):
        return user
    return replace(user, rules=known.rules, enabled=known.enabled) if known is not None else None


def _set(state: UsersState, users: Sequence[WantedUser], servers: Sequence[ServerUsers]) -> SetUsers | None:
    lacking = {one.name: [user for user in users if _differs(state, user, one)] for one in servers}
    wrong = [user for user in users if any(user in found for found in lacking.values())]
    if not wrong:
        return None
    targets = [one for one in servers if lacking[one.name]]
    what, where = ", ".join(user.name for user in wrong), ", ".join(one.name for one in targets)
    return SetUsers(targets=_names(targets), users=tuple(wrong), why=f"{what} must be as declared on {where}")


def _differs(state: UsersState, user: WantedUser, server: ServerUsers) -> bool:
    known = state.held.get(user.name)
    seen = server.users.users.get(user.name) if server.users is not None else None
    if seen is None or known is None or not known.same:
        return True
    if seen.on is not user.enabled or not seen.current or seen.foreign:
        return True
    if (known.rules, known.enabled) != (user.rules, user.enabled):
        return True
    return known.shown.get(server.version) != seen.rules


def _settle(
    state: UsersState, users: Sequence[WantedUser], servers: Sequence[ServerUsers], now: datetime
) -> SetUsers | None:
    over = []
    for user in users:
        known = state.held.get(user.name)
        since = known.since if known is not None else None
        if since is not None and (now - since).total_seconds() >= state.grace:
            over.append(user)
    if not over:
        return None
    why = f"{', '.join(one.name for one in over)}: the old password stops to count"
    return SetUsers(targets=_names(servers), users=tuple(over), settle=True, why=why)


def grace_left(state: UsersState, now: datetime) -> float:
    """Seconds until the next old password ends; 0 when there is none."""
    moments = [one.since for one in state.held.values() if one.since is not None]
    if not moments:
        return 0.0
    return max(0.1, state.grace - (now - min(moments)).total_seconds())


def _remove(state: UsersState, servers: Sequence[ServerUsers]) -> RemoveUsers | None:
    declared = {one.name for one in state.wanted} | {DEFAULT}
    gone = [name for name in state.held if name not in declared]
    back = [
        name
        for name in state.removed
        if name not in declared and any(one.users and name in one.users.users for one in servers)
    ]
    if not gone and not back:
        return None
    names = tuple(sorted({*gone, *back}))
    return RemoveUsers(targets=_names(servers), names=names, why=f"{', '.join(names)} is no longer declared")


def _default(
    state: UsersState, servers: Sequence[ServerUsers], refused: Mapping[str, str]
) -> SetUsers | None:
    user = next((one for one in state.wanted if one.name == DEFAULT), None)
    if user is None:
        if DEFAULT not in state.held:
            return None
        return SetUsers(targets=_names(servers), users=(OPEN,), why="the default user is as ever again")
    effective = _effective(state, user, servers, refused)
    if effective is None or not state.ready:
        return None
    return _set(state, [effective], servers)


def _names(servers: Sequence[ServerUsers]) -> tuple[str, ...]:
    return tuple(one.name for one in servers)
