"""A connection whose bytes go through as they are: snapshots that are read, values that are written.

redis-py's connection, which everything else here uses (`redis.dial`), gives no stream of bytes before an answer has ended,
and costs more for each answer than a value takes to be written.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from mooring.operators.redis.address import CLEAR_PORTS, Address

__all__ = ["CONNECT", "Cut", "Denied", "Wire", "WireFailed", "encoded", "open_wire"]

CONNECT: Final = 10.0
"""Seconds in which a server must accept a connection."""


class WireFailed(Exception):
    """The server did not do what it was asked; the message names it."""


class Cut(WireFailed):
    """The stream ended, or stood still, before its end."""


class Denied(WireFailed):
    """The server refuses."""


W = TypeVar("W", bound="Wire")


class Wire:
    """One open connection; ``silence`` is in seconds."""

    def __init__(
        self,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        silence: float,
    ) -> None:
        self._address, self._reader, self._writer, self._silence = address, reader, writer, silence

    def patience(self, seconds: float) -> None:
        """Wait so long for what comes from now on."""
        self._silence = seconds

    async def authenticate(self, user: str, password: str) -> None:
        """Log in, where there is a password; a server without one is used without. Raises `Denied`."""
        if not password:
            return
        answer = await self.ask("AUTH", *([user] if user else []), password)
        if (
            answer.startswith("-")
            and "no password is set" not in answer
            and "without any password" not in answer
        ):
            raise Denied(f"{self._address}: does not accept the password")

    async def ask(self, *words: str | bytes) -> str:
        """Send a command and return its one line."""
        self._writer.write(encoded(words))
        return await self.line()

    async def text(self, *words: str | bytes) -> str:
        """Send a command and return its text, of one line or of many. Raises `Denied` for an error."""
        head = await self.ask(*words)
        if head.startswith("-"):
            raise Denied(f"{self._address}: {_name(words[0])} refused: {head[1:200]}")
        if not head.startswith("$"):
            return head[1:]
        size = int(head[1:])
        return (await self.take(size + 2))[:-2].decode(errors="replace") if size >= 0 else ""

    async def line(self) -> str:
        """The next line; empty ones say that the server still prepares."""
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    line = await self._reader.readuntil(b"\n")
            except TimeoutError as error:
                raise Cut(f"{self._address}: silent for {self._silence:g} s") from error
            if text := line.strip().decode(errors="replace"):
                return text

    async def take(self, size: int) -> bytes:
        """Exactly so many bytes."""
        try:
            async with asyncio.timeout(self._silence):
                return await self._reader.readexactly(size)
        except TimeoutError as error:
            raise Cut(f"{self._address}: silent for {self._silence:g} s") from error

    async def read(self, size: int) -> bytes:
        """Up to so many bytes; none at the end."""
        try:
            async with asyncio.timeout(self._silence):
                return await self._reader.read(size)
        except TimeoutError as error:
            raise Cut(f"{self._address}: silent for {self._silence:g} s") from error

    async def send(self, data: bytes) -> None:
        """Send bytes as they are; waits while the server does not take them."""
        self._writer.write(data)
        try:
            async with asyncio.timeout(self._silence):
                await self._writer.drain()
        except TimeoutError as error:
            raise Cut(f"{self._address}: takes nothing for {self._silence:g} s") from error


@asynccontextmanager
async def open_wire(
    kind: type[W],
    address: Address,
    *,
    password: str = "",
    user: str = "",
    tls: ssl.SSLContext | None = None,
    silence: float,
) -> AsyncIterator[W]:
    """A connection for the length of the block, logged in; raises `Cut` and `Denied`.

    With ``tls`` it is encrypted, but to a plain port.
    """
    how = None if address.port in CLEAR_PORTS else tls
    try:
        async with asyncio.timeout(CONNECT):
            reader, writer = await asyncio.open_connection(address.ip, address.port, ssl=how)
    except (OSError, TimeoutError) as error:
        raise Cut(f"{address}: cannot connect: {error or 'no answer'}") from error
    wire = kind(address, reader, writer, silence)
    try:
        await wire.authenticate(user, password)
        yield wire
    except (OSError, asyncio.IncompleteReadError) as error:
        raise Cut(f"{address}: the connection broke: {error}") from error
    finally:
        writer.transport.abort()


def _name(word: str | bytes) -> str:
    return word.decode() if isinstance(word, bytes) else word


def encoded(words: Sequence[str | bytes]) -> bytes:
    """A command as servers read it."""
    parts = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
