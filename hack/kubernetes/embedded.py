"""The embedded control plane without nodes, as a program: what the real one of controlplane.py is compared with.

    python -m hack.kubernetes.embedded DIRECTORY

Serves on a free port of loopback until its input ends, and writes DIRECTORY/kubeconfig when it is ready.
The API server keeps its objects in memory; all controllers run, and there is no node agent.
`plane_with_nodes` is the whole of it, as a user starts it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType

from hack.kubernetes.rundir import StartError

from mooring.kube import Client
from mooring.local import controllers
from mooring.local.api import ApiServer, User
from mooring.local.api.tls import ensure_certificates
from mooring.local.publishing import ApiPublisher
from mooring.runtime import Manager

__all__ = ["EmbeddedPlane", "plane_with_nodes"]

_ROOT = Path(__file__).resolve().parents[2]
_TOKEN = "specs"
_ADMIN = User("admin", groups=("system:masters", "system:authenticated"))
#: The first address of the range of Services, and where pods would find the server, were there any.
_SERVICE = IPv4Address("10.96.0.1")
_ADVERTISED = IPv4Address("192.0.2.1")
_START_SECONDS = 60.0


class EmbeddedPlane:
    """The program in a process of its own, which ends with this one; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="mooring-embedded-")
        self.directory = Path(self._directory.name)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    def __enter__(self) -> EmbeddedPlane:
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hack.kubernetes.embedded", str(self.directory)],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait(self._process)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._directory.cleanup()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self.kubeconfig.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                words = (self.directory / "log").read_text(errors="replace")[-2000:]
                raise StartError(f"the embedded control plane did not start:\n{words}")
            time.sleep(0.05)


@contextlib.contextmanager
def plane_with_nodes(images: Sequence[Path], *, nodes: int = 2) -> Iterator[Path]:
    """`mooring up` with these images loaded and without operators; gives the administrator's kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="mooring-nodes-") as place:
        directory = Path(place) / "plane"
        _mooring(directory, "image", "load", *map(str, images))
        try:
            _mooring(
                directory,
                *("up", "--detach", "--listen", "127.0.0.1:0", "--nodes", str(nodes)),
                *("--operators", "none", "--log-level", "warning"),
            )
            yield directory / "kubeconfig"
        finally:
            _mooring(directory, "down")


def _mooring(directory: Path, *words: str) -> None:
    """Run one command of Mooring's on a data directory."""
    environment = {**os.environ, "MOORING_ROOT": str(_ROOT), "PYTHONPATH": str(_ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "mooring", *words, "--data-dir", str(directory)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StartError(f"mooring {words[0]} failed:\n{done.stdout[-2000:]}")


async def _serve(directory: Path) -> None:
    """Serve until the input ends."""
    certificates = ensure_certificates(directory / "pki", ["127.0.0.1"])
    async with ApiServer.in_memory(tokens={_TOKEN: _ADMIN}) as server:
        client = Client(server.transport(), field_manager="mooring-apiserver")
        publisher = ApiPublisher(client=client, service=_SERVICE, address=_ADVERTISED, port=6443)
        await publisher.publish()
        manager = Manager(Client(server.transport(), field_manager="mooring"), name="mooring-controllers")
        controllers.register(
            manager,
            volumes=directory / "volumes",
            authority=certificates.authority.read_text(),
            authority_key=certificates.authority_key,
        )
        manager.add(publisher.controller(manager.informers))
        running = asyncio.create_task(manager.run())
        leading = asyncio.create_task(manager.leading.wait())
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.buffer.read))
        await asyncio.wait({running, leading}, return_when=asyncio.FIRST_COMPLETED)
        sock = socket.create_server(("127.0.0.1", 0))
        await server.serve(sock, certificates.server_context())
        _write_kubeconfig(directory, sock.getsockname()[1], certificates.authority)
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        manager.stop()
        await running


def _write_kubeconfig(directory: Path, port: int, authority: Path) -> None:
    """Write the file whole: that it is there says that the server is ready."""
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode(),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "embedded", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "admin"}}],
        "current-context": "embedded",
    }
    unfinished = directory / ".kubeconfig"
    unfinished.write_text(json.dumps(document))
    unfinished.rename(directory / "kubeconfig")


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
