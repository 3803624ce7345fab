"""Sources of an upload as chunks of a bounded size, counted and hashed on their way.

A chunk is small enough that hashing and encrypting it does not hold up the event loop noticeably (about a
millisecond for a mebibyte).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final

from mooring.objectstore.throttle import Throttle

__all__ = ["CHUNK", "Meter", "Progress", "Source", "chunks", "closing"]

#: The largest piece of data that is handled at once, in bytes.
CHUNK: Final = 1 << 20

#: What an upload is read from: an async iterator, or a file descriptor (a pipe, a socket or a file; it stays open).
Source = AsyncIterable[bytes] | int
#: Called with the bytes that passed so far, after each chunk. It must not block.
Progress = Callable[[int], object]


async def chunks(source: Source) -> AsyncGenerator[bytes, None]:
    """The source in pieces of `CHUNK` bytes, the last one shorter, none of them empty."""
    pieces = _descriptor(source) if isinstance(source, int) else source
    pending = bytearray()
    async with closing(pieces):
        async for piece in pieces:
            view = memoryview(piece)
            for start in range(0, len(view), CHUNK):
                pending += view[start : start + CHUNK]
                if len(pending) >= CHUNK:
                    yield bytes(pending[:CHUNK])
                    del pending[:CHUNK]
        if pending:
            yield bytes(pending)


async def _descriptor(fd: int) -> AsyncGenerator[bytes, None]:
    mode = os.fstat(fd).st_mode
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    while True:
        if waits:
            # Not in a thread: one that waits for a hung writer could not be cancelled.
            await _readable(fd)
            try:
                piece = os.read(fd, CHUNK)
            except BlockingIOError:
                continue
        else:
            piece = await asyncio.to_thread(os.read, fd, CHUNK)
        if not piece:
            return
        yield piece


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@asynccontextmanager
async def closing(source: AsyncIterable[bytes]) -> AsyncGenerator[None, None]:
    """Close a source that can be closed at the end of a block: generators do not close those they read from."""
    try:
        yield
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


class Meter:
    """Counts, hashes and throttles what passes."""

    def __init__(self, *, throttle: Throttle | None = None, progress: Progress | None = None) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._throttle = throttle
        self._progress = progress

    @property
    def sha256(self) -> str:
        """The SHA-256 of everything that passed, in hex."""
        return self._hash.hexdigest()

    async def passing(self, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The same chunks; closes the source."""
        async with aclosing(source):
            async for chunk in source:
                if self._throttle is not None:
                    await self._throttle.take(len(chunk))
                self._hash.update(chunk)
                self.size += len(chunk)
                if self._progress is not None:
                    self._progress(self.size)
                yield chunk
