"""Users as a server shows them, compared with what is to be; hashes go no further than here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.operators.redis.dial import Refused
from mooring.operators.redis.info import pairs
from mooring.operators.redis.users.accounts import DEFAULT, REPLICA
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.versions import parse_version

__all__ = ["ASKED", "SeenUser", "SeenUsers", "read_users", "rules_shown"]

ASKED: Final = (("ACL", "LIST"), ("CONFIG", "GET", "masteruser"), ("CONFIG", "GET", "masterauth"))
"""What `read_users` reads: about one kilobyte for ten users."""
_AS_GIVEN: Final = (7, 2, 0)
"""Before, servers make the rules up from the commands that they allow, each process in an order of its own."""
_DEFAULTS: Final = frozenset({"on", "off", "nopass", "sanitize-payload"})


@dataclass(frozen=True, kw_only=True)
class SeenUser:
    """One user of a server."""

    on: bool = False
    rules: str = ""
    current: bool = True
    """It takes every password that it is to take."""
    spare: bool = False
    """It takes one that was declared before."""
    foreign: bool = False
    """It takes another one, or none is needed."""


@dataclass(frozen=True, kw_only=True)
class SeenUsers:
    """The users of one server."""

    users: Mapping[str, SeenUser] = field(default_factory=dict)
    presents: bool = False
    """It presents the replicas' account to its master."""


def read_users(access: Access, version: str, account: str, answers: Sequence[Any]) -> SeenUsers | None:
    """From the answers to `ASKED`; ``None`` of a server without users. ``account`` is the replicas' password."""
    listed, user, auth = answers
    if isinstance(listed, Refused):
        return None
    known = {} if isinstance(user, Refused) or isinstance(auth, Refused) else {**pairs(user), **pairs(auth)}
    presents = bool(account) and (known.get("masteruser"), known.get("masterauth")) == (REPLICA, account)
    found = {}
    for line in listed:
        name, seen = _user(access, version, str(line).split())
        found[name] = seen
    return SeenUsers(users=found, presents=presents)


def _user(access: Access, version: str, words: Sequence[str]) -> tuple[str, SeenUser]:
    _, name, *rest = words
    hashes = {one[1:] for one in rest if one.startswith("#")}
    on, rules = "on" in rest, rules_shown(version, rest)
    if name == DEFAULT:  # its passwords are the cluster's, which have rules of their own
        return name, SeenUser(on=on, rules=rules)
    valid, spare = set(access.valid(name)), set(access.spare(name))
    return name, SeenUser(
        on=on,
        rules=rules,
        current=valid <= hashes,
        spare=bool(hashes & spare),
        foreign="nopass" in rest or bool(hashes - valid - spare),
    )


def rules_shown(version: str, words: Sequence[str]) -> str:
    """The rules among the words of a line of ACL LIST, such that the same rules are the same text."""
    rules = [one for one in words if one not in _DEFAULTS and not one.startswith("#")]
    return " ".join(rules if parse_version(version) >= _AS_GIVEN else sorted(rules))
