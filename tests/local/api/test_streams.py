"""Logs, exec and port-forward, through a stand-in for the node agent."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
from tests.local.api.conftest import PODS, Client, pod

from mooring.local.api import ApiServer, User
from mooring.local.api.streams import spdy

TOKEN = "t"

Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[bytes]]


class Agent:
    """Runs no containers: echoes, fails and exits as asked."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.cancelled = asyncio.Event()

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool,
        previous: bool,
        tail_lines: int | None,
        since: datetime | None,
        limit_bytes: int | None,
        timestamps: bool,
    ) -> AsyncIterator[bytes]:
        if previous:
            raise ValueError("previous terminated container not found")
        yield f"{container} {tail_lines}\n".encode()
        if follow and tail_lines == 0:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        if follow:
            yield b"more\n"

    async def attach(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        stdin: AsyncIterator[bytes] | None,
        stdout: Callable[[bytes], Awaitable[None]],
        stderr: Callable[[bytes], Awaitable[None]] | None,
        resize: AsyncIterator[tuple[int, int]] | None,
    ) -> int:
        await stdout(f"attached to {container}\n".encode())
        assert stdin is not None
        async for chunk in stdin:
            await stdout(chunk.upper())
        return 0

    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: AsyncIterator[bytes] | None,
        stdout: Callable[[bytes], Awaitable[None]],
        stderr: Callable[[bytes], Awaitable[None]] | None,
        tty: bool,
        resize: AsyncIterator[tuple[int, int]] | None,
    ) -> int:
        match list(command):
            case ["cat"]:
                assert stdin is not None
                async for chunk in stdin:
                    await stdout(chunk)
                return 0
            case ["fail", code]:
                assert stderr is not None
                await stderr(b"oh no")
                return int(code)
            case ["size"]:
                assert resize is not None
                self.sizes.append(await anext(resize))
                return 0
            case ["forever"]:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
        raise LookupError(f"no program {command[0]}")

    async def port_forward(
        self, namespace: str, pod: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port)


@pytest.fixture
async def agent(server: ApiServer, api: Client) -> Agent:
    agent = Agent()
    server.gateway = agent
    await api.create(PODS, pod(node="n1"))
    return agent


@pytest.fixture
async def sockets() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        yield session


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    admin = User("admin", groups=("system:masters",))
    async with ApiServer.in_memory(tokens={TOKEN: admin}) as started:
        yield started


async def run(
    sockets: aiohttp.ClientSession,
    url: str,
    command: str,
    *,
    send: Sequence[bytes] = (),
    options: str = "&stdin=1&stdout=1&stderr=1",
    protocol: str = "v5.channel.k8s.io",
    subresource: str = "exec",
) -> tuple[dict[int, bytes], Any]:
    """Run a command and return what came on each channel, and the final Status."""
    arguments = "".join(f"&command={part}" for part in command.split())
    path = f"{url}{PODS}/p/{subresource}?container=c{options}{arguments}"
    channels: dict[int, bytes] = {}
    async with sockets.ws_connect(path, protocols=(protocol,)) as socket:
        assert socket.protocol == protocol
        for message in send:
            await socket.send_bytes(message)
        async for received in socket:
            if received.data:
                channel = received.data[0]
                channels[channel] = channels.get(channel, b"") + received.data[1:]
    return channels, msgspec.json.decode(channels.pop(3))


async def test_logs_are_plain_text(api: Client, agent: Agent) -> None:
    answer = await api.send("GET", PODS + "/p/log", tailLines="5", follow="true")
    assert (answer.status, answer.body) == (200, b"c 5\nmore\n")
    assert answer.headers["Content-Type"] == "text/plain"
    status = await api.refused(400, "GET", PODS + "/p/log", previous="true")
    assert "previous terminated container" in status["message"]


@pytest.mark.parametrize("protocol", ["binary.k8s.io", "base64.binary.k8s.io", ""])
async def test_logs_are_the_messages_of_a_websocket(
    url: str, sockets: aiohttp.ClientSession, agent: Agent, protocol: str
) -> None:
    path = f"{url}{PODS}/p/log?follow=true"
    async with sockets.ws_connect(path, protocols=(protocol,) if protocol else ()) as socket:
        said = [message.data async for message in socket]
        assert socket.close_code == 1000
    if protocol.startswith("base64"):
        said = [base64.b64decode(text) for text in said]
    assert b"".join(said) == b"c None\nmore\n"


async def test_a_client_that_leaves_ends_its_log(
    url: str, sockets: aiohttp.ClientSession, agent: Agent
) -> None:
    async with sockets.ws_connect(f"{url}{PODS}/p/log?follow=true&tailLines=0") as socket:
        assert await socket.receive_bytes() == b"c 0\n"
    async with asyncio.timeout(5):
        await agent.cancelled.wait()


@pytest.mark.parametrize("protocol", ["channel.k8s.io", ""])
async def test_exec_in_the_first_protocol_says_what_failed_in_words(
    url: str, sockets: aiohttp.ClientSession, agent: Agent, protocol: str
) -> None:
    async def told(command: str) -> list[bytes]:
        path = f"{url}{PODS}/p/exec?stdin=1&stdout=1&stderr=1&{command}"
        async with sockets.ws_connect(path, protocols=(protocol,) if protocol else ()) as socket:
            for message in (b"\0hello", b"\xff\0"):
                await socket.send_bytes(message)
            return [message.data async for message in socket]

    assert await told("command=cat") == [b"\x01hello"]
    failed = b"\x03command terminated with non-zero exit code: exit status 3"
    assert await told("command=fail&command=3") == [b"\x02oh no", failed]


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_exec_carries_input_and_output(
    url: str, sockets: aiohttp.ClientSession, agent: Agent, protocol: str
) -> None:
    big = b"x" * 100_000
    sent = [b"\0hello ", b"\0" + big, b"\xff\0"]
    channels, status = await run(sockets, url, "cat", send=sent, protocol=protocol)
    assert channels == {1: b"hello " + big}
    assert status["status"] == "Success"


async def test_attach_connects_to_the_containers_own_program(
    url: str, sockets: aiohttp.ClientSession, agent: Agent
) -> None:
    channels, status = await run(sockets, url, "", send=[b"\0hello", b"\xff\0"], subresource="attach")
    assert channels == {1: b"attached to c\nHELLO"}
    assert status["status"] == "Success"


async def test_exec_tells_the_exit_code(url: str, sockets: aiohttp.ClientSession, agent: Agent) -> None:
    channels, status = await run(sockets, url, "fail 3")
    assert channels == {2: b"oh no"}
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


async def test_exec_passes_the_size_of_the_terminal(
    url: str, sockets: aiohttp.ClientSession, agent: Agent
) -> None:
    await run(sockets, url, "size", send=[b'\x04{"Width":80,"Height":24}'], options="&stdin=1&stdout=1&tty=1")
    assert agent.sizes == [(80, 24)]


async def test_exec_of_what_is_not_there_fails_with_the_reason(
    url: str, sockets: aiohttp.ClientSession, agent: Agent
) -> None:
    _, status = await run(sockets, url, "nothing")
    assert status["message"] == "no program nothing"


async def test_a_client_that_leaves_ends_its_command(
    url: str, sockets: aiohttp.ClientSession, agent: Agent
) -> None:
    path = f"{url}{PODS}/p/exec?command=forever&stdout=1"
    async with sockets.ws_connect(path, protocols=("v5.channel.k8s.io",)):
        pass
    async with asyncio.timeout(5):
        await agent.cancelled.wait()


MASK = bytes(4)


def handshake(url: str, *more: str, version: str = "13", key: str = "AAAAAAAAAAAAAAAAAAAAAA==") -> bytes:
    lines = [
        f"GET {PODS}/p/exec?command=forever&stdin=1&stdout=1 HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Authorization: Bearer {TOKEN}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Sec-WebSocket-Version: {version}",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Protocol: v5.channel.k8s.io",
        *more,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\xf2\x80" + MASK, id="reserved bits"),
        pytest.param(b"\x83\x80" + MASK, id="unknown kind"),
        pytest.param(b"\x89\xfe\x00\x7e" + MASK + bytes(126), id="ping too long"),
        pytest.param(b"\x09\x80" + MASK, id="ping in parts"),
        pytest.param(b"\x80\x80" + MASK, id="an end without a beginning"),
        pytest.param(b"\x81\x82" + MASK + b"\xff\xff", id="text that is none"),
        pytest.param(b"\x88\x81" + MASK + b"\x03", id="half a reason to close"),
        pytest.param(b"\x88\x82" + MASK + b"\x00\x01", id="a reason that is none"),
        pytest.param(b"\x82\xff" + b"\xff" * 8 + MASK, id="2^64 bytes"),
        pytest.param(b"\x82\xff" + struct.pack(">Q", 1 << 40) + MASK, id="a TiB"),
    ],
)
async def test_a_broken_frame_ends_its_connection_and_the_command_and_nothing_else(
    url: str, sockets: aiohttp.ClientSession, agent: Agent, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw(url) as (reader, writer), asyncio.timeout(30):
        writer.write(handshake(url))
        assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"101"
        writer.write(frame)
        await agent.cancelled.wait()
    assert not [record for record in caplog.records if record.exc_info]
    assert (await run(sockets, url, "fail 3"))[0] == {2: b"oh no"}


@pytest.mark.parametrize(
    "message", [b"", b"\xfahello", b"\x01hello", b"\x03{}", b"\x04{nope", b"\x04[]", b"\xff", b"\xff\xfa"]
)
async def test_a_message_for_no_channel_harms_nobody(
    url: str, sockets: aiohttp.ClientSession, agent: Agent, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    channels, status = await run(sockets, url, "cat", send=[message, b"\0hello", b"\xff\0"])
    assert (channels, status["status"]) == ({1: b"hello"}, "Success")
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "asked",
    [{"version": "12"}, {"version": "x"}, {"key": ""}, {"key": "short"}, {"key": "not base64!!!!!!!!!!!!=="}],
    ids=str,
)
async def test_a_broken_handshake_is_refused(
    url: str,
    sockets: aiohttp.ClientSession,
    agent: Agent,
    asked: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with raw(url) as (reader, writer), asyncio.timeout(30):
        writer.write(handshake(url, **asked))
        assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"400"
    assert not [record for record in caplog.records if record.exc_info]
    assert not agent.cancelled.is_set()
    assert (await run(sockets, url, "fail 3"))[0] == {2: b"oh no"}


async def test_ephemeral_containers_are_refused_with_what_to_do_instead(api: Client, agent: Agent) -> None:
    path = PODS + "/p/ephemeralcontainers"
    assert (await api.send("GET", path)).status == 200
    change = {"spec": {"ephemeralContainers": [{"name": "d", "image": "busybox"}]}}
    status = await api.refused(
        501, "PATCH", path, change, content_type="application/strategic-merge-patch+json"
    )
    assert "kubectl debug p --copy-to=NAME" in status["message"]


async def test_exec_without_an_upgrade_is_refused(api: Client, agent: Agent) -> None:
    status = await api.refused(400, "GET", PODS + "/p/exec", command="x", stdout="1")
    assert "Upgrade request required" in status["message"]


# --- port-forward ---------------------------------------------------------------------------------------


class Tunnel:
    """The client's half of SPDY: in a WebSocket, or on a bare connection."""

    def __init__(self, send: Send, receive: Receive) -> None:
        self.send, self._receive = send, receive
        self._codec = spdy.HeaderCodec()
        self._frames = spdy.FrameReader()
        self._pending: list[spdy.Frame] = []

    @classmethod
    def within(cls, socket: aiohttp.ClientWebSocketResponse) -> Tunnel:
        return cls(socket.send_bytes, lambda: socket.receive_bytes(timeout=5))

    @classmethod
    @asynccontextmanager
    async def upgraded(cls, url: str, path: str, *protocols: str) -> AsyncIterator[Tunnel]:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        lines = [f"POST {path} HTTP/1.1", f"Host: {address.netloc}", f"Authorization: Bearer {TOKEN}"]
        lines += ["Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0"]
        lines += [f"X-Stream-Protocol-Version: {one}" for one in protocols]

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            await send("\r\n".join([*lines, "", ""]).encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert head.startswith("HTTP/1.1 101 "), head + (await reader.read(2000)).decode()
            assert f"X-Stream-Protocol-Version: {protocols[0]}" in head
            yield cls(send, lambda: asyncio.wait_for(reader.read(65536), 5))
        finally:
            writer.close()

    async def open(self, stream: int, kind: str, port: int = 0, *, last: bool = False) -> None:
        block = self._codec.encode({"streamtype": kind, "port": str(port), "requestid": "0"})
        payload = struct.pack(">IIH", stream, 0, 0) + block
        head = struct.pack(">HHI", 0x8003, 1, (1 if last else 0) << 24 | len(payload))
        await self.send(head + payload)

    async def data(self, stream: int) -> bytes:
        """Return everything a stream carries until its end."""
        result = b""
        while True:
            mine = [frame for frame in self._pending if frame.kind == 0 and frame.stream == stream]
            self._pending = [frame for frame in self._pending if frame.kind == 0 and frame.stream != stream]
            for frame in mine:
                result += frame.payload
                if frame.flags & 1:
                    return result
            received = await self._receive()
            assert received, "the server closed the connection"
            self._pending += self._frames.feed(received)


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_port_forward_carries_a_connection(
    url: str, sockets: aiohttp.ClientSession, agent: Agent, echo: int
) -> None:
    protocol = "SPDY/3.1+portforward.k8s.io"
    async with sockets.ws_connect(f"{url}{PODS}/p/portforward", protocols=(protocol,)) as socket:
        tunnel = Tunnel.within(socket)
        await tunnel.open(1, "error", echo, last=True)
        await tunnel.open(3, "data", echo)
        await tunnel.send(spdy.data_frame(3, b"a" * 100_000))
        await tunnel.send(spdy.data_frame(3, b"end", last=True))
        assert await tunnel.data(3) == b"A" * 100_000 + b"END"


async def test_port_forward_to_a_closed_port_says_so_on_the_error_stream(
    url: str, sockets: aiohttp.ClientSession, agent: Agent
) -> None:
    protocol = "SPDY/3.1+portforward.k8s.io"
    async with sockets.ws_connect(f"{url}{PODS}/p/portforward", protocols=(protocol,)) as socket:
        tunnel = Tunnel.within(socket)
        await tunnel.open(1, "error", 1, last=True)
        await tunnel.open(3, "data", 1)
        assert b"port 1" in await tunnel.data(1)


# --- without WebSockets ---------------------------------------------------------------------------------


async def test_exec_over_spdy_carries_input_output_and_the_exit_code(url: str, agent: Agent) -> None:
    path = f"{PODS}/p/exec?command=cat&stdin=1&stdout=1"
    async with Tunnel.upgraded(url, path, "v4.channel.k8s.io", "channel.k8s.io") as tunnel:
        for number, kind in enumerate(("error", "stdin", "stdout")):
            await tunnel.open(2 * number + 1, kind)
        await tunnel.send(spdy.data_frame(3, b"a" * 100_000))
        await tunnel.send(spdy.data_frame(3, b"end", last=True))
        assert await tunnel.data(5) == b"a" * 100_000 + b"end"
        assert msgspec.json.decode(await tunnel.data(1))["status"] == "Success"

    path = f"{PODS}/p/exec?command=fail&command=7&stdout=1&stderr=1"
    async with Tunnel.upgraded(url, path, "v4.channel.k8s.io") as tunnel:
        for number, kind in enumerate(("error", "stdout", "stderr")):
            await tunnel.open(2 * number + 1, kind)
        assert await tunnel.data(5) == b"oh no"
        status = msgspec.json.decode(await tunnel.data(1))
        assert (status["reason"], status["details"]["causes"][0]["message"]) == ("NonZeroExitCode", "7")


async def test_a_client_over_spdy_that_leaves_ends_its_command(url: str, agent: Agent) -> None:
    path = f"{PODS}/p/exec?command=forever&stdout=1"
    async with Tunnel.upgraded(url, path, "v4.channel.k8s.io") as tunnel:
        await tunnel.open(1, "error")
        await tunnel.open(3, "stdout")
    async with asyncio.timeout(5):
        await agent.cancelled.wait()


async def test_port_forward_over_spdy_carries_a_connection(url: str, agent: Agent, echo: int) -> None:
    async with Tunnel.upgraded(url, f"{PODS}/p/portforward", "portforward.k8s.io") as tunnel:
        await tunnel.open(1, "error", echo, last=True)
        await tunnel.open(3, "data", echo)
        await tunnel.send(spdy.data_frame(3, b"end", last=True))
        assert await tunnel.data(3) == b"END"


async def test_spdy_with_no_protocol_in_common_is_refused(api: Client, url: str, agent: Agent) -> None:
    with pytest.raises(AssertionError, match=r"client supports \[v1.channel\], server accepts \[v4.channel"):
        async with Tunnel.upgraded(url, f"{PODS}/p/exec?command=cat&stdout=1", "v1.channel"):
            pass
