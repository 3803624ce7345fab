"""Steps on the password of servers, as data; targets are of the operator's own kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mooring.actor.verdict import Move
from mooring.operators.redis.passwords.seen import Auth
from mooring.operators.workload.credentials import Label

__all__ = [
    "AddPassword",
    "DropPassword",
    "PasswordMove",
    "PresentPassword",
    "PublishPassword",
    "ServerAuth",
    "SetPassword",
    "StagePassword",
    "SwitchPassword",
]


@dataclass(frozen=True, kw_only=True)
class ServerAuth:
    """A server that answers, and which of our passwords it accepts and presents."""

    target: Any
    auth: Auth
    version: str = "7.0.15"

    @property
    def name(self) -> str:
        """Of its pod."""
        return str(self.target.name)


@dataclass(frozen=True, kw_only=True)
class PasswordMove(Move):
    """One step of a change, on these servers and sentinels."""

    targets: tuple[ServerAuth, ...] = field(default=(), repr=False)
    sentinels: tuple[Any, ...] = field(default=(), repr=False)
    """Sentinels that are to present the password; none where they present an account."""


@dataclass(frozen=True, kw_only=True)
class StagePassword(PasswordMove):
    """Write the declared password into the cluster's Secret as the next one."""


@dataclass(frozen=True, kw_only=True)
class AddPassword(PasswordMove):
    """Make servers accept further passwords (6.0); those that they accept stay."""

    passwords: tuple[Label, ...]


@dataclass(frozen=True, kw_only=True)
class PresentPassword(PasswordMove):
    """Make servers present this password to their master, from their next connection on."""

    password: Label


@dataclass(frozen=True, kw_only=True)
class SwitchPassword(PasswordMove):
    """Make servers accept and present the newest password and no other; sentinels present it at the same time."""


@dataclass(frozen=True, kw_only=True)
class PublishPassword(PasswordMove):
    """Make sentinels present the next password, then write it to the Secret as the one in force."""


@dataclass(frozen=True, kw_only=True)
class SetPassword(PasswordMove):
    """Make servers accept and present the password in force and no other; sentinels present it before."""


@dataclass(frozen=True, kw_only=True)
class DropPassword(PasswordMove):
    """Take the previous password out of the Secret: no server accepts it any more."""
