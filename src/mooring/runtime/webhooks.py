"""Admission webhooks: what is reviewed, how it is answered, and the HTTPS server that does it (9443).

    async def review(asked: Review[Widget]) -> Verdict:
        if (asked.object or {}).get("spec", {}).get("size") == 13:
            return Refuse("spec.size: 13 is unlucky; choose another", causes=(("spec.size", "unlucky"),))
        return Allow("spec.size is large") if ... else Allow()

    WebhookServer([Webhook(Widget, review)], port=9443)

Every replica serves; the leader alone renews certificates and registers (`webhooks_keeper`). Guarantees: a
handler that fails, hangs or is sent nonsense answers an HTTP error, so the failure policy of the webhook
decides, and holds nobody else back; a new certificate is served from the next handshake on, and no
connection is dropped for it. A handler may be asked twice and in any order, and must have no side effects.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from mooring.cache.clock import Clock, SystemClock
from mooring.cache.informer import Informer
from mooring.cache.store import Transition
from mooring.kube import listener
from mooring.kube.client import Client
from mooring.kube.errors import DecodeError
from mooring.kube.object import Key, Object, decode
from mooring.kube.objects.core import Secret
from mooring.runtime.webhooks_certificates import CertificateError, Certificates

__all__ = ["Allow", "Change", "Operation", "Refuse", "Review", "Verdict", "Webhook", "WebhookServer"]

log = structlog.get_logger("mooring.webhooks")

T = TypeVar("T", bound=Object)
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]

PORT: Final = 9443
#: Bytes of a review: an object of etcd's limit twice (old and new), escaped, and its frame.
BODY_LIMIT: Final = 7 * 1024 * 1024
#: The API server may cut a single warning at this many characters, and drops what exceeds 4096 in all.
WARNING_LIMIT: Final = 256
WARNINGS_LIMIT: Final = 12
#: Part of the caller's time that a handler gets; the rest is for the answer to arrive.
_SHARE: Final = 0.9
#: controller-runtime's buckets (the client's defaults of Go).
_LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Allow:
    """The request may pass; warnings are shown to whoever made it."""

    warnings: tuple[str, ...] = ()

    def __init__(self, *warnings: str) -> None:
        object.__setattr__(self, "warnings", warnings)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused, with what to do about it.

    With ``causes``, pairs of a field and what is wrong with it, the answer is 422 Invalid, else 403 Forbidden.
    """

    message: str
    causes: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """The object is changed by a JSON merge patch (``None`` removes a field); for mutating webhooks.

    A patch and not an object: what the handler's types do not know stays as it is.
    """

    patch: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


Verdict = Allow | Refuse | Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Review(Generic[T]):
    """One request as it stands before it is stored.

    ``object`` and ``old`` are the JSON as the server holds it, unknown fields included; ``None`` where the
    operation has none (``object`` of a DELETE, ``old`` of a CREATE).
    """

    kind: type[T]
    operation: Operation
    key: Key
    object: dict[str, Any] | None
    old: dict[str, Any] | None
    user: str = ""
    groups: tuple[str, ...] = ()
    subresource: str = ""
    dry_run: bool = False

    def typed(self) -> T | None:
        """The object as its type; raises `DecodeError` naming the field, which the server takes to a warning."""
        return None if self.object is None else decode(self.object, self.kind)

    def typed_old(self) -> T | None:
        """The object before the request, as its type; raises `DecodeError`."""
        return None if self.old is None else decode(self.old, self.kind)


@dataclass(frozen=True, slots=True)
class Webhook(Generic[T]):
    """A handler for one kind, and what the API server is told about it.

    ``failure_policy``: whether a request passes while no answer can be had. ``timeout`` is in seconds.
    """

    kind: type[T]
    review: Callable[[Review[T]], Awaitable[Verdict]]
    mutating: bool = False
    operations: tuple[Operation, ...] = ("CREATE", "UPDATE")
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout: int = 5

    @property
    def path(self) -> str:
        """Where it is served, and its label in metrics: ``/validate/GROUP/VERSION/PLURAL``."""
        resource = self.kind.resource
        return f"/{self._verb}/{resource.group or 'core'}/{resource.version}/{resource.plural}"

    @property
    def name(self) -> str:
        """Its name in the configuration and in refusals: ``validate.PLURAL.GROUP``."""
        resource = self.kind.resource
        return f"{self._verb}.{resource.plural}.{resource.group or 'core'}"

    @property
    def _verb(self) -> str:
        return "mutate" if self.mutating else "validate"


# --- the wire ----------------------------------------------------------------------------------------------


class _User(msgspec.Struct, gc=False):
    username: str = ""
    groups: list[str] | None = None


class _Request(msgspec.Struct, rename="camel", gc=False):
    uid: str
    operation: Operation
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = None


class _Review(msgspec.Struct, rename="camel", gc=False):
    api_version: str
    kind: str
    request: _Request | None = None


_decode_review = msgspec.json.Decoder(_Review).decode
_VERSION: Final = "admission.k8s.io/v1"


class _Failed(Exception):
    """An answer that is no AdmissionReview: the failure policy decides."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _parse(body: bytes) -> _Request:
    try:
        review = _decode_review(body)
    except msgspec.MsgspecError as error:
        raise _Failed(400, f"not an AdmissionReview: {error}") from error
    if (review.api_version, review.kind) != (_VERSION, "AdmissionReview"):
        raise _Failed(
            400, f"{review.kind} {review.api_version} is not supported; send AdmissionReview {_VERSION}"
        )
    if review.request is None:
        raise _Failed(400, "the AdmissionReview has no request")
    return review.request


def _response(verdict: Verdict, request: _Request) -> dict[str, Any]:
    out: dict[str, Any] = {"uid": request.uid, "allowed": not isinstance(verdict, Refuse)}
    if verdict.warnings:
        out["warnings"] = [_one_line(text) for text in verdict.warnings[:WARNINGS_LIMIT]]
    if isinstance(verdict, Refuse):
        out["status"] = _status(verdict)
    elif isinstance(verdict, Change) and (operations := _operations(request.object or {}, verdict.patch)):
        out["patchType"] = "JSONPatch"
        out["patch"] = base64.b64encode(msgspec.json.encode(operations)).decode()
    return out


def _status(refusal: Refuse) -> dict[str, Any]:
    if not refusal.causes:
        return {"status": "Failure", "code": 403, "reason": "Forbidden", "message": refusal.message}
    causes = [
        {"reason": "FieldValueInvalid", "field": field, "message": text} for field, text in refusal.causes
    ]
    details = {"causes": causes}
    return {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": refusal.message,
        "details": details,
    }


def _one_line(text: str) -> str:
    """A warning as a header can carry it."""
    line = " ".join(text.split())
    return line if len(line) <= WARNING_LIMIT else line[: WARNING_LIMIT - 3] + "..."


def _operations(target: Mapping[str, Any], patch: Mapping[str, Any], path: str = "") -> list[dict[str, Any]]:
    """The JSON patch that does to ``target`` what a merge patch says."""
    out: list[dict[str, Any]] = []
    for name, value in patch.items():
        where = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if value is None:
            if name in target:
                out.append({"op": "remove", "path": where})
        elif name in target and isinstance(value, Mapping) and isinstance(target[name], Mapping):
            out += _operations(target[name], value, where)
        elif name not in target or target[name] != value:
            out.append(
                {"op": "replace" if name in target else "add", "path": where, "value": _without_nulls(value)}
            )
    return out


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_nulls(below) for name, below in value.items() if below is not None}


_SECONDS: Final = re.compile(r"^(\d+(?:\.\d+)?)(ms|s)$")


def _allowed_seconds(hook: Webhook[Any], asked: str) -> float:
    """What is left for the handler of the time its caller waits."""
    found = _SECONDS.match(asked)
    seconds = float(hook.timeout)
    if found:
        seconds = min(seconds, float(found[1]) / (1000 if found[2] == "ms" else 1))
    return seconds * _SHARE


# --- the server --------------------------------------------------------------------------------------------


class WebhookMetrics:
    """controller-runtime's numbers of webhooks and certificates, on no registry until `register`."""

    def __init__(self) -> None:
        prefix = "controller_runtime_webhook_"
        self.requests = Counter(
            prefix + "requests_total", "Reviews by HTTP code.", ["webhook", "code"], registry=None
        )
        self.seconds = Histogram(
            prefix + "latency_seconds", "Time per review.", ["webhook"], buckets=_LATENCY, registry=None
        )
        self.in_flight = Gauge(
            prefix + "requests_in_flight", "Reviews under way.", ["webhook"], registry=None
        )
        self.panics = Counter(prefix + "panics_total", "Reviews whose handler failed.", registry=None)
        self.reads = Counter("certwatcher_read_certificate_total", "Certificates read.", registry=None)
        self.read_errors = Counter(
            "certwatcher_read_certificate_errors_total", "Certificates that could not be used.", registry=None
        )
        self.expiry = Gauge(
            "webhook_certificate_expiry_timestamp_seconds", "When the served certificate ends.", registry=None
        )

    def register(self, registry: CollectorRegistry) -> None:
        """Publish on a registry."""
        for metric in vars(self).values():
            registry.register(metric)


class WebhookServer:
    """Serves webhooks over HTTPS with whatever certificate is current; see the module's text.

    ``port`` 0 takes any free one; `port` tells which. It listens from the first certificate on.
    """

    def __init__(
        self,
        hooks: Sequence[Webhook[Any]],
        *,
        host: str = "0.0.0.0",  # noqa: S104
        port: int = PORT,
        clock: Clock | None = None,
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self.hooks = tuple(hooks)
        self.metrics = WebhookMetrics()
        self._clock = clock or SystemClock()
        self._by_path = {hook.path: hook for hook in hooks}
        if len(self._by_path) != len(self.hooks):
            raise ValueError("two webhooks of one kind and sort; put them into one handler")
        self._host = host
        self._port = port
        self._body_limit = body_limit
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.set_alpn_protocols(["http/1.1"])
        self._socket: socket.socket | None = None
        self._runner: web.AppRunner | None = None
        self._listening = False
        self.serving: Certificates | None = None
        for hook in self.hooks:
            self.metrics.requests.labels(hook.path, "200")
            self.metrics.requests.labels(hook.path, "500")

    @property
    def port(self) -> int:
        """The port that is bound, else the one asked for."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else self._port

    @property
    def listening(self) -> bool:
        """Whether connections are taken: from the first certificate on."""
        return self._listening

    def trouble(self) -> str:
        """Why no review can be answered, for a readiness check; empty when all is well."""
        if self.serving is None:
            return "no certificate yet: the leader has not written the Secret"
        if not self._listening:
            return "the listener is not open"
        if self.serving.serving.not_valid_after_utc <= self._clock.now():
            return "the serving certificate has ended: no leader renewed it"
        return ""

    def bind(self) -> int:
        """Take the port; raises OSError naming it when it is taken."""
        if self._socket is None:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            taken = socket.socket(family, socket.SOCK_STREAM)
            try:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                taken.bind((self._host, self._port))
            except OSError as error:
                taken.close()
                raise OSError(
                    error.errno, f"webhooks: {self._host}:{self._port}: {error.strerror}"
                ) from error
            taken.setblocking(False)
            self._socket = taken
        return self.port

    async def serve(self, client: Client, secret: Key) -> None:
        """Serve with the certificates of a Secret, as they change, until cancelled."""
        informer: Informer[Secret] = Informer(
            client,
            Secret,
            clock=self._clock,
            namespace=secret.namespace,
            field_selector=f"metadata.name={secret.name}",
        )
        changed = asyncio.Event()

        def read(change: Transition[Secret]) -> None:
            if change.new is not None and self._read(change.new):
                changed.set()

        informer.add_handler(read)
        self.bind()
        informer.start()
        try:
            await changed.wait()
            await self._listen()
            await asyncio.Event().wait()
        finally:
            await informer.stop()
            await self.stop()

    def _read(self, secret: Secret) -> bool:
        """Take over a Secret's certificates; a broken one leaves those in use."""
        try:
            self.use(Certificates.from_secret(secret.data))
        except (CertificateError, ssl.SSLError) as error:
            self.metrics.read_errors.inc()
            log.warning("the Secret of the webhooks is unusable; the leader makes it anew", error=str(error))
            return False
        return True

    def use(self, certificates: Certificates) -> None:
        """Serve with these from the next handshake on; connections that are open stay."""
        self.metrics.reads.inc()
        if self.serving is not None and self.serving.serving == certificates.serving:
            return
        certificates.load_into(self._context)
        self.serving = certificates
        self.metrics.expiry.set(certificates.serving.not_valid_after_utc.timestamp())
        log.info("serving webhooks", port=self.port, until=str(certificates.serving.not_valid_after_utc))

    async def _listen(self) -> None:
        app = web.Application(client_max_size=self._body_limit)
        app.add_routes([web.post(path, self._handle) for path in self._by_path])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=5.0)
        await self._runner.setup()
        assert self._socket is not None
        await web.SockSite(self._runner, self._socket, ssl_context=self._context).start()
        self._listening = True

    async def stop(self) -> None:
        """Close the listener; reviews under way get five seconds to end."""
        self._listening = False
        runner, self._runner = self._runner, None
        taken, self._socket = self._socket, None
        if runner is not None:
            await listener.end(runner)
        if taken is not None:
            taken.close()

    async def _handle(self, request: web.Request) -> web.Response:
        hook = self._by_path[request.path]
        metrics, started, code = self.metrics, self._clock.monotonic(), 500
        metrics.in_flight.labels(hook.path).inc()
        try:
            answer = await self._answer(hook, request)
            code = 200
            return answer
        except _Failed as failure:
            code = failure.status
            return web.Response(status=code, text=f"{hook.name}: {failure}\n")
        finally:
            metrics.in_flight.labels(hook.path).dec()
            metrics.requests.labels(hook.path, str(code)).inc()
            metrics.seconds.labels(hook.path).observe(self._clock.monotonic() - started)

    async def _answer(self, hook: Webhook[Any], request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise _Failed(415, f"the content type is {request.content_type}; send application/json")
        seconds = _allowed_seconds(hook, request.query.get("timeout", ""))
        try:
            async with self._clock.deadline(seconds):
                asked = _parse(await request.read())
                verdict = await self._ask(hook, asked)
        except web.HTTPRequestEntityTooLarge as error:
            raise _Failed(413, f"the review is larger than {self._body_limit} bytes") from error
        except TimeoutError as error:
            raise _Failed(504, f"no answer within {seconds:g} s") from error
        if isinstance(verdict, Change) and not hook.mutating:
            log.error("a validating webhook wants to change the object", webhook=hook.name)
            raise _Failed(500, "a validating webhook may not change the object")
        body = {"apiVersion": _VERSION, "kind": "AdmissionReview", "response": _response(verdict, asked)}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _ask(self, hook: Webhook[Any], asked: _Request) -> Verdict:
        review = Review(
            kind=hook.kind,
            operation=asked.operation,
            key=Key(asked.namespace, asked.name),
            object=asked.object,
            old=asked.old_object,
            user=asked.user_info.username,
            groups=tuple(asked.user_info.groups or ()),
            subresource=asked.sub_resource,
            dry_run=bool(asked.dry_run),
        )
        try:
            return await hook.review(review)
        except DecodeError as error:
            # The schema is what refuses; an object it lets pass must stay editable, finalizers above all.
            return Allow(f"{error}; correct the field, this operator cannot read the object")
        except Exception as error:
            self.metrics.panics.inc()
            # The text of an unforeseen failure may hold anything: it goes to the log alone.
            log.exception("a webhook's handler failed", webhook=hook.name, key=str(review.key))
            raise _Failed(500, f"the handler failed with {type(error).__name__}; see its log") from error
