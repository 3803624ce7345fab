"""Our scheduler, volumes and node agent on somebody else's API server.

A real control plane without nodes can run no pod. With these it can: the pods are processes of this machine,
and what the operators do is proved against the real kube-apiserver and kube-controller-manager.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from mooring.kube import Client, Config, HttpTransport, MergePatch, NotFound
from mooring.kube.object import key_of
from mooring.kube.objects.core import Node, PersistentVolume, Pod
from mooring.local.controllers import register_for_nodes
from mooring.local.controllers.volumes.matching import PROVISIONED_BY, PROVISIONER
from mooring.local.node.agent import NodeAgent
from mooring.local.node.images import Catalog
from mooring.local.node.node import Settings
from mooring.runtime import Manager

__all__ = ["Nodes"]

START_SECONDS = 60.0


class Nodes:
    """One node for the cluster of a kubeconfig.

    ``pods`` and ``services`` are address ranges; the second must be the API server's own. Claims get directories
    of this machine, from the class ``mooring-local``, which is the default one; binding them is left to the
    cluster's own controllers. Below ``directory`` everything of the node lies, so that one that is started again
    there has its volumes.
    """

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        *,
        settings: Settings,
        pods: IPv4Network,
        services: IPv4Network,
        catalog: Catalog | None = None,
    ) -> None:
        self._directory = directory
        self._transport = HttpTransport(Config.load(kubeconfig))
        self._name = "mooring-node"
        self.manager = Manager(self.client("mooring"), name="mooring-nodes")
        register_for_nodes(self.manager, volumes=directory / "volumes")
        self.agent = NodeAgent(
            self.manager,
            data_dir=directory / "node",
            names=(self._name,),
            pod_cidr=pods,
            service_cidr=services,
            dns_address=services[10],
            catalog=catalog,
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
        """End the pods, as when the machine is switched off: objects and data stay."""
        try:
            await self._halt()
        finally:
            await self._transport.close()

    async def remove(self) -> None:
        """End the pods, and remove the node with its pods and volumes from the API, and all files."""
        try:
            await self._halt()
            await self._forget()
        finally:
            await self._transport.close()
            for part in ("node", "volumes"):
                await asyncio.to_thread(shutil.rmtree, self._directory / part, ignore_errors=True)

    async def _halt(self) -> None:
        await self.agent.stop()
        self.manager.stop()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def _forget(self) -> None:
        client = self.client("mooring")
        for pod in (await client.list(Pod, field_selector=f"spec.nodeName={self._name}")).items:
            key = key_of(pod)
            with suppress(NotFound):
                await client.delete(Pod, key.name, namespace=key.namespace, grace_period=0)
        for volume in (await client.list(PersistentVolume)).items:
            if (volume.metadata.annotations or {}).get(PROVISIONED_BY) == PROVISIONER:
                name = volume.metadata.name or ""
                with suppress(NotFound):
                    await client.delete(PersistentVolume, name)
                    await client.patch(PersistentVolume, name, MergePatch({"metadata": {"finalizers": None}}))
        with suppress(NotFound):
            await client.delete(Node, self._name)
