"""The next step of a change of the password. Pure rules, the same for both kinds.

Where servers accept two (6.0), both are valid from before the first one presents the new one until a while after it was
published. Where they accept one, and where one of the two is "no password", all of them switch at once. The Secret says
what is under way; the servers themselves say how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from mooring.actor import Wait
from mooring.operators.redis.passwords.moves import (
    AddPassword,
    DropPassword,
    PasswordMove,
    PresentPassword,
    PublishPassword,
    ServerAuth,
    SetPassword,
    StagePassword,
    SwitchPassword,
)
from mooring.operators.redis.passwords.seen import Auth
from mooring.operators.workload.credentials import Label, PasswordState

__all__ = ["astray", "can_overlap", "grace_left", "locked_out", "names_of", "next_password"]


def next_password(
    state: PasswordState, servers: Sequence[ServerAuth], *, now: datetime
) -> PasswordMove | None:
    """The next step of a change; ``None`` when there is none, or none yet."""
    if not state.changing:
        return StagePassword(why="another password is declared") if state.differs else None
    newest: Label = "next" if state.staged else "password"
    if can_overlap(state, servers):
        if move := _overlap(state, servers, newest, now):
            return move
    elif old := _those(servers, lambda auth: newest not in auth.accepts & auth.presents):
        return SwitchPassword(targets=old, why=f"{names_of(old)} take the new password from now on")
    if state.staged:
        return PublishPassword(why="every server takes and presents the new password")
    if grace_left(state, now):
        return None
    if old := _those(servers, lambda auth: "previous" in auth.accepts and auth.two):
        return SetPassword(targets=old, why=f"{names_of(old)} take the new password and no other")
    return DropPassword(why="every server takes the new password and no other")


def can_overlap(state: PasswordState, servers: Sequence[ServerAuth]) -> bool:
    """Two passwords can be valid at once: neither of them is none, and every server takes two."""
    return not state.open and all(one.auth.two for one in servers)


def grace_left(state: PasswordState, now: datetime) -> float:
    """Seconds for which the previous password stays valid beside the one that was published."""
    if not state.retired:
        return 0.0
    if state.published is None:
        return float("inf")
    return max(0.0, state.grace - (now - state.published).total_seconds())


def astray(servers: Sequence[ServerAuth]) -> tuple[ServerAuth, ...]:
    """Servers that accept or present another password than the one in force."""
    return _those(
        servers,
        lambda auth: "password" not in auth.accepts & auth.presents or "previous" in auth.accepts,
    )


def locked_out(state: PasswordState, locked: Sequence[str]) -> Wait | None:
    """What to do where the ``locked`` pods' servers take no password that is known, and no other server answers."""
    if not locked:
        return None
    patch = f"""kubectl patch secret {state.secret} -p '{{"stringData":{{"password":"PASSWORD"}}}}'"""
    return Wait(
        "PasswordRefused",
        f"{', '.join(locked)} take no password that the Secret {state.secret} has; write the one that they take into "
        f"it, and they are given the declared one: {patch}",
        after=5.0,
        stalled=True,
    )


def names_of(servers: Sequence[ServerAuth]) -> str:
    """For people."""
    return ", ".join(one.name for one in servers)


def _overlap(
    state: PasswordState, servers: Sequence[ServerAuth], newest: Label, now: datetime
) -> PasswordMove | None:
    """Every server accepts both while both are to be valid, and then presents the newest."""
    wanted: set[Label] = {newest}
    if state.staged or grace_left(state, now):
        wanted.add("password" if state.staged else "previous")
    if old := _those(servers, lambda auth: not wanted <= auth.accepts):
        why = f"{names_of(old)} must take both passwords"
        return AddPassword(targets=old, passwords=tuple(sorted(wanted)), why=why)
    if old := _those(servers, lambda auth: newest not in auth.presents):
        why = f"{names_of(old)} must present the new password to a master"
        return PresentPassword(targets=old, password=newest, why=why)
    return None


def _those(servers: Sequence[ServerAuth], lacks: Callable[[Auth], bool]) -> tuple[ServerAuth, ...]:
    return tuple(one for one in servers if lacks(one.auth))
