"""The console's server: the page and its API, on loopback with a link to sign in, or served as a configuration says."""

from __future__ import annotations

import asyncio
import gzip
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
from mooring.console.api import SESSION, Api, Handler, Upgrades
from mooring.console.certificate import Certificate
from mooring.console.guard import HEADERS, check_csrf, check_request
from mooring.console.metrics import Queries
from mooring.console.problems import Problem, problem_of
from mooring.console.session import Sessions, SignedOut, own_session
from mooring.console.settings import Prometheus, Settings
from mooring.console.signin import CALLBACK, OIDC, SignIn, read_keys
from mooring.console.templates import Templates
from mooring.console.terminal import Terminals
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
#: Bytes of a request's header: a session may take several cookies.
HEADER_LIMIT: Final = 32 * 1024
#: What needs no session.
OPEN: Final = frozenset({("POST", "/api/v1/session"), ("GET", "/api/v1/signin")})
REFRESH: Final = "/api/v1/session/refresh"
#: Seconds that streams get to end.
STOP_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What a console serves. ``namespaces``: where to look if its credential may not look everywhere.

    ``prometheus`` answers what is measured; ``upgrades`` say what an upgrade of the operators to
    ``version`` would bring along.

    With ``settings`` it is served to others, without on loopback to who has its link.
    """

    entries: Mapping[str, Entry]
    namespaces: Sequence[str] = ()
    settings: Settings | None = None
    prometheus: Prometheus | None = None
    upgrades: Upgrades = field(default_factory=dict)
    version: str = ""
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
        self._templates: Templates | None = None
        self._own = ""
        self._address = ""
        self._sessions: Sessions
        self._sign_in: SignIn | None = None
        self._queries: Queries | None = None
        self._api: Api
        self._following: asyncio.Task[None] | None = None
        self._assets = {path.name: path.read_bytes() for path in (STATIC / "assets").iterdir()}
        self._packed = {name: gzip.compress(content, 9) for name, content in self._assets.items()}

    @property
    def link(self) -> str:
        """A link that signs in once, on loopback; a former one that was not used is void."""
        return f"http://{self._address}/?token={self._sessions.new_link()}"

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket; raises `ValueError` for one that is not on loopback and has no settings, `KubeError`."""
        host, port = sock.getsockname()[:2]
        settings, clock = self._options.settings, self._options.clock
        if settings is None and host not in ("127.0.0.1", "::1"):
            raise ValueError(f"the console listens on loopback alone, not on {host}")
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        keys = read_keys(settings, clock)
        self._sessions = Sessions(clock, port=port, keys=keys, served=settings is not None)
        self._sign_in = SignIn(
            settings, upstream=self._upstream, sessions=self._sessions, keys=keys, clock=clock
        )
        certificate = Certificate(settings.tls, clock) if settings is not None and settings.tls else None
        self._own = await self._whoami()
        own = own_session(self._own)
        self._watches = Watches(
            self._upstream, self._access, clock, own=own, namespaces=self._options.namespaces
        )
        await self._watches.start()
        self._templates = Templates(
            self._options.entries,
            watches=self._watches,
            access=self._access,
            upstream=self._upstream,
            clock=clock,
            watch=settings is None or settings.catalog_resources,
        )
        self._templates.start()
        prometheus = self._options.prometheus or (settings.prometheus if settings is not None else None)
        self._queries = Queries(prometheus, clock) if prometheus is not None else None
        terminals = Terminals(
            upstream=self._upstream,
            access=self._access,
            sessions=self._sessions,
            clock=clock,
            stop=self._stop,
        )
        self._api = Api(
            upstream=self._upstream,
            access=self._access,
            watches=self._watches,
            sessions=self._sessions,
            sign_in=self._sign_in,
            templates=self._templates,
            clock=clock,
            stop=self._stop,
            terminals=terminals if settings is None or settings.terminal else None,
            queries=self._queries,
            upgrades=self._options.upgrades,
            version=self._options.version,
        )
        app = web.Application(middlewares=[self._answer], client_max_size=BODY_LIMIT)
        app.on_response_prepare.append(_dress)
        app.add_routes(self._api.routes())
        app.router.add_get("/", self._page)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._health)
        if settings is not None and settings.oidc is not None:
            app.router.add_get(OIDC, self._sign_in.leave)
            app.router.add_get(CALLBACK, self._arrive)
        app.router.add_get("/assets/{name}", self._asset)
        # No access log: the link's token would be in it.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=STOP_SECONDS,
            handle_signals=False,
            max_field_size=HEADER_LIMIT,
        )
        await self._runner.setup()
        context = certificate.context if certificate is not None else None
        await web.SockSite(self._runner, sock, ssl_context=context).start()
        if certificate is not None:
            self._following = asyncio.create_task(certificate.follow())

    async def stop(self) -> None:
        """End streams and connections."""
        self._stop.set()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            await self._api.close()
        if self._templates is not None:
            await self._templates.stop()
        if self._watches is not None:
            await self._watches.stop()
        if self._sign_in is not None:
            await self._sign_in.close()
        if self._queries is not None:
            await self._queries.close()
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
            if request.path in ("/healthz", "/readyz"):
                return await handler(request)  # of the kubelet, who asks by address
            check_request(request, self._origin)
            if request.path.startswith("/api/") and (request.method, request.path) not in OPEN:
                assert self._sign_in is not None
                session, new = self._sign_in.session(request, refreshing=request.path == REFRESH)
                request[SESSION] = session
                check_csrf(request, session)
                response = await handler(request)
                if new and not response.prepared:
                    self._api.keep(request, response, session)
                self._api.renew(request, response, session)
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
            response = Problem(401, "SignedOut", text[error.reason]).response(request_id)
            if request.path == REFRESH and request.method == "POST":
                self._api.forget(request, response)
            return response
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

    @property
    def _origin(self) -> str:
        return self._options.settings.origin if self._options.settings is not None else ""

    async def _health(self, request: web.Request) -> web.StreamResponse:
        """Whether it serves. A console that waits for its API server serves too: it says so on every page."""
        return web.Response(status=503 if self._stop.is_set() else 200, text="")

    async def _arrive(self, request: web.Request) -> web.StreamResponse:
        """The second half of a sign-in by a provider."""
        assert self._sign_in is not None
        response, session = await self._sign_in.arrive(request)
        if session is not None:
            self._api.keep(request, response, session)
        return response

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        """A script or a style of the page, compressed once for all browsers."""
        name = request.match_info["name"]
        if name not in self._assets:
            raise web.HTTPNotFound
        kind = {".js": "text/javascript", ".css": "text/css"}.get(
            Path(name).suffix, "application/octet-stream"
        )
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(
                body=self._assets[name], content_type=kind, headers={"Vary": "Accept-Encoding"}
            )
        packed = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return web.Response(body=self._packed[name], content_type=kind, headers=packed)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """The page; with the link's token, a session first, and then the page without the token in its address."""
        token = request.query.get("token")
        if token is None or self._sessions.served:
            return web.FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})
        if "prefetch" in request.headers.get("Sec-Purpose", "") or request.method != "GET":
            raise Problem(403, "NotNow", "The link signs in when it is opened.")
        if not self._sessions.use_link(token):
            log.warning("a sign-in link was refused")
            return _redirect("/#/signin?refused=link")
        session = self._sessions.begin(user=self._own, via="link")
        response = _redirect("/")
        self._api.keep(request, response, session)
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
