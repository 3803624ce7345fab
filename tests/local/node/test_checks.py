"""Checks: what a probe concludes when the command itself cannot be started."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any, cast

import pytest

from mooring.kube.objects.core import (
    Container,
    ContainerPort,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    LifecycleHandler,
    Probe,
    SleepAction,
    TCPSocketAction,
)
from mooring.local.node.checks import Checker, CheckFailed
from mooring.local.node.exec import Entrance


class Dying:
    """The way into a container whose first process has just died."""

    async def spawn(self, command: Any, **_: Any) -> Any:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")


async def test_a_command_that_cannot_be_started_is_a_failed_probe_and_not_the_end_of_probing() -> None:
    checker = Checker(
        entrance=cast(Entrance, Dying()), container=Container(name="main"), address=IPv4Address("127.0.0.1")
    )

    with pytest.raises(CheckFailed, match="Cannot allocate memory"):
        await checker.probe(Probe(exec=ExecAction(command=["true"])), timeout=1)


async def served(answer: bytes) -> tuple[asyncio.Server, int]:
    """A server that answers every request with the same bytes, and how to reach it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def outcome(answer: bytes, probe: Callable[[int], Probe]) -> str:
    """What a probe of such a server says, ``""`` for success."""
    server, port = await served(answer)
    container = Container(name="main", ports=[ContainerPort(name="web", container_port=port)])
    checker = Checker(entrance=cast(Entrance, Dying()), container=container, address=IPv4Address("127.0.0.1"))
    try:
        await checker.probe(probe(port), timeout=20)
    except CheckFailed as failure:
        return str(failure)
    finally:
        server.close()
        await server.wait_closed()
    return ""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def health(status: int) -> bytes:
    """The frames by which a gRPC server tells its health."""
    message = bytes((8, status)) if status else b""
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return frame(4, 0, 0, b"") + frame(1, 4, 1, b"\x88") + frame(0, 0, 1, body) + frame(1, 5, 1, b"")


async def test_http_probes_take_what_is_no_error_and_name_what_is() -> None:
    def by_name(_: int) -> Probe:
        return Probe(http_get=HTTPGetAction(path="ready", port="web"))

    assert await outcome(b"HTTP/1.1 204 No Content\r\n\r\n", by_name) == ""
    assert await outcome(b"HTTP/1.1 302 Found\r\n\r\n", by_name) == ""
    failed = await outcome(b"HTTP/1.1 503 Busy\r\n\r\n", by_name)
    assert failed == "HTTP probe failed with statuscode: 503"
    assert "not an HTTP answer" in await outcome(b"hello\r\n", by_name)


async def test_grpc_probes_ask_for_the_health_of_the_server() -> None:
    def grpc(port: int) -> Probe:
        return Probe(grpc=GRPCAction(port=port, service="db"))

    assert await outcome(health(1), grpc) == ""
    assert await outcome(health(2), grpc) == "service unhealthy (responded with status 2)"
    assert "refused" in await outcome(frame(7, 0, 0, bytes(8)), grpc)


async def test_tcp_probes_only_want_to_connect() -> None:
    assert await outcome(b"", lambda port: Probe(tcp_socket=TCPSocketAction(port=port))) == ""
    assert "onnect" in await outcome(b"", lambda port: Probe(tcp_socket=TCPSocketAction(port=1)))
    unknown = await outcome(b"", lambda port: Probe(tcp_socket=TCPSocketAction(port="no")))
    assert unknown == "couldn't find port 'no' of container main"


async def test_hooks_ask_by_http_and_sleep() -> None:
    server, port = await served(b"HTTP/1.1 500 No\r\n\r\n")
    checker = Checker(
        entrance=cast(Entrance, Dying()), container=Container(name="main"), address=IPv4Address("127.0.0.1")
    )
    with pytest.raises(CheckFailed, match="statuscode: 500"):
        await checker.hook(LifecycleHandler(http_get=HTTPGetAction(port=port)), timeout=20)
    await checker.hook(LifecycleHandler(sleep=SleepAction(seconds=0)), timeout=20)
    with pytest.raises(TimeoutError):
        await checker.hook(LifecycleHandler(sleep=SleepAction(seconds=60)), timeout=0.05)
    server.close()
    await server.wait_closed()
