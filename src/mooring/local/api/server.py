"""The API server: one request handler behind a TLS listener and an in-process transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from mooring.kube import listener
from mooring.kube.errors import ApiError, TransportError
from mooring.kube.transport import HttpTransport, Response, StreamResponse
from mooring.local.api import codec, deletes, failures, metrics, patching, reads, subresources, writes
from mooring.local.api.access.authentication import ADMIN, Authenticator, of_certificate
from mooring.local.api.access.authorization import MASTERS, Authorizer, attributes_of
from mooring.local.api.access.impersonation import impersonated
from mooring.local.api.access.reviews import VIRTUAL
from mooring.local.api.access.token_secrets import TokenSecrets
from mooring.local.api.access.tokens import ISSUER, Authority
from mooring.local.api.admission.chain import Admission
from mooring.local.api.admission.quotas import Quotas
from mooring.local.api.admission.webhooks import WebhookClient
from mooring.local.api.audit import AuditLog
from mooring.local.api.bootstrap import bootstrap
from mooring.local.api.call import Call, Cluster
from mooring.local.api.custom import Conversions
from mooring.local.api.http import BODY_LIMIT, Answer, Query, Request, User
from mooring.local.api.maintenance import Maintenance
from mooring.local.api.published.discovery import GIT_VERSION, Discovery
from mooring.local.api.published.health import Tally, checks
from mooring.local.api.registry import Registry, Served
from mooring.local.api.request import Target, parse_path, segments
from mooring.local.api.schema import builtin
from mooring.local.api.storage import Entry, Event, MemoryBackend, SqliteBackend, StorageError, Store
from mooring.local.api.strategies import CRD
from mooring.local.api.streams.gateway import NodeGateway
from mooring.local.api.world import World

__all__ = ["ApiServer", "LocalTransport"]

_log = logging.getLogger(__name__)

#: Requests that may be under way at once, watches and other streams left out; more are told to come back,
#: but for those of system:masters (a real server: 400 reading ones and 200 others).
IN_FLIGHT_LIMIT = 600
#: Of these, those of one user; the ServiceAccounts of a namespace count as one: who may create one may create many.
IN_FLIGHT_PER_USER = 150
#: Watches, logs, executions and proxied connections that one user may hold open over HTTP.
STREAMS_PER_USER = 400
_STREAMED = frozenset(("attach", "exec", "log", "portforward", "proxy"))
#: Seconds that the body of a request may take, a connection without a whole request, and what is left of a body that
#: nobody reads.
_BODY_SECONDS = 60.0
_IDLE_SECONDS = 90.0
_LINGER_SECONDS = 2.0
#: Seconds between lines in the log about requests that are not HTTP.
_MALFORMED_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"

#: Seconds a chunk of a stream may wait for a slow client before the connection is closed.
_SLOW_CLIENT = 30.0
#: Seconds between looks whether the client of a quiet stream is still there.
_ALIVE_SECONDS = 5.0
#: Longer bodies than this are compressed for clients that take it, as fast as can be: like a real server.
_PACKED_FROM = 128 << 10
_GZIP_LEVEL = 1
#: Bytes that a transport with nothing to send takes without waiting.
_SMALL = 32 << 10


class ApiServer:
    """A Kubernetes API server in this process.

    `in_memory()` and `open(path)` make one; `start()` loads and bootstraps it; `transport()` reaches it
    without sockets; `serve(sock, ...)` over TLS. `close()` ends watches and commits what is staged.
    """

    def __init__(
        self,
        store: Store,
        *,
        tokens: Mapping[str, User] | None = None,
        service_account_key: bytes | None = None,
        service_range: str = "10.96.0.0/16",
        now: Callable[[], datetime] | None = None,
        address: str = "",
    ) -> None:
        clock = now or (lambda: datetime.now(UTC))
        self._registry = Registry(builtin())
        world = World(store, clock, IPv4Network(service_range))
        authority = Authority(service_account_key)
        self._quotas = Quotas(store, world)
        self._webhooks = WebhookClient(store)
        self._admission = Admission(store, self._quotas, self._webhooks)
        self.cluster = Cluster(
            store,
            self._registry,
            world,
            self._admission,
            Authorizer(store),
            authority,
            Conversions(self._registry, self._webhooks),
        )
        store.collection(CRD).observer = self._definition_changed
        self._discovery = Discovery(self._registry, address=address)
        self.authenticator = Authenticator(tokens or {}, authority, store)
        self.cluster.identify = self._identify
        self._virtual = VIRTUAL
        self._maintenance = Maintenance(self.cluster)
        self._token_secrets = TokenSecrets(store, authority)
        self._runners: list[web.ServerRunner] = []
        self._ready = False
        self._in_flight = 0
        self._tally = Tally()
        #: Requests under way and open streams by share, see `_share_of`.
        self._busy: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        #: Where requests are logged; set before `serve`, closed with the server.
        self.audit: AuditLog | None = None

    @classmethod
    def in_memory(cls, **options: Any) -> ApiServer:
        """Return a server that keeps nothing; call `start()` before use."""
        return cls(Store(MemoryBackend()), **options)

    @classmethod
    def open(cls, database: Path, **options: Any) -> ApiServer:
        """Return a server on an SQLite file; raises StorageError when another server holds it."""
        return cls(Store(SqliteBackend(database)), **options)

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def gateway(self) -> NodeGateway | None:
        """What reaches into pods; set by whoever starts the node agent."""
        return self.cluster.gateway

    @gateway.setter
    def gateway(self, gateway: NodeGateway | None) -> None:
        self.cluster.gateway = gateway

    def serve_metrics(self, meter: metrics.Meter) -> None:
        """Serve metrics.k8s.io with the figures of a meter."""
        self._virtual = {**self._virtual, **metrics.answers(meter)}
        self._registry.offer(metrics.GROUP, metrics.VERSION, metrics.RESOURCES)
        self._discovery.changed()

    async def start(self) -> None:
        """Serve the stored definitions, create what every cluster has, begin the upkeep."""
        for entry in self.cluster.store.collection(CRD):
            self._define(entry)
        await bootstrap(
            self.transport(user=User("system:apiserver", groups=(MASTERS,))),
            self.cluster.store,
            services=str(self.cluster.world.service_range),
        )
        self._quotas.resume()
        self._maintenance.start()
        controller = User("system:serviceaccount:kube-system:token-controller", groups=(MASTERS,))
        self._token_secrets.start(self.transport(user=controller, agent="kube-controller-manager"))
        self._ready = True

    async def close(self) -> None:
        """Stop listening, end watches, make every accepted write durable."""
        self.cluster.closing.set()
        self.cluster.store.wake()
        self._ready = False
        await self._token_secrets.stop()
        await self._maintenance.stop()
        for runner in self._runners:
            await listener.end(runner)
        await self._webhooks.close()
        if self.audit is not None:
            await self.audit.close()
        await self.cluster.store.close()

    def transport(self, *, user: User = ADMIN, agent: str = "mooring") -> LocalTransport:
        """Return a Transport into this server, authenticated as a user."""
        return LocalTransport(self, user, agent)

    async def serve(self, sock: Any, context: ssl.SSLContext | None) -> None:
        """Listen on a bound socket; without a context plain HTTP, for tests on loopback only."""
        server = web.Server(
            self._handle_http,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            logger=_http_log,
        )
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=2.0)
        await runner.setup()
        self._runners.append(runner)
        await web.SockSite(runner, sock, ssl_context=context).start()

    def _identify(self, token: str, audiences: tuple[str, ...]) -> tuple[User, tuple[str, ...]]:
        return self.authenticator.identify(token, now=self.cluster.now(), audiences=audiences)

    # --- definitions --------------------------------------------------------------------------------------

    def _define(self, entry: Entry) -> None:
        """Serve a definition; one that cannot be served (by a newer version, say) holds up nothing else."""
        try:
            self._registry.set_definition(entry.obj)
        except (ApiError, LookupError, ValueError, TypeError):
            _log.exception("definition cannot be served: %s", entry.name)

    def _definition_changed(self, event: Event) -> None:
        entry, deleted = event.entry, event.type == "DELETED"
        if deleted:
            self._registry.drop_definition(entry.name)
        else:
            self._define(entry)
        self._discovery.changed()
        self._maintenance.definition_changed(entry, deleted=deleted)

    # --- requests -----------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Answer:
        """Answer any request; errors become Status answers, bugs a 500 without their insides."""
        self._in_flight += 1
        try:
            answer = await (
                self._answer(request) if self.audit is None else self._audited(request, self.audit)
            )
            self._tally.count(request, answer.status)
            return answer
        finally:
            self._in_flight -= 1
            if request.counted:
                _drop(self._busy, request.share)

    async def _audited(self, request: Request, audit: AuditLog) -> Answer:
        """Answer a request, and log it as its sender's."""
        parts = segments(request.path)
        target = parse_path(parts) if parts is not None else None
        try:
            request.sender = request.user or self.authenticator.user(request, now=self.cluster.now())
        except ApiError:
            return await self._answer(request)
        wanted = attributes_of(request, target, request.sender)
        record = audit.begin(request, wanted)
        answer = await self._answer(request)
        if record is None:
            return answer
        acted = request.user if request.acting else None
        decision = self.cluster.authorizer.decide(replace(wanted, user=acted or request.sender))
        record.annotations |= request.annotations | {
            "authorization.k8s.io/decision": "allow" if decision.allowed else "forbid",
            "authorization.k8s.io/reason": decision.reason,
        }
        if answer.stream is None and answer.upgrade is None:
            audit.complete(record, answer, acted)
            return answer
        audit.started(record, answer, acted)
        if answer.stream is not None:
            answer.stream = _followed_by(answer.stream, lambda: audit.complete(record, answer, acted))
        return answer

    async def _answer(self, request: Request) -> Answer:
        try:
            answer = await self._decide(request)
        except ApiError as error:
            if error.message.startswith(failures.ROUTED):
                request.warnings.clear()  # what the router refuses never came to the resource
            answer = _failure(error, request)
        except StorageError as error:
            answer = _failure(failures.internal(str(error)), request)
        except OverflowError:
            why = "json: cannot unmarshal number into Go value of type float64: it is out of range"
            answer = _failure(failures.bad_request(why), request)
        except LookupError as error:
            _log.exception("request failed: %s %s", request.method, request.path)
            answer = _failure(failures.internal(type(error).__name__), request)
        except Exception as error:
            _log.exception("request failed: %s %s", request.method, request.path)
            answer = _failure(failures.internal(type(error).__name__), request)
        return answer

    async def _decide(self, request: Request) -> Answer:
        """Answer a request; a write is refused for nothing that readers do not see yet."""
        try:
            return await self._route(request)
        except ApiError:
            if request.method not in ("GET", "HEAD"):
                await self.cluster.store.all_settled()
            raise

    async def _route(self, request: Request) -> Answer:
        user = request.sender or request.user or self.authenticator.user(request, now=self.cluster.now())
        parts = segments(request.path)
        target = parse_path(parts) if parts is not None else None
        request.share = _share_of(user)
        if request.share:
            if self._in_flight > IN_FLIGHT_LIMIT or self._busy[request.share] >= IN_FLIGHT_PER_USER:
                return Answer(
                    429, b"Too many requests, please try again later.\n", _TEXT, {"Retry-After": "1"}
                )
            self._busy[request.share] += 1
            request.counted = True
        if request.acting or MASTERS not in user.groups:
            user = self._authorized(request, target, user)
        request.user = user
        if parts is None or request.path.startswith("//"):
            return self._root(request)
        if parts[0] in ("healthz", "livez", "readyz"):
            return checks(request, parts, failing=self._failing())
        if parts == ("metrics",):
            return self._metrics()
        if parts[0] in (".well-known", "openid"):
            return self._openid(request, parts)
        if answer := self._discovery.answer(request, parts):
            if request.method in ("GET", "HEAD") or parts == ("apis",):
                return answer
            raise failures.method_not_allowed()
        if target is None:
            return _no_page(parts, self._registry)
        return await self._resource(request, target, user)

    def _authorized(self, request: Request, target: Target | None, user: User) -> User:
        """Return who a request acts as; raises 403 when that user may not send it."""
        authorizer = self.cluster.authorizer
        wanted = attributes_of(request, target, user)
        if request.acting:
            user = request.user = impersonated(request.acting, wanted, authorizer)
            wanted = replace(wanted, user=user)
        authorizer.check(wanted)
        return user

    def _root(self, request: Request) -> Answer:
        if request.path.strip("/"):
            return _plain(404, "404 page not found\n")
        paths = [
            "/api",
            "/api/v1",
            "/apis",
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        for group, versions in self._registry.group_versions().items():
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return Answer(200, msgspec.json.format(msgspec.json.encode({"paths": sorted(paths)}), indent=2))

    def _failing(self) -> tuple[str, ...]:
        """The checks that fail: the server starts or stops."""
        if self._ready:
            return ()
        return ("shutdown",) if self.cluster.closing.is_set() else ("informer-sync",)

    def _metrics(self) -> Answer:
        objects = {one.resource: one.count for one in self.cluster.store.collections() if one.count}
        return self._tally.shown(in_flight=self._in_flight, objects=objects, version=GIT_VERSION)

    def _openid(self, request: Request, parts: tuple[str, ...]) -> Answer:
        if parts == ("openid", "v1", "jwks"):
            return Answer(200, msgspec.json.encode(self.cluster.tokens.key_set()), "application/jwk-set+json")
        if parts == (".well-known", "openid-configuration"):
            document = {
                "issuer": ISSUER,
                "jwks_uri": f"{ISSUER}/openid/v1/jwks",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }
            return Answer(200, msgspec.json.encode(document))
        return _plain(404, "404 page not found\n")

    async def _resource(self, request: Request, target: Target, user: User) -> Answer:
        served = self._registry.find(target.group, target.version, target.plural)
        if served is None:
            if target.group not in ("", *self._registry.group_versions()):
                return _plain(404, "404 page not found\n")
            raise failures.page_not_found()
        verb = target.verb(request.method, request.query)
        if request.method == "OPTIONS" and target.subresource == "proxy":
            verb = "get"  # roles know no verb for it: it takes one that allows them all
        if verb is None:
            raise failures.method_not_allowed()
        known = target.subresource if target.subresource in served.subresources else ""
        request.about = (verb, target.group, target.version, target.plural, known)
        _check_scope(target, served)
        if verb == "watch" or target.subresource in _STREAMED:
            self._check_streams(request)
        if warning := _deprecation(served):
            request.warnings.append(warning)
        versions = self.cluster.conversions.of(served)
        call = Call(self.cluster, request, target, served, verb, user, versions)
        if target.subresource:
            return await subresources.answer(call)
        _check_verb(target, served, verb)
        if served.custom is None and (virtual := self._virtual.get(served.storage)):
            return await virtual(call)
        return await _VERBS[verb](call)

    def _check_streams(self, request: Request) -> None:
        """Raise 429 when the sender of a request holds as many streams as one may."""
        if request.share and self._streams[request.share] >= STREAMS_PER_USER:
            raise failures.too_many_requests(
                f"{STREAMS_PER_USER} watches and other streams of {request.share} are open, please try again later"
            )

    @contextlib.contextmanager
    def _streaming(self, request: Request) -> Iterator[None]:
        """Count a stream while it is open."""
        self._streams[request.share] += 1
        try:
            yield
        finally:
            _drop(self._streams, request.share)

    # --- HTTP ---------------------------------------------------------------------------------------------

    async def _handle_http(self, http: web.BaseRequest) -> web.StreamResponse:
        raw_path, _, query = http.raw_path.partition("?")

        async def read_body() -> bytes:
            if (http.content_length or 0) > BODY_LIMIT:
                raise failures.payload_too_large(BODY_LIMIT)
            if (encoding := http.headers.get("Content-Encoding", "identity").lower()) != "identity":
                raise failures.unsupported_encoding(encoding)
            body = bytearray()
            try:
                async with asyncio.timeout(_BODY_SECONDS):
                    async for chunk in http.content.iter_any():
                        body += chunk
                        if len(body) > BODY_LIMIT:
                            raise failures.payload_too_large(BODY_LIMIT)
            except TimeoutError:
                raise failures.timeout(f"the body did not arrive within {_BODY_SECONDS:g} s") from None
            return bytes(body)

        # Of a header that occurs several times the first counts, as on a real server.
        headers: dict[str, str] = {}
        for name, value in http.headers.items():
            headers.setdefault(name.lower(), value)
        request = Request(
            method=http.method,
            path=raw_path,
            query=Query.parse(query),
            headers=headers,
            read_body=read_body,
            user=of_certificate(http.transport),
            peer=http.remote or "",
            acting=_acting(http.headers.items()),
            upgrade=http,
            connected=lambda: _connected(http),
        )
        answer = await self.handle(request)
        sent = CIMultiDict(answer.headers)
        for warning in _warnings(request):
            sent.add("Warning", warning)
        if answer.upgrade is not None:
            with self._streaming(request):
                return await answer.upgrade(http)
        if answer.stream is not None:
            with self._streaming(request):
                return await self._stream(http, answer, sent)
        packed = "gzip" in request.header("accept-encoding") and not _is_near(request.peer)
        packed = packed and "Content-Encoding" not in sent
        if answer.pieces or (packed and len(answer.body) > _PACKED_FROM):
            return await _send_pieces(http, answer, sent, packed=packed)
        if answer.content_type:
            sent["Content-Type"] = answer.content_type
        response = web.Response(status=answer.status, body=answer.body, headers=sent)
        if answer.status >= 400 and not http.content.is_eof():
            response.force_close()  # what was refused unread is not read to its end
        return response

    async def _stream(
        self, http: web.BaseRequest, answer: Answer, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        assert answer.stream is not None
        if answer.content_type:
            headers["Content-Type"] = answer.content_type
        response = web.StreamResponse(status=answer.status, headers=headers)
        stream = answer.stream
        if not answer.ends_itself:
            stream = _until(stream, self.cluster.closing, alive=lambda: _connected(http))
        try:
            await response.prepare(http)
            async for chunk in stream:
                if len(chunk) < _SMALL and http.transport and not http.transport.get_write_buffer_size():
                    await response.write(chunk)  # does not wait
                    continue
                async with asyncio.timeout(_SLOW_CLIENT):
                    await response.write(chunk)
        except (ConnectionError, TimeoutError):
            if http.transport is not None:
                http.transport.abort()
            return response
        finally:
            await stream.aclose()
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response


class _Malformed(logging.Filter):
    """Lets one line through in a while about requests that are not HTTP, without a traceback: anybody can send them."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._passed_over = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        if record.created < self._next:
            self._passed_over += 1
            return False
        why = " ".join(str(error.message).split())[:100]
        record.msg = f"malformed request ({self._passed_over} more since the last such line): {why}"
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.args, record.exc_info, record.exc_text = (), None, None
        self._next, self._passed_over = record.created + _MALFORMED_SECONDS, 0
        return True


_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_Malformed())


def _share_of(user: User) -> str:
    """Return what a user's requests are counted under, "" for administrators: theirs always get through."""
    if MASTERS in user.groups:
        return ""
    if user.name.startswith("system:serviceaccount:"):
        return user.name.rpartition(":")[0]
    return user.name


def _drop(counts: Counter[str], share: str) -> None:
    counts[share] -= 1
    if not counts[share]:
        del counts[share]


def _acting(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    named = ((name.lower(), value) for name, value in headers)
    return tuple((name, value) for name, value in named if name.startswith("impersonate-"))


async def _list(call: Call) -> Answer:
    return await reads.list_objects(call)


async def _get(call: Call) -> Answer:
    return await reads.get(call)


async def _watch(call: Call) -> Answer:
    return reads.watch(call)


def _write(verb: Callable[[Call], Awaitable[writes.Result]]) -> Callable[[Call], Awaitable[Answer]]:
    async def answer(call: Call) -> Answer:
        form = call.form()
        status, obj = await verb(call)
        return reads.answer_object(call, status, obj, form)

    return answer


_VERBS: Mapping[str, Callable[[Call], Awaitable[Answer]]] = {
    "get": _get,
    "list": _list,
    "watch": _watch,
    "create": _write(writes.create),
    "update": _write(writes.replace),
    "patch": _write(patching.patch_object),
    "delete": _write(deletes.delete),
    "deletecollection": _write(deletes.delete_collection),
}


def _check_scope(target: Target, served: Served) -> None:
    """Refuse paths that no route of a real server matches."""
    if target.rest and not target.subresource == "proxy":
        raise failures.page_not_found()
    if target.namespace and not served.namespaced:
        raise failures.page_not_found()
    if not target.namespace and served.namespaced and target.name:
        raise failures.page_not_found()
    if target.namespace in (".", ".."):
        raise failures.without_reason(f'invalid key: "/{target.plural}/{target.namespace}"')
    if target.name in (".", ".."):
        raise failures.bad_request(f"Name parameter invalid: \"{target.name}\": may not be '{target.name}'")


_DEPRECATED = {
    "endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    "componentstatuses": "v1 ComponentStatus is deprecated in v1.19+",
}


def _deprecation(served: Served) -> str:
    """Return the warning that every answer about a deprecated resource carries."""
    if served.custom is None:
        return _DEPRECATED.get(served.storage, "")
    if not served.custom.deprecated:
        return ""
    return served.custom.deprecation_warning or f"{served.api_version} {served.kind} is deprecated"


def _check_verb(target: Target, served: Served, verb: str) -> None:
    """Refuse methods that no route of the path has: a create at a name, an update of a list."""
    named = verb in ("get", "update", "patch", "delete")
    if verb not in served.verbs or (target.name and verb == "create") or (named and not target.name):
        raise failures.method_not_allowed()
    if served.namespaced and not target.namespace and verb not in ("list", "watch"):
        raise failures.method_not_allowed()


def _no_page(parts: tuple[str, ...], registry: Registry) -> Answer:
    group = parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
    if parts[0] == "api" or (group and group in registry.group_versions()):
        raise failures.page_not_found()
    return _plain(404, "404 page not found\n")


def _plain(status: int, text: str) -> Answer:
    return Answer(status, text.encode(), "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"})


def _failure(error: ApiError, request: Request) -> Answer:
    try:
        form = codec.negotiate(request, shapes=True)
    except ApiError:
        form = codec.Format()
    status = failures.status_of(error)
    status["metadata"] = getattr(error, "meta", {})
    body, content_type = codec.encode(status, codec.Format(yaml=form.yaml, pretty=form.pretty))
    headers = {"Retry-After": str(int(error.retry_after))} if error.retry_after is not None else {}
    return Answer(error.status, body, content_type, headers)


#: Characters of all warnings of an answer that are shown in full, and of each one when there are more.
_WARNED, _WARNING = 4096, 256


def _warnings(request: Request) -> list[str]:
    """Return the values of the Warning headers of an answer, each text once, cut short where they are many."""
    texts = list(dict.fromkeys(request.warnings))
    if sum(map(len, texts)) > _WARNED:
        texts = list(_cut_short(texts))
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for text in texts)
    return [f'299 - "{text}"' for text in quoted]


def _cut_short(texts: Iterable[str]) -> Iterator[str]:
    """Give the warnings of an answer that has too many as a real server does."""
    whole = cut = 0
    for text in texts:
        if whole > _WARNED and cut >= _WARNED:
            return
        whole += len(text)
        cut += min(len(text), _WARNING)
        yield text[:_WARNING]


def _is_near(peer: str) -> bool:
    """Whether a client is on this machine: bytes cost it less than packing and unpacking them."""
    return peer in ("::1", "::ffff:127.0.0.1") or peer.startswith("127.")


def _whole(answer: Answer) -> bytes:
    return answer.body or b"".join(answer.pieces)


async def _send_pieces(
    http: web.BaseRequest, answer: Answer, headers: CIMultiDict[str], *, packed: bool
) -> web.StreamResponse:
    """Send a large body piece by piece: little of it is in memory twice, and others get their turn."""
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.headers["Content-Type"] = answer.content_type
    response.enable_chunked_encoding()
    packer = zlib.compressobj(_GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16) if packed else None
    if packer is not None:
        response.headers["Content-Encoding"] = "gzip"
    await response.prepare(http)
    try:
        for piece in answer.pieces or (answer.body,):
            sent = piece if packer is None else await asyncio.to_thread(packer.compress, piece)
            async with asyncio.timeout(_SLOW_CLIENT):
                await (response.write(sent) if sent else asyncio.sleep(0))
        await response.write_eof(packer.flush() if packer is not None else b"")
    except (ConnectionError, TimeoutError):
        if http.transport is not None:
            http.transport.abort()
    return response


async def _followed_by(stream: AsyncGenerator[bytes], end: Callable[[], None]) -> AsyncGenerator[bytes]:
    """Yield a stream, then say that it ended, whoever ended it."""
    try:
        async for chunk in stream:
            yield chunk
    finally:
        await stream.aclose()
        end()


def _connected(http: web.BaseRequest) -> bool:
    return http.transport is not None and not http.transport.is_closing()


async def _until(
    stream: AsyncGenerator[bytes], closing: asyncio.Event, *, alive: Callable[[], bool] = lambda: True
) -> AsyncGenerator[bytes]:
    """Yield a stream until it ends, the server stops, or nobody listens any more."""
    stop = asyncio.ensure_future(closing.wait())
    try:
        while True:
            step = asyncio.ensure_future(anext(stream, None))
            try:
                while not (step.done() or stop.done()) and alive():
                    await asyncio.wait(
                        (step, stop), timeout=_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
            finally:
                if not step.done():
                    step.cancel()
                    await asyncio.wait((step,))
            if step.cancelled() or (chunk := step.result()) is None:
                return
            yield chunk
    finally:
        stop.cancel()
        await stream.aclose()


# --- in process -----------------------------------------------------------------------------------------


class LocalTransport:
    """A Transport into a server of this process, through the very same request handling."""

    def __init__(self, server: ApiServer, user: User, agent: str) -> None:
        self._server = server
        self._user = user
        self._agent = agent
        self.sockets: HttpTransport | None = None
        """What opens WebSockets, where the server listens: none is opened within the process."""

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> Request:
        async def read_body() -> bytes:
            if body is not None and len(body) > BODY_LIMIT:
                raise failures.payload_too_large(BODY_LIMIT)
            return body or b""

        path, _, inline = path.partition("?")
        parsed = Query.parse("&".join(filter(None, (inline, urlencode(query or {})))))
        names = {
            "user-agent": self._agent,
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        # Of the headers themselves: a multidict may have one of them several times.
        acting = _acting((headers or {}).items())
        return Request(method, path, parsed, names, read_body, user=self._user, acting=acting)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """See :meth:`mooring.kube.transport.Transport.request`."""
        request = self._request(method, path, query, body, headers)
        # A request may be answered without ever waiting: give others their turn all the same.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(timeout or 30.0):
                answer = await self._server.handle(request)
                content = _whole(answer)
                if answer.stream is not None:
                    content = b"".join([chunk async for chunk in answer.stream])
        except TimeoutError as error:
            raise TransportError(f"{method} {path}: no answer in time") from error
        return Response(answer.status, _headers(answer, request), content)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[StreamResponse]:
        """See :meth:`mooring.kube.transport.Transport.stream`."""
        request = self._request(method, path, query, None, headers)
        answer = await self._server.handle(request)
        stream = _LocalStream(answer, _headers(answer, request), self._server)
        try:
            yield stream
        finally:
            await stream.close()

    async def close(self) -> None:
        """Only what opens WebSockets holds connections."""
        if self.sockets is not None:
            await self.sockets.close()


def _headers(answer: Answer, request: Request) -> dict[str, str]:
    warnings = _warnings(request)
    told = {"Warning": ", ".join(warnings)} if warnings else {}
    return {"Content-Type": answer.content_type, **answer.headers, **told}


class _LocalStream:
    def __init__(self, answer: Answer, headers: Mapping[str, str], server: ApiServer) -> None:
        self.status = answer.status
        self.headers = headers
        self._body = _whole(answer)
        self._chunks = answer.stream
        if self._chunks is not None and not answer.ends_itself:
            self._chunks = _until(self._chunks, server.cluster.closing)

    async def read(self) -> bytes:
        if self._chunks is None:
            return self._body
        return b"".join([chunk async for chunk in self._chunks])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        if self._chunks is None:
            for line in self._body.split(b"\n"):
                yield line
            return
        async for chunk in self._chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
        if rest:
            yield rest

    async def close(self) -> None:
        if self._chunks is not None:
            await self._chunks.aclose()
