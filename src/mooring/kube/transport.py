"""Requests and streams to an API server, over HTTP or within one process.

:class:`Transport` is small so that others can stand in for it: the embedded API server answers in the
same process, the runtime wraps one with its fence and its metrics, tests inject faults.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict

from mooring.kube.config import Config, Credentials
from mooring.kube.errors import ConfigError, TransportError, api_error

__all__ = ["HttpTransport", "Response", "StreamResponse", "Transport"]

USER_AGENT = "mooring"


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamResponse(Protocol):
    """An answer that arrives line by line, such as a watch."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """The rest of the body; for error answers."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The lines, without their newline; raises :class:`TransportError` when the stream breaks."""
        ...


class Transport(Protocol):
    """How requests reach an API server. Raises :class:`TransportError` when there is no answer."""

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
        """Send one request and read its whole answer; ``timeout`` is in seconds, 30 by default.

        ``headers`` may be a multidict: a name that it has several times is sent several times.
        """
        ...

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Open a stream; ``timeout`` bounds the wait for its head only."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class _HttpStream:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._answer = answer

    async def read(self) -> bytes:
        return await self._answer.read()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        try:
            async for chunk in self._answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield line
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise TransportError(f"stream broke: {_describe(error)}") from error
        if rest:
            yield rest


class _Tls:
    """The TLS settings in force, made again when the authority's file has changed.

    New settings concern new connections: those that are open were trusted when they were made.
    """

    #: Seconds between two looks at the file.
    REFRESH = 60.0

    def __init__(self, config: Config) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        self._stamp: tuple[int, ...] = ()
        self._until = 0.0

    def context(self) -> ssl.SSLContext | bool:
        """What to connect with; raises `ConfigError` when there never was a readable authority."""
        if self._context is None or time.monotonic() >= self._until:
            self._refresh()
        return self._context or True

    def expire(self) -> None:
        """Look at the file before the next connection, after a server that was not trusted."""
        self._until = 0.0

    def _refresh(self) -> None:
        self._until = time.monotonic() + self.REFRESH if self._config.ca_file else float("inf")
        try:
            stamp = self._stat()
            if self._context is None or stamp != self._stamp:
                self._context = self._config.ssl_context()
                self._stamp = stamp
        except (ConfigError, OSError):
            if self._context is None:
                raise
            # Half-way through a rotation: what was trusted is trusted on, until the next look.

    def _stat(self) -> tuple[int, ...]:
        if self._config.ca_file is None or not self._config.ca_file.exists():
            return ()
        found = self._config.ca_file.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino


class HttpTransport:
    """HTTP/1.1 over pooled connections; one more connection per stream.

    A read that meets a connection the server had already closed is sent once more; a write never is,
    since nobody can know whether it was carried out. Token and authority files are read again as they rotate.
    """

    #: Seconds for a request without a ``timeout`` of its own.
    TIMEOUT = 30.0
    #: Connections for requests; a request beyond them waits for a free one.
    CONNECTIONS = 64

    def __init__(self, config: Config) -> None:
        self._config = config
        self._credentials = Credentials(config)
        self._tls = _Tls(config)
        self._sessions: dict[int, aiohttp.ClientSession] = {}

    @property
    def host(self) -> str:
        """Host and port of the server, for metrics."""
        return urlsplit(self._config.server).netloc

    def another(self) -> HttpTransport:
        """A transport to the same server that shares no connection with this one, for another event loop."""
        return HttpTransport(self._config)

    def _open(self, limit: int) -> aiohttp.ClientSession:
        """The session whose pool holds ``limit`` connections (0: any number, for streams)."""
        if limit not in self._sessions:
            connector = aiohttp.TCPConnector(limit=limit, keepalive_timeout=60)
            session = self._sessions[limit] = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=True,
            )
            # aiohttp sends a DELETE again on a connection that closed; what is sent again, `request` decides.
            session._retry_connection = False
        return self._sessions[limit]

    async def _headers(self, extra: Mapping[str, str] | None) -> CIMultiDict[str]:
        headers = CIMultiDict(extra or {})
        headers.setdefault("Accept", "application/json")
        if token := await self._credentials.token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

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
        """See :meth:`Transport.request`."""
        attempts = 2 if method == "GET" else 1
        while True:
            attempts -= 1
            try:
                async with self._open(self.CONNECTIONS).request(
                    method,
                    self._config.server + path,
                    params=query,
                    data=body,
                    headers=await self._headers(headers),
                    timeout=aiohttp.ClientTimeout(total=timeout or self.TIMEOUT),
                    ssl=self._tls.context(),
                    server_hostname=self._config.tls_server_name,
                ) as answer:
                    content = await answer.read()
            except aiohttp.ClientSSLError as error:
                self._tls.expire()
                raise TransportError(f"{method} {path}: {_describe(error)}") from error
            except (aiohttp.ServerDisconnectedError, ConnectionResetError) as error:
                if attempts:
                    continue
                raise TransportError(f"{method} {path}: {_describe(error)}") from error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise TransportError(f"{method} {path}: {_describe(error)}") from error
            if answer.status == 401:
                self._credentials.expire()
            return Response(answer.status, answer.headers, content)

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
        """See :meth:`Transport.stream`."""
        try:
            async with asyncio.timeout(timeout or self.TIMEOUT):
                answer = await self._open(0).request(
                    method,
                    self._config.server + path,
                    params=query,
                    headers=await self._headers(headers),
                    ssl=self._tls.context(),
                    server_hostname=self._config.tls_server_name,
                )
        except aiohttp.ClientSSLError as error:
            self._tls.expire()
            raise TransportError(f"{method} {path}: {_describe(error)}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise TransportError(f"{method} {path}: {_describe(error)}") from error
        try:
            if answer.status == 401:
                self._credentials.expire()
            yield _HttpStream(answer)
        finally:
            # What is unread is of no use: end the connection now. A closing TLS connection would wait for the
            # server's end of it, up to 30 seconds, and outlive this transport.
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
            answer.close()

    @asynccontextmanager
    async def websocket(
        self,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket, such as that of pods/exec.

        Raises `ApiError` when the server refuses (its reason does not reach clients), `TransportError`.
        """
        try:
            socket = await self._open(0).ws_connect(
                self._config.server + path,
                params=list(query),
                headers=await self._headers(headers),
                protocols=protocols,
                ssl=self._tls.context(),
                server_hostname=self._config.tls_server_name,
                timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                heartbeat=30.0,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise api_error(error.status, b"") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise TransportError(f"GET {path}: {_describe(error)}") from error
        try:
            yield socket
        finally:
            await socket.close()

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host}:{error.port} is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        # Its own text shows Python's objects.
        number, why = error.os_error.errno, error.os_error.strerror
        words = os.strerror(number) if number and number > 0 else why or str(error.os_error)
        return f"cannot connect to {error.host}:{error.port}: {words}"
    return str(error) or type(error).__name__
