"""Connections that are taken over for exec, attach and port-forward: WebSockets, and SPDY by an HTTP upgrade."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

from mooring.local.api import failures
from mooring.local.api.http import Request

__all__ = [
    "RawPipe",
    "TunnelPipe",
    "is_spdy",
    "is_websocket",
    "spdy_protocol",
    "taken_over",
    "until_one_ends",
    "websocket",
    "websocket_required",
]

#: Where clients say what they want to speak inside of SPDY.
_VERSIONS = "X-Stream-Protocol-Version"
_MESSAGE_LIMIT = 4 << 20
_PIECE = 32 << 10


def is_spdy(request: Request) -> bool:
    """Whether the client asks for SPDY."""
    return request.upgrade is not None and request.header("upgrade").lower() == "spdy/3.1"


def is_websocket(request: Request) -> bool:
    """Whether the client asks for a WebSocket."""
    return request.upgrade is not None and request.header("upgrade").lower() == "websocket"


def spdy_protocol(request: Request, accepted: str) -> Mapping[str, str]:
    """Return the headers that agree on a protocol inside of SPDY; raises 400."""
    assert request.upgrade is not None
    values = request.upgrade.headers.getall(_VERSIONS, [])
    offered = [part.strip() for value in values for part in value.split(",")]
    if accepted not in offered:
        raise failures.bad_request(
            f"unable to upgrade: unable to negotiate protocol: client supports [{' '.join(offered)}], "
            f"server accepts [{accepted}]"
        )
    return {"Upgrade": "SPDY/3.1", "Connection": "Upgrade", _VERSIONS: accepted}


def websocket_required(request: Request, protocols: Sequence[str]) -> None:
    """Raise 400 to a client that asks for no WebSocket with one of the subprotocols; "" stands for none."""
    wanted = [part.strip() for part in request.header("sec-websocket-protocol").split(",")]
    if not is_websocket(request):
        raise failures.bad_request("Upgrade request required")
    if not set(wanted) & set(protocols):
        raise failures.bad_request(
            f"unable to upgrade: none of the subprotocols {list(protocols)} is offered"
        )


async def websocket(http: web.BaseRequest, protocols: Sequence[str]) -> web.WebSocketResponse:
    """Take the connection over as a WebSocket."""
    socket = web.WebSocketResponse(
        protocols=protocols, max_msg_size=_MESSAGE_LIMIT, heartbeat=30.0, compress=False
    )
    await socket.prepare(http)
    return socket


async def until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    """Run several until the first of them ends, and end the others."""
    work = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


class TunnelPipe:
    """The bytes inside of a WebSocket's binary messages."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for message in self._socket:
            if message.type is WSMsgType.BINARY:
                yield message.data

    async def send(self, data: bytes) -> None:
        """Send one message."""
        await self._socket.send_bytes(data)


class RawPipe:
    """The bytes of a connection that speaks HTTP no more."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(_PIECE):
                yield data

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)
        await self._writer.drain()


@asynccontextmanager
async def taken_over(
    http: web.BaseRequest, headers: Mapping[str, str]
) -> AsyncIterator[tuple[RawPipe, web.StreamResponse]]:
    """Answer 101 and give the connection's bytes; at the end it is closed, and the HTTP server told so."""
    response = web.StreamResponse(status=101, headers=headers)
    response.force_close()
    await response.prepare(http)
    transport, former = http.transport, http.protocol
    if not isinstance(transport, asyncio.Transport):
        raise ConnectionResetError("the client is gone")
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    pipe = RawPipe(reader, writer)
    try:
        yield pipe, response
    finally:
        if transport.is_closing():
            former.connection_lost(None)  # it was told to the other protocol
        else:
            transport.set_protocol(former)
            transport.close()
