"""Accounts and databases: as declared, as a server has them, and what has to be said to bring the second to the first. Pure.

Privileges that were not declared are taken away; accounts and databases that are no longer declared stay: nothing is ever
dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooring.operators.mysql.quoting import quoted

__all__ = [
    "BACKUP_RIGHTS",
    "WITHHELD",
    "Account",
    "Accounts",
    "WantedDatabase",
    "WantedUser",
    "account",
    "corrections",
    "create_database",
    "create_user",
    "privileges",
    "unlike",
]

Privileges = Mapping[str, frozenset[str]]
"""Privileges by what they are on: ``*.*``, ``shop.*``, ``PROCEDURE shop.sum``."""

_OPTION: Final = "GRANT OPTION"
_ALL: Final = "ALL PRIVILEGES"
_GRANT: Final = re.compile(r"\s*(?:GRANT\s+)?(.+?)\s+ON\s+(.+?)(?:\s+TO\s+(.*))?", re.IGNORECASE | re.DOTALL)


WITHHELD: Final[Mapping[str, frozenset[str]]] = {"mariadb": frozenset({"READ ONLY ADMIN"})}
"""Privileges by flavour that nobody gets by ALL PRIVILEGES: with this one an account writes to replicas, and it is lost there."""


_READS: Final = "SELECT, RELOAD, PROCESS, LOCK TABLES, SHOW VIEW, TRIGGER, EVENT"
BACKUP_RIGHTS: Final[Mapping[str, str]] = {
    "mariadb": f"{_READS}, BINLOG MONITOR, SLAVE MONITOR",
    "mysql": f"{_READS}, REPLICATION CLIENT, BACKUP_ADMIN, SHOW_ROUTINE",
}
"""What dumps and copies of files need, by flavour. Servers refuse to show triggers and events without the rights to make them."""


@dataclass(frozen=True, kw_only=True)
class WantedUser:
    """A declared account."""

    name: str
    host: str = "%"
    label: str = ""
    """Of its password."""
    grants: tuple[str, ...] | None = None
    """``None``: its privileges are left alone."""
    tls: bool = False
    withheld: frozenset[str] = frozenset()
    """Privileges that it does not get with all of them; see `WITHHELD`."""
    missing: str = ""
    """Why there is no password."""

    @property
    def key(self) -> str:
        """How status names it."""
        return f"{self.name}@{self.host}"


@dataclass(frozen=True, kw_only=True)
class WantedDatabase:
    """A declared database."""

    name: str
    character_set: str = ""
    collation: str = ""


@dataclass(frozen=True, kw_only=True)
class Account:
    """One account as a server has it."""

    password: bool | None = None
    """It takes the declared password; ``None``: that cannot be told."""
    spare: bool = False
    """It takes another one as well."""
    tls: bool = False
    """It may connect by TLS only."""
    grants: Privileges = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """What the primary has."""

    users: Mapping[str, Account] = field(default_factory=dict)
    """By ``name@host``; of the declared ones and the operator's own."""
    databases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Character set and collation by name."""
    error: str = ""
    """Why they could not be read."""


def account(name: str, host: str) -> str:
    """An account in a statement."""
    return f"{quoted(name)}@{quoted(host)}"


def privileges(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Privileges by object, from texts such as ``SELECT, INSERT ON shop.*`` and rows of SHOW GRANTS."""
    found: dict[str, set[str]] = {}
    for text in texts:
        read = _GRANT.fullmatch(text.strip())
        if read is None:
            continue  # a role, or GRANT PROXY
        target, option = read[2], False
        if read[3] is not None:
            option = bool(re.search(r"WITH\s+GRANT\s+OPTION", read[3], re.IGNORECASE))
        elif ending := re.search(r"\s+WITH\s+GRANT\s+OPTION\s*$", target, re.IGNORECASE):
            target, option = target[: ending.start()], True
        names = {_privilege(one) for one in re.split(r",(?![^(]*\))", read[1])} - {"USAGE"}
        found.setdefault(_object(target), set()).update(names | ({_OPTION} if option else set()))
    return {target: _told(names) for target, names in found.items() if names}


def _told(names: set[str]) -> frozenset[str]:
    """All privileges stand for every other but the right to pass them on."""
    return frozenset(names & {_ALL, _OPTION} if _ALL in names else names)


def _privilege(text: str) -> str:
    name, bracket, columns = text.strip().partition("(")
    word = " ".join(name.upper().split())
    if word == "ALL":
        word = _ALL
    if not bracket:
        return word
    inside = sorted(one.strip().strip("`") for one in columns.rstrip(") ").split(","))
    return f"{word} ({', '.join(f'`{one}`' for one in inside)})"


def _object(text: str) -> str:
    kind, _, rest = text.strip().rpartition(" ")
    kind = kind.strip().upper().removeprefix("TABLE").strip()
    database, dot, thing = rest.partition(".")
    parts = [one if one == "*" else "`" + one.strip("`") + "`" for one in (database, thing) if one]
    return f"{kind} {'.'.join(parts) if dot else parts[0]}".strip()


def corrections(user: WantedUser, there: Account) -> list[str]:
    """Statements after which an account has the declared privileges and demands.

    Those that give come first: where one of them is refused, nothing was taken away.
    """
    name, made = account(user.name, user.host), []
    if user.tls is not there.tls:
        made.append(f"ALTER USER {name} REQUIRE {'SSL' if user.tls else 'NONE'}")
    if user.grants is None:
        return made
    wanted = privileges(user.grants)
    granted: list[str] = []
    revoked: list[str] = []
    for target in sorted(there.grants.keys() | wanted.keys()):
        now, then = there.grants.get(target, frozenset()), wanted.get(target, frozenset())
        lacking, extra = (
            (frozenset[str](), frozenset[str]()) if _covers(now, then) else (then - now, now - then)
        )
        if lacking:
            granted.append(_grant(lacking, target, name))
        if _ALL in then:
            extra &= {_OPTION}
        revoked += _revoke(extra, target, name)
        if extra and _takes_more(extra, then):
            revoked.append(_grant(then, target, name))
        held = user.withheld if target == "*.*" and _ALL in then else frozenset[str]()
        if held and (_ALL in now | lacking or held & now):
            revoked += _revoke(held, target, name)
    return [*made, *granted, *revoked]


def _revoke(names: frozenset[str], target: str, of: str) -> list[str]:
    """ALL PRIVILEGES has to stand alone."""
    alone = names & {_ALL}
    return [f"REVOKE {_listed(one)} ON {target} FROM {of}" for one in (alone, names - alone) if one]


def _takes_more(revoked: frozenset[str], then: frozenset[str]) -> bool:
    """All privileges go with those that are to stay, and one on a table with the same on its columns."""
    if _ALL in revoked:
        return bool(then - {_OPTION})
    return any(one.partition(" (")[0] in revoked for one in then if "(" in one)


def _covers(now: frozenset[str], then: frozenset[str]) -> bool:
    """Servers may show ALL PRIVILEGES as the list of them all."""
    if _ALL in then and _ALL not in now:
        return (_OPTION in then) is (_OPTION in now) and len(now) > 15
    return now == then


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _grant(names: frozenset[str], target: str, to: str) -> str:
    plain = names - {_OPTION}
    option = " WITH GRANT OPTION" if _OPTION in names else ""
    return f"GRANT {_listed(plain) or 'USAGE'} ON {target} TO {to}{option}"


def create_user(user: WantedUser) -> list[str]:
    """Statements that make an account; its password stands as ``%(label)s``."""
    name = account(user.name, user.host)
    demand = " REQUIRE SSL" if user.tls else ""
    first = f"CREATE USER IF NOT EXISTS {name} IDENTIFIED BY %({user.label})s{demand}"
    return [first, *corrections(user, Account(tls=user.tls))]


def create_database(one: WantedDatabase) -> str:
    """The statement that makes a database."""
    collation = f" COLLATE {one.collation}" if one.collation else ""
    charset = one.character_set or ("" if one.collation else "utf8mb4")
    return f"CREATE DATABASE IF NOT EXISTS `{one.name}`{f' CHARACTER SET {charset}' if charset else ''}{collation}"


def unlike(one: WantedDatabase, there: Sequence[str]) -> str:
    """What a database that exists has and the declaration does not say; "" where it is as declared."""
    for wanted, has in zip((one.character_set, one.collation), there, strict=True):
        if wanted and _mb3(wanted) != _mb3(has):
            return (
                f"it exists with {has}, not {wanted}; correct spec.databases, or change it by ALTER DATABASE "
                "once its tables are to have the other"
            )
    return ""


def _mb3(name: str) -> str:
    low = name.lower()
    return low.replace("utf8", "utf8mb3", 1) if low == "utf8" or low.startswith("utf8_") else low
