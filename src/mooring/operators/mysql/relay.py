"""What a replica received and did not apply, as its relay log holds it: the rescue of fact F12.

MariaDB in GTID mode discards its relay log when the applier is started while the receiver does not run, or after a restart:
it counts on fetching everything again. Where the source is gone for good, acknowledged transactions may be there and
nowhere else. They are applied from a byte of the relay log, with GTIDs out of the way. That byte is looked up by the ids of
the events, since the recorded one may be older than what was applied; ``gtid_strict_mode`` refuses a transaction that is
applied twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mooring.operators.mysql.dial import Link, SqlError, quoted
from mooring.operators.mysql.dialect import Dialect, number, text_of
from mooring.operators.mysql.gtid import Position, parse_mariadb

__all__ = ["Point", "first_unapplied"]

PAGE: Final = 2000
"""Events that are looked at in one query."""
_GTID: Final = re.compile(r"GTID (\d+-\d+-\d+)")
_FILE: Final = re.compile(r"(.*\.)(\d{6,})")
#: Error of SHOW RELAYLOG EVENTS where there is no such file, or no such byte.
_NO_FILE: Final = 1220


@dataclass(frozen=True, kw_only=True)
class Point:
    """A byte of a relay log, at the beginning of a transaction."""

    file: str
    position: int
    gtid: str


async def first_unapplied(link: Link, dialect: Dialect) -> Point | None:
    """The first transaction of the relay logs that was not applied, ``None`` where there is none; raises `DialError`."""
    status = await link.one(dialect.replication())
    executed = dialect.position_of(await link.one(dialect.position()))
    file: str | None = text_of(status, "Relay_Log_File")
    position = max(4, number(status, "Relay_Log_Pos"))
    while file:
        try:
            rows = await link.query(
                f"SHOW RELAYLOG EVENTS IN {quoted(file)} FROM {position} LIMIT {PAGE}", timeout=10.0
            )
        except SqlError as error:
            if error.code != _NO_FILE:
                raise
            return None
        for row in rows:
            found = _GTID.search(text_of(row, "Info")) if text_of(row, "Event_type") == "Gtid" else None
            if found is not None and not executed.contains(_exactly(found[1])):
                return Point(file=file, position=number(row, "Pos"), gtid=found[1])
        if len(rows) == PAGE:
            position = number(rows[-1], "Pos")
        else:
            file, position = _next(file), 4
    return None


def _exactly(gtid: str) -> Position:
    domain, server, sequence = gtid.split("-")
    return parse_mariadb(f"{domain}-{server}-{sequence}..{sequence}")


def _next(file: str) -> str | None:
    found = _FILE.fullmatch(file)
    return f"{found[1]}{int(found[2]) + 1:0{len(found[2])}d}" if found else None
