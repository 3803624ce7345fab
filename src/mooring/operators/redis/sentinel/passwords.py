"""The life of the password: set, changed and removed on running servers, without a restart.

A new password is in the cluster's Secret before any server hears of it, so that every step can be resumed. Where
servers take two passwords (6.0) both are valid from before the first server presents the new one until a while
after it was published. Where they take one, and where "none" is one of the two, the switch is announced and then
made everywhere at once.
"""

from __future__ import annotations

from mooring.operators.redis.sentinel.moves import (
    AddPassword,
    PresentPassword,
    PublishPassword,
    Record,
    SetPassword,
    StagePassword,
    SwitchPassword,
    Target,
    Verdict,
    Wait,
    data_target,
    sentinel_target,
)
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server
from mooring.operators.redis.sentinel.types import PasswordChange

__all__ = ["begin", "keep", "two_valid"]

ANNOUNCE = 3.0
"""Seconds between the announcement of a switch and the switch."""


def keep(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Make every server accept and present what it should at this point; continue a change under way."""
    state, change = snapshot.observed.password, snapshot.recorded.password
    if state.staged:
        return _both(snapshot) if _can_overlap(snapshot) else _switch(snapshot)
    if change is not None and change.phase == "Announced":
        return Record(password=PasswordChange(), why="every server takes the new password and no other")
    if two_valid(snapshot) > 0:
        return _lacking(snapshot, "password", "previous") or _presenting(snapshot, "password")
    if change is not None:
        return Record(password=PasswordChange(), why="the time of two passwords is over")
    astray = [
        one
        for one, it in snapshot.answering
        if it.auth is not None
        and ("password" not in it.auth.accepts & it.auth.presents or "previous" in it.auth.accepts)
    ]
    if not astray:
        return None
    names = ", ".join(one.name for one in astray)
    return SetPassword(
        targets=tuple(data_target(one) for one in astray),
        sentinels=_sentinels(snapshot),
        why=f"{names} must take the password in force and no other",
    )


def begin(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Write a declared password that is not in force to the Secret first."""
    state = snapshot.observed.password
    if not state.differs or state.staged or snapshot.recorded.password is not None:
        return None
    return StagePassword(why="another password is declared")


def two_valid(snapshot: Snapshot) -> float:
    """Seconds for which two passwords are still valid; 0 when one is."""
    change = snapshot.recorded.password
    if change is None or change.phase != "BothValid":
        return 0.0
    return max(0.0, snapshot.observed.password.grace - snapshot.seconds_since(change.since))


def _can_overlap(snapshot: Snapshot) -> bool:
    """Two passwords, neither of them none, on servers that all take two."""
    return not snapshot.observed.password.open and all(
        it.auth is None or it.auth.two for _, it in snapshot.answering
    )


def _both(snapshot: Snapshot) -> Verdict:
    """All accept both; then all present the new one; then it is recorded, given to the sentinels and published."""
    if verdict := _lacking(snapshot, "password", "next") or _presenting(snapshot, "next"):
        return verdict
    change = snapshot.recorded.password
    if change is None or change.phase != "BothValid":
        began = PasswordChange(phase="BothValid", since=snapshot.now)
        return Record(password=began, why="every server takes both passwords")
    return PublishPassword(
        sentinels=_sentinels(snapshot), why="every server takes and presents the new password"
    )


def _switch(snapshot: Snapshot) -> Verdict:
    """Announced, then made on all servers at once."""
    change = snapshot.recorded.password
    if change is None or change.phase != "Announced":
        began = PasswordChange(phase="Announced", since=snapshot.now)
        return Record(password=began, why="the password is switched in a moment")
    waited = snapshot.seconds_since(change.since)
    if waited < ANNOUNCE:
        return Wait(
            "PasswordSwitch",
            "these servers take one password at a time, or the change is from or to none: in "
            f"{ANNOUNCE:.0f} s new connections need the declared one",
            after=ANNOUNCE - waited,
        )
    old = [
        one
        for one, it in snapshot.answering
        if it.auth is not None and not ("next" in it.auth.accepts and "next" in it.auth.presents)
    ]
    if old:
        return SwitchPassword(
            targets=tuple(data_target(one) for one in old),
            sentinels=_sentinels(snapshot),
            why=f"{', '.join(one.name for one in old)} take the new password from now on",
        )
    return PublishPassword(sentinels=_sentinels(snapshot), why="every server takes the new password")


def _lacking(snapshot: Snapshot, *labels: str) -> AddPassword | None:
    wanted = frozenset(labels)
    lacking = [one for one, it in snapshot.answering if it.auth is not None and not wanted <= it.auth.accepts]
    if not lacking:
        return None
    names = ", ".join(one.name for one in lacking)
    return AddPassword(
        targets=tuple(data_target(one) for one in lacking),
        passwords=tuple(sorted(wanted)),
        why=f"{names} must take both passwords",
    )


def _presenting(snapshot: Snapshot, label: str) -> PresentPassword | None:
    old = [one for one, it in snapshot.answering if it.auth is not None and label not in it.auth.presents]
    if not old:
        return None
    names = ", ".join(one.name for one in old)
    return PresentPassword(
        targets=tuple(data_target(one) for one in old),
        password=label,
        why=f"{names} must present the new password to a master",
    )


def _sentinels(snapshot: Snapshot) -> tuple[Target, ...]:
    """Sentinels that accept the cluster's key; another one cannot be changed, and is recreated afterwards."""
    known = [
        one for one in snapshot.watchers if one.sentinel and one.sentinel.master and not one.sentinel.locked
    ]
    return tuple(map(sentinel_target, known))
