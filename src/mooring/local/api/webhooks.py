"""Calls of admission webhooks: AdmissionReview v1 over HTTPS, to a URL or to a Service's endpoints."""

from __future__ import annotations

import asyncio
import base64
import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from mooring.kube.errors import ApiError, api_error
from mooring.local.api.storage import Store

__all__ = ["Reply", "WebhookClient", "WebhookError", "denied"]

JsonObject = dict[str, Any]

_TIMEOUT = 10.0
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
        """Send a review to a webhook; raises WebhookError."""
        name = hook["name"]
        uid = str(uuid.uuid4())
        review: JsonObject = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {"uid": uid, **request},
        }
        seconds = float(hook.get("timeoutSeconds") or _TIMEOUT)
        config = hook.get("clientConfig") or {}
        try:
            async with asyncio.timeout(seconds):
                body = await self._post(config, review)
            return _reply(msgspec.json.decode(body), uid)
        except TimeoutError:
            raise WebhookError(f'failed calling webhook "{name}": no answer in {seconds:g}s') from None
        except (aiohttp.ClientError, OSError, ssl.SSLError, LookupError, ValueError, TypeError) as error:
            raise WebhookError(f'failed calling webhook "{name}": failed to call webhook: {error}') from error

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
                raise ValueError(f"an error on the server: status {answer.status}: {body[:200]!r}")
            return body

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            text = base64.b64decode(bundle).decode() if bundle else None
            context = self._contexts[bundle] = ssl.create_default_context(cadata=text)
        return context

    def _address(self, config: Mapping[str, Any]) -> _Address:
        if url := config.get("url"):
            return _Address(url, None)
        service = config.get("service") or {}
        namespace, name = service.get("namespace", ""), service.get("name", "")
        host, port = self._endpoint(namespace, name, service.get("port") or 443)
        path = "/" + (service.get("path") or "").lstrip("/")
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
            await self._session.close()


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
