"""The same requests to the embedded API server and to a real one: the same answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.comparing import Server, Step, run
from tests.conformance.scenarios import SCENARIOS

from mooring.kube import Config
from mooring.local.api import ApiServer, User
from mooring.local.api.tls import ensure_certificates

pytestmark = pytest.mark.kubernetes

_TOKEN = "conformance"
_ADMIN = User("admin", groups=("system:masters", "system:authenticated"))
_numbers = itertools.count()


class Embedded(threading.Thread):
    """An embedded server with a loop of its own, since the requests are sent by blocking clients."""

    def __init__(self, directory: Path) -> None:
        super().__init__(name="embedded-api")
        self._certificates = ensure_certificates(directory, ["127.0.0.1"])
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._port = self._socket.getsockname()[1]
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def run(self) -> None:
        """Serve until stopped."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with ApiServer.in_memory(tokens={_TOKEN: _ADMIN}) as server:
            await server.serve(self._socket, self._certificates.server_context())
            self._ready.set()
            await self._stop.wait()

    def client(self) -> Server:
        """Return a client of the started server."""
        assert self._ready.wait(10)
        context = ssl.create_default_context(cafile=str(self._certificates.authority))
        return Server(f"https://127.0.0.1:{self._port}", context, _TOKEN)

    def stop(self) -> None:
        """End the server and its thread."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self.join(10)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    thread = Embedded(tmp_path_factory.mktemp("pki"))
    thread.start()
    try:
        yield thread.client()
    finally:
        thread.stop()


@pytest.fixture(scope="module")
def real(real_kubernetes: Path) -> Server:
    config = Config.load(real_kubernetes)
    context = config.ssl_context()
    assert context is not None
    return Server(config.server, context)


@pytest.fixture
def namespace(embedded: Server, real: Server) -> Iterator[str]:
    """A namespace on both servers, with its default account: pods are refused without."""
    name = f"c{os.getpid()}x{next(_numbers)}x"
    for server in (embedded, real):
        server.send(Step("POST", ""), "/api/v1/namespaces", {"metadata": {"name": name}})
    deadline = time.monotonic() + 20
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    while real.send(Step("GET", ""), account, None).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield name
    for server in (embedded, real):
        server.send(Step("DELETE", ""), f"/api/v1/namespaces/{name}", None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_are_those_of_a_real_server(
    name: str, embedded: Server, real: Server, namespace: str
) -> None:
    steps = SCENARIOS[name]
    ours, theirs = run(embedded, steps, namespace), run(real, steps, namespace)
    for step, our, their in zip(steps, ours, theirs, strict=True):
        about = f"{step.method} {step.path} {json.dumps(step.body)}"
        assert our == their, about
