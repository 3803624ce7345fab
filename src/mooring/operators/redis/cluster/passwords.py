"""The password of a running cluster: changed on its servers, without a restart and without a client that is refused.

A new password is in the cluster's Secret before any server hears of it, so that every step can be taken again. Where
servers take two (6.0), both are valid from before the first one presents the new one until the files in the pods
are sure to have it. Where they take one, and where "none" is one of the two, it is switched everywhere at once.
What is under way stands in the Secret, and how far it is the servers say themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooring.actor.verdict import Move
from mooring.operators.redis.cluster.topology import Node
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.redis.passwords import ASKED, Auth, quoted, take_only, told_auth
from mooring.operators.redis.versions import capabilities
from mooring.operators.workload.credentials import Kept

__all__ = [
    "GRACE",
    "Add",
    "Drop",
    "Keyed",
    "Only",
    "PasswordMove",
    "Present",
    "Publish",
    "Stage",
    "Switch",
    "carry_out",
    "next_password",
    "read_keys",
]

GRACE: Final = 120.0
"""Seconds both stay valid after the new one was published: a kubelet renews mounted Secrets within two minutes."""


@dataclass(frozen=True, kw_only=True)
class Keyed:
    """A server that answers, and which of our passwords it takes and presents."""

    name: str
    address: Address
    auth: Auth
    version: str = "7.0.15"


@dataclass(frozen=True, kw_only=True)
class PasswordMove(Move):
    """One step of a change; ``targets`` are the servers it is for."""

    targets: tuple[Keyed, ...] = field(default=(), repr=False)


class Stage(PasswordMove):
    """Write the declared one down beside the one in force."""


class Add(PasswordMove):
    """These take both."""


class Present(PasswordMove):
    """These show the newest to their master, from their next connection on."""


class Switch(PasswordMove):
    """These take the newest from now on, and no other."""


class Publish(PasswordMove):
    """The next one is the one in force."""


class Only(PasswordMove):
    """These take the one in force and no other."""


class Drop(PasswordMove):
    """Nobody takes the previous one any more: it is forgotten."""


def next_password(
    kept: Kept, *, declared: str, servers: Sequence[Keyed], seconds: float, grace: float = GRACE
) -> PasswordMove | None:
    """The next step of a change; ``seconds`` have passed since the newest was published."""
    if kept.next is None and kept.previous is None:
        return Stage(why="another password is declared") if declared != kept.password else None
    newest = "next" if kept.next is not None else "password"
    other = "password" if kept.next is not None else "previous"
    texts = kept.named()
    if all(texts.values()) and all(one.auth.two for one in servers):
        if move := _both(servers, newest, other):
            return move
    elif old := _those(servers, lambda auth: newest not in auth.accepts & auth.presents):
        return Switch(targets=old, why=f"{_names(old)} take the new password from now on")
    if kept.next is not None:
        return Publish(why="every server takes and presents the new password")
    if seconds < grace:
        return None
    if old := _those(servers, lambda auth: "previous" in auth.accepts and auth.two):
        return Only(targets=old, why=f"{_names(old)} take the new password and no other")
    return Drop(why="every server takes the new password and no other")


def _both(servers: Sequence[Keyed], newest: str, other: str) -> PasswordMove | None:
    if old := _those(servers, lambda auth: newest not in auth.accepts):
        return Add(targets=old, why=f"{_names(old)} must take both passwords")
    if old := _those(servers, lambda auth: newest not in auth.presents):
        return Present(targets=old, why=f"{_names(old)} must present the new password to a master")
    return None


def _those(servers: Sequence[Keyed], lacks: Callable[[Auth], bool]) -> tuple[Keyed, ...]:
    return tuple(one for one in servers if lacks(one.auth))


def _names(servers: Sequence[Keyed]) -> str:
    return ", ".join(one.name for one in servers)


async def read_keys(dial: Dial, nodes: Sequence[Node], kept: Kept) -> list[Keyed]:
    """Ask every server that answered; one that does not any more is left out."""

    async def one(node: Node) -> Keyed | None:
        try:
            async with dial.link(node.address, password=kept.keys) as link:
                auth = told_auth(kept, *await link.pipeline(ASKED))
        except DialError:
            return None
        if auth is None or node.server is None:
            return None
        return Keyed(name=node.name, address=node.address, auth=auth, version=node.server.version)

    found = await asyncio.gather(*(one(node) for node in nodes if node.server is not None))
    return [keyed for keyed in found if keyed is not None]


async def carry_out(dial: Dial, move: PasswordMove, kept: Kept) -> None:
    """A step on servers, on all of them at once; raises `DialError` when one was not reached."""
    newest = kept.password if kept.next is None else kept.next
    both = [text for text in (kept.password, newest) if text]

    async def one(target: Keyed) -> None:
        inline = bool(newest) and capabilities(target.version).inline_auth
        async with dial.link(target.address, password=kept.keys) as link:
            match move:
                case Add():
                    await link.call(
                        "ACL", "SETUSER", "default", *(f">{text}" for text in dict.fromkeys(both))
                    )
                case Present():
                    await link.call("CONFIG", "SET", "masterauth", newest)
                case Switch():
                    await link.call("CONFIG", "SET", "masterauth", quoted(newest) if inline else newest)
                    await take_only(link, newest, two=target.auth.two)
                case Only():
                    await take_only(link, newest, two=target.auth.two)

    await asyncio.gather(*(one(target) for target in move.targets))
