"""SPDY/3.1, the server's half, as far as exec, attach and port-forward need it: streams, data, pings.

Flow control is that of the connection below; the library behind kubectl knows no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = [
    "DICTIONARY",
    "Connection",
    "Frame",
    "FrameReader",
    "HeaderCodec",
    "Pipe",
    "SpdyError",
    "Stream",
    "data_frame",
    "syn_reply",
]

# The words (`_` is a space) and the text of the dictionary that SPDY/3 gives zlib for header blocks.
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url "
    "public set-cookie keep-alive origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-"
    "Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 For"
    "bidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar "
    "Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/h"
    "tml,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript"
    ",publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split())
    + _TEXT.encode()
)

_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING = 1, 2, 3, 6
_FIN = 1
_FRAME_LIMIT = 1 << 20


class SpdyError(ValueError):
    """Bytes that are no SPDY/3.1."""


class HeaderCodec:
    """Header blocks; each direction of a connection is one zlib stream."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def decode(self, block: bytes) -> dict[str, str]:
        """Read a header block; names are in lower case."""
        try:
            plain = self._inflate.decompress(block, _FRAME_LIMIT)
            (count,) = struct.unpack_from(">I", plain)
            position, headers = 4, {}
            for _ in range(count):
                name, position = _text(plain, position)
                value, position = _text(plain, position)
                headers[name.lower()] = value
        except (zlib.error, struct.error, UnicodeDecodeError) as error:
            raise SpdyError(f"unreadable headers: {error}") from error
        return headers

    def encode(self, headers: Mapping[str, str]) -> bytes:
        """Write a header block."""
        plain = struct.pack(">I", len(headers))
        for text in (part for pair in headers.items() for part in pair):
            plain += struct.pack(">I", len(text)) + text.encode()
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def _text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">I", data, position)
    end = position + 4 + length
    if end > len(data):
        raise SpdyError("a header is cut short")
    return data[position + 4 : end].decode(), end


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: `kind` 0 is data, `stream` the stream of data."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class FrameReader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now; raises SpdyError."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            length = second & 0xFFFFFF
            if length > _FRAME_LIMIT:
                raise SpdyError(f"a frame of {length} bytes is too long")
            if len(self._buffer) < 8 + length:
                break
            payload = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if first & 0x80000000:
                if (first >> 16) & 0x7FFF != _VERSION:
                    raise SpdyError("not SPDY/3")
                frames.append(Frame(first & 0xFFFF, second >> 24, 0, payload))
            else:
                frames.append(Frame(0, second >> 24, first, payload))
        return frames


def data_frame(stream: int, data: bytes, *, last: bool = False) -> bytes:
    """Return a data frame."""
    return struct.pack(">II", stream, (_FIN if last else 0) << 24 | len(data)) + data


def _control(kind: int, flags: int, payload: bytes) -> bytes:
    return struct.pack(">HHI", 0x8000 | _VERSION, kind, flags << 24 | len(payload)) + payload


def syn_reply(stream: int, block: bytes) -> bytes:
    """Return the acceptance of a stream."""
    return _control(_SYN_REPLY, 0, struct.pack(">I", stream) + block)


class Pipe(Protocol):
    """Bytes both ways: what a connection stands on."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over what the client sends, until it is gone."""
        ...

    async def send(self, data: bytes) -> None:
        """Send bytes; waits for a slow client."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream that the client opened; what it sends on it waits in the queue, None is its end."""

    number: int
    headers: Mapping[str, str]
    incoming: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(64))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await self.incoming.get()) is not None:
            yield data


class Connection:
    """The server's half of one connection; `opened` is told of every stream and must not wait."""

    def __init__(self, pipe: Pipe, opened: Callable[[Stream], None]) -> None:
        self._pipe = pipe
        self._opened = opened
        self._headers = HeaderCodec()
        self._streams: dict[int, Stream] = {}

    async def run(self) -> None:
        """Receive until the client is gone, or sends what is no SPDY."""
        frames = FrameReader()
        with contextlib.suppress(SpdyError, struct.error):
            async for data in self._pipe:
                for frame in frames.feed(data):
                    await self._received(frame)

    async def send(self, number: int, data: bytes, *, last: bool = False) -> None:
        """Send on a stream."""
        await self._send(data_frame(number, data, last=last))

    def forget(self, *numbers: int) -> None:
        """Take no more of these streams."""
        for number in numbers:
            self._streams.pop(number, None)

    async def _received(self, frame: Frame) -> None:
        if frame.kind == 0:
            stream = self._streams.get(frame.stream)
            if stream is not None:
                if frame.payload:
                    await stream.incoming.put(frame.payload)
                if frame.flags & _FIN:
                    await stream.incoming.put(None)
        elif frame.kind == _SYN_STREAM:
            (number,) = struct.unpack_from(">I", frame.payload)
            number &= 0x7FFFFFFF
            stream = self._streams[number] = Stream(number, self._headers.decode(frame.payload[10:]))
            await self._send(syn_reply(number, self._headers.encode({})))
            self._opened(stream)
        elif frame.kind == _RST_STREAM:
            (number,) = struct.unpack_from(">I", frame.payload)
            if reset := self._streams.pop(number & 0x7FFFFFFF, None):
                await reset.incoming.put(None)
        elif frame.kind == _PING:
            await self._send(_control(_PING, 0, frame.payload))

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await self._pipe.send(data)
