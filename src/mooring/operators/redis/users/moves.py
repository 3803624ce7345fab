"""Steps on the users of servers, as data; ``targets`` are of the operator's own kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring.actor.verdict import Move
from mooring.operators.redis.users.wanted import WantedUser

__all__ = ["PresentAccount", "RemoveUsers", "SetUsers", "TellSentinels", "UsersDone", "UsersMove"]


@dataclass(frozen=True, kw_only=True)
class UsersMove(Move):
    """One step; the cluster's Secret keeps what came of it."""

    targets: tuple[Any, ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class SetUsers(UsersMove):
    """Make servers have these users as they are to be."""

    users: tuple[WantedUser, ...]
    settle: bool = False
    """Passwords that are no longer declared end."""


@dataclass(frozen=True, kw_only=True)
class RemoveUsers(UsersMove):
    """Users that are no longer declared go, and are disconnected."""

    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PresentAccount(UsersMove):
    """Make servers present the replicas' account to their master, from their next connection on."""


@dataclass(frozen=True, kw_only=True)
class TellSentinels(UsersMove):
    """Make sentinels present their account to servers."""


@dataclass(frozen=True, kw_only=True)
class UsersDone:
    """What a step found out."""

    shown: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """How servers show a user's rules: by name, by version."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """What servers said of users that they did not take."""
