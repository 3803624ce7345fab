"""A shell in a container of an instance, with the user's own rights: a WebSocket here, another one to the API server.

What is typed and shown passes through and is neither kept nor logged; that a terminal was opened, by whom and for how
long, is. The browser sends what is typed as text, and is sent the output as text. Why a terminal has ended is in the
code of its close frame, one of `Ending`.
"""

from __future__ import annotations

import asyncio
import codecs
import hmac
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

import aiohttp
import msgspec
import structlog
from aiohttp import WSMsgType, web

from mooring.cache import Clock
from mooring.console.access import Access, Decision
from mooring.console.problems import Problem
from mooring.console.session import Session, Sessions, SignedOut
from mooring.console.upstream import Upstream
from mooring.kube import ApiError, Forbidden, KubeError, NotFound, Unauthorized
from mooring.kube.objects.core import Pod

__all__ = ["PROTOCOL", "Ending", "Place", "Terminals", "may_open"]

log = structlog.get_logger("mooring.console")

#: What the page speaks. The session's word comes beside it, since a page cannot send a header with a WebSocket.
PROTOCOL, _WORD = "mooring.terminal", "csrf."
#: Seconds without a key, seconds in all, seconds between two looks at the session and between two at the rights.
IDLE, LONGEST, LOOK, RECHECK = 600.0, 3600.0, 5.0, 60.0
#: Bytes of one message of a browser; seconds it has to read.
INPUT_LIMIT, SEND_SECONDS = 64 * 1024, 30.0
#: Seconds until the API server must have opened it.
CONNECT_SECONDS: Final = 30.0
#: Terminals of one user and in all.
USER_TERMINALS, ALL_TERMINALS = 5, 100
COLUMNS, ROWS = 120, 40
#: A plain terminal: programs send lines, not drawings. The shell is the image's.
COMMAND: Final = ("/bin/sh", "-c", "TERM=dumb; export TERM; exec /bin/sh")
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = range(5)
_EXEC: Final = "v4.channel.k8s.io"


class Ending(IntEnum):
    """Why a terminal has ended, as the code of a WebSocket's close frame."""

    ENDED = 4000
    IDLE = 4001
    SIGNED_OUT = 4002
    LONGEST = 4003
    DENIED = 4403
    MISSING = 4404
    FAILED = 4500
    STOPPED = 1001


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A container of an instance."""

    namespace: str
    entry: str
    name: str
    pod: str
    container: str


async def may_open(access: Access, session: Session, namespace: str) -> Decision:
    """Whether the user may open a terminal: API servers ask for one verb or the other, newer ones for both."""
    answers = [
        await access.decide(session, verb, Pod.resource, namespace, subresource="exec")
        for verb in ("create", "get")
    ]
    return next((each for each in answers if each != "allowed"), "allowed")


class Terminals:
    """The terminals that are open."""

    def __init__(
        self,
        *,
        upstream: Upstream,
        access: Access,
        sessions: Sessions,
        clock: Clock,
        stop: asyncio.Event,
    ) -> None:
        self._upstream = upstream
        self._access = access
        self._sessions = sessions
        self._clock = clock
        self._stop = stop
        self._open: list[str] = []

    async def serve(self, request: web.Request, session: Session, place: Place) -> web.WebSocketResponse:
        """Open a terminal; raises `Problem` for a request that is not the page's own."""
        self._check_origin(request, session)
        if self._open.count(session.user) >= USER_TERMINALS or len(self._open) >= ALL_TERMINALS:
            raise Problem(429, "TooManyTerminals", "Too many terminals are open. Close some.", retry_after=10)
        socket = web.WebSocketResponse(
            protocols=(PROTOCOL,), max_msg_size=INPUT_LIMIT, heartbeat=30.0, compress=False
        )
        self._open.append(session.user)
        try:
            await socket.prepare(request)
            ending = await self._run(socket, session, place)
        finally:
            self._open.remove(session.user)
        await socket.close(code=ending)
        return socket

    def _check_origin(self, request: web.Request, session: Session) -> None:
        # A page of any site may open a WebSocket to here, with this site's cookies, and read its answers.
        if request.headers.get("Origin") is None:
            raise Problem(403, "CrossSite", "A terminal needs an Origin.")
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        word = next((each.removeprefix(_WORD) for each in offered if each.startswith(_WORD)), "")
        if not hmac.compare_digest(word.encode(), session.csrf.encode()):
            raise Problem(403, "CsrfWrong", "The terminal was not opened by this session's page.")
        if request.headers.get("Upgrade", "").lower() != "websocket" or PROTOCOL not in offered:
            raise Problem(400, "NoWebSocket", f"Open a WebSocket with the subprotocol {PROTOCOL}.")

    async def _run(self, socket: web.WebSocketResponse, session: Session, place: Place) -> Ending:
        began = self._clock.monotonic()
        told = log.bind(
            user=session.user,
            entry=place.entry,
            namespace=place.namespace,
            name=place.name,
            pod=place.pod,
            container=place.container,
        )
        query = [("stdin", "true"), ("stdout", "true"), ("tty", "true"), ("container", place.container)]
        query += [("command", word) for word in COMMAND]
        path = f"/api/v1/namespaces/{place.namespace}/pods/{place.pod}/exec"
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(CONNECT_SECONDS):
                    if await may_open(self._access, session, place.namespace) == "denied":
                        told.info("action", action="terminal", result="Forbidden")
                        return Ending.DENIED
                    opening = self._upstream.websocket(session, path, query=query, protocols=(_EXEC,))
                    pod = await stack.enter_async_context(opening)
                told.info("action", action="terminal", result="ok")
                ending = await self._relay(socket, pod, session, place)
        except TimeoutError:
            told.info("action", action="terminal", result="NoAnswer")
            return Ending.FAILED
        except KubeError as error:
            told.info(
                "action", action="terminal", result=getattr(error, "reason", "") or type(error).__name__
            )
            return _ending_of(error)
        except Exception:
            log.exception("a terminal failed", user=session.user, pod=place.pod)
            return Ending.FAILED
        seconds = round(self._clock.monotonic() - began)
        told.info("action", action="terminal ended", result=ending.name, seconds=seconds)
        return ending

    async def _relay(
        self,
        socket: web.WebSocketResponse,
        pod: aiohttp.ClientWebSocketResponse,
        session: Session,
        place: Place,
    ) -> Ending:
        size = msgspec.json.encode({"Width": COLUMNS, "Height": ROWS})
        await pod.send_bytes(bytes([_RESIZE]) + size)
        typed = self._clock.monotonic()

        async def read() -> Ending:
            nonlocal typed
            async for message in socket:
                if message.type != WSMsgType.TEXT:
                    break
                typed = self._clock.monotonic()
                await pod.send_bytes(bytes([_STDIN]) + str(message.data).encode())
            return Ending.ENDED

        async def watch() -> Ending:
            began = looked = self._clock.monotonic()
            while not self._stop.is_set():
                await self._clock.sleep(LOOK)
                now = self._clock.monotonic()
                try:
                    # Keys are as good as requests.
                    self._sessions.check(replace(session, seen=self._sessions.now() - (now - typed)))
                    if now - looked >= RECHECK:
                        looked = now
                        if await may_open(self._access, session, place.namespace) == "denied":
                            return Ending.DENIED
                except (SignedOut, Unauthorized):
                    return Ending.SIGNED_OUT
                if now - typed >= IDLE:
                    return Ending.IDLE
                if now - began >= LONGEST:
                    return Ending.LONGEST
            return Ending.STOPPED

        async def stopped() -> Ending:
            await self._stop.wait()
            return Ending.STOPPED

        return await _first(read(), _write(socket, pod), watch(), stopped())


async def _write(socket: web.WebSocketResponse, pod: aiohttp.ClientWebSocketResponse) -> Ending:
    """Pass the output on until the shell ends."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    async for message in pod:
        if message.type != WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _ERROR:
            break
        if channel in (_STDOUT, _STDERR) and (text := decoder.decode(data)):
            async with asyncio.timeout(SEND_SECONDS):
                await socket.send_str(text)
    return Ending.ENDED


async def _first(*ways: Any) -> Ending:
    tasks: list[asyncio.Future[Ending]] = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = next(iter(done))
        return Ending.FAILED if isinstance(ended.exception(), (OSError, TimeoutError)) else ended.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ending_of(error: KubeError) -> Ending:
    if isinstance(error, Forbidden):
        return Ending.DENIED
    if isinstance(error, Unauthorized):
        return Ending.SIGNED_OUT
    # 400: a container that does not run.
    if isinstance(error, NotFound) or (isinstance(error, ApiError) and error.status == 400):
        return Ending.MISSING
    return Ending.FAILED
