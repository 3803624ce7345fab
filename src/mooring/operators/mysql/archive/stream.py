"""The binary log of a server as a replica receives it: over its own connection, by GTID.

asyncmy logs in (passwords, TLS) and takes packets apart. It does not hold back a server that sends faster than what it sends
is taken: that is done here, so that memory stays bounded. A server that sends nothing for `SILENCE` seconds, though it was
asked for a heartbeat every second, hangs.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from asyncmy.errors import MySQLError

from mooring.operators.mysql.archive.events import (
    Description,
    Kind,
    Malformed,
    header_of,
    only_gtid_list,
)
from mooring.operators.mysql.dial import Dial, Link, Login, SqlError, Unreachable, quoted
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.gtid import Intervals, Position, parse_mariadb
from mooring.operators.mysql.topology import Flavor

__all__ = [
    "BUFFERED",
    "HEARTBEAT",
    "PURGED",
    "SILENCE",
    "Stream",
    "begins_after",
    "encoded",
    "follow",
    "is_purged",
]

HEARTBEAT: Final = 1.0
"""Seconds after which a server that has nothing to send says so."""
SILENCE: Final = 3.0
"""Seconds without any event after which a server is given up."""
BUFFERED: Final = 4 << 20
"""Bytes that may wait here before the server is held back."""
PURGED: Final = 1236
"""Error of a server that cannot send what follows a position: it was purged, or it never had the position."""
_DUMP: Final = 0x12
_DUMP_GTID: Final = 0x1E
_ANNOTATED: Final = 2
"""MariaDB: send the events that hold the text of statements; without them bytes would seem to be missing."""
_BY_GTID: Final = 4


class Stream:
    """Events of one connection; make it with `follow`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._connection: Any = link._connection  # the protocol below it is not in its stub

    async def next(self) -> bytes:
        """The next event; raises `Unreachable` (Lost, Timeout) and `SqlError`."""
        self._hold(False)
        try:
            async with asyncio.timeout(SILENCE):
                packet = await self._connection.read_packet()
        except TimeoutError as error:
            self._link.close()
            raise Unreachable(
                f"{self._link.name}: nothing for {SILENCE:g} s, not even a heartbeat", "Timeout"
            ) from error
        except (MySQLError, OSError, RuntimeError) as error:
            # It ends the connection after this one: what it said counts more.
            if error.args and error.args[0] == PURGED:
                text = str(error.args[1]) if len(error.args) > 1 else ""
                raise SqlError(
                    f"{self._link.name}: it cannot send what follows: {text}", PURGED, text
                ) from None
            raise self._link._failure(error, "the binary log", secret=False) from None
        data: bytes = packet.get_all_data()
        if data[:1] != b"\0":
            self._link.close()
            raise Unreachable(f"{self._link.name}: it ended the binary log", "Lost")
        self._hold(True)
        return data[1:]

    def hold(self) -> None:
        """Let the server wait until the next event is taken."""
        self._hold(None)

    def _hold(self, when_full: bool | None) -> None:
        protocol = self._connection._proto
        transport = protocol.transport if protocol is not None else None
        if transport is None or transport.is_closing():
            return
        waiting = protocol.length - protocol.pos
        if when_full is None or (when_full and waiting > BUFFERED):
            transport.pause_reading()
        elif not when_full:
            transport.resume_reading()


@asynccontextmanager
async def follow(
    dial: Dial,
    host: str,
    login: Login,
    *,
    flavor: Flavor,
    after: Position | None,
    server_id: int,
    name: str = "",
) -> AsyncIterator[Stream]:
    """The events after a position; ``None``: the first ones that the server still has.

    ``server_id`` is ours: no other reader of that server may use it. Raises `DialError`.
    """
    async with dial.open(host, login, name=name) as link:
        sums = "@@GLOBAL.binlog_checksum"
        beat = int(HEARTBEAT * 1e9)
        asked = [
            f"SET @master_binlog_checksum = {sums}, @source_binlog_checksum = {sums}",
            f"SET @master_heartbeat_period = {beat}, @source_heartbeat_period = {beat}",
        ]
        if flavor == "mariadb":
            asked.append("SET @mariadb_slave_capability = 4, @slave_gtid_strict_mode = 1")
            if after is not None:
                asked.append(f"SET @slave_connect_state = {quoted(after.newest())}")
        for one in asked:
            await link.query(one)
        connection: Any = link._connection
        if flavor == "mariadb" or after is None:
            command, body = _DUMP, struct.pack("<IHI", 4, _ANNOTATED if flavor == "mariadb" else 0, server_id)
        else:
            position = encoded(after)
            head = struct.pack("<HII", _BY_GTID, server_id, 0)
            command, body = _DUMP_GTID, head + struct.pack("<QI", 4, len(position)) + position
        try:
            await connection._execute_command(command, body)
        except (MySQLError, OSError, RuntimeError) as error:
            raise link._failure(error, "the binary log", secret=False) from None
        yield Stream(link)


async def begins_after(
    dial: Dial, host: str, login: Login, *, flavor: Flavor, server_id: int, name: str = ""
) -> Position:
    """The position before the first transaction that a server still has; raises `DialError` and `Malformed`."""
    if flavor == "mysql":
        dialect = dialect_of(flavor)
        async with dial.open(host, login, name=name) as link:
            return dialect.purged_of(await link.query(dialect.purged()[0]))
    description: Description | None = None
    async with follow(dial, host, login, flavor=flavor, after=None, server_id=server_id, name=name) as stream:
        for _ in range(10):
            event = await stream.next()
            kind = header_of(event).kind
            if kind == Kind.FORMAT_DESCRIPTION:
                description = Description.of(event)
            elif kind == Kind.MARIADB_GTID_LIST and description is not None:
                return parse_mariadb(only_gtid_list(event, description))
    raise Malformed(f"{name or host}: its first binary log does not say what came before it")


def encoded(position: Position) -> bytes:
    """A MySQL position as servers send it to one another, and as a log file begins with it."""
    origins = sorted(position.origins, key=lambda origin: (origin.partition(":")[0], origin))
    tagged = any(":" in origin for origin in origins)
    if not tagged:
        return struct.pack("<Q", len(origins)) + b"".join(
            uuid.UUID(origin).bytes + _intervals(position.origins[origin]) for origin in origins
        )
    # Since MySQL 8.3: the form stands in the first and in the last byte of the count.
    parts = [struct.pack("<Q", 1 << 56 | len(origins) << 8 | 1)]
    for origin in origins:
        text, _, tag = origin.partition(":")
        parts += [
            uuid.UUID(text).bytes,
            bytes([len(tag) << 1]),
            tag.encode(),
            _intervals(position.origins[origin]),
        ]
    return b"".join(parts)


def _intervals(intervals: Intervals) -> bytes:
    body = b"".join(struct.pack("<qq", low, high + 1) for low, high in intervals)
    return struct.pack("<Q", len(intervals)) + body


def is_purged(error: Exception) -> bool:
    """Whether a server cannot send what follows a position."""
    return isinstance(error, SqlError) and error.code == PURGED
