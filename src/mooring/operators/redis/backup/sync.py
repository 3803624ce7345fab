"""Read a snapshot from a running server, as a replica does: streamed from its socket, with a proof of its end.

`redis-cli --rdb` does the same; it takes the password from its arguments or its environment, in old versions from
the arguments alone. Here it goes through the connection, in every version.

    SyncFailed
      Cut         the stream ended, or stood still, before its end
      Denied      the server does not give a snapshot: it is loading, has lost its master, wants another password
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from mooring.operators.redis.address import Address

__all__ = ["Cut", "Denied", "Snapshot", "SyncFailed", "open_snapshot"]

CONNECT: Final = 10.0
"""Seconds in which a server must accept a connection."""
SILENCE: Final = 60.0
"""Seconds without any byte after which a stream is given up; a server that prepares one sends a byte every ten."""
_CHUNK: Final = 1 << 18
_MARK: Final = 40
"""Bytes of the mark that ends a snapshot of unknown length."""


class SyncFailed(Exception):
    """No complete snapshot was read; the message names the server."""


class Cut(SyncFailed):
    """The stream ended, or stood still, before its end."""


class Denied(SyncFailed):
    """The server does not give a snapshot."""


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
    try:
        async with asyncio.timeout(CONNECT):
            reader, writer = await asyncio.open_connection(address.ip, address.port, ssl=tls)
    except (OSError, TimeoutError) as error:
        raise Cut(f"{address}: cannot connect: {error or 'no answer'}") from error
    stream = _Stream(address, reader, writer, silence)
    try:
        await stream.authenticate(user, password)
        # 7.0: no replication stream is collected for us meanwhile. Older servers refuse the word.
        await stream.ask("REPLCONF", "rdb-only", "1")
        await stream.ask("REPLCONF", "capa", "eof")
        replid, offset = await stream.begin()
        yield Snapshot(replid=replid, offset=offset, data=stream.payload())
    except (OSError, asyncio.IncompleteReadError) as error:
        raise Cut(f"{address}: the connection broke: {error}") from error
    finally:
        writer.transport.abort()


class _Stream:
    def __init__(
        self,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        silence: float,
    ) -> None:
        self._address, self._reader, self._writer, self._silence = address, reader, writer, silence

    async def authenticate(self, user: str, password: str) -> None:
        if not password:
            return
        answer = await self.ask("AUTH", *([user] if user else []), password)
        if (
            answer.startswith("-")
            and "no password is set" not in answer
            and "without any password" not in answer
        ):
            raise Denied(f"{self._address}: does not accept the password")

    async def ask(self, *words: str) -> str:
        """Send a command and return its one line."""
        self._writer.write(_encoded(words))
        return await self._line()

    async def begin(self) -> tuple[str, int]:
        """The replication id and the offset of the snapshot that follows."""
        answer = await self.ask("PSYNC", "?", "-1")
        if not answer.startswith("+FULLRESYNC"):
            raise Denied(f"{self._address}: gives no snapshot: {answer.lstrip('-')[:200]}")
        words = answer.split()
        return (words[1], int(words[2])) if len(words) > 2 else ("", 0)

    async def payload(self) -> AsyncGenerator[bytes, None]:
        """The bytes of the snapshot."""
        said = await self._line()
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
            piece = await self._read(min(left, _CHUNK))
            if not piece:
                raise Cut(f"{self._address}: the snapshot ended {left} bytes early")
            left -= len(piece)
            yield piece

    async def _until(self, mark: bytes) -> AsyncGenerator[bytes, None]:
        """All before the mark, which comes last: nothing follows it until a replica confirms."""
        held = b""
        while not held.endswith(mark):
            piece = await self._read(_CHUNK)
            if not piece:
                raise Cut(f"{self._address}: the snapshot ended before its end mark")
            held += piece
            if len(held) > _MARK and not held.endswith(mark):
                yield held[:-_MARK]
                held = held[-_MARK:]
        if rest := held[:-_MARK]:
            yield rest

    async def _line(self) -> str:
        """The next line; empty ones say that the server still prepares."""
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    line = await self._reader.readuntil(b"\n")
            except TimeoutError as error:
                raise Cut(f"{self._address}: silent for {self._silence:g} s") from error
            if text := line.strip().decode(errors="replace"):
                return text

    async def _read(self, size: int) -> bytes:
        try:
            async with asyncio.timeout(self._silence):
                return await self._reader.read(size)
        except TimeoutError as error:
            raise Cut(f"{self._address}: silent for {self._silence:g} s") from error


def _encoded(words: Sequence[str]) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
