"""pods/exec, pods/attach and pods/portforward, as kubectl and the client libraries speak them: over WebSockets and SPDY.

Exec: subprotocols v5.channel.k8s.io and v4.channel.k8s.io, which end with a Status on the error channel, and
the first one, channel.k8s.io or none, which says there only what failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import msgspec
from aiohttp import WSMsgType, web

from mooring.local.api import failures
from mooring.local.api.access.authorization import attributes_of
from mooring.local.api.call import Call
from mooring.local.api.http import Answer
from mooring.local.api.streams import forward as ports
from mooring.local.api.streams.gateway import NodeGateway
from mooring.local.api.streams.logs import container_of
from mooring.local.api.streams.pipes import (
    TunnelPipe,
    is_spdy,
    spdy_protocol,
    taken_over,
    websocket,
    websocket_required,
)
from mooring.local.api.streams.spdy import Connection, Pipe, Stream

__all__ = ["EXEC_PROTOCOLS", "attach", "execute", "forward"]

JsonObject = dict[str, Any]

#: The last of them is meant as well when none is named.
EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io")
SPDY_PROTOCOL = "v4.channel.k8s.io"
FORWARD_PROTOCOL = "SPDY/3.1+portforward.k8s.io"

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CHANNELS = {"stdin": _STDIN, "stdout": _STDOUT, "stderr": _STDERR, "error": _ERROR, "resize": _RESIZE}
#: Seconds in which a client must have opened its streams.
_OPEN_SECONDS = 30.0
_PIECE = 32 << 10
#: Chunks of standard input that may wait for a command that does not read.
_STDIN_BACKLOG = 64


def execute(call: Call) -> Answer:
    """Take the connection over and run a command in a container; raises 400, 404, 501."""
    query = call.request.query
    pod = _running_pod(call, "exec into")
    gateway = _gateway(call)
    container = container_of(pod, query.text("container"), call.target.name)
    command = query.all("command")
    if not command:
        raise failures.bad_request("you must specify at least one command for the container")

    def run(session: _Session) -> Awaitable[int]:
        return gateway.exec(
            call.namespace,
            call.target.name,
            container,
            command,
            stdin=session.stdin() if session.wants("stdin") else None,
            stdout=session.writer(_STDOUT),
            stderr=session.writer(_STDERR) if session.wants("stderr") and not session.wants("tty") else None,
            tty=session.wants("tty"),
            resize=session.sizes() if session.wants("tty") else None,
        )

    return _connected(call, run)


def attach(call: Call) -> Answer:
    """Take the connection over and connect it to a container's own program; raises 400, 404, 501."""
    pod = _running_pod(call, "attach")
    gateway = _gateway(call)
    container = container_of(pod, call.request.query.text("container"), call.target.name)

    def run(session: _Session) -> Awaitable[int]:
        return gateway.attach(
            call.namespace,
            call.target.name,
            container,
            stdin=session.stdin() if session.wants("stdin") else None,
            stdout=session.writer(_STDOUT),
            stderr=session.writer(_STDERR) if session.wants("stderr") else None,
            resize=session.sizes() if session.wants("tty") else None,
        )

    return _connected(call, run)


def _connected(call: Call, run: Callable[[_Session], Awaitable[int]]) -> Answer:
    """Return the answer that connects what runs with the streams the client asked for."""
    names = ("stdin", "stdout", "stderr", "tty")
    streams = {name: call.request.query.flag(name) for name in names}
    if not (streams["stdin"] or streams["stdout"] or streams["stderr"]):
        raise failures.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if is_spdy(call.request):
        headers = spdy_protocol(call.request, SPDY_PROTOCOL)

        async def upgrade(http: web.BaseRequest) -> web.StreamResponse:
            async with taken_over(http, headers) as (pipe, response):
                await serve(_SpdyLine(pipe, streams))
            return response

    else:
        websocket_required(call.request, ("", *EXEC_PROTOCOLS))

        async def upgrade(http: web.BaseRequest) -> web.StreamResponse:
            socket = await websocket(http, EXEC_PROTOCOLS)
            await serve(_WebSocketLine(socket))
            return socket

    async def serve(line: _Line) -> None:
        session = _Session(line, streams)
        await session.run(lambda: run(session))

    return Answer(101, upgrade=upgrade)


def _gateway(call: Call) -> NodeGateway:
    if call.cluster.gateway is None:
        raise failures.not_implemented("no node agent runs beside this server")
    return call.cluster.gateway


def _check_may_create(call: Call) -> None:
    """Raise 403 when its sender may read the subresource only: a WebSocket begins with GET, and is no reading."""
    wanted = replace(attributes_of(call.request, call.target, call.user), verb="create")
    decision = call.cluster.authorizer.decide(wanted)
    if not decision.allowed:
        raise call.forbidden(decision.reason)


def _running_pod(call: Call, what: str) -> JsonObject:
    _check_may_create(call)
    entry = call.collection.get((call.namespace, call.target.name))
    if entry is None:
        raise call.not_found()
    pod = entry.obj
    if not pod["spec"].get("nodeName"):
        raise failures.bad_request(f"pod {call.target.name} does not have a host assigned")
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        raise failures.bad_request(f"cannot {what} a container in a completed pod; current phase is {phase}")
    return pod


class _Line(Protocol):
    """The channels between a client and a session."""

    async def open(self) -> None:
        """Wait until the client is ready; raises TimeoutError."""
        ...

    async def run(self, received: Callable[[int, bytes], Awaitable[None]]) -> None:
        """Hand over what the client sends on a channel, until it is gone."""
        ...

    async def send(self, channel: int, data: bytes) -> None:
        """Send on a channel; waits for a slow client."""
        ...

    def outcome(self, status: JsonObject) -> bytes:
        """What is said of the end on the error channel; nothing when empty."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class _WebSocketLine:
    """Every message begins with its channel."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def open(self) -> None:
        pass

    async def run(self, received: Callable[[int, bytes], Awaitable[None]]) -> None:
        async for message in self._socket:
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT) or not message.data:
                continue
            data = message.data.encode() if isinstance(message.data, str) else message.data
            await received(data[0], data[1:])

    async def send(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(bytes((channel,)) + data)

    def outcome(self, status: JsonObject) -> bytes:
        if self._socket.ws_protocol in EXEC_PROTOCOLS[:-1]:
            return msgspec.json.encode(status)
        return str(status.get("message", "")).encode()

    async def close(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._socket.close()


class _SpdyLine:
    """A stream per channel, opened by the client and named in its headers."""

    def __init__(self, pipe: Pipe, streams: Mapping[str, bool]) -> None:
        self._connection = Connection(pipe, self._opened)
        resizes = {"resize"} if streams["tty"] else set()
        wanted = (
            {"error"} | resizes | {name for name, wished in streams.items() if wished and name in _CHANNELS}
        )
        self._missing = {_CHANNELS[name] for name in wanted}
        self._open: dict[int, Stream] = {}
        self._ready = asyncio.Event()

    def _opened(self, stream: Stream) -> None:
        channel = _CHANNELS.get(stream.headers.get("streamtype", ""))
        if channel is not None:
            self._open[channel] = stream
            self._missing.discard(channel)
        if not self._missing:
            self._ready.set()

    async def open(self) -> None:
        async with asyncio.timeout(_OPEN_SECONDS):
            await self._ready.wait()

    async def run(self, received: Callable[[int, bytes], Awaitable[None]]) -> None:
        pumps = asyncio.create_task(self._pump(received))
        try:
            await self._connection.run()
        finally:
            pumps.cancel()
            await asyncio.gather(pumps, return_exceptions=True)

    async def _pump(self, received: Callable[[int, bytes], Awaitable[None]]) -> None:
        await self._ready.wait()

        async def carry(channel: int) -> None:
            async for data in self._open[channel]:
                await received(channel, data)
            await received(_CLOSE, bytes((channel,)))

        await asyncio.gather(*(carry(channel) for channel in (_STDIN, _RESIZE) if channel in self._open))

    async def send(self, channel: int, data: bytes) -> None:
        if channel in self._open:
            await self._connection.send(self._open[channel].number, data)

    def outcome(self, status: JsonObject) -> bytes:
        return msgspec.json.encode(status)

    async def close(self) -> None:
        for channel in (_STDOUT, _STDERR, _ERROR):
            if channel in self._open:
                await self._connection.send(self._open[channel].number, b"", last=True)


class _Session:
    """What runs, and its channels."""

    def __init__(self, line: _Line, streams: Mapping[str, bool]) -> None:
        self._line = line
        self._streams = streams
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue(_STDIN_BACKLOG)
        self._resizes: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue(_STDIN_BACKLOG)

    async def run(self, command: Callable[[], Awaitable[int]]) -> None:
        """Run a command between the channels and close with its Status."""
        reader = asyncio.ensure_future(self._line.run(self._received))
        work = asyncio.ensure_future(self._opened(command))
        try:
            await asyncio.wait((work, reader), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()  # the client is gone
            await asyncio.wait((work,))
            if not work.cancelled():
                await self._finish(_outcome(work))
        finally:
            for task in (work, reader):
                task.cancel()
            await asyncio.gather(work, reader, return_exceptions=True)
            await self._line.close()

    async def _opened(self, command: Callable[[], Awaitable[int]]) -> int:
        await self._line.open()
        return await command()

    def wants(self, name: str) -> bool:
        """Whether the client asked for a stream, or a terminal."""
        return self._streams[name]

    async def stdin(self) -> AsyncIterator[bytes]:
        """Yield what the client types until it closes the channel."""
        while (chunk := await self._input.get()) is not None:
            yield chunk

    async def sizes(self) -> AsyncIterator[tuple[int, int]]:
        """Yield the sizes of the client's terminal as (columns, rows)."""
        while (size := await self._resizes.get()) is not None:
            yield size

    def writer(self, channel: int) -> Callable[[bytes], Awaitable[None]]:
        """Return a function that sends output on a channel; it waits for a slow client."""
        wanted = self._streams["stdout" if channel == _STDOUT else "stderr"]

        async def write(data: bytes) -> None:
            for start in range(0, len(data) if wanted else 0, _PIECE):
                await self._line.send(channel, data[start : start + _PIECE])

        return write

    async def _received(self, channel: int, data: bytes) -> None:
        if channel == _STDIN and self._streams["stdin"]:
            await self._input.put(data)
        elif channel == _CLOSE and data[:1] == bytes((_STDIN,)):
            await self._input.put(None)
        elif channel == _RESIZE and self._streams["tty"]:
            with contextlib.suppress(msgspec.MsgspecError, KeyError, TypeError, ValueError):
                size = msgspec.json.decode(data)
                await self._resizes.put((int(size["Width"]), int(size["Height"])))

    async def _finish(self, status: JsonObject) -> None:
        if said := self._line.outcome(status):
            with contextlib.suppress(ConnectionError):
                await self._line.send(_ERROR, said)


def _outcome(work: asyncio.Future[int]) -> JsonObject:
    status: JsonObject = {"metadata": {}, "status": "Success"}
    error = work.exception()
    if error is None and work.result() == 0:
        return status
    if error is None:
        code = work.result()
        return {
            **status,
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    known = isinstance(error, (LookupError, ValueError)) and error.args
    text = str(error.args[0]) if known else type(error).__name__
    return {**status, "status": "Failure", "message": text, "reason": "InternalError", "code": 500}


def forward(call: Call) -> Answer:
    """Take the connection over and forward ports of a pod; raises 400, 404, 501."""
    pod = _running_pod(call, "exec into")
    gateway = _gateway(call)
    request, name = call.request, pod["metadata"]["name"]

    def connect(port: int) -> Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        return gateway.port_forward(call.namespace, name, port)

    if is_spdy(request):
        headers = spdy_protocol(request, FORWARD_PROTOCOL.partition("+")[2])

        async def upgrade(http: web.BaseRequest) -> web.StreamResponse:
            async with taken_over(http, headers) as (pipe, response):
                await ports.forward(pipe, connect)
            return response

    else:
        websocket_required(request, (FORWARD_PROTOCOL,))

        async def upgrade(http: web.BaseRequest) -> web.StreamResponse:
            socket = await websocket(http, (FORWARD_PROTOCOL,))
            await ports.forward(TunnelPipe(socket), connect)
            with contextlib.suppress(ConnectionError):
                await socket.close()
            return socket

    return Answer(101, upgrade=upgrade)
