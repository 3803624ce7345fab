"""How the password of a running cluster changes, without a restart and without a refused client. Pure rules.

A new password is in the cluster's Secret before any server hears of it, so that every step can be repeated. Where
servers accept two (6.0), both are valid from before the first one presents the new one until the files in the pods
are sure to have it. Where they accept one, and where one of the two is "no password", all of them switch at once.
The Secret says what is under way; the servers themselves say how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mooring.actor.verdict import InSync, Move, Verdict
from mooring.operators.redis.address import Address
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.passwords import Auth
from mooring.operators.workload.credentials import PasswordState

__all__ = [
    "GRACE",
    "Add",
    "Drop",
    "Only",
    "PasswordMove",
    "Present",
    "Publish",
    "ServerAuth",
    "Stage",
    "Switch",
    "change_password",
    "next_password",
]

GRACE: Final = 120.0
"""Seconds both stay valid after the new one was published: a kubelet renews mounted Secrets within two minutes."""


@dataclass(frozen=True, kw_only=True)
class ServerAuth:
    """A server that answers, and which of our passwords it accepts and presents."""

    name: str
    address: Address
    auth: Auth
    version: str = "7.0.15"


@dataclass(frozen=True, kw_only=True)
class PasswordMove(Move):
    """One step of a change; ``targets`` are the servers it is for."""

    targets: tuple[ServerAuth, ...] = field(default=(), repr=False)


class Stage(PasswordMove):
    """Write the declared one into the Secret beside the one in force."""


class Add(PasswordMove):
    """These servers accept both."""


class Present(PasswordMove):
    """These present the newest to their master, from their next connection on."""


class Switch(PasswordMove):
    """These accept the newest from now on, and no other."""


class Publish(PasswordMove):
    """The next one becomes the one in force."""


class Only(PasswordMove):
    """These accept the one in force and no other."""


class Drop(PasswordMove):
    """No server accepts the previous one any more: it leaves the Secret."""


def change_password(snapshot: Snapshot, verdict: Verdict) -> Verdict:
    """The next step of a change in place of a verdict that can wait for it.

    A change begins at rest, and goes on whenever there is no other move to make.
    """
    state = snapshot.password
    if not snapshot.recorded.formed or isinstance(verdict, Move):
        return verdict
    if not state.changing and not isinstance(verdict, InSync):
        return verdict
    servers = [
        ServerAuth(name=one.name, address=one.address, auth=one.auth, version=one.server.version)
        for one in snapshot.seen.nodes
        if one.auth is not None and one.server is not None
    ]
    return next_password(state, servers=servers, now=snapshot.now) or verdict


def next_password(
    state: PasswordState, *, servers: Sequence[ServerAuth], now: datetime
) -> PasswordMove | None:
    """The next step of a change; ``None`` when there is none, or none yet."""
    if not state.changing:
        return Stage(why="another password is declared") if state.differs else None
    newest = "next" if state.staged else "password"
    other = "password" if state.staged else "previous"
    if not state.open and all(one.auth.two for one in servers):
        if move := _both(servers, newest, other):
            return move
    elif old := _those(servers, lambda auth: newest not in auth.accepts & auth.presents):
        return Switch(targets=old, why=f"{_names(old)} take the new password from now on")
    if state.staged:
        return Publish(why="every server takes and presents the new password")
    if state.published is None or (now - state.published).total_seconds() < state.grace:
        return None
    if old := _those(servers, lambda auth: "previous" in auth.accepts and auth.two):
        return Only(targets=old, why=f"{_names(old)} take the new password and no other")
    return Drop(why="every server takes the new password and no other")


def _both(servers: Sequence[ServerAuth], newest: str, other: str) -> PasswordMove | None:
    if old := _those(servers, lambda auth: newest not in auth.accepts):
        return Add(targets=old, why=f"{_names(old)} must take both passwords")
    if old := _those(servers, lambda auth: newest not in auth.presents):
        return Present(targets=old, why=f"{_names(old)} must present the new password to a master")
    return None


def _those(servers: Sequence[ServerAuth], lacks: Callable[[Auth], bool]) -> tuple[ServerAuth, ...]:
    return tuple(one for one in servers if lacks(one.auth))


def _names(servers: Sequence[ServerAuth]) -> str:
    return ", ".join(one.name for one in servers)
