"""pods/exec, pods/attach and pods/portforward over WebSockets, as kubectl and the client libraries speak them.

Exec: subprotocols v5.channel.k8s.io and v4.channel.k8s.io; every message starts with its channel. The
last message is a Status on the error channel. Port-forward: see `spdy`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from mooring.local.api import failures, spdy
from mooring.local.api.authorization import attributes_of
from mooring.local.api.call import Call
from mooring.local.api.gateway import NodeGateway
from mooring.local.api.http import Answer
from mooring.local.api.logs import container_of

__all__ = ["EXEC_PROTOCOLS", "attach", "execute", "forward"]

JsonObject = dict[str, Any]

EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
FORWARD_PROTOCOL = "SPDY/3.1+portforward.k8s.io"

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_MESSAGE_LIMIT = 4 << 20
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
    _websocket_required(call, EXEC_PROTOCOLS)

    async def upgrade(http: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            protocols=EXEC_PROTOCOLS, max_msg_size=_MESSAGE_LIMIT, heartbeat=30.0, compress=False
        )
        await socket.prepare(http)
        session = _Session(socket, streams)
        await session.run(lambda: run(session))
        return socket

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


def _websocket_required(call: Call, protocols: Sequence[str]) -> None:
    request = call.request
    wanted = [part.strip() for part in request.header("sec-websocket-protocol").split(",")]
    if request.upgrade is None or request.header("upgrade").lower() != "websocket":
        raise failures.bad_request(
            "Upgrade request required: this server streams over WebSockets "
            f"(subprotocol {protocols[0]}), not SPDY"
        )
    if not set(wanted) & set(protocols):
        raise failures.bad_request(
            f"unable to upgrade: none of the subprotocols {list(protocols)} is offered"
        )


class _Session:
    """The channels of one exec on one WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, streams: dict[str, bool]) -> None:
        self._socket = socket
        self._streams = streams
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue(_STDIN_BACKLOG)
        self._resizes: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue(_STDIN_BACKLOG)

    async def run(self, command: Callable[[], Awaitable[int]]) -> None:
        """Run a command between the channels and close with its Status."""
        work = asyncio.ensure_future(command())
        reader = asyncio.ensure_future(self._read())
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
            with contextlib.suppress(ConnectionError):
                await self._socket.close()

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
                await self._socket.send_bytes(bytes((channel,)) + data[start : start + _PIECE])

        return write

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT) or not message.data:
                continue
            data = message.data.encode() if isinstance(message.data, str) else message.data
            await self._received(data[0], data[1:])

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
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(bytes((_ERROR,)) + msgspec.json.encode(status))


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
    _websocket_required(call, (FORWARD_PROTOCOL,))
    name = pod["metadata"]["name"]

    async def upgrade(http: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            protocols=(FORWARD_PROTOCOL,), max_msg_size=_MESSAGE_LIMIT, heartbeat=30.0, compress=False
        )
        await socket.prepare(http)
        await spdy.forward(socket, lambda port: gateway.port_forward(call.namespace, name, port))
        return socket

    return Answer(101, upgrade=upgrade)
