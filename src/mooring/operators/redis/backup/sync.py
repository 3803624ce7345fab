"""Read a snapshot from a running server, as a replica does: streamed from its socket, with a proof of its end.

`redis-cli --rdb` does the same; it takes the password from its arguments or its environment, in old versions from
the arguments alone. Here it goes through the connection, in every version. Raises `wire.Cut` and `wire.Denied`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from mooring.operators.redis.address import Address
from mooring.operators.redis.backup.wire import Cut, Denied, Wire, open_wire

__all__ = ["Snapshot", "open_snapshot"]

SILENCE: Final = 60.0
"""Seconds without any byte after which a stream is given up; a server that prepares one sends a byte every ten."""
_CHUNK: Final = 1 << 18
_VERSION: Final = "9.0.0"
"""The version of Valkey whose format is the newest one that `entries` reads."""
_MARK: Final = 40
"""Bytes of the mark that ends a snapshot of unknown length."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot that is being read. ``data`` ends without an error only after its last byte."""

    replid: str
    offset: int
    """Where in the replication stream the snapshot stands; 0 where the server does not say."""
    data: AsyncGenerator[bytes, None]


@asynccontextmanager
async def open_snapshot(
    address: Address,
    *,
    password: str = "",
    user: str = "",
    tls: ssl.SSLContext | None = None,
    silence: float = SILENCE,
) -> AsyncIterator[Snapshot]:
    """Ask a server for a snapshot of all its databases; raises `Cut` and `Denied`.

    Nothing is kept in memory but what was read and not yet taken. ``silence`` is in seconds.
    """
    async with open_wire(_Stream, address, password=password, user=user, tls=tls, silence=silence) as stream:
        # 7.0: no replication stream is collected for us meanwhile. Older servers refuse the word.
        await stream.ask("REPLCONF", "rdb-only", "1")
        await stream.ask("REPLCONF", "capa", "eof")
        # To a reader that names no version Valkey 9 sends an older format, which ends at hash fields that expire.
        await stream.ask("REPLCONF", "version", _VERSION)
        replid, offset = await stream.begin()
        yield Snapshot(replid=replid, offset=offset, data=stream.payload())


class _Stream(Wire):
    async def begin(self) -> tuple[str, int]:
        """The replication id and the offset of the snapshot that follows."""
        answer = await self.ask("PSYNC", "?", "-1")
        if not answer.startswith("+FULLRESYNC"):
            raise Denied(f"{self._address}: gives no snapshot: {answer.lstrip('-')[:200]}")
        words = answer.split()
        return (words[1], int(words[2])) if len(words) > 2 else ("", 0)

    async def payload(self) -> AsyncGenerator[bytes, None]:
        """The bytes of the snapshot."""
        said = await self.line()
        if not said.startswith("$"):
            raise Denied(f"{self._address}: gives no snapshot: {said.lstrip('-')[:200]}")
        if said.startswith("$EOF:"):
            mark = said[5:].encode()
            if len(mark) != _MARK:
                raise Cut(f"{self._address}: the snapshot has no valid end mark")
            source = self._until(mark)
        else:
            source = self._sized(int(said[1:]))
        async for piece in source:
            yield piece

    async def _sized(self, left: int) -> AsyncGenerator[bytes, None]:
        while left:
            piece = await self.read(min(left, _CHUNK))
            if not piece:
                raise Cut(f"{self._address}: the snapshot ended {left} bytes early")
            left -= len(piece)
            yield piece

    async def _until(self, mark: bytes) -> AsyncGenerator[bytes, None]:
        """All before the mark, which comes last: nothing follows it until a replica confirms."""
        held = b""
        while not held.endswith(mark):
            piece = await self.read(_CHUNK)
            if not piece:
                raise Cut(f"{self._address}: the snapshot ended before its end mark")
            held += piece
            if len(held) > _MARK and not held.endswith(mark):
                yield held[:-_MARK]
                held = held[-_MARK:]
        if rest := held[:-_MARK]:
            yield rest
