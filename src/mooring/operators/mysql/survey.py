"""Asks all servers of a cluster what they are: the reading behind `topology`.

A replica must never look as if it had something that the primary lacks, only because it was asked later: replicas are asked
first, the primary last (its own position is asked for before as well, so that a replica that has all of that has caught
up). Every answer is bounded by the dial's time limits, servers are asked at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

from mooring.operators.mysql.accounts import Account, Accounts, WantedUser, account, privileges
from mooring.operators.mysql.credentials import ACCOUNTS, OWN, Credentials
from mooring.operators.mysql.dial import Dial, DialError, Link, Login
from mooring.operators.mysql.dialect import Dialect, number, text_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.names import OPERATOR_USER
from mooring.operators.mysql.relay import received
from mooring.operators.mysql.topology import Member, Server, Topology

__all__ = [
    "NO_ADDRESS",
    "login_of",
    "read_accounts",
    "read_purged",
    "read_server",
    "read_topology",
    "with_applier",
    "with_backup_account",
]

NO_ADDRESS = "NoAddress"
"""Error of a member whose pod has no address yet."""

QUICK = 0.25
"""Seconds that a server gets which did not answer before."""
APART = 0.1
"""Seconds between two looks at an applier: one that waits for threads that are done goes on within a few milliseconds."""


def login_of(credentials: Credentials, account: str = OPERATOR_USER) -> Login:
    """How to log in as one of the operator's accounts."""
    passwords = tuple(credentials.of(account))
    return Login(user=account, passwords=passwords, tls=credentials.tls, plain=credentials.plain)


async def read_server(
    link: Link, dialect: Dialect, held: Collection[str] = (), *, load: bool = False
) -> Server:
    """All of one server, in one sending, with what tuning reads of it for ``load``; raises `DialError`.

    Where both threads of a replica stopped, some servers do not say what they had received: then its relay logs are read.
    """
    server = dialect.server(await link.results(dialect.survey(held, load=load)))
    now = server.replication
    if now is not None and not (
        dialect.keeps_relay_log or now.sql_running or now.io_running or now.connecting
    ):
        server = replace(server, received=server.received | await received(link, dialect))
    if not server.read_only and not server.semi_sync.waiting:
        server = replace(server, stalled=dialect.stall_of(await link.query(dialect.sessions())))
    return replace(server, accepted={ACCOUNTS[OPERATOR_USER]: link.label}) if link.label else server


async def with_applier(link: Link, dialect: Dialect, server: Server) -> Server:
    """The server with whether its applier waits for its own idle threads; raises `DialError`.

    Asked only where something is to be applied. Both looks have to show it, and nothing may have been applied in between.
    """
    now = server.replication
    if now is None or not now.sql_running or server.executed.contains(server.received):
        return server
    for look in range(2):
        if look:
            await asyncio.sleep(APART)
        if not dialect.deadlocked_in(await link.query(dialect.sessions()), now):
            return server
    if dialect.position_of(await link.one(dialect.position())) != server.executed:
        return server
    return replace(server, replication=replace(now, deadlocked=True))


async def read_purged(link: Link, dialect: Dialect) -> Position:
    """What the binary logs of a server no longer hold; raises `DialError`."""
    rows: Sequence[dict[str, object]] = ({},)
    for query in dialect.purged():
        if not rows:
            break
        rows = await link.query(query.format_map(rows[0]))
    return dialect.purged_of(rows)


async def read_topology(
    dial: Dial,
    dialect: Dialect,
    members: Sequence[Member],
    *,
    login: Login,
    primary: str = "",
    held: Collection[str] = (),
    silent: Collection[str] = (),
    history: bool = False,
    load: bool = False,
) -> Topology:
    """Ask all members; ``primary`` is the recorded one, ``held`` global variables to bring as well, for ``load`` those of tuning.

    ``silent`` names those that did not answer before: they get less time, so that a hung server holds up nothing. What its
    binary logs no longer hold is asked of the primary alone, while a member does not receive from it or with ``history``.
    """
    leader = next((one for one in members if one.name == primary), None)
    before: Position | None = None
    failed: Member | None = None
    if leader is not None and leader.pod.ip and len(members) > 1:
        try:
            async with _within(leader, silent), dial.kept(leader.pod.ip, login, name=leader.name) as link:
                before = dialect.position_of(await link.one(dialect.position()))
        except DialError as error:
            failed = replace(leader, server=None, error=error.word)
        except TimeoutError:
            failed = replace(leader, server=None, error="Timeout")

    async def ask(member: Member, *, purged: bool = False) -> Member:
        if not member.pod.ip:
            return replace(member, server=None, error=NO_ADDRESS)
        try:
            async with _within(member, silent), dial.kept(member.pod.ip, login, name=member.name) as link:
                server = await read_server(link, dialect, held, load=load)
                server = await with_applier(link, dialect, server)
        except DialError as error:
            return replace(member, server=None, error=error.word)
        except TimeoutError:
            return replace(member, server=None, error="Timeout")
        if purged and not server.semi_sync.waiting:
            server = replace(server, purged=await _purged(dial, dialect, member, login))
        return replace(member, server=server, error="")

    others = await asyncio.gather(*(ask(one) for one in members if one is not leader))
    found = {one.name: one for one in others}
    if leader is not None:
        apart = history or any(one.server is not None and not _receives(one.server) for one in others)
        found[leader.name] = failed or await ask(leader, purged=apart)
    return Topology(members=[found[one.name] for one in members], before=before)


def _within(member: Member, silent: Collection[str]) -> asyncio.Timeout:
    return asyncio.timeout(QUICK if member.name in silent else None)


async def _purged(dial: Dial, dialect: Dialect, member: Member, login: Login) -> Position | None:
    """On a connection of its own: MariaDB lists no binary logs while a commit waits for an acknowledgement."""
    try:
        async with dial.open(member.pod.ip, login, name=member.name, timeout=2 * QUICK) as link:
            return await read_purged(link, dialect)
    except DialError:
        return None


async def read_accounts(
    link: Link, dialect: Dialect, credentials: Credentials, users: Sequence[WantedUser], *, own: bool
) -> Accounts:
    """Databases, the declared accounts, and with ``own`` the operator's; raises `DialError`."""
    labels = {(user.name, user.host): user.label for user in users if user.label}
    if own:
        labels |= {(name, host): ACCOUNTS[name] for name, host in OWN}
    found: dict[str, Account] = {}
    for row in await link.query(dialect.accounts()):
        key = (text_of(row, "user"), text_of(row, "host"))
        if key in labels:
            found[f"{key[0]}@{key[1]}"] = dialect.account_of(row, credentials.text(labels[key]))
    for user in users:
        if user.grants is not None and user.key in found:
            rows = await link.query(f"SHOW GRANTS FOR {account(user.name, user.host)}")
            grants = privileges(str(next(iter(row.values()))) for row in rows)
            found[user.key] = replace(found[user.key], grants=grants)
    schemata = await link.query(
        "SELECT SCHEMA_NAME AS name, DEFAULT_CHARACTER_SET_NAME AS charset, DEFAULT_COLLATION_NAME AS collation "
        "FROM information_schema.SCHEMATA"
    )
    databases = {
        text_of(row, "name"): (text_of(row, "charset"), text_of(row, "collation")) for row in schemata
    }
    return Accounts(users=found, databases=databases)


async def with_backup_account(
    topology: Topology, dial: Dial, dialect: Dialect, *, login: Login, primary: str
) -> Topology:
    """The topology with what the primary says of the account of backups; where it does not say, the account counts as there.

    It is asked apart from the survey, so that a table that a client locked hides no server, and not while a commit waits.
    """
    leader = topology.member(primary)
    server = leader.server if leader is not None else None
    if leader is None or server is None or server.read_only or server.semi_sync.waiting:
        return topology
    try:
        async with dial.kept(leader.pod.ip, login, name=leader.name) as link:
            found = number(await link.one(dialect.backup_account(), timeout=2 * QUICK), "found") > 0
    except DialError:
        return topology
    asked = replace(leader, server=replace(server, backup_account=found))
    return replace(topology, members=[asked if one is leader else one for one in topology.members])


def _receives(server: Server) -> bool:
    return server.replication is not None and server.replication.io_running
