"""pods/proxy and services/proxy: a request handed on to a pod, and the pod's answer handed back.

As kube-apiserver does: TLS to a pod is not verified, credentials stay here, redirections and links in HTML pages
are rewritten so that they lead through the proxy again, and what upgrades (a WebSocket, say) is bytes from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, NoReturn
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from mooring.local.api import failures
from mooring.local.api.call import Call
from mooring.local.api.http import Answer, Request
from mooring.local.api.streams.links import LARGEST_PAGE, Place, cleaned, escaped, recoded
from mooring.local.api.streams.pipes import RawPipe, taken_over, until_one_ends

__all__ = ["to_pod", "to_service"]

JsonObject = dict[str, Any]

#: Headers that are about one connection.
_HOPS = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
#: Headers of a request that stay here: whose it is, and what this server answers by itself.
_KEPT = frozenset(("authorization", "expect", "x-forwarded-for", "x-forwarded-uri"))
#: Headers of an answer that would say what pages elsewhere may read of this server.
_CORS = frozenset(f"access-control-allow-{what}" for what in ("credentials", "headers", "methods", "origin"))
_UNASKED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
#: Seconds a pod has to take a connection; its answer may take as long as it likes.
_CONNECT_SECONDS = 30.0
#: Seconds between looks whether the client of a quiet pod is still there.
_ALIVE_SECONDS = 5.0
_LONGEST_HEADER = 64 << 10
_PIECE = 32 << 10
#: Where pages are rewritten, one at a time: the plane goes on meanwhile.
_pages = ThreadPoolExecutor(max_workers=1, thread_name_prefix="proxied-pages")


@dataclass(frozen=True, slots=True)
class _Backend:
    """Where a request goes: a pod's address, and its port or "" for the usual one of the scheme."""

    scheme: str
    address: str
    port: str

    @property
    def host(self) -> str:
        """The address and port as a URL has them."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}" if self.port else address

    @property
    def dialled(self) -> str:
        """The address and port as messages have them."""
        return self.host if self.port else f"{self.host}:{443 if self.scheme == 'https' else 80}"


async def to_pod(call: Call) -> Answer:
    """Hand a request on to a pod, `[SCHEME:]NAME[:PORT]`; raises 400, 404, 500, 503."""
    return await _handed_on(call, "PodProxyOptions", _of_pod)


async def to_service(call: Call) -> Answer:
    """Hand a request on to a ready pod of a Service, `[SCHEME:]NAME[:PORT]`; raises 400, 404, 500, 503."""
    return await _handed_on(call, "ServiceProxyOptions", _of_service)


async def _handed_on(call: Call, kind: str, locate: Callable[[Call], _Backend]) -> Answer:
    request = call.request
    if "dryRun" in request.query:
        raise failures.bad_request("dryRun is not supported")
    asked = unquote(request.path)
    path = "/" + "/".join(call.target.rest) if call.target.rest else ""
    if asked.endswith("/") and not path.endswith("/"):
        path += "/"
    options = {"kind": kind, "apiVersion": "v1", **({"path": path} if path else {})}
    await call.cluster.admission.connect(call, options)
    backend, path = locate(call), cleaned(path)
    upgrade = "upgrade" in request.header("connection").lower() and request.upgrade is not None
    if not path and not upgrade and request.method in ("GET", "HEAD"):
        query = f"?{request.query.raw}" if request.query.raw else ""
        return Answer(301, content_type="", headers={"Location": f"{escaped(asked)}/{query}"})
    place = Place(asked.removesuffix(path), (backend.host, request.header("host")))
    return await _Exchange(request, backend, path, place).answer(upgrade=upgrade)


# --- where to -------------------------------------------------------------------------------------------


def _named(call: Call, what: str) -> tuple[str, str, str]:
    """Return scheme, name and port of a target; raises 400."""
    match call.target.name.split(":"):
        case [name]:
            scheme, port = "", ""
        case [name, port]:
            scheme = ""
        case [scheme, name, port]:
            pass
        case _:
            scheme = name = port = ""
    if not name or scheme not in ("", "http", "https"):
        raise failures.bad_request(f'invalid {what} request "{call.target.name}"')
    return scheme or "http", name, port


def _of_pod(call: Call) -> _Backend:
    scheme, name, port = _named(call, "pod")
    entry = call.collection.get((call.namespace, name))
    if entry is None:
        raise call.not_found(name)
    address = next(_addresses(entry.obj), "")
    if not _may_be_reached(address, loopback=call.cluster.proxies_to_loopback):
        raise failures.bad_request("address not allowed")
    containers = entry.obj["spec"].get("containers") or ()
    declared = (one["containerPort"] for container in containers for one in container.get("ports") or ())
    return _Backend(scheme, address, port or str(next(declared, "")))


def _of_service(call: Call) -> _Backend:
    scheme, name, port = _named(call, "service")
    if re.fullmatch(r"[+-]?[0-9]+", port):
        port = _port_name(call, name, int(port))
    entry = call.cluster.store.collection("endpoints").get((call.namespace, name))
    if entry is None:
        raise call.not_found(name)  # as a real server says it, be the Service there or not
    subsets = list(entry.obj.get("subsets") or ())
    if not subsets:
        raise failures.unavailable(f'no endpoints available for service "{name}"')
    random.shuffle(subsets)
    for subset in subsets:
        number = next((p["port"] for p in subset.get("ports") or () if p.get("name", "") == port), None)
        addresses = list(subset.get("addresses") or ())
        random.shuffle(addresses)
        for address in addresses if number is not None else ():
            if _is_of_a_pod(call, address):
                return _Backend(scheme, address["ip"], str(number))
    raise failures.unavailable(f'no endpoints available for service "{call.target.name}"')


def _port_name(call: Call, name: str, number: int) -> str:
    """Return the name of a Service's port, which its endpoints have as well; raises 404, 503."""
    service = call.collection.get((call.namespace, name))
    if service is None:
        raise call.not_found(name)
    for port in service.obj["spec"].get("ports") or ():
        if port.get("port") == number:
            return str(port.get("name") or "")
    raise failures.unavailable(f'no service port {number} found for service "{name}"')


def _is_of_a_pod(call: Call, address: JsonObject) -> bool:
    """Whether an endpoint is a pod of the namespace: what somebody wrote by hand leads nowhere from here."""
    about = address.get("targetRef") or {}
    if about.get("namespace") != call.namespace:
        return False
    pod = call.cluster.store.collection("pods").get((call.namespace, about.get("name", "")))
    return pod is not None and address["ip"] in _addresses(pod.obj)


def _addresses(pod: JsonObject) -> Iterator[str]:
    for one in (pod.get("status") or {}).get("podIPs") or ():
        yield one.get("ip", "")


def _may_be_reached(address: str, *, loopback: bool) -> bool:
    """Whether an address is one of a single machine that is not this one."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if ip.is_loopback:
        return loopback
    return not (ip.is_unspecified or ip.is_multicast or ip.is_link_local or address == "255.255.255.255")


# --- there and back -------------------------------------------------------------------------------------


class _Exchange:
    """One request to a pod on a connection of its own, which ends with the answer."""

    def __init__(self, request: Request, backend: _Backend, path: str, place: Place) -> None:
        self._request, self._backend, self._place = request, backend, place
        query = f"?{request.query.raw}" if request.query.raw else ""
        target = escaped(path if path.startswith("/") else f"/{path}")
        self._url = URL(f"{backend.scheme}://{backend.host}{target}{query}", encoded=True)
        self._seen_at = escaped(cleaned(f"{place.prefix}/{path}"))

    async def answer(self, *, upgrade: bool) -> Answer:
        """Return the pod's answer; raises 500 and 503."""
        _check_port(self._backend.port)
        async with AsyncExitStack() as stack:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=False, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                auto_decompress=False,
                skip_auto_headers=_UNASKED,
                max_line_size=_LONGEST_HEADER,
                max_field_size=_LONGEST_HEADER,
            )
            await stack.enter_async_context(session)
            found = await self._sent(session, upgrade=upgrade)
            stack.callback(found.close)
            if upgrade and found.status == 101:
                return Answer(101, upgrade=_spliced(found, stack.pop_all()))
            if upgrade and found.status < 400:
                raise failures.without_reason(f"invalid upgrade response: status code {found.status}")
            return await self._shown(found, stack)

    async def _sent(self, session: aiohttp.ClientSession, *, upgrade: bool) -> aiohttp.ClientResponse:
        """Send the request and return what is answered, as long as somebody waits for it."""
        request = self._request
        body: Any = None
        if request.upgrade is None:
            body = await request.read_body() or None
        elif request.upgrade.can_read_body and not upgrade:
            body = request.upgrade.content.iter_any()
        sending = asyncio.ensure_future(
            session.request(
                request.method,
                self._url,
                headers=self._headers(upgrade=upgrade),
                data=body,
                allow_redirects=False,
            )
        )
        try:
            while not sending.done():
                await asyncio.wait((sending,), timeout=_ALIVE_SECONDS)
                if request.connected is not None and not request.connected():
                    break
            return await sending if sending.done() else self._unreachable("context canceled")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._unreachable(_why(error, self._backend), error)
        finally:
            sending.cancel()

    def _unreachable(self, why: str, error: Exception | None = None) -> NoReturn:
        raise failures.unavailable(f"error trying to reach service: {why}") from error

    def _headers(self, *, upgrade: bool) -> CIMultiDict[str]:
        request = self._request
        given = CIMultiDict(request.headers if request.upgrade is None else request.upgrade.headers)
        sent = _without(given, _HOPS | _KEPT)
        for name, _ in request.acting:
            sent.popall(name, None)
        if upgrade:
            sent.update({"Connection": "Upgrade", "Upgrade": request.header("upgrade")})
        known = request.header("x-forwarded-for")
        sent["X-Forwarded-For"] = ", ".join(filter(None, (known, request.peer or "127.0.0.1")))
        sent["X-Forwarded-Uri"] = self._seen_at
        return sent

    async def _shown(self, found: aiohttp.ClientResponse, stack: AsyncExitStack) -> Answer:
        """Return an answer as the client gets it; what it holds open ends with its stream."""
        headers = _without(found.headers, _HOPS | _CORS)
        content_type = headers.pop("Content-Type", "")
        location = headers.get("Location")
        if location is not None:
            try:
                headers["Location"] = self._place.through(location)
            except ValueError as error:
                raise failures.internal(f"error trying to parse Location header: {error}") from error
        if self._request.method == "HEAD" or found.status in (204, 304):
            return Answer(found.status, b"", content_type, headers)
        begun = b""
        encoding = headers.get("Content-Encoding", "")
        page = location is None and content_type.partition(";")[0].strip() == "text/html"
        if page and encoding in ("", "gzip", "deflate"):
            loop = asyncio.get_running_loop()
            try:
                begun, whole = await _begun(found)
                body = None
                if whole:
                    body = await loop.run_in_executor(_pages, recoded, begun, encoding, self._place)
            except (aiohttp.ClientError, ValueError) as error:
                self._unreachable(_why(error, self._backend), error)
            if body is not None:
                headers.popall("Content-Length", None)
                return Answer(found.status, body, content_type, headers)
        stream = _streamed(found, stack.pop_all(), begun)
        await anext(stream)  # what has begun is closed, even when nobody is there to read it
        return Answer(found.status, b"", content_type, headers, stream=stream)


def _without(headers: Mapping[str, str], names: frozenset[str]) -> CIMultiDict[str]:
    """Return headers but for some, and for those that `Connection` says are of the connection."""
    about = {name.strip().lower() for name in headers.get("Connection", "").split(",")} | names
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in about)


def _check_port(port: str) -> None:
    """Raise the 503 of a port that is none: pods have no names for theirs here."""
    if port and not port.isdecimal():
        why = f"lookup tcp/{port}: unknown port"
    elif port and not 0 < int(port) < 1 << 16:
        why = f"address {port}: invalid port"
    else:
        return
    raise failures.unavailable(f"error trying to reach service: dial tcp: {why}")


def _why(error: Exception, backend: _Backend) -> str:
    """Word a failure as Go's HTTP client does."""
    if isinstance(error, aiohttp.ServerTimeoutError):
        return f"dial tcp {backend.dialled}: i/o timeout"
    if isinstance(error, aiohttp.ClientSSLError):
        return "http: server gave HTTP response to HTTPS client"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return f"dial tcp {backend.dialled}: connect: {os.strerror(error.os_error.errno).lower()}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__


async def _begun(found: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """Return a body, or more than LARGEST_PAGE bytes of its beginning; and whether it is the whole."""
    begun = bytearray()
    async for chunk in found.content.iter_any():
        begun += chunk
        if len(begun) > LARGEST_PAGE:
            return bytes(begun), False
    return bytes(begun), True


async def _streamed(
    found: aiohttp.ClientResponse, stack: AsyncExitStack, begun: bytes
) -> AsyncGenerator[bytes]:
    """Yield nothing, what has begun, and the rest as it comes; raises ConnectionError when the body is cut short.

    The client's is cut short then as well.
    """
    async with stack:
        yield b""  # it has begun
        if begun:
            yield begun
        try:
            async for chunk in found.content.iter_any():
                yield chunk
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error)) from error


# --- upgrades -------------------------------------------------------------------------------------------


class _Inbound:
    """Receives what comes after an upgrade in the place of a parser."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.reader = asyncio.StreamReader()
        self.reader.set_transport(transport)

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        if data:
            self.reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        self.reader.feed_eof()

    def is_eof(self) -> bool:
        return self.reader.at_eof()


def _spliced(found: aiohttp.ClientResponse, stack: AsyncExitStack) -> Callable[[web.BaseRequest], Any]:
    """Return what connects a client with a pod that agreed to speak something else than HTTP."""
    connection = found.connection
    protocol = connection.protocol if connection is not None else None
    transport = protocol.transport if protocol is not None else None
    if protocol is None or not isinstance(transport, asyncio.Transport):
        raise failures.without_reason("error dialing backend: EOF")
    inbound = _Inbound(transport)
    protocol.set_parser(inbound, inbound)
    outbound = asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())

    async def upgrade(http: web.BaseRequest) -> web.StreamResponse:
        async with stack, taken_over(http, CIMultiDict(found.headers)) as (pipe, response):
            await _carried(pipe, RawPipe(inbound.reader, outbound))
        return response

    return upgrade


async def _carried(client: RawPipe, pod: RawPipe) -> None:
    """Carry bytes both ways until one side ends."""

    async def carry(source: RawPipe, sink: RawPipe) -> None:
        with contextlib.suppress(ConnectionError):
            async for data in source:
                await sink.send(data)

    await until_one_ends(carry(client, pod), carry(pod, client))
