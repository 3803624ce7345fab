"""A real S3 server and a TCP proxy that can be cut, for the tests here."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hack.build import versitygw
from hack.kubernetes.pki import Authority

__all__ = ["BUCKET", "Proxy", "S3Server", "proxy_to", "s3_server"]

BUCKET = "backups"
ROOT = {"accessKeyId": b"root", "secretAccessKey": b"root-secret-0123456789"}
OTHER = {"accessKeyId": b"other", "secretAccessKey": b"other-secret-0123456789"}


@dataclass(frozen=True)
class S3Server:
    """versitygw on a directory: a bucket is a directory in it. Root may do everything, `OTHER` nothing."""

    port: int
    data: Path
    ca: str = ""
    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict, repr=False)

    @property
    def endpoint(self) -> str:
        return f"http{'s' * bool(self.ca)}://127.0.0.1:{self.port}"

    def parts(self) -> list[Path]:
        """Parts of unfinished uploads on the server's disk."""
        found = (self.data / BUCKET / ".sgwtmp" / "multipart").rglob("*")
        return [path for path in found if path.is_file()]


@contextmanager
def s3_server(directory: Path, *, tls: bool = False) -> Iterator[S3Server]:
    """Start the server on a free port of loopback."""
    program = versitygw()
    (data := directory / "data").mkdir()
    (data / BUCKET).mkdir()
    (accounts := directory / "accounts").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options: list[str] = []
    ca = ""
    if tls:
        authority = Authority("objectstore test")
        authority.server("127.0.0.1", names=["localhost"], addresses=["127.0.0.1"]).write(directory, "server")
        ca = authority.pair.certificate.decode()
        options = ["--cert", str(directory / "server.crt"), "--key", str(directory / "server.key")]
    root = {"ACCESS": ROOT["accessKeyId"].decode(), "SECRET": ROOT["secretAccessKey"].decode()}
    env = {**os.environ, "ROOT_ACCESS_KEY": root["ACCESS"], "ROOT_SECRET_KEY": root["SECRET"]}
    arguments = ["--port", f"127.0.0.1:{port}", "--quiet", "--iam-dir", str(accounts), *options]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *arguments, "posix", data], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        server = S3Server(port=port, data=data, ca=ca, secrets={"root": ROOT, "other": OTHER})
        _until_it_listens(port, process, directory / "log")
        admin = {**os.environ, "ADMIN_ACCESS_KEY": root["ACCESS"], "ADMIN_SECRET_KEY": root["SECRET"]}
        account = ["--access", OTHER["accessKeyId"].decode(), "--secret", OTHER["secretAccessKey"].decode()]
        subprocess.run(
            [
                *(program, "admin", "--allow-insecure", "--endpoint-url", server.endpoint),
                *("create-user", *account, "--role", "user"),
            ],
            env=admin,
            check=True,
            capture_output=True,
            timeout=30,
        )
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)


def _until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"versitygw does not listen: {log.read_text()[-1000:]}")


class Proxy:
    """Passes TCP connections on, until it is told to cut them."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        #: Bytes sent to the server so far, and those sent to the client.
        self.up = 0
        self.down = 0
        #: Cut every connection once when this many bytes went to the server, or to the client.
        self.cut_up_at: int | None = None
        self.cut_down_at: int | None = None
        #: Accept no connection after the cut.
        self.for_good = False
        #: Hold back what the server answers.
        self.mute = False
        self.cuts = 0
        self.was_cut = asyncio.Event()

    def cut(self) -> None:
        """Reset all connections."""
        self.cuts += 1
        self.cut_up_at = self.cut_down_at = None
        for writer in self._writers:
            writer.transport.abort()
        self.was_cut.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.for_good and self.cuts:
            writer.transport.abort()
            return
        try:
            inner, outer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, outer}
        try:
            await asyncio.gather(
                self._pump(reader, outer, up=True),
                self._pump(inner, writer, up=False),
                return_exceptions=True,
            )
        finally:
            for one in (writer, outer):
                self._writers.discard(one)
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        while data := await reader.read(1 << 16):
            if up:
                self.up += len(data)
            else:
                self.down += len(data)
            due = (self.cut_up_at is not None and self.up >= self.cut_up_at) or (
                self.cut_down_at is not None and self.down >= self.cut_down_at
            )
            if due:
                self.cut()
                return
            if self.mute and not up:
                continue
            writer.write(data)
            await writer.drain()
        if not (self.mute and not up):
            writer.transport.abort()


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy before a port of loopback."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()
