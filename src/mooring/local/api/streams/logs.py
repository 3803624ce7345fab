"""pods/log: the log of one container, whole or as it grows, over HTTP or in the messages of a WebSocket."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web

from mooring.local.api import failures, fields
from mooring.local.api.call import Call
from mooring.local.api.errors import invalid_object
from mooring.local.api.http import Answer
from mooring.local.api.streams.pipes import is_websocket, until_one_ends, websocket

__all__ = ["container_of", "read"]

JsonObject = dict[str, Any]

_BASE64 = "base64.binary.k8s.io"
#: What a WebSocket's messages hold; without a name it is the first.
_PROTOCOLS = ("binary.k8s.io", _BASE64)


async def read(call: Call) -> Answer:
    """Answer with a container's log as plain text, or by a WebSocket; raises 400, 404, 422, 501."""
    query = call.request.query
    entry = call.collection.get((call.namespace, call.target.name))
    if entry is None:
        raise call.not_found()
    container = container_of(entry.obj, query.text("container"), call.target.name)
    tail, limit = query.number("tailLines"), query.number("limitBytes")
    since = _since(call)
    if tail is not None and tail < 0:
        error = fields.invalid("tailLines", tail, "must be greater than or equal to 0")
        raise invalid_object([error], group="", kind="PodLogOptions", name=call.target.name)
    if limit is not None and limit < 1:
        error = fields.invalid("limitBytes", limit, "must be greater than 0")
        raise invalid_object([error], group="", kind="PodLogOptions", name=call.target.name)
    if not entry.obj["spec"].get("nodeName"):
        return Answer(204, b"", "")
    gateway = call.cluster.gateway
    if gateway is None:
        raise failures.not_implemented("no node agent runs beside this server")
    chunks = gateway.logs(
        call.namespace,
        call.target.name,
        container,
        follow=query.flag("follow"),
        previous=query.flag("previous"),
        tail_lines=tail,
        since=since,
        limit_bytes=limit,
        timestamps=query.flag("timestamps"),
    )
    opened = await _opened(chunks)
    if is_websocket(call.request):
        return Answer(101, upgrade=lambda http: _sent(http, opened))
    return Answer(200, content_type="text/plain", stream=opened)


async def _sent(http: web.BaseRequest, chunks: AsyncGenerator[bytes]) -> web.StreamResponse:
    """Send a log until it ends or the client leaves."""
    async with aclosing(chunks):
        socket = await websocket(http, _PROTOCOLS)
        await until_one_ends(_send(socket, chunks), _until_closed(socket))
        with contextlib.suppress(ConnectionError):
            await socket.close()
    return socket


async def _send(socket: web.WebSocketResponse, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        if socket.ws_protocol == _BASE64:
            await socket.send_str(base64.b64encode(chunk).decode())
        else:
            await socket.send_bytes(chunk)


async def _until_closed(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        pass


def _since(call: Call) -> datetime | None:
    query = call.request.query
    seconds, moment = query.number("sinceSeconds"), query.text("sinceTime")
    if seconds is not None and moment:
        error = fields.forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")
        raise invalid_object([error], group="", kind="PodLogOptions", name=call.target.name)
    if seconds is not None:
        if seconds < 1:
            error = fields.invalid("sinceSeconds", seconds, "must be greater than 0")
            raise invalid_object([error], group="", kind="PodLogOptions", name=call.target.name)
        return call.cluster.now() - timedelta(seconds=seconds)
    if not moment:
        return None
    try:
        return datetime.fromisoformat(moment)
    except ValueError:
        raise failures.bad_request(f'parsing time "{moment}" as RFC 3339') from None


async def _opened(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Wait for the first chunk, so that what the agent refuses is an answer and not a broken stream."""
    try:
        first = await anext(chunks, None)
    except LookupError as error:
        raise failures.plain_not_found(_text(error)) from None
    except ValueError as error:
        raise failures.bad_request(str(error)) from None

    async def stream() -> AsyncGenerator[bytes]:
        try:
            if first is not None:
                yield first
                async for chunk in chunks:
                    yield chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    return stream()


def _text(error: LookupError) -> str:
    return str(error.args[0]) if error.args else "not found"


def container_of(pod: JsonObject, wanted: str, name: str) -> str:
    """Return which container of a pod is meant; raises 400."""
    spec = pod["spec"]
    main = [c["name"] for c in spec.get("containers") or ()]
    init = [c["name"] for c in spec.get("initContainers") or ()]
    if wanted:
        if wanted not in main + init:
            raise failures.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in main:
        return str(default)
    if len(main) == 1:
        return str(main[0])
    choices = f"choose one of: [{' '.join(main)}]"
    if init:
        choices += f" or one of the init containers: [{' '.join(init)}]"
    raise failures.bad_request(f"a container name must be specified for pod {name}, {choices}")
