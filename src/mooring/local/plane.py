"""The embedded control plane, put together: API server, controllers and node agent in one process.

Start: storage, API (in process only), controllers and node agent, the network, then the public socket. Stop
is the reverse, with the pods ended while the API still records it. What is acknowledged is on disk, so
killing the process at any moment loses nothing; the next start removes what such a death leaves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from mooring.kube import Client, NotFound
from mooring.kube.objects.core import ServiceAccount
from mooring.local import controllers
from mooring.local.api.audit import AuditLog, Policy
from mooring.local.api.http import User
from mooring.local.api.server import ApiServer
from mooring.local.api.tls import ensure_certificates
from mooring.local.directory import DataDirectory
from mooring.local.metering import publish_reader
from mooring.local.node import agent as node_agent
from mooring.local.node.images import Catalog
from mooring.local.node.imagestore import ImageStore
from mooring.local.node.node import Settings
from mooring.local.node.packages import PackageImages
from mooring.local.node.usage import Meter
from mooring.local.publishing import ApiPublisher
from mooring.local.ranges import Ranges
from mooring.runtime import Manager

__all__ = ["Plane", "PlaneOptions", "listen"]

log = structlog.get_logger("mooring.plane")

ADMIN = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))
#: Seconds for controllers and node to come up.
START_SECONDS = 60.0
#: Port on the node's own address where pods reach the API.
INTERNAL_PORT = 6443


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneOptions:
    """How to run a plane. ``zones`` are those of the nodes, in turn.

    ``nodes``: their names (default: one, named as the machine). An empty tuple: no nodes, pods stay Pending, and the
    plane needs neither root nor namespaces. ``controllers``: whether those of Kubernetes run (default); without them
    there are no nodes either. ``audit``: the policy by which requests are logged to ``audit.jsonl`` in the data
    directory (default: no log).
    """

    directory: DataDirectory
    nodes: tuple[str, ...] | None = None
    controllers: bool = True
    zones: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ("127.0.0.1",)
    catalog: Catalog | None = None
    settings: Settings = field(default_factory=Settings)
    audit: Policy | None = None


class Plane:
    """One running control plane."""

    def __init__(self, options: PlaneOptions) -> None:
        self._options = options
        self.directory = options.directory
        self.ranges, self._claim = Ranges.of(options.directory)
        names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            str(self.ranges.api),
            str(self.ranges.pods[1]),
            *options.addresses,
        ]
        self.certificates = ensure_certificates(self.directory.certificates, names)
        self.server = ApiServer.open(
            self.directory.database,
            tokens={self.directory.token(): ADMIN},
            service_account_key=self.directory.service_account_key(),
            service_range=str(self.ranges.services),
        )
        if options.audit is not None:
            self.server.audit = AuditLog(self.directory.audit, options.audit, now=self.server.cluster.now)
        self.manager = Manager(
            Client(self.server.transport(), field_manager="mooring"), name="mooring-controllers"
        )
        if options.controllers:
            controllers.register(
                self.manager,
                volumes=self.directory.volumes,
                authority=self.certificates.authority.read_text(),
                authority_key=self.certificates.authority_key,
            )
        self._publisher = ApiPublisher(
            client=self.client("mooring-apiserver"),
            service=self.ranges.api,
            address=self.ranges.pods[1],
            port=INTERNAL_PORT,
        )
        self.manager.add(self._publisher.controller(self.manager.informers))
        self._agent = self._make_agent() if options.controllers and options.nodes != () else None
        self.server.serve_metrics(self._agent.meter if self._agent else Meter())
        self._running: asyncio.Task[None] | None = None
        self._node_started = False

    @property
    def agent(self) -> node_agent.NodeAgent:
        """The agent of its nodes; raises :class:`LookupError` if it has none."""
        if self._agent is None:
            raise LookupError("this control plane has no nodes")
        return self._agent

    def _make_agent(self) -> node_agent.NodeAgent:
        options = self._options
        agent = node_agent.NodeAgent(
            self.manager,
            data_dir=self.directory.path / "node",
            names=options.nodes or (),
            zones=options.zones,
            pod_cidr=self.ranges.pods,
            service_cidr=self.ranges.services,
            dns_address=self.ranges.dns,
            catalog=replace(
                options.catalog or Catalog(),
                store=ImageStore(self.directory.images),
                packages=PackageImages(),
            ),
            settings=options.settings,
        )
        self.server.gateway = agent.gateway
        return agent

    def client(self, field_manager: str) -> Client:
        """An administrator's client within this process."""
        return Client(self.server.transport(), field_manager=field_manager)

    async def start(self, *listening: socket.socket) -> None:
        """Start all parts, then serve on the given sockets; raises what a part failed with."""
        await self.server.start()
        if self._agent is not None:
            await self._agent.start()
            self._node_started = True
        await self._publisher.publish()
        await publish_reader(self.client("mooring-apiserver"))
        self._running = asyncio.create_task(self.manager.run(), name="controllers")
        leading = asyncio.create_task(self.manager.leading.wait())
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.wait({leading, self._running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leading.cancel()
        if self._running.done():
            self._running.result()
        if self._options.controllers:
            await self._account_made()
        context = self.certificates.server_context()
        for sock in (*self._internal_sockets(listening), *listening):
            await self.server.serve(sock, context)

    async def wait(self) -> None:
        """Wait until a part fails (then raises) or all have ended."""
        if self._running is not None:
            # Not awaited itself: a cancelled wait must not cancel the controllers, the pods end under them.
            await asyncio.wait({self._running})
            self._running.result()

    async def stop(self) -> None:
        """End the pods gracefully, then everything else; data and objects stay."""
        if self._node_started:
            # Also when another part has failed: its interfaces and rules must not stay behind.
            await self.agent.stop()
            self._node_started = False
        self.manager.stop()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        await self.server.close()
        if self._claim is not None:
            self._claim.close()

    async def _account_made(self) -> None:
        """Wait until the first namespace has its account: pods are given their token from then on."""
        client = self.client("mooring")
        async with asyncio.timeout(START_SECONDS):
            while True:
                with suppress(NotFound):
                    await client.get(ServiceAccount, "default", namespace="default")
                    return
                await asyncio.sleep(0.005)

    def _internal_sockets(self, listening: Sequence[socket.socket]) -> list[socket.socket]:
        """Where pods reach the API, unless a listener on all addresses is that already or there are no pods."""
        if self._agent is None:
            return []
        taken = {sock.getsockname()[:2] for sock in listening}
        if taken & {("0.0.0.0", INTERNAL_PORT), ("::", INTERNAL_PORT)}:  # noqa: S104
            return []
        return [listen(f"{self.ranges.pods[1]}:{INTERNAL_PORT}")]


def listen(address: str) -> socket.socket:
    """Bind ``HOST:PORT``; raises :class:`OSError` naming the address and the remedy."""
    host, _, port = address.rpartition(":")
    if not (port.isdigit() and int(port) < 65536) or (":" in host and not host.startswith("[")):
        raise ValueError(f"--listen {address!r}: expected ADDRESS:PORT")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]") or "127.0.0.1", int(port)))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise OSError(
            f"cannot listen on {address}: {error.strerror}; choose another with --listen"
        ) from error
    return sock
