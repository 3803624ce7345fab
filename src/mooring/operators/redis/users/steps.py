"""Carry out one step with users on one server. Only hashes are sent, but for the password that replicas present."""

from __future__ import annotations

from collections.abc import Sequence

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
    answers = await link.pipeline([*_replicas_of(move), *commands, ("ACL", "LIST")])
    del answers[: len(_replicas_of(move))]
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


def _replicas_of(move: SetUsers) -> list[tuple[str, ...]]:
    """Replicas that came in as a default user which is to be closed: they come again by their account, and go on.

    Left alone they are refused the next REPLCONF ACK. From 7.0 on a server cuts them then; before, it writes the refusal
    into the stream of replication, and the replica counts it among what it has.
    """
    closes = any(one.name == DEFAULT and not one.open for one in move.users)
    return [("CLIENT", "KILL", "USER", DEFAULT, "TYPE", "slave")] if closes else []


def _words(user: WantedUser, access: Access, kept: Kept, *, settle: bool, channels: bool) -> list[str]:
    rules = [one for one in user.rules if channels or not user.own or not one.startswith("&")]
    if user.name == DEFAULT:
        texts = [text for text in (kept.password, kept.next) if text]
        passwords = [f"#{digest_of(text)}" for text in texts] or ["nopass"]
        return ["reset", "on", *passwords, *rules] if user.enabled else ["reset", "off"]
    hashes = [*access.valid(user.name), *(() if settle else access.spare(user.name))]
    return ["reset", "on" if user.enabled else "off", *(f"#{one}" for one in hashes), *rules]
