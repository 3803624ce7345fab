"""The HTTP transport against a small server: what is sent again, and which credentials are in force."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from multidict import CIMultiDict

from mooring.kube import Config, ConfigError, HttpTransport, KubeError, TransportError


class Server:
    """Answers 200 to whom it knows, and can hang up instead."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.groups: list[list[str]] = []
        self.hang_up = 0
        self.token = ""
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request.method)
        self.groups.append(request.headers.getall("Impersonate-Group", []))
        if self.hang_up:
            self.hang_up -= 1
            assert request.transport is not None
            request.transport.close()
        known = not self.token or request.headers.get("Authorization") == f"Bearer {self.token}"
        return web.json_response({}, status=200 if known else 401)

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            self.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as server:
        yield server


async def test_a_read_on_a_connection_the_server_closed_is_sent_again_and_a_write_is_not(
    server: Server,
) -> None:
    transport = HttpTransport(Config(server.url))
    server.hang_up = 1
    assert (await transport.request("GET", "/x")).status == 200
    assert server.requests == ["GET", "GET"]
    for method in ("POST", "PATCH", "DELETE"):
        server.requests.clear()
        server.hang_up = 1
        with pytest.raises(TransportError):
            await transport.request(method, "/x")
        assert server.requests == [method], "nobody knows whether it was carried out"
    await transport.close()


async def test_a_header_that_is_given_several_times_is_sent_several_times(server: Server) -> None:
    transport = HttpTransport(Config(server.url))
    headers = CIMultiDict([("Impersonate-Group", "a"), ("Impersonate-Group", "b"), ("Accept", "text/plain")])
    await transport.request("GET", "/x", headers=headers)
    async with transport.stream("GET", "/x", headers=headers):
        pass
    assert server.groups == [["a", "b"], ["a", "b"]]
    await transport.close()


async def test_a_rotated_token_is_read_again_after_a_minute_or_a_refusal(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("mooring.kube.config.time.monotonic", lambda: now[0])
    file = tmp_path / "token"
    file.write_text("one\n")
    server.token = "one"
    transport = HttpTransport(Config(server.url, token_file=file))

    async def status() -> int:
        return (await transport.request("GET", "/x")).status

    assert await status() == 200
    server.token = "two"
    file.write_text("two\n")
    assert [await status(), await status()] == [401, 200]
    file.write_text("three\n")
    assert await status() == 200, "the old one is still trusted for a minute"
    server.token = "three"
    now[0] += 61
    assert await status() == 200
    await transport.close()


class Authority:
    """A certificate authority and a server certificate for 127.0.0.1 that it has signed."""

    def __init__(self, directory: Path, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        ca = (
            self._builder(subject, subject, key)
            .add_extension(basic, critical=True)
            .sign(key, hashes.SHA256())
        )
        self.pem = ca.public_bytes(serialization.Encoding.PEM)
        server_key = ec.generate_private_key(ec.SECP256R1())
        server_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
        names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        certificate = (
            self._builder(server_name, subject, server_key)
            .add_extension(names, critical=False)
            .sign(key, hashes.SHA256())
        )
        self.chain = directory / f"{name}.pem"
        self.chain.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + server_key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    @staticmethod
    def _builder(
        subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
        )


async def test_a_rotated_authority_is_read_again_after_a_server_it_does_not_know(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    file = tmp_path / "ca.crt"
    file.write_bytes(old.pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(old.chain)
    async with Server().running(tls) as server:
        transport = HttpTransport(Config(server.url, ca_file=file))

        async def trusted() -> str:
            await transport.close()  # so that the next request opens a connection of its own
            try:
                await transport.request("POST", "/x")
            except KubeError as error:
                return type(error).__name__
            return "yes"

        assert await trusted() == "yes"
        tls.load_cert_chain(new.chain)
        assert await trusted() == "TransportError"
        file.write_bytes(b"half a certificate")
        assert await trusted() == "TransportError", "the old authority stays in force"
        file.write_bytes(new.pem)
        assert await trusted() == "yes"
        await transport.close()


async def test_an_authority_that_was_never_readable_is_named(tmp_path: Path) -> None:
    transport = HttpTransport(Config("https://127.0.0.1:1", ca_file=tmp_path / "none.crt"))
    with pytest.raises(ConfigError, match=r"none\.crt"):
        await transport.request("GET", "/x")
    await transport.close()


def test_the_host_of_the_server_is_known_for_metrics() -> None:
    assert HttpTransport(Config("https://[::1]:6443/prefix")).host == "[::1]:6443"


async def test_a_stream_that_is_left_ends_its_connection_without_waiting_for_the_server(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "one")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.chain)

    def hung_up(listening: socket.socket) -> bool:
        """Serve the start of a stream, then read nothing more: does the client end the connection?"""
        plain, _ = listening.accept()
        with tls.wrap_socket(plain, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
            ended = select.poll()
            ended.register(connection, select.POLLRDHUP)
            return bool(ended.poll(10_000))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = asyncio.create_task(asyncio.to_thread(hung_up, listening))
        transport = HttpTransport(Config(f"https://127.0.0.1:{port}", ca_data=authority.pem))
        async with transport.stream("GET", "/x") as stream:
            assert await anext(aiter(stream)) == b"{}"
        assert await server
        await transport.close()
