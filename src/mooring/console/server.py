"""The console's server: loopback only, one link to sign in with, the page and its API."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from mooring.cache import Clock, SystemClock
from mooring.catalog import Entry
from mooring.console.access import Access
from mooring.console.api import SESSION, Api, Handler
from mooring.console.guard import HEADERS, check_csrf, check_request
from mooring.console.problems import Problem, problem_of
from mooring.console.session import Session, Sessions, SignedOut
from mooring.console.upstream import Upstream
from mooring.console.watches import Watches
from mooring.kube import KubeError, Unauthorized
from mooring.kube.objects.authentication import SelfSubjectReview

__all__ = ["Console", "ConsoleOptions"]

log = structlog.get_logger("mooring.console")

STATIC: Final = Path(__file__).parent / "static"
REQUEST_ID: Final = web.RequestKey("request_id", str)
#: Bytes of a request's body.
BODY_LIMIT: Final = 256 * 1024
#: Seconds that streams get to end.
STOP_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What a console serves. ``namespaces``: where to look if its credential may not look everywhere."""

    entries: Mapping[str, Entry]
    namespaces: Sequence[str] = ()
    clock: Clock = field(default_factory=SystemClock)


class Console:
    """One running console, between `start` and `stop`."""

    def __init__(self, upstream: Upstream, options: ConsoleOptions) -> None:
        self._upstream = upstream
        self._options = options
        self._stop = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._access = Access(upstream, options.clock)
        self._watches: Watches | None = None
        self._own = ""
        self._address = ""
        self._sessions: Sessions
        self._api: Api

    @property
    def link(self) -> str:
        """A link that signs in once; a former one that was not used is void."""
        return f"http://{self._address}/?token={self._sessions.new_link()}"

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket; raises `ValueError` for one that is not on loopback, `KubeError`."""
        host, port = sock.getsockname()[:2]
        if host not in ("127.0.0.1", "::1"):
            raise ValueError(f"the console listens on loopback alone, not on {host}")
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        clock = self._options.clock
        self._sessions = Sessions(clock, port=port)
        self._own = await self._whoami()
        own = self._sessions.begin(user=self._own, token=None)
        self._watches = Watches(
            self._upstream, self._access, clock, own=own, namespaces=self._options.namespaces
        )
        await self._watches.start()
        self._api = Api(
            upstream=self._upstream,
            access=self._access,
            watches=self._watches,
            sessions=self._sessions,
            entries=self._options.entries,
            clock=clock,
            stop=self._stop,
        )
        app = web.Application(middlewares=[self._answer], client_max_size=BODY_LIMIT)
        app.on_response_prepare.append(_dress)
        app.add_routes(self._api.routes())
        app.router.add_get("/", self._page)
        app.router.add_static("/assets/", STATIC / "assets")
        # No access log: the link's token would be in it.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=STOP_SECONDS, handle_signals=False
        )
        await self._runner.setup()
        await web.SockSite(self._runner, sock).start()

    async def stop(self) -> None:
        """End streams and connections."""
        self._stop.set()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._watches is not None:
            await self._watches.stop()
        await self._access.close()
        await self._upstream.close()

    async def _whoami(self) -> str:
        """The user of the console's own credential, as far as the API server tells."""
        try:
            review = await self._upstream.own.create(SelfSubjectReview())
        except Unauthorized:
            raise
        except KubeError as error:
            log.warning("the API server does not say who this is", reason=str(error))
            return ""
        info = review.status.user_info if review.status is not None else None
        return (info.username if info is not None else "") or ""

    # --- every request

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request[REQUEST_ID] = request_id = secrets.token_hex(8)
        return await self._checked(request, handler, request_id)

    async def _checked(self, request: web.Request, handler: Handler, request_id: str) -> web.StreamResponse:
        try:
            check_request(request)
            if request.path.startswith("/api/") and (request.method, request.path) != (
                "POST",
                "/api/v1/session",
            ):
                request[SESSION] = session = self._session(request)
                check_csrf(request, session)
                response = await handler(request)
                self._api.renew(response, session)
                return response
            return await handler(request)
        except Problem as problem:
            return problem.response(request_id)
        except SignedOut as error:
            text = {
                "missing": "Sign in first.",
                "expired": "The session is over.",
                "invalid": "The session is not valid.",
            }
            return Problem(401, "SignedOut", text[error.reason]).response(request_id)
        except KubeError as error:
            return problem_of(error).response(request_id)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return Problem(error.status, "HttpError", error.reason).response(request_id)
        except asyncio.CancelledError:
            raise
        except Exception:
            # The message may quote what a user typed: it goes nowhere but into the log's traceback of this place.
            log.exception(
                "request failed", method=request.method, route=str(request.match_info.route.resource)
            )
            return Problem(500, "Defect", "The console failed. Its log says where.").response(request_id)

    def _session(self, request: web.Request) -> Session:
        return self._sessions.read(request.cookies)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """The page; with the link's token, a session first, and then the page without the token in its address."""
        token = request.query.get("token")
        if token is None:
            return web.FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})
        if "prefetch" in request.headers.get("Sec-Purpose", "") or request.method != "GET":
            raise Problem(403, "NotNow", "The link signs in when it is opened.")
        if not self._sessions.use_link(token):
            log.warning("a sign-in link was refused")
            return _redirect("/#/signin?refused=link")
        session = self._sessions.begin(user=self._own, token=None)
        response = _redirect("/")
        self._api.keep(response, session)
        log.info("signed in by the link", user=self._own)
        return response


def _redirect(to: str) -> web.Response:
    return web.Response(status=303, headers={"Location": to, "Cache-Control": "no-store"})


async def _dress(request: web.Request, response: web.StreamResponse) -> None:
    """Give every answer, streams included, its headers."""
    response.headers.update(HEADERS)
    response.headers["X-Request-Id"] = request.get(REQUEST_ID, "")
    if request.path.startswith("/api/"):
        response.headers["Cache-Control"] = "no-store"
    elif request.path.startswith("/assets/") and response.status == 200:
        # Their names hold a hash of their content.
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
