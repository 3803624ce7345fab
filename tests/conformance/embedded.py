"""An embedded API server with a loop of its own, for clients that block or are programs."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import threading
from pathlib import Path

from tests.conformance.comparing import Server

from mooring.local.api import ApiServer, User
from mooring.local.api.tls import ensure_certificates

__all__ = ["Embedded"]

_TOKEN = "conformance"
_ADMIN = User("admin", groups=("system:masters", "system:authenticated"))


class Embedded(threading.Thread):
    """An embedded server with a loop of its own, since the requests are sent by blocking clients."""

    def __init__(self, directory: Path) -> None:
        super().__init__(name="embedded-api", daemon=True)
        self._certificates = ensure_certificates(directory, ["127.0.0.1"])
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._port = self._socket.getsockname()[1]
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    def run(self) -> None:
        """Serve until stopped."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with ApiServer.in_memory(tokens={_TOKEN: _ADMIN}) as server:
            await server.serve(self._socket, self._certificates.server_context())
            self._ready.set()
            await self._ended.wait()

    def client(self) -> Server:
        """Return a client of the started server."""
        assert self._ready.wait(10)
        context = ssl.create_default_context(cafile=str(self._certificates.authority))
        return Server(f"https://127.0.0.1:{self._port}", context, _TOKEN)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for programs."""
        assert self._ready.wait(10)
        authority = base64.b64encode(self._certificates.authority.read_bytes()).decode()
        server = f"https://127.0.0.1:{self._port}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "u", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(document))

    def stop(self) -> None:
        """End the server and its thread."""
        if self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
        self.join(10)
