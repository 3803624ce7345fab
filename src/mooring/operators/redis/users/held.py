"""What servers accepted of the users, as the cluster's Secret keeps it, and the lines that a start reads.

A user is written here only after every server that answers took it, so that no start fails over a rule that a server
does not know. Hashes are of passwords that are in force, and of those that were until `since`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from msgspec.structs import replace

from mooring.kube.objects import core
from mooring.operators.redis.users.accounts import DEFAULT, REPLICA, RULES
from mooring.operators.redis.users.moves import (
    PresentAccount,
    RemoveUsers,
    SetUsers,
    TellSentinels,
    UsersDone,
    UsersMove,
)
from mooring.operators.redis.users.wanted import WantedUser
from mooring.operators.workload.credentials import Kept, secret_value

__all__ = ["ENTRY", "Access", "Held", "HeldUser", "after", "digest_of", "first", "held_in", "start_lines"]

ENTRY = "users.json"
"""The entry of the cluster's Secret with `Held`."""


class HeldUser(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One user as servers accepted it."""

    rules: tuple[str, ...] = ()
    enabled: bool = True
    hashes: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    """Hashes of passwords that are no longer declared and still valid."""
    since: datetime | None = None
    """Since when they are no longer declared."""
    shown: dict[str, str] = {}
    """How servers show the rules, by version."""


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that servers accepted."""

    users: dict[str, HeldUser] = {}
    """By name; the default user only where it is restricted or off."""
    removed: tuple[str, ...] = ()
    """Names that were declared once: a server that comes back with one loses it again."""
    presents: bool = False
    """Every server took the operator's accounts: replicas present theirs."""
    told: bool = False
    """Sentinels present their account."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Everything about the users of a cluster, passwords and hashes among it; never shown."""

    managed: bool = False
    """Users are declared, or were once: the operator's accounts are used."""
    wanted: tuple[WantedUser, ...] = ()
    """The operator's accounts, the declared users, and the default user where it is not left alone."""
    hashes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Of the declared passwords, and of the accounts', by name."""
    held: Held = field(default_factory=Held, repr=False)

    def valid(self, name: str) -> tuple[str, ...]:
        """Hashes that are to be in force; of a user whose Secret is missing those that were."""
        known = self.held.users.get(name)
        return self.hashes.get(name) or (known.hashes if known is not None else ())

    def spare(self, name: str) -> tuple[str, ...]:
        """Hashes that were in force and are no longer declared."""
        known = self.held.users.get(name)
        if known is None:
            return ()
        valid = self.valid(name)
        return tuple(dict.fromkeys(one for one in (*known.hashes, *known.old) if one not in valid))


def digest_of(password: str) -> str:
    """SHA-256 of a password, as Redis keeps it."""
    return hashlib.sha256(password.encode()).hexdigest()


def held_in(secret: core.Secret | None) -> Held:
    """What a cluster's Secret has; nothing where that cannot be read."""
    try:
        return msgspec.json.decode(secret_value(secret, ENTRY) or "{}", type=Held)
    except msgspec.MsgspecError:
        return Held()


def first(wanted: Collection[WantedUser]) -> Held:
    """Of a new cluster: servers begin with the operator's accounts, and without a default user that is not as ever."""
    closed = {DEFAULT: HeldUser(enabled=False)} if any(one.name == DEFAULT for one in wanted) else {}
    return Held(users=closed, presents=True, told=True)


def after(access: Access, move: UsersMove, done: UsersDone, *, now: datetime) -> Held:
    """What the Secret is to keep after a step."""
    held = access.held
    match move:
        case SetUsers():
            users = dict(held.users)
            for one in move.users:
                if one.name in done.refused:
                    continue
                if one.name == DEFAULT and one.open:
                    users.pop(DEFAULT, None)
                    continue
                users[one.name] = _accepted(access, one, done, settle=move.settle, now=now)
            # One that some server refused may be on another: it goes from there when it is no longer declared.
            names = {one.name for one in move.users} - set(done.refused)
            refused = {name for name in done.refused if name not in held.users}
            removed = tuple(sorted({*held.removed, *refused} - names))
            return replace(held, users=users, removed=removed)
        case RemoveUsers():
            users = {name: one for name, one in held.users.items() if name not in move.names}
            return replace(held, users=users, removed=tuple(sorted({*held.removed, *move.names})))
        case PresentAccount():
            return replace(held, presents=True)
        case TellSentinels():
            return replace(held, told=True)
    return held


def _accepted(access: Access, one: WantedUser, done: UsersDone, *, settle: bool, now: datetime) -> HeldUser:
    known = access.held.users.get(one.name) or HeldUser()
    spare = () if settle or one.name == DEFAULT else access.spare(one.name)
    same = (known.rules, known.enabled) == (one.rules, one.enabled)
    began = known.since if set(spare) == set(known.old) else now
    return HeldUser(
        rules=one.rules,
        enabled=one.enabled,
        hashes=access.valid(one.name),
        old=spare,
        since=began if spare else None,
        shown={**(known.shown if same else {}), **done.shown.get(one.name, {})},
    )


def start_lines(access: Access, kept: Kept) -> str:
    """Lines of redis.conf; after them nobody comes in but by the users they name.

    The file is in a Secret, and in memory once it is rendered: the password of the replicas' account is in clear text,
    since Redis takes it in no other way.
    """
    if not access.managed or not kept.accounts:
        return ""
    lines = [_line(name, RULES[name], (digest_of(text),)) for name, text in kept.accounts.items()]
    for name, one in sorted(access.held.users.items()):
        if name in kept.accounts:
            continue
        if name == DEFAULT:
            lines.append(_default(one, kept))
        else:
            lines.append(_line(name, one.rules, (*one.hashes, *one.old), enabled=one.enabled))
    if access.held.presents:
        lines += [f"masteruser {REPLICA}", f'masterauth "{kept.accounts[REPLICA]}"']
    return "\n".join(lines) + "\n"


def _default(one: HeldUser, kept: Kept) -> str:
    if not one.enabled:
        return f"user {DEFAULT} off"
    return _line(DEFAULT, one.rules, (digest_of(kept.password),) if kept.password else ())


def _line(name: str, rules: Collection[str], hashes: Collection[str], *, enabled: bool = True) -> str:
    words = [f"#{one}" for one in hashes] or ["nopass"]
    return " ".join(["user", name, "on" if enabled else "off", *words, *rules])
