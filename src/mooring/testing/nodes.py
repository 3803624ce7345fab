"""Our scheduler and node agent on somebody else's API server.

A real control plane without nodes can run no pod. With these it can: the pods are processes of this machine,
and what the operators do is proved against the real kube-apiserver and kube-controller-manager.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from mooring.kube import Client, Config, HttpTransport, NotFound
from mooring.kube.objects.core import Node, Pod
from mooring.local.controllers import register_scheduler
from mooring.local.node.agent import NodeAgent
from mooring.local.node.node import Settings
from mooring.runtime import Manager

__all__ = ["Nodes"]

START_SECONDS = 60.0


class Nodes:
    """One node for the cluster of a kubeconfig.

    ``pods`` and ``services`` are address ranges; the second must be the API server's own.
    """

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        *,
        settings: Settings,
        pods: IPv4Network,
        services: IPv4Network,
    ) -> None:
        self._directory = directory
        self._transport = HttpTransport(Config.load(kubeconfig))
        self._name = "mooring-node"
        self.manager = Manager(self.client("mooring"), name="mooring-nodes")
        register_scheduler(self.manager)
        self.agent = NodeAgent(
            self.manager,
            data_dir=directory / "node",
            names=(self._name,),
            pod_cidr=pods,
            service_cidr=services,
            dns_address=services[10],
            settings=settings,
        )
        self._running: asyncio.Task[None] | None = None

    def client(self, field_manager: str) -> Client:
        """An administrator's client."""
        return Client(self._transport, field_manager=field_manager)

    async def start(self) -> None:
        """Register the node and begin to schedule and run pods."""
        await self.agent.start()
        self._running = asyncio.create_task(self.manager.run(), name="nodes")
        leading = asyncio.create_task(self.manager.leading.wait())
        async with asyncio.timeout(START_SECONDS):
            await asyncio.wait({leading, self._running}, return_when=asyncio.FIRST_COMPLETED)
        leading.cancel()
        if self._running.done():
            self._running.result()

    async def stop(self) -> None:
        """End the pods, remove the node and its pods from the API, and all files."""
        client = self.client("mooring")
        try:
            await self.agent.stop()
            self.manager.stop()
            if self._running is not None:
                await asyncio.gather(self._running, return_exceptions=True)
            for pod in (await client.list(Pod, field_selector=f"spec.nodeName={self._name}")).items:
                await client.delete(
                    Pod, pod.metadata.name or "", namespace=pod.metadata.namespace or "", grace_period=0
                )
            with suppress(NotFound):
                await client.delete(Node, self._name)
        finally:
            await self._transport.close()
            await asyncio.to_thread(shutil.rmtree, self._directory / "node", ignore_errors=True)
