"""When the password changes, and what status records of it: see `mooring.operators.redis.passwords`. Pure rules.

A switch that clients notice is announced first. How long both passwords have been valid is recorded, and so is the end of
the change. At any time a server that accepts or presents another password is brought in line.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.operators.redis.passwords.moves import (
    PasswordMove,
    PublishPassword,
    ServerAuth,
    SetPassword,
    StagePassword,
    SwitchPassword,
)
from mooring.operators.redis.passwords.plan import astray, can_overlap, grace_left, names_of, next_password
from mooring.operators.redis.sentinel.moves import Record, Verdict, Wait, data_target, sentinel_target
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server
from mooring.operators.redis.sentinel.types import PasswordChange
from mooring.operators.workload.credentials import PasswordState

__all__ = ["begin", "keep", "two_valid"]

ANNOUNCE = 3.0
"""Seconds between the announcement of a switch and the switch."""


def keep(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Make every server accept and present what it should at this point; continue a change under way."""
    state, change, servers = _state(snapshot), snapshot.recorded.password, _servers(snapshot)
    overlaps = can_overlap(state, servers)
    if state.staged and not overlaps and (verdict := _announce(snapshot)):
        return verdict
    if change is not None and change.phase == "Announced" and not state.staged:
        return Record(password=PasswordChange(), why="every server takes the new password and no other")
    if state.staged or two_valid(snapshot) > 0:
        move = next_password(state, servers, now=snapshot.now)
        if isinstance(move, PublishPassword) and overlaps and (change is None or change.phase != "BothValid"):
            began = PasswordChange(phase="BothValid", since=snapshot.now)
            return Record(password=began, why="every server takes both passwords")
        return _with_sentinels(snapshot, move)
    if change is not None:
        return Record(password=PasswordChange(), why="the time of two passwords is over")
    if others := astray(servers):
        why = f"{names_of(others)} must take the password in force and no other"
        return _with_sentinels(snapshot, SetPassword(targets=others, why=why))
    return None


def begin(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Write a declared password that is not in force to the Secret first."""
    state = snapshot.observed.password
    if not state.differs or state.staged or snapshot.recorded.password is not None:
        return None
    return StagePassword(why="another password is declared")


def two_valid(snapshot: Snapshot) -> float:
    """Seconds for which two passwords are still valid; 0 when one is."""
    return grace_left(_state(snapshot), snapshot.now)


def _state(snapshot: Snapshot) -> PasswordState:
    """Where the change stands, by the Secret and by what status records."""
    state, change = snapshot.observed.password, snapshot.recorded.password
    if change is None or change.phase != "BothValid":
        return state
    return replace(state, retired=True, published=change.since, open=state.open and state.staged)


def _servers(snapshot: Snapshot) -> list[ServerAuth]:
    return [
        ServerAuth(target=data_target(one), auth=it.auth, version=it.version)
        for one, it in snapshot.answering
        if it.auth is not None
    ]


def _announce(snapshot: Snapshot) -> Verdict | None:
    change = snapshot.recorded.password
    if change is None or change.phase != "Announced":
        began = PasswordChange(phase="Announced", since=snapshot.now)
        return Record(password=began, why="the password is switched in a moment")
    waited = snapshot.seconds_since(change.since)
    if waited >= ANNOUNCE:
        return None
    return Wait(
        "PasswordSwitch",
        "these servers take one password at a time, or the change is from or to none: in "
        f"{ANNOUNCE:.0f} s new connections need the declared one",
        after=ANNOUNCE - waited,
    )


def _with_sentinels(snapshot: Snapshot, move: PasswordMove | None) -> PasswordMove | None:
    """Where sentinels have to present the password, those that accept the cluster's key.

    Another one cannot be changed, and is recreated afterwards.
    """
    presents_account = snapshot.observed.users.told
    if not isinstance(move, PublishPassword | SwitchPassword | SetPassword) or presents_account:
        return move
    known = [
        one for one in snapshot.watchers if one.sentinel and one.sentinel.master and not one.sentinel.locked
    ]
    return replace(move, sentinels=tuple(map(sentinel_target, known)))
