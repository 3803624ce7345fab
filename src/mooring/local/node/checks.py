"""The actions that probes and lifecycle hooks share: run a command, ask by HTTP, TCP or gRPC, sleep."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from mooring.kube.objects.core import (
    Container,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    LifecycleHandler,
    Probe,
    TCPSocketAction,
)
from mooring.local.node.exec import Entrance, capture

__all__ = ["CheckFailed", "Checker"]

_HTTP_LIMIT = 10 << 10


class CheckFailed(Exception):
    """The answer was no; the message is what the kubelet would say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Performs checks on one run of a container."""

    entrance: Entrance
    container: Container
    address: IPv4Address
    """The pod's address."""
    source: IPv4Address | None = None
    """The address that requests come from."""

    async def probe(self, probe: Probe, *, timeout: float) -> None:
        """Perform a probe; raises :class:`CheckFailed`."""
        try:
            if probe.exec is not None:
                await self._exec(probe.exec, timeout)
            else:
                async with asyncio.timeout(timeout):
                    await self._ask(probe.http_get, probe.tcp_socket, probe.grpc)
        except TimeoutError:
            what = "command timed out" if probe.exec is not None else "no answer"
            raise CheckFailed(f"{what} after {timeout:g}s") from None

    async def hook(self, handler: LifecycleHandler, *, timeout: float | None) -> None:
        """Perform a hook; raises :class:`CheckFailed`, or TimeoutError."""
        if handler.exec is not None:
            await self._exec(handler.exec, timeout)
            return
        async with asyncio.timeout(timeout):
            if handler.sleep is not None:
                await asyncio.sleep(handler.sleep.seconds or 0)
            else:
                await self._ask(handler.http_get, handler.tcp_socket, None)

    async def _exec(self, action: ExecAction, timeout: float | None) -> None:
        try:
            output = await capture(self.entrance, action.command or (), timeout=timeout)
        except TimeoutError:
            raise
        except (LookupError, OSError) as error:
            # Also ENOMEM: what the kernel says of a pid namespace whose first process has just died.
            raise CheckFailed(str(error)) from None
        if output.status != 0:
            text = output.text.decode(errors="replace").strip()
            raise CheckFailed(text or f"command ended with exit status {output.status}")

    async def _ask(
        self, http: HTTPGetAction | None, tcp: TCPSocketAction | None, grpc: GRPCAction | None
    ) -> None:
        try:
            if http is not None:
                await self._http(http)
            elif tcp is not None:
                await self._tcp(tcp)
            elif grpc is not None:
                await self._grpc(grpc)
        except (OSError, EOFError, ssl.SSLError) as error:
            raise CheckFailed(str(error)) from None

    async def _tcp(self, action: TCPSocketAction) -> None:
        port = self._port(action.port)
        _reader, writer = await self._connect(action.host, port)
        writer.close()

    async def _http(self, action: HTTPGetAction) -> None:
        port, tls = self._port(action.port), (action.scheme or "HTTP").upper() == "HTTPS"
        reader, writer = await self._connect(action.host, port, tls=tls)
        try:
            writer.write(_request(action, action.host or str(self.address), port))
            status_line = await reader.readline()
            parts = status_line.split(maxsplit=2)
            if len(parts) < 2 or not parts[1].isdigit():
                raise CheckFailed(f"not an HTTP answer: {status_line[:80]!r}")
            if not 200 <= int(parts[1]) < 400:
                raise CheckFailed(f"HTTP probe failed with statuscode: {int(parts[1])}")
        finally:
            writer.close()

    async def _grpc(self, action: GRPCAction) -> None:
        port = action.port or 0
        reader, writer = await self._connect(None, port)
        try:
            writer.write(_health_request(f"{self.address}:{port}", action.service or ""))
            serving = await _health_answer(reader, writer)
        finally:
            writer.close()
        if serving != 1:
            raise CheckFailed(f"service unhealthy (responded with status {serving})")

    async def _connect(
        self, host: str | None, port: int, *, tls: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context: ssl.SSLContext | None = None
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        source = (str(self.source), 0) if self.source and host is None else None
        return await asyncio.open_connection(
            host or str(self.address), port, ssl=context, local_addr=source, limit=_HTTP_LIMIT
        )

    def _port(self, port: int | str | None) -> int:
        if isinstance(port, int):
            return port
        for named in self.container.ports or ():
            if named.name == port and named.container_port:
                return named.container_port
        if port and port.isdigit():
            return int(port)
        raise CheckFailed(f"couldn't find port {port!r} of container {self.container.name}")


def _request(action: HTTPGetAction, host: str, port: int) -> bytes:
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Accept": "*/*"}
    for header in action.http_headers or ():
        headers[header.name or ""] = header.value or ""
    headers["Connection"] = "close"
    path = action.path or "/"
    lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


# gRPC's health check is one request of HTTP/2 with fixed headers, and of the answer only the first message
# matters; a library would be a large dependency for these few frames (RFC 9113, RFC 7541 section 6.2.2).

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    encoded = b"\x00"
    for text in (name.encode(), value.encode()):
        head = bytes([len(text)]) if len(text) < 127 else b"\x7f" + _varint(len(text) - 127)
        encoded += head + text
    return encoded


def _varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def _health_request(authority: str, service: str) -> bytes:
    headers: Sequence[tuple[str, str]] = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "kube-probe/1.36"),
    )
    block = b"".join(_literal(name, value) for name, value in headers)
    message = b"\x0a" + _varint(len(service.encode())) + service.encode() if service else b""
    body = b"\x00" + struct.pack(">I", len(message)) + message
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b"")
    return preface + _frame(_HEADERS, 0x4, 1, block) + _frame(_DATA, 0x1, 1, body)


async def _health_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """The serving status of the first message; 0 (unknown) if the message is empty."""
    body = b""
    while True:
        head = await reader.readexactly(9)
        length, (kind, flags, stream) = int.from_bytes(head[:3], "big"), struct.unpack(">BBI", head[3:])
        payload = await reader.readexactly(length)
        if kind == _SETTINGS and not flags & 1:
            writer.write(_frame(_SETTINGS, 1, 0, b""))
        elif kind == _PING and not flags & 1:
            writer.write(_frame(_PING, 1, 0, payload))
        elif kind in (_RESET, _GOAWAY):
            raise CheckFailed("the server refused the gRPC health check")
        elif stream == 1:
            body += payload if kind == _DATA else b""
            if len(body) >= 5 and len(body) >= 5 + int.from_bytes(body[1:5], "big"):
                return body[6] if body[5:6] == b"\x08" else 0
            if flags & 1:
                raise CheckFailed("the server does not answer gRPC health checks")
