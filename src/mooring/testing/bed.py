"""A whole control plane with operators inside a test: real API, real controllers, real processes.

    async with Bed(tmp_path) as bed:
        await bed.apply(manifest)
        await bed.until(lambda: bed.is_healthy("demo"))
        bed.kill("default", "redis-cluster-demo-0", "redis")

Needs root, or a process started again by :mod:`mooring.local.node.rootless`. Nothing is left behind, also
when the test fails. ``operators`` may be stopped and started apart from the plane. ``metrics_port`` is where they serve
their metrics on loopback (default: nowhere).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
import yaml

from mooring.kube import ApplyPatch, Client, NotFound, Object
from mooring.kube.objects.core import Pod
from mooring.local.directory import DataDirectory
from mooring.local.node.images import Catalog
from mooring.local.node.node import Settings
from mooring.local.plane import Plane, PlaneOptions
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.registry import Operator, choose
from mooring.testing.cluster import Cluster
from mooring.testing.errors import NotInTime
from mooring.testing.nodes import Nodes

__all__ = ["QUICK", "Bed", "ClusterBed", "KubernetesBed", "NotInTime"]

T = TypeVar("T", bound=Object)
P = TypeVar("P", Plane, Nodes, Cluster)

#: Restart backoff of the bed's node: short, so that rounds of faults do not wait for it.
QUICK = Settings(crash_backoff_initial=0.5, crash_backoff_cap=2.0, stop_grace_cap=5.0)


class _Bed(ABC, Generic[P]):
    """Operators in this process, on something that runs pods; see the subclasses."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: Sequence[str] = ("node-1",),
        zones: Sequence[str] = (),
        operators: Sequence[Operator] | None = None,
        settings: Settings = QUICK,
        catalog: Catalog | None = None,
        scope: str = "all",
        metrics_port: int | None = None,
    ) -> None:
        self._directory = DataDirectory(directory)
        self._options = PlaneOptions(
            directory=self._directory,
            nodes=tuple(nodes),
            zones=tuple(zones),
            settings=settings,
            catalog=catalog,
        )
        self._operators = list(choose("*") if operators is None else operators)
        self._scope = scope
        self._metrics_port = metrics_port
        self._task: asyncio.Task[None] | None = None
        self.plane: P
        self.client: Client

    async def __aenter__(self) -> Self:
        self._directory.make()
        await self.start_plane()
        await self.start_operators()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop_operators()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """End for good."""
        await self.plane.stop()

    async def start_plane(self) -> None:
        """Start the control plane; at first by entering the context, later after :meth:`stop_plane`."""
        self.plane = self._make_plane()
        try:
            await self.plane.start()
        except BaseException:
            await self.plane.stop()
            raise
        self.client = self.plane.client("test")

    @abstractmethod
    def _make_plane(self) -> P: ...

    async def stop_plane(self) -> None:
        """Stop the control plane gracefully; its data stays."""
        await self.plane.stop()

    async def start_operators(self) -> None:
        """Apply the definitions and start the operators."""
        client = self.plane.client("mooring")
        await apply_crds(client, self._operators)
        how = Operate(
            operators=self._operators, scope=self._scope, elect=False, metrics_port=self._metrics_port
        )
        self._task = asyncio.create_task(operate(client, how), name="operators")

    async def stop_operators(self) -> None:
        """Stop the operators; raises what they failed with."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(result, Exception):
            raise result

    # --- objects

    async def apply(self, manifest: str | Path | dict[str, Any]) -> None:
        """Server-side apply every document of a manifest, strictly, as kubectl does."""
        if isinstance(manifest, dict):
            documents = [manifest]
        else:
            text = await asyncio.to_thread(manifest.read_text) if isinstance(manifest, Path) else manifest
            documents = [document for document in yaml.safe_load_all(text) if document]
        for document in documents:
            path = await self._path(document)
            await self.client.request(
                "PATCH",
                path,
                query={"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"},
                body=ApplyPatch(document).encode(),
                content_type=ApplyPatch.content_type,
            )

    async def _path(self, document: dict[str, Any]) -> str:
        group, _, version = document["apiVersion"].rpartition("/")
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        resources: list[dict[str, Any]] = []

        async def served() -> bool:
            # A real server lists a new group a moment after it serves the kind.
            with suppress(NotFound):
                resources[:] = msgspec.json.decode((await self.client.request("GET", base)).body)["resources"]
            return any(one["kind"] == document["kind"] for one in resources)

        await self.until(served, f"{document['kind']} of {document['apiVersion']} is served", within=10)
        resource = next(one for one in resources if one["kind"] == document["kind"])
        meta = document["metadata"]
        place = f"/namespaces/{meta.get('namespace', 'default')}" if resource["namespaced"] else ""
        return f"{base}{place}/{resource['name']}/{meta['name']}"

    async def get(self, kind: type[T], name: str, namespace: str = "default") -> T:
        """Read one object."""
        return await self.client.get(kind, name, namespace=namespace if kind.resource.namespaced else "")

    # --- waiting

    async def until(
        self, check: Callable[[], Awaitable[object]], what: str, *, within: float = 30.0, every: float = 0.02
    ) -> float:
        """Wait until ``check`` gives something true; returns the seconds it took, raises :class:`NotInTime`."""
        began = time.monotonic()
        last: object = None
        while time.monotonic() - began < within:
            if self._task is not None and self._task.done():
                self._task.result()
            last = await check()
            if last:
                return time.monotonic() - began
            await asyncio.sleep(every)
        raise NotInTime(f"waited {within:.0f} s in vain for: {what} (last: {last!r})")

    # --- faults

    def kill(self, namespace: str, pod: str, container: str, number: int = signal.SIGKILL) -> int:
        """Signal a container's program; returns its pid."""
        pid = self.plane.agent.program_pid(namespace, pod, container)
        os.kill(pid, number)
        return pid

    def kill_empty(self, namespace: str, pod: str, container: str) -> int:
        """Kill a program such that it finds an empty /data when it restarts, however fast; returns its pid."""
        pid = self.kill(namespace, pod, container, signal.SIGSTOP)
        try:
            for entry in list(Path(f"/proc/{pid}/root/data").iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
        finally:
            os.kill(pid, signal.SIGKILL)
        return pid

    async def restarted(
        self, namespace: str, programs: Mapping[tuple[str, str], int], *, within: float = 20.0
    ) -> None:
        """Wait until these programs (pid before, by pod and container) run anew."""

        async def anew() -> bool:
            for (pod, container), before in programs.items():
                try:
                    if self.plane.agent.program_pid(namespace, pod, container) == before:
                        return False
                except LookupError:
                    return False
            return True

        await self.until(anew, f"{', '.join(pod for pod, _ in programs)} restarted", within=within)

    async def pods(self, namespace: str = "default", selector: str = "") -> list[Pod]:
        """The pods of a namespace."""
        return (await self.client.list(Pod, namespace=namespace, label_selector=selector)).items


class Bed(_Bed[Plane]):
    """One embedded control plane and its operators in this process."""

    def _make_plane(self) -> Plane:
        return Plane(self._options)


class KubernetesBed(_Bed[Nodes]):
    """The same bed on a real API server with its own controllers; scheduler, volumes and nodes are ours.

    ``services`` is the API server's range, ``pods`` that of its pods' addresses; two beds on one machine need
    different ones. Stopping its "plane" stops the node alone, and at the end the node, its pods and volumes are
    taken from the API.
    """

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        *,
        services: str = "10.171.0.0/16",
        pods: str = "10.172.0.0/16",
        operators: Sequence[Operator] | None = None,
        settings: Settings = QUICK,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(directory, operators=operators, settings=settings, catalog=catalog)
        self._kubeconfig = kubeconfig
        self._services, self._pods = IPv4Network(services), IPv4Network(pods)

    def _make_plane(self) -> Nodes:
        return Nodes(
            self._directory.path,
            self._kubeconfig,
            settings=self._options.settings,
            pods=self._pods,
            services=self._services,
            catalog=self._options.catalog,
        )

    async def _leave(self) -> None:
        await self.plane.remove()


class ClusterBed(_Bed[Cluster]):
    """The same on a real cluster with nodes of its own; no operator runs in this process, a chart brings them."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        super().__init__(directory, operators=())
        self._kubeconfig = kubeconfig

    def _make_plane(self) -> Cluster:
        return Cluster(self._kubeconfig)
