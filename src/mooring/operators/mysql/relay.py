"""What a replica received and did not apply, as its relay logs hold it: the rescue of fact F12.

MariaDB in GTID mode discards its relay logs when replication starts again after both threads were stopped, or after a
restart: it counts on fetching everything again, and no longer says what it had received. Where the source is gone for good,
acknowledged transactions may be there and nowhere else. They are found by the ids of the events, and applied from the byte
of the first one, with GTIDs out of the way. (The byte that the server recorded may be older than what was applied;
``gtid_strict_mode`` refuses a transaction that is applied twice.)
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from mooring.operators.mysql.dial import Link, Row, SqlError, quoted
from mooring.operators.mysql.dialect import Dialect, number, text_of
from mooring.operators.mysql.gtid import Position, parse_mariadb

__all__ = ["Point", "first_unapplied", "received"]

PAGE: Final = 2000
"""Events that are looked at in one query."""
PATIENCE: Final = 10.0
"""Seconds that one of these may take."""
_GTID: Final = re.compile(r"(BEGIN )?GTID (\d+-\d+-\d+)")
_FILE: Final = re.compile(r"(.*\.)(\d{6,})")
#: Error of SHOW RELAYLOG EVENTS where there is no such file, or no such byte.
_NO_FILE: Final = 1220


@dataclass(frozen=True, kw_only=True)
class Point:
    """A byte of a relay log, at the beginning of a transaction."""

    file: str
    position: int
    gtid: str


async def received(link: Link, dialect: Dialect) -> Position:
    """The transactions that the relay logs hold as a whole; raises `DialError`.

    One that was cut off at the end was not acknowledged, and cannot be applied.
    """
    whole, begun, alone = Position(), "", False
    async for _, row in _events(link, dialect):
        kind, info = text_of(row, "Event_type"), text_of(row, "Info")
        found = _GTID.match(info) if kind == "Gtid" else None
        if found is not None:
            begun, alone = found[2], found[1] is None
        elif begun and (kind in ("Xid", "XA_prepare") or (kind == "Query" and (alone or info == "COMMIT"))):
            whole, begun = whole | parse_mariadb(begun), ""
    return whole


async def first_unapplied(link: Link, dialect: Dialect) -> Point | None:
    """The first transaction of the relay logs that was not applied, ``None`` where there is none; raises `DialError`."""
    executed = dialect.position_of(await link.one(dialect.position()))
    async for file, row in _events(link, dialect):
        found = _GTID.match(text_of(row, "Info")) if text_of(row, "Event_type") == "Gtid" else None
        if found is not None and not executed.contains(_exactly(found[2])):
            return Point(file=file, position=number(row, "Pos"), gtid=found[2])
    return None


async def _events(link: Link, dialect: Dialect) -> AsyncIterator[tuple[str, Row]]:
    """The events of the relay logs with their file, from what the server recorded as applied."""
    status = await link.one(dialect.replication())
    file: str | None = text_of(status, "Relay_Log_File")
    position = max(4, number(status, "Relay_Log_Pos"))
    while file:
        try:
            rows = await link.query(
                f"SHOW RELAYLOG EVENTS IN {quoted(file)} FROM {position} LIMIT {PAGE}", timeout=PATIENCE
            )
        except SqlError as error:
            if error.code != _NO_FILE:
                raise
            if position == 4:
                return
            position = 4  # no event begins at the recorded byte: the file is read from its start
            continue
        # The last of a page is the first of the next one.
        whole = len(rows) < PAGE
        for row in rows if whole else rows[:-1]:
            yield file, row
        if whole:
            file, position = _next(file), 4
        else:
            position = number(rows[-1], "Pos")


def _exactly(gtid: str) -> Position:
    domain, server, sequence = gtid.split("-")
    return parse_mariadb(f"{domain}-{server}-{sequence}..{sequence}")


def _next(file: str) -> str | None:
    found = _FILE.fullmatch(file)
    return f"{found[1]}{int(found[2]) + 1:0{len(found[2])}d}" if found else None
