"""Carry out one step with the password on one server."""

from __future__ import annotations

from mooring.operators.redis.dial import Link
from mooring.operators.redis.passwords.moves import (
    AddPassword,
    PasswordMove,
    PresentPassword,
    ServerAuth,
    SetPassword,
    SwitchPassword,
)
from mooring.operators.redis.passwords.seen import Auth, quoted
from mooring.operators.redis.versions import capabilities
from mooring.operators.workload.credentials import Kept

__all__ = ["change_password"]


async def change_password(
    link: Link, move: PasswordMove, server: ServerAuth, *, kept: Kept, account: bool
) -> None:
    """Carry out a step on one server. ``account``: replicas present an account to their master, and no password."""
    named = kept.named()
    match move:
        case AddPassword():
            wanted = [f">{text}" for label, text in named.items() if label in move.passwords]
            await link.call("ACL", "SETUSER", "default", *wanted)
        case PresentPassword():
            await link.call("CONFIG", "SET", "masterauth", named[move.password])
        case SwitchPassword() | SetPassword():
            text = kept.published().password
            inline = bool(text) and capabilities(server.version).inline_auth
            if not account:
                await link.call("CONFIG", "SET", "masterauth", quoted(text) if inline else text)
            await _take_only(link, text, two=server.auth.two)
            if text and _was_open(server.auth, kept):
                await _cut_unauthenticated(link, text)


async def _take_only(link: Link, text: str, *, two: bool) -> None:
    """Let a server take this password and no other; "" lets everybody in. ``two``: it has users (6.0).

    CONFIG SET alone is not enough: from 7.0 on it changes nothing when ``requirepass`` has that value already, and a
    server that restarted during a change has it, with the old password added beside it for the default user.
    """
    await link.call("CONFIG", "SET", "requirepass", text)
    if two:
        await link.call("ACL", "SETUSER", "default", *(("resetpass", f">{text}") if text else ("nopass",)))


def _was_open(auth: Auth, kept: Kept) -> bool:
    """A server without users (before 6.0) accepted clients without a password."""
    return not auth.two and any(not text and label in auth.accepts for label, text in kept.named().items())


async def _cut_unauthenticated(link: Link, text: str) -> None:
    """Before 6.0 connections made without a password are refused every command; cut them so that clients reconnect."""
    await link.call("AUTH", text)
    for kind in ("normal", "pubsub", "slave"):
        await link.call("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
