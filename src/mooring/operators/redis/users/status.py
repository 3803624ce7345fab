"""What status says of users. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from mooring.operators.redis.users.accounts import DEFAULT, owned
from mooring.operators.redis.users.moves import SetUsers, UsersDone, UsersMove
from mooring.operators.redis.users.plan import ServerUsers, UsersState, tried
from mooring.operators.redis.users.types import UserResult
from mooring.operators.redis.users.wanted import WantedUser

__all__ = ["other_users", "refusals", "refused_by", "results", "unmet"]

Results = Mapping[str, UserResult]


def refused_by(known: Results | None) -> dict[str, str]:
    """What servers refused, by user, for `next_users`."""
    return {name: one.refused for name, one in (known or {}).items() if one.refused}


def refusals(
    known: Results | None,
    move: UsersMove,
    done: UsersDone,
    *,
    servers: Sequence[ServerUsers],
    now: datetime,
) -> dict[str, UserResult] | None:
    """The results after a step; what servers refused stands there until it changes."""
    made = dict(known or {})
    for one in move.users if isinstance(move, SetUsers) else ():
        if one.name not in done.refused:
            continue
        versions = [it.version for it in servers if it.users is not None]
        said = done.refused[one.name].removeprefix("ERR ")
        made[one.name] = UserResult(
            state="Refused",
            message=f"{one.where}.rules: {said}; correct it",
            refused=tried(one, versions),
            since=now,
        )
    return made or None


def results(
    known: Results | None, state: UsersState, servers: Sequence[ServerUsers], *, now: datetime
) -> dict[str, UserResult] | None:
    """What became of each declared user; an entry keeps its time while it says the same."""
    made: dict[str, UserResult] = {}
    for user in state.wanted:
        if user.own or not user.where:
            continue
        before = (known or {}).get(user.name)
        one = _result(before, state, user, servers)
        same = before is not None and (before.state, before.message) == (one.state, one.message)
        made[user.name] = before if same and before is not None else replace(one, since=now)
    return made or None


def _result(
    before: UserResult | None, state: UsersState, user: WantedUser, servers: Sequence[ServerUsers]
) -> UserResult:
    if user.missing:
        return UserResult(state="SecretMissing", message=user.missing)
    able = [one for one in servers if one.users is not None]
    if before is not None and before.refused and before.refused == tried(user, [one.version for one in able]):
        return before
    if servers and len(able) < len(servers):
        old = next(one for one in servers if one.users is None)
        if user.name == DEFAULT or not able:
            text = f"{user.where}: {old.name} runs Redis {old.version}; users need 6.0 or later"
            return UserResult(state="Pending", message=text)
    held = state.held.get(user.name)
    if held is None or (held.rules, held.enabled) != (user.rules, user.enabled) or not held.same:
        if user.name == DEFAULT and not state.ready:
            text = (
                f"{user.where}: pods must be recreated first, so that none starts with an open default user"
            )
            return UserResult(state="Pending", message=text)
        return UserResult(state="Pending")
    return UserResult(state="Changing" if held.since is not None else "Applied")


def unmet(known: Results | None) -> list[str]:
    """What of the declaration servers do not have, for people."""
    return [one.message for _, one in sorted((known or {}).items()) if one.message]


def other_users(state: UsersState, servers: Sequence[ServerUsers]) -> list[str] | None:
    """Users that servers have and nobody declared: they are left alone."""
    if not state.managed:
        return None
    ours = {one.name for one in state.wanted} | set(state.held) | set(state.removed)
    seen = {name for one in servers if one.users is not None for name in one.users.users}
    return sorted(name for name in seen - ours if not owned(name)) or None
