"""What probes can ask, against small servers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from typing import Any, cast

import msgspec
import pytest

from mooring.kube.objects.core import Container, Probe
from mooring.local.node.checks import Checker, CheckFailed
from mooring.local.node.exec import Entrance

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    made = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with made:
        yield made.sockets[0].getsockname()[1]


async def check(timeout: float = 2, **probe: Any) -> None:
    container = msgspec.convert({"name": "main", "ports": [{"name": "web", "containerPort": 80}]}, Container)
    checker = Checker(entrance=cast(Entrance, None), container=container, address=IPv4Address("127.0.0.1"))
    await checker.probe(msgspec.convert(probe, Probe), timeout=timeout)


def http(status: str) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"GET /healthz HTTP/1.1\r\n")
        assert b"X-Test: yes\r\n" in head
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    return serve


@pytest.mark.parametrize(("status", "good"), [("200 OK", True), ("302 Found", True), ("503 No", False)])
async def test_http_statuses_below_400_are_good(status: str, good: bool) -> None:
    async with server(http(status)) as port:
        headers = [{"name": "X-Test", "value": "yes"}]
        ask = check(httpGet={"port": port, "path": "/healthz", "httpHeaders": headers})
        if good:
            await ask
        else:
            with pytest.raises(CheckFailed, match="statuscode: 503"):
                await ask


async def test_a_refused_connection_and_a_silent_server_fail() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(silent) as port:
        await check(tcpSocket={"port": port})
        with pytest.raises(CheckFailed, match=r"no answer after 0\.1s"):
            await check(0.1, httpGet={"port": port})
    with pytest.raises(CheckFailed, match="Connect call failed"):
        await check(tcpSocket={"port": port})


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def grpc(serving: int) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        writer.write(frame(4, 0, 0, b"") + frame(6, 0, 0, b"pingpong"))
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == 0:
                assert payload == b"\x00\x00\x00\x00\x04\x0a\x02db"
                break
        body = b"\x00" + struct.pack(">I", 2) + bytes([8, serving])
        writer.write(frame(1, 4, 1, b"\x88") + frame(0, 0, 1, body) + frame(1, 5, 1, b"\x88"))

    return serve


async def test_a_serving_grpc_service_is_healthy() -> None:
    async with server(grpc(1)) as port:
        await check(grpc={"port": port, "service": "db"})


async def test_a_grpc_service_that_does_not_serve_is_not() -> None:
    async with server(grpc(2)) as port:
        with pytest.raises(CheckFailed, match="status 2"):
            await check(grpc={"port": port, "service": "db"})


async def test_a_port_name_nobody_has_is_said() -> None:
    with pytest.raises(CheckFailed, match="couldn't find port 'metrics'"):
        await check(tcpSocket={"port": "metrics"})
