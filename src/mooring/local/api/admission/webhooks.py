"""Calls of webhooks, of admission and of conversion: over HTTPS, to a URL or to a Service's endpoints."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import posixpath
import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from mooring.kube.errors import ApiError, api_error
from mooring.local.api.storage import Store

__all__ = ["Reply", "WebhookClient", "WebhookError", "denied"]

JsonObject = dict[str, Any]

_TIMEOUT = 10
_REPLY_LIMIT = 8 << 20


class WebhookError(Exception):
    """A webhook did not give a usable answer; its failurePolicy decides."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a webhook answered."""

    allowed: bool
    status: Mapping[str, Any]
    patch: list[Any]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Address:
    url: str
    server_name: str | None


class WebhookClient:
    """Keeps connections to webhooks; one TLS context for each CA bundle."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def ask(self, hook: Mapping[str, Any], request: JsonObject) -> Reply:
        """Send an admission review to a webhook; raises WebhookError."""
        name = hook["name"]
        uid = str(uuid.uuid4())
        review: JsonObject = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {"uid": uid, **request},
        }
        seconds = int(hook.get("timeoutSeconds") or _TIMEOUT)
        try:
            answer = await self.post(hook.get("clientConfig") or {}, review, seconds=seconds)
            return _reply(answer, uid)
        except (WebhookError, ValueError, TypeError) as error:
            raise WebhookError(f'failed calling webhook "{name}": failed to call webhook: {error}') from error

    async def post(self, config: Mapping[str, Any], review: JsonObject, *, seconds: int) -> Any:
        """Send a review to where a clientConfig points and return the decoded answer; raises WebhookError."""
        url = _shown_url(config, seconds)
        try:
            async with asyncio.timeout(seconds):
                body = await self._post(config, review)
        except TimeoutError:
            raise WebhookError(f'Post "{url}": context deadline exceeded') from None
        except aiohttp.ClientConnectorCertificateError as error:
            why = f"tls: failed to verify certificate: x509: {error.certificate_error}"
            raise WebhookError(f'Post "{url}": {why}') from error
        except aiohttp.ClientConnectorError as error:
            why = "connect: connection refused" if error.os_error.errno == errno.ECONNREFUSED else str(error)
            raise WebhookError(f'Post "{url}": dial tcp {error.host}:{error.port}: {why}') from error
        except (aiohttp.ClientError, OSError, ssl.SSLError, LookupError) as error:
            why = str(error.args[0]) if isinstance(error, LookupError) else str(error)
            raise WebhookError(f'Post "{url}": {why}') from error
        except (ValueError, TypeError) as error:
            raise WebhookError(str(error)) from error
        try:
            return msgspec.json.decode(body)
        except msgspec.MsgspecError as error:
            raise WebhookError(f"couldn't get version/kind; json parse error: {error}") from error

    async def _post(self, config: Mapping[str, Any], review: JsonObject) -> bytes:
        address = self._address(config)
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if address.server_name:
            headers["Host"] = address.server_name
        async with self._session.post(
            address.url,
            data=msgspec.json.encode(review),
            headers=headers,
            ssl=self._context(config.get("caBundle") or ""),
            server_hostname=address.server_name,
            allow_redirects=False,
        ) as answer:
            body = await answer.content.read(_REPLY_LIMIT)
            if answer.status != 200:
                raise ValueError(_refused(answer.status, body))
            return body

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            text = base64.b64decode(bundle).decode() if bundle else None
            context = self._contexts[bundle] = ssl.create_default_context(cadata=text)
            # As Go does: a bundle may hold an intermediate certificate or the webhook's own.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _address(self, config: Mapping[str, Any]) -> _Address:
        if url := config.get("url"):
            return _Address(_cleaned(url), None)
        service = config.get("service") or {}
        namespace, name = service.get("namespace", ""), service.get("name", "")
        host, port = self._endpoint(namespace, name, service.get("port") or 443)
        path = _clean_path(service.get("path") or "")
        return _Address(f"https://{host}:{port}{path}", f"{name}.{namespace}.svc")

    def _endpoint(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Return a ready endpoint of a Service, so that no proxy stands in between."""
        service = self._store.collection("services").get((namespace, name))
        if service is None:
            raise LookupError(f'service "{name}" not found')
        wanted = next((p for p in service.obj["spec"].get("ports") or () if p.get("port") == port), None)
        if wanted is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        for entry in self._store.collection("endpointslices.discovery.k8s.io").entries(namespace):
            labels = entry.obj["metadata"].get("labels") or {}
            if labels.get("kubernetes.io/service-name") != name:
                continue
            ports = entry.obj.get("ports") or ()
            target = next((p for p in ports if (p.get("name") or "") == (wanted.get("name") or "")), None)
            for endpoint in entry.obj.get("endpoints") or ():
                ready = (endpoint.get("conditions") or {}).get("ready", True)
                if target is not None and ready and endpoint.get("addresses"):
                    return endpoint["addresses"][0], target["port"]
        raise LookupError(f'no endpoints available for service "{name}"')

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            # A hook that does not end its side of a TLS connection must not hold up the shutdown.
            if (connector := self._session.connector) is not None:
                await connector.close(abort_ssl=True)
            await self._session.close()


def _shown_url(config: Mapping[str, Any], seconds: int) -> str:
    """Return the address of a webhook as the real server's messages show it."""
    if config.get("url"):
        base = _cleaned(config["url"])
    else:
        service = config.get("service") or {}
        path = _clean_path(service.get("path") or "")
        base = (
            f"https://{service.get('name')}.{service.get('namespace')}.svc:{service.get('port') or 443}{path}"
        )
    return f"{base}{'&' if '?' in base else '?'}timeout={seconds}s"


def _cleaned(url: str) -> str:
    """A URL with its path as Go's path.Join makes it: no doubled slashes, none at the end."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=_clean_path(parts.path))) if parts.path else url


def _clean_path(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _refused(status: int, body: bytes) -> str:
    """Word an answer that is not 200, as client-go does."""
    if status == 404:
        return "the server could not find the requested resource"
    if status >= 500:
        shown = json.dumps(body[:2048].decode(errors="replace").strip() or "unknown")
        return f"an error on the server ({shown}) has prevented the request from succeeding"
    return "the server rejected our request for an unknown reason"


def _reply(review: Any, uid: str) -> Reply:
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise ValueError("the answer is no AdmissionReview with a response")
    if response.get("uid") != uid:
        raise ValueError(f"expected response.uid={uid!r}, got {response.get('uid')!r}")
    patch: list[Any] = []
    if response.get("patch"):
        if response.get("patchType") != "JSONPatch":
            raise ValueError("response.patchType must be JSONPatch")
        patch = msgspec.json.decode(base64.b64decode(response["patch"]))
    return Reply(
        allowed=bool(response.get("allowed")),
        status=response.get("status") or {},
        patch=patch,
        warnings=tuple(map(str, response.get("warnings") or ())),
    )


def denied(name: str, status: Mapping[str, Any]) -> ApiError:
    """Return the error of a refusal, worded as the real server words it."""
    by = f'admission webhook "{name}" denied the request'
    reason = str(status.get("reason") or "")
    if text := status.get("message") or reason:
        message = f"{by}: {text}"
    else:
        message = f"{by} without explanation"
    code = status.get("code")
    code = code if isinstance(code, int) and code >= 400 else 400
    body = {"message": message, "reason": reason, "details": status.get("details") or {}}
    return api_error(code, body)
