"""Carry out one step with users on one server. Only hashes are sent, but for the password that replicas present."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from mooring.operators.redis.dial import Link, Refused
from mooring.operators.redis.info import parse_info
from mooring.operators.redis.users.accounts import DEFAULT, REPLICA
from mooring.operators.redis.users.held import Access, digest_of
from mooring.operators.redis.users.moves import (
    PresentAccount,
    RemoveUsers,
    SetUsers,
    UsersDone,
    UsersMove,
)
from mooring.operators.redis.users.seen import rules_shown
from mooring.operators.redis.users.wanted import WantedUser
from mooring.operators.redis.versions import capabilities, server_version
from mooring.operators.workload.credentials import Kept

__all__ = ["change_users", "together"]

COMES_AGAIN: Final = 5.0
"""Seconds for all replicas to connect again; those that are left then are not waited for."""
POLL: Final = 0.02
_CUT: Final = ("CLIENT", "KILL", "USER", DEFAULT, "TYPE", "slave")
_REPLICA: Final = re.compile(r"slave\d+")


async def change_users(link: Link, move: UsersMove, *, access: Access, kept: Kept) -> UsersDone:
    """Carry out a step on one server; what it refuses of a user is in the result."""
    match move:
        case SetUsers():
            return await _set(link, move, access=access, kept=kept)
        case RemoveUsers():
            await link.call("ACL", "DELUSER", *move.names)
        case PresentAccount():
            for answer in await link.pipeline(
                [
                    ("CONFIG", "SET", "masteruser", REPLICA),
                    ("CONFIG", "SET", "masterauth", kept.accounts[REPLICA]),
                ]
            ):
                if isinstance(answer, Refused):
                    raise answer
    return UsersDone()


def together(done: Sequence[UsersDone]) -> UsersDone:
    """What several servers answered: a user that one of them refuses is refused."""
    shown: dict[str, dict[str, str]] = {}
    refused: dict[str, str] = {}
    for one in done:
        refused |= one.refused
        for name, texts in one.shown.items():
            shown.setdefault(name, {}).update(texts)
    return UsersDone(shown=shown, refused=refused)


async def _set(link: Link, move: SetUsers, *, access: Access, kept: Kept) -> UsersDone:
    version = server_version(parse_info(await link.call("INFO", "server")))
    channels = capabilities(version).channels
    commands = [
        ("ACL", "SETUSER", one.name, *_words(one, access, kept, settle=move.settle, channels=channels))
        for one in move.users
    ]
    first: list[tuple[str, ...]] = []
    if any(one.name == DEFAULT and not one.open for one in move.users):
        await _replicas_come_again(link)
        first = [_CUT]  # those that came meanwhile, or present no account
    answers = (await link.pipeline([*first, *commands, ("ACL", "LIST")]))[len(first) :]
    refused = {
        one.name: answer.reply
        for one, answer in zip(move.users, answers, strict=False)
        if isinstance(answer, Refused)
    }
    for one in move.users:  # who is turned off is cut: a connection outlives its user's rights otherwise
        if not one.enabled and one.name not in refused:
            await link.pipeline(
                [("CLIENT", "KILL", "USER", one.name, "TYPE", kind) for kind in ("normal", "pubsub")]
            )
    names = {one.name for one in move.users} - set(refused)
    listed = [] if isinstance(answers[-1], Refused) else [str(line).split() for line in answers[-1]]
    shown = {words[1]: {version: rules_shown(version, words[2:])} for words in listed if words[1] in names}
    return UsersDone(shown=shown, refused=refused)


async def _replicas_come_again(link: Link) -> None:
    """Make replicas that connected as the default user, which is to be closed, connect again with their account, one at a time.

    Left alone they are refused the next REPLCONF ACK. From 7.0 on a server cuts them then; before, it writes the refusal
    into the stream of replication, and the replica counts it among what it has. All at once, a server that needs replicas
    for a write would refuse writes until the first is back.
    """
    began = asyncio.get_running_loop().time()
    for line in str(await link.call("CLIENT", "LIST", "TYPE", "slave")).splitlines():
        shown = dict(word.partition("=")[::2] for word in line.split())
        if shown.get("user") == DEFAULT:
            there = await _online(link)
            await link.call("CLIENT", "KILL", "ID", shown["id"])
            while await _online(link) < there and asyncio.get_running_loop().time() - began < COMES_AGAIN:
                await asyncio.sleep(POLL)


async def _online(link: Link) -> int:
    """How many replicas receive what is written."""
    found = parse_info(await link.call("INFO", "replication"))
    return sum(
        "state=online" in value.split(",") for name, value in found.items() if _REPLICA.fullmatch(name)
    )


def _words(user: WantedUser, access: Access, kept: Kept, *, settle: bool, channels: bool) -> list[str]:
    rules = [one for one in user.rules if channels or not user.own or not one.startswith("&")]
    if user.name == DEFAULT:
        texts = [text for text in (kept.password, kept.next) if text]
        passwords = [f"#{digest_of(text)}" for text in texts] or ["nopass"]
        return ["reset", "on", *passwords, *rules] if user.enabled else ["reset", "off"]
    hashes = [*access.valid(user.name), *(() if settle else access.spare(user.name))]
    return ["reset", "on" if user.enabled else "off", *(f"#{one}" for one in hashes), *rules]
