"""pods/portforward: connections to a pod's ports, as SPDY streams.

For each connection the client opens an error stream and a data stream that carry the same requestID and the
port as headers. Newer clients tunnel SPDY inside of a WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from mooring.local.api.streams.spdy import Connection, Pipe, Stream

__all__ = ["forward"]

_PIECE = 32 << 10

Connect = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def forward(pipe: Pipe, connect: Connect) -> None:
    """Serve one client until it leaves."""
    session = _Session(pipe, connect)
    try:
        await session.run()
    finally:
        await session.close()


class _Session:
    def __init__(self, pipe: Pipe, connect: Connect) -> None:
        self._connection = Connection(pipe, self._opened)
        self._connect = connect
        self._errors: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await self._connection.run()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _opened(self, stream: Stream) -> None:
        request = stream.headers.get("requestid", "")
        if stream.headers.get("streamtype") == "error":
            self._errors[request] = stream.number
        elif stream.headers.get("streamtype") == "data":
            task = asyncio.create_task(self._pump(stream, self._errors.pop(request, 0)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, stream: Stream, error_stream: int) -> None:
        """Carry one connection; what goes wrong is told on its error stream."""
        connection, port = self._connection, stream.headers.get("port", "")
        try:
            reader, writer = await self._connect(int(port))
        except (OSError, LookupError, ValueError, TimeoutError) as error:
            text = str(error) or type(error).__name__
            await connection.send(error_stream, f"port {port}: {text}".encode(), last=True)
            await connection.send(stream.number, b"", last=True)
            return
        upward = asyncio.create_task(_upward(stream, writer))
        try:
            while data := await reader.read(_PIECE):
                await connection.send(stream.number, data)
        except ConnectionError:
            pass
        finally:
            upward.cancel()
            await asyncio.gather(upward, return_exceptions=True)
            writer.close()
            connection.forget(stream.number, error_stream)
        await connection.send(stream.number, b"", last=True)
        if error_stream:
            await connection.send(error_stream, b"", last=True)


async def _upward(stream: Stream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        async for data in stream:
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
