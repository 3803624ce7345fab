"""A control plane for tests: the API server in memory, all controllers, and a kubelet that only pretends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from mooring.cache import rfc3339
from mooring.kube import Client, Key, NotFound
from mooring.kube.object import Object, decode, key_of
from mooring.kube.objects.core import Node, Pod
from mooring.kube.patches import MergePatch
from mooring.local.api import ApiServer
from mooring.local.controllers import register, register_for_nodes
from mooring.runtime import Controller, Done, Manager, Result

T = TypeVar("T", bound=Object)

DEADLINE = 30.0


class Bed:
    """The server's client, and waiting for what the controllers should bring about."""

    def __init__(self, client: Client, manager: Manager) -> None:
        self.client = client
        self.manager = manager

    async def create(self, kind: type[T], name: str, body: dict[str, Any] | None = None, **meta: Any) -> T:
        """Create an object from JSON, in ``default`` unless told otherwise."""
        if kind.resource.namespaced:
            meta.setdefault("namespace", "default")
        plain = {**(body or {}), "metadata": {"name": name, **meta}}
        return await self.client.create(decode(plain, kind))

    async def get(self, kind: type[T], name: str, namespace: str = "default") -> T:
        """Read an object live."""
        return await self.client.get(kind, name, namespace=namespace if kind.resource.namespaced else "")

    async def patch(self, kind: type[T], name: str, body: dict[str, Any], namespace: str = "default") -> T:
        """Merge-patch an object."""
        where = namespace if kind.resource.namespaced else ""
        return await self.client.patch(kind, name, MergePatch(body), namespace=where)

    async def list(self, kind: type[T], namespace: str = "default") -> list[T]:
        """List a kind live."""
        where = namespace if kind.resource.namespaced else ""
        return (await self.client.list(kind, namespace=where)).items

    async def eventually(self, condition: Callable[[], Awaitable[Any]], what: str = "") -> Any:
        """Wait until the condition gives something true; its last value or error is the failure's text."""
        last: Any = None
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    try:
                        last = await condition()
                        if last:
                            return last
                    except (NotFound, AssertionError) as error:
                        last = error
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(
                f"not within {DEADLINE} s: {what or 'the condition'}; last: {last!r}"
            ) from None

    async def gone(self, kind: type[T], name: str, namespace: str = "default") -> None:
        """Wait until an object does not exist."""

        async def absent() -> bool:
            try:
                await self.get(kind, name, namespace)
            except NotFound:
                return True
            return False

        await self.eventually(absent, f"{kind.resource.kind} {name} gone")

    async def quiet(self, seconds: float = 0.3) -> int:
        """Wait until nothing happens any more; returns the writes seen in a last, silent spell."""
        before = -1
        async with asyncio.timeout(DEADLINE):
            while before != (before := await self.version()) or not self.manager.idle:
                await self.manager.events.flush()
                await asyncio.sleep(0.1)
        await asyncio.sleep(seconds)
        return await self.version() - before

    async def version(self) -> int:
        """The server's revision: it grows with every write."""
        return int((await self.client.list(Pod)).resource_version)


class Kubelet:
    """Marks bound pods running and ready, and lets deleted ones go."""

    def __init__(self, manager: Manager) -> None:
        self._pods = manager.informers.of(Pod)
        self._client = manager.client
        self._clock = manager.clock
        self._addresses: dict[Key, str] = {}
        self.broken: Callable[[Pod], bool] = lambda pod: False
        self.frozen: set[str] = set()
        self.controller = Controller("kubelet", self.reconcile).watch(self._pods)

    async def reconcile(self, key: Key) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.spec is None or not pod.spec.node_name or key.name in self.frozen:
            return Done()
        if pod.metadata.deletion_timestamp:
            await self._client.delete(
                Pod, key.name, namespace=key.namespace, uid=pod.metadata.uid, grace_period=0
            )
            return Done()
        ready = str(not self.broken(pod))
        present = (
            {c.type: c.status for c in (pod.status.conditions or ()) if pod.status} if pod.status else {}
        )
        if present.get("Ready") == ready or (pod.status and pod.status.phase in ("Failed", "Succeeded")):
            return Done()
        address = self._addresses.setdefault(key, f"10.99.0.{len(self._addresses) + 1}")
        now = rfc3339(self._clock.now())
        conditions = [
            {"type": kind, "status": status, "lastTransitionTime": now}
            for kind, status in (("PodScheduled", "True"), ("Ready", ready), ("ContainersReady", ready))
        ]
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": conditions,
            "startTime": now,
        }
        body = MergePatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        await self._client.patch(Pod, key.name, body, namespace=key.namespace, subresource="status")
        return Done()


@asynccontextmanager
async def running(
    directory: Path, *, nodes: Iterable[str] = ("n1",), kubelet: bool = True, **options: Any
) -> AsyncIterator[tuple[Bed, Kubelet]]:
    """A bed with these nodes; everything is stopped at the end."""
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        for name in nodes:
            await make_node(client, name)
        async with controlled(server, directory, kubelet=kubelet, **options) as (bed, pretended):
            yield bed, pretended


@asynccontextmanager
async def controlled(
    server: ApiServer, directory: Path, *, kubelet: bool = True, beside: bool = False, **options: Any
) -> AsyncIterator[tuple[Bed, Kubelet]]:
    """Controllers for a server that runs already; ``beside``: only those that nodes of ours bring along."""
    manager = Manager(Client(server.transport(), field_manager="mooring"), name="controllers", grace=3.5)
    if beside:
        register_for_nodes(manager, volumes=directory / "volumes")
    else:
        register(manager, volumes=directory / "volumes", **{"authority": "---", **options})
    pretended = Kubelet(manager)
    if kubelet:
        manager.add(pretended.controller)
    task = asyncio.create_task(manager.run())
    try:
        async with asyncio.timeout(DEADLINE):
            leading = asyncio.create_task(manager.leading.wait())
            await asyncio.wait({leading, task}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        yield Bed(Client(server.transport(), field_manager="test"), manager), pretended
    finally:
        manager.stop()
        await task


async def make_node(client: Client, name: str, **spec: Any) -> Node:
    """A node that is there and has room."""
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    body = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
    }
    await client.create(decode(body, Node))
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return await client.patch(Node, name, MergePatch({"status": status}), subresource="status")


def keys(objects: Iterable[Object]) -> list[str]:
    """The names of objects, sorted."""
    return sorted(key_of(obj).name for obj in objects)
