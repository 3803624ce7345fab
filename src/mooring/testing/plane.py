"""A control plane inside a test: in memory, in this process, in virtual time.

    async with ControlPlane() as plane:
        await plane.define(Website)
        await plane.client.create(website)
        await plane.settle()

The API server is the embedded one; the controllers of workloads, garbage, endpoints and claims run on it, and
simulated nodes whose pods run at once. A minute passes in milliseconds: see `Timeline`. What it costs to start is
about a tenth of a second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from mooring.cache import InformerSet
from mooring.kube import ApplyPatch, Client, Object, StreamResponse
from mooring.kube.objects.core import PersistentVolume
from mooring.local.api.server import ApiServer, LocalTransport
from mooring.local.api.storage import Collection, Event
from mooring.local.controllers import register_for_tests
from mooring.local.controllers.volumes.directories import Directories
from mooring.runtime import Manager, render_crd
from mooring.testing.errors import NotInTime
from mooring.testing.pods import PodModel, SimulatedPods
from mooring.testing.timeline import START, Timeline

__all__ = ["QUIET", "ControlPlane", "Endless"]

#: What may be written all the time without anything having changed.
RESTLESS = frozenset({"leases.coordination.k8s.io", "events", "events.events.k8s.io"})
#: Virtual seconds without a change after which all is settled, and in which that has to happen.
QUIET, DEADLINE = 30.0, 3600.0
#: Seconds that no run takes.
FOREVER: Final = "1000000000"
#: Where volumes would be if a pod looked.
NOWHERE: Final = Path("/nonexistent/mooring")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ControlPlane:
    """An API server with its controllers and simulated nodes, from entering to leaving the context.

    ``model`` makes what says what the processes of pods do (`AlwaysReady`), ``nodes`` are the nodes' names; without
    nodes no pod is scheduled. ``controllers=False`` leaves the API server alone, ``endpoints=False`` does without
    Endpoints and EndpointSlices. ``budgets``: PodDisruptionBudgets are counted, so that evictions can be allowed.
    ``start``: the wall clock.
    """

    def __init__(
        self,
        *,
        model: Callable[[ControlPlane], PodModel] | None = None,
        nodes: Sequence[str] = ("node-1",),
        controllers: bool = True,
        endpoints: bool = True,
        budgets: bool = False,
        start: datetime = START,
    ) -> None:
        self.clock = Timeline(start)
        self._model = model
        self._nodes = tuple(nodes)
        self._controllers = controllers
        self._endpoints = endpoints
        self._budgets = budgets
        self._stack = AsyncExitStack()
        self._changed = 0.0
        self.server: ApiServer
        #: An administrator's client, called ``user``.
        self.client: Client
        self.pods: SimulatedPods

    async def __aenter__(self) -> Self:
        try:
            self._stack.enter_context(self.clock)
            self.server = await self._stack.enter_async_context(ApiServer.in_memory(now=self.clock.now))
            self.observe(self._on_change)
            self.client = Client(self.transport("user"), field_manager="user")
            if self._controllers:
                await self._start_controllers()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start_controllers(self) -> None:
        client = Client(Endless(self.transport("controllers")))
        informers = InformerSet(client, self.clock, silence=math.inf)
        self._stack.push_async_callback(informers.stop)
        manager = Manager(client, name="controllers", clock=self.clock, informers=informers, grace=0.0)
        register_for_tests(
            manager,
            directories=_Unmade(NOWHERE, NOWHERE),
            endpoints=self._endpoints,
            budgets=self._budgets,
        )
        model = self._model(self) if self._model else None
        self.pods = SimulatedPods(manager, model=model, nodes=self._nodes)
        await self.pods.register(self.client)
        task = asyncio.create_task(manager.run(), name="controllers")
        self._stack.push_async_callback(_ended, task)
        leading = asyncio.create_task(manager.leading.wait())
        await asyncio.wait({task, leading}, return_when=asyncio.FIRST_COMPLETED)
        leading.cancel()
        if task.done():
            task.result()
        await self.settle(1.0)

    # --- using it

    def transport(self, agent: str) -> LocalTransport:
        """A transport into the server, for whoever is called ``agent``."""
        return self.server.transport(agent=agent)

    def observe(self, observer: Callable[[Collection, Event], None]) -> None:
        """Have every change told at the moment it is made, before anybody is answered or watches it."""
        self.server.cluster.store.observers.append(observer)

    async def define(self, *kinds: type[Object]) -> None:
        """Serve kinds: their CRDs are applied."""
        for kind in kinds:
            await self.apply(render_crd(kind), path=_CRDS)
        for kind in kinds:
            while (await self.client.transport.request("GET", kind.resource.path())).status != 200:
                await asyncio.sleep(0.1)

    async def apply(self, document: dict[str, Any], *, path: str) -> None:
        """Server-side apply a document below a collection's path."""
        await self.client.request(
            "PATCH",
            f"{path}/{document['metadata']['name']}",
            query={"fieldManager": "user", "force": "true"},
            body=ApplyPatch(document).encode(),
            content_type=ApplyPatch.content_type,
        )

    def _on_change(self, collection: Collection, event: Event) -> None:
        if collection.resource not in RESTLESS:
            self._changed = self.clock.monotonic()

    async def settle(self, quiet: float = QUIET, *, within: float = DEADLINE) -> None:
        """Wait until nothing but Leases and Events was written for ``quiet`` virtual seconds (30).

        Raises `NotInTime` after ``within`` virtual seconds (3600).
        """
        began = self.clock.monotonic()
        while (left := max(self._changed, began) + quiet - self.clock.monotonic()) > 0:
            if self.clock.monotonic() - began > within:
                raise NotInTime(f"after {within:.0f} virtual seconds there are still changes")
            await asyncio.sleep(left)


class Endless:
    """A transport whose watches do not end and have nothing to say between changes: here no stream is ever lost.

    There are dozens of them, and all through the virtual hours nobody has to open them again.
    """

    def __init__(self, inner: LocalTransport) -> None:
        self.request = inner.request
        self.close = inner.close
        self._inner = inner

    def stream(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, **options: Any
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """See `Transport.stream`."""
        asked = {**(query or {}), "allowWatchBookmarks": "false", "timeoutSeconds": FOREVER}
        return self._inner.stream(method, path, query=asked, **options)


class _Unmade(Directories):
    """The directories of volumes that no process will ever look into."""

    def make(self, path: Path) -> None:
        """Nothing: the name is all that is needed."""

    def remove(self, volume: PersistentVolume) -> None:
        """Nothing is there."""

    def sweep(self) -> None:
        """Nothing is there."""


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
