"""The operator on a whole control plane in memory, in virtual time, with the modelled processes of bench/matrixone_model.py."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.matrixone_model import InMemory, World, newest
from bench.matrixone_workloads import CLUSTER, IMAGE, LOG, S3

from mooring.cache import InformerSet
from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.object import Object, decode
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.actor import register
from mooring.operators.matrixone.types import MatrixOneCluster
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane

__all__ = ["CLUSTER", "IMAGE", "LOG", "S3", "Life", "living"]

K = TypeVar("K", bound=Object)


@dataclass
class Life:
    """A control plane with the operator on it, and the processes in its pods."""

    plane: ControlPlane
    namespace: str = "default"

    @property
    def client(self) -> Client:
        """A user's client."""
        return self.plane.client

    @property
    def world(self) -> World:
        """The processes."""
        return newest()

    async def make(self, kind: type[K], name: str, spec: Mapping[str, Any], **more: Any) -> K:
        """Declare an object."""
        metadata = {"name": name, "namespace": self.namespace}
        return await self.client.create(decode({"metadata": metadata, "spec": spec, **more}, kind))

    async def edit(self, kind: type[Object], name: str, spec: Mapping[str, Any]) -> None:
        """Change a declaration."""
        await self.client.patch(kind, name, MergePatch({"spec": spec}), namespace=self.namespace)

    async def get(self, kind: type[K], name: str) -> K:
        """An object as it is now."""
        return await self.client.get(kind, name, namespace=self.namespace)

    async def names(self, kind: type[Object]) -> list[str]:
        """The names of all objects of a kind, in order."""
        found = (await self.client.list(kind, namespace=self.namespace)).items
        return sorted(one.metadata.name or "" for one in found)

    async def there(self, kind: type[Object], name: str) -> bool:
        """Whether an object exists."""
        try:
            await self.get(kind, name)
        except NotFound:
            return False
        return True

    async def until(self, check: Callable[[], Any], what: str, *, within: float = 600.0) -> float:
        """Wait until ``check`` gives something true; returns the virtual seconds that it took."""
        began = self.plane.clock.monotonic()
        while not await check():
            assert self.plane.clock.monotonic() - began < within, f"not within {within:.0f} s: {what}"
            await asyncio.sleep(0.25)
        return self.plane.clock.monotonic() - began

    async def ready(self, name: str = "mo") -> None:
        """Wait until a MatrixOneCluster serves and all its pods are as declared."""

        async def check() -> bool:
            found = await self.get(MatrixOneCluster, name)
            seen = (found.status.conditions if found.status is not None else None) or ()
            true = {
                one.type
                for one in seen
                if one.status == "True" and one.observed_generation == found.metadata.generation
            }
            return {"Ready", "Synced"} <= true

        await self.until(check, f"{name} is ready and as declared")


@asynccontextmanager
async def living(model: Callable[[ControlPlane], World] = World) -> AsyncIterator[Life]:
    """The operator at work, from entering to leaving the context."""
    async with ControlPlane(model=model, endpoints=False) as plane:
        await plane.define(*OPERATOR.kinds)
        client = Client(plane.transport("operator"), field_manager="mooring")
        informers = InformerSet(client, plane.clock, silence=math.inf)
        manager = Manager(client, name="matrixone", clock=plane.clock, informers=informers, grace=0.0)
        register(manager, dial=InMemory())
        task = asyncio.create_task(manager.run())
        try:
            yield Life(plane)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await informers.stop()
