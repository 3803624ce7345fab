"""The process of an operator: what starts, in which order, and what stops, in the reverse.

Start: servers for metrics and probes, informers until synced, the Lease, informers until current, then workers
and services. A standby is warm: its caches are full before it leads, so taking over costs a queue of keys, not
a list of the cluster; that they still follow the server is made sure of before the first pass.
Stop (`Manager.stop`, or cancelling `Manager.run`): no new pass, running ones get the rest of the grace
period, events are sent, the Lease is given back, informers and servers end. When the Lease is lost, passes
are cancelled at once and `run` raises `LeaseLost`: the process should exit. Nothing that ignores being
cancelled holds a stop up for longer than a second.

One `Manager` holds one Lease, or its share of several (`shards`). A process with several operators runs
several, sharing one `InformerPool`, one `Metrics` and one `Health`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

import structlog

from mooring.cache.clock import Clock, SystemClock
from mooring.cache.informer import InformerPool, InformerSet
from mooring.kube.client import Client
from mooring.kube.transport import HttpTransport, Transport
from mooring.runtime.client import CachedClient
from mooring.runtime.controller import CANCEL_SECONDS, Controller
from mooring.runtime.events import EventRecorder
from mooring.runtime.http import Health, ProbeServer
from mooring.runtime.lease import Election, Elector, Fence, FencedTransport, OpenFence
from mooring.runtime.lease_thread import ThreadedElector, ThreadedShards
from mooring.runtime.metrics import MeteredTransport, Metrics
from mooring.runtime.shards import ShardCalls, Shards, Share

__all__ = ["Manager"]

log = structlog.get_logger("mooring.runtime")

GRACE_SECONDS: Final = 30.0
SYNC_SECONDS: Final = 120.0
#: Kept of the grace period: 2 s for sending events, 4 s for giving the Lease back.
RESERVE_SECONDS: Final = 6.0
EVENTS_SECONDS: Final = 2.0
#: Between two looks whether a shard that goes to another replica is still worked for.
DRAIN_SECONDS: Final = 0.05

Service = Callable[[], Coroutine[Any, Any, None]]


class Manager:
    """Everything an operator runs on, started and stopped in order; see the module's text.

    ``name`` is the operator's (``redis-sentinel``): the events' reporting controller and the logs carry it.
    ``election``: without one this process acts at once, unfenced. ``pool``, ``informers``, ``metrics`` and ``health`` may
    be shared with other managers: those on one ``pool`` watch what they have in common once, and each starts and stops,
    and waits for, what it watches itself; ``shards``: spread the objects over so many Leases, held by all replicas together,
    instead of one Lease that one replica holds. ``watch_list``: take the first lists as streams where the
    server offers that (Kubernetes 1.32), which spares its memory. A shared `InformerSet` or `Health` is started
    here if need be, and stopped by whoever made it.
    ``metrics_port`` and ``probe_port`` open servers on ``host`` (``None``: no server, 0: any free port).
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str = "mooring",
        clock: Clock | None = None,
        election: Election | None = None,
        shards: int = 0,
        watch_list: bool = False,
        pool: InformerPool | None = None,
        informers: InformerSet | None = None,
        metrics: Metrics | None = None,
        health: Health | None = None,
        host: str = "127.0.0.1",
        metrics_port: int | None = None,
        probe_port: int | None = None,
        grace: float = GRACE_SECONDS,
        sync_timeout: float = SYNC_SECONDS,
    ) -> None:
        self.name = name
        self.clock = clock or SystemClock()
        self.metrics = metrics or Metrics()
        transport = client.transport
        self.sockets: HttpTransport | None = (
            transport if isinstance(transport, HttpTransport) else getattr(transport, "sockets", None)
        )
        """What opens WebSockets to the API server, such as of a command in a container; not counted, nor fenced."""
        manager = client.field_manager
        self._host = getattr(client.transport, "host", "")
        metering = MeteredTransport(client.transport, self.metrics, host=self._host, clock=self.clock)
        metered = fenced = Client(metering, field_manager=manager)
        self.fence: Fence = OpenFence(self.clock)
        if shards and election is None:
            raise ValueError("shards need an election, for the name of their Leases")
        self._share = Share(self.clock, shards) if shards else None
        if election is not None:
            self.fence = self._share.fence if self._share is not None else Fence(self.clock)
            fenced = Client(FencedTransport(metering, self.fence), field_manager=manager)
        self._own_informers = informers is None
        self.informers = informers or InformerSet(metered, self.clock, watch_list=watch_list, pool=pool)
        self.metrics.informers(name, self.informers)
        self.client = CachedClient(fenced, self.informers)
        self.events = EventRecorder(fenced, controller=name, clock=self.clock, metrics=self.metrics)
        self._own_health = health is None
        self.health = health or Health(self.clock, self.metrics)
        self.leading = asyncio.Event()
        self._shards: Shards | ThreadedShards | None = None
        self._elector: Elector | ThreadedElector | None = None
        if election is not None:
            self._stand(election, client.transport, metered)
        self._server = ProbeServer(
            self.metrics, self.health, host=host, metrics_port=metrics_port, probe_port=probe_port
        )
        self._controllers: list[Controller] = []
        self._services: list[tuple[str, Service]] = []
        self._grace = grace
        self._sync_timeout = sync_timeout
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.health.ready(f"{name} informers", self._informer_trouble)
        self.health.passes_of(name, lambda: self._controllers)

    def _stand(self, election: Election, transport: Transport, metered: Client) -> None:
        """Stand for election; on a thread of its own where that is possible: over sockets, in real time."""
        told, share = self.metrics.leading.__setitem__, self._share
        if share is None:
            self.metrics.leading.setdefault(election.name, False)
        elected = functools.partial(told, election.name)
        calls = ShardCalls(self._current, self._on_shard, self._drain, told)
        if not isinstance(transport, HttpTransport) or not isinstance(self.clock, SystemClock):
            if share is not None:
                self._shards = Shards(metered, election, share=share, clock=self.clock, calls=calls)
            else:
                self._elector = Elector(
                    metered, election, fence=self.fence, clock=self.clock, on_change=elected
                )
            return

        def connect() -> Client:
            own = MeteredTransport(transport.another(), self.metrics, host=self._host, loop=self._loop)
            return Client(own, field_manager=metered.field_manager)

        if share is not None:
            self._shards = ThreadedShards(connect, election, share=share, calls=calls)
        else:
            self._elector = ThreadedElector(connect, election, fence=self.fence, on_change=elected)

    def _informer_trouble(self) -> str:
        stale = [f"{i!r}: {i.last_error or 'not synced'}" for i in self.informers if not i.healthy]
        return "; ".join(stale)

    # --- wiring

    def add(self, controller: Controller) -> Controller:
        """Run a controller while leading; before `run`."""
        if any(other.name == controller.name for other in self._controllers):
            raise ValueError(f"a controller named {controller.name} was added already")
        expectations = self.client.expectations
        controller.bind(self.clock, self.metrics, expectations=expectations, share=self._share)
        self._controllers.append(controller)
        return controller

    def _on_shard(self, shard: int) -> None:
        self.client.expectations.took_over()
        for controller in self._controllers:
            controller.take_shard(shard)

    async def _drain(self, shard: int) -> None:
        """Wait until no pass works for a shard; no longer than a stop may take."""
        for _ in range(int(self._grace / DRAIN_SECONDS)):
            if not any(controller.works_for(shard) for controller in self._controllers):
                return
            await self.clock.sleep(DRAIN_SECONDS)
        log.warning("passes outlast their shard; the fence stops their writes", shard=shard)

    def serve(self, name: str, service: Service) -> None:
        """Run a coroutine function while leading; cancelled at the end. Its failure ends `run`."""
        self._services.append((name, service))

    @property
    def controllers(self) -> list[Controller]:
        """The controllers that were added."""
        return list(self._controllers)

    @property
    def idle(self) -> bool:
        """No controller has anything to do now; for tests and demos."""
        return self.leading.is_set() and all(controller.idle for controller in self._controllers)

    @property
    def shards(self) -> frozenset[int]:
        """The shards that this replica holds at the moment; none without sharding."""
        return frozenset(self._share.held) if self._share is not None else frozenset()

    @property
    def metrics_port(self) -> int | None:
        """The port that metrics are served on, once started."""
        return self._server.metrics_port

    @property
    def probe_port(self) -> int | None:
        """The port that probes are served on, once started."""
        return self._server.probe_port

    # --- life

    def stop(self) -> None:
        """Ask for an orderly stop; `run` returns when it is done."""
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop` or cancellation; raises `LeaseLost`, or what a service failed with."""
        self._loop = asyncio.get_running_loop()
        self.health.start()
        try:
            await self._server.start()
            self.informers.start()
            if not await self._unless_stopped(self.informers.wait_synced(self._sync_timeout)):
                return
            if self._elector is not None and not await self._unless_stopped(self._elector.acquire()):
                return
            await self._lead()
        finally:
            await self._shut_down()

    async def _lead(self) -> None:
        keeper = asyncio.create_task(self._keep(), name=f"{self.name} lease")
        stopper = asyncio.create_task(self._stop.wait(), name=f"{self.name} stop")
        current = asyncio.create_task(self._current(), name=f"{self.name} caches")
        tasks: list[asyncio.Task[None]] = []
        try:
            watched: set[asyncio.Task[Any]] = {keeper, stopper, current}
            while not stopper.done():
                done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if current in done and not stopper.done():
                    tasks = self._begin_work()
                    watched |= set(tasks)
        finally:
            self.leading.clear()
            # The Lease is kept while passes finish: they still act, and must not be overtaken.
            await self._end_work(tasks, keeper, grace=max(0.0, self._grace - RESERVE_SECONDS))
            await _cancel(stopper, keeper, current)

    async def _current(self) -> None:
        """Be sure, right after taking over, that the caches still follow the server."""
        await self.informers.wait_current(self._sync_timeout)

    def _begin_work(self) -> list[asyncio.Task[None]]:
        self.client.expectations.took_over()
        self.events.start()
        for controller in self._controllers:
            controller.start()
        self.leading.set()
        log.info("started", operator=self.name, controllers=[c.name for c in self._controllers])
        return [asyncio.create_task(service(), name=name) for name, service in self._services]

    async def _keep(self) -> None:
        if self._shards is not None:
            await self._shards.run()
        elif self._elector is not None:
            await self._elector.keep()
        else:
            await asyncio.Event().wait()

    async def _end_work(
        self, tasks: list[asyncio.Task[None]], keeper: asyncio.Task[None], *, grace: float
    ) -> None:
        ending = asyncio.gather(*(controller.stop(grace) for controller in self._controllers))
        watched: set[asyncio.Future[Any]] = {ending, keeper}
        if grace:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if grace and not ending.done():  # the Lease is lost: nothing that a pass still does would be sent
            ending.cancel()
            await asyncio.wait({ending})
        else:
            await ending
        await _cancel(*tasks)
        await self.events.stop(timeout=EVENTS_SECONDS)

    async def _shut_down(self) -> None:
        async with AsyncExitStack() as last_to_first:  # all of them, whichever fails
            if self._own_health:
                last_to_first.push_async_callback(self.health.stop)
            last_to_first.push_async_callback(self._server.stop)
            if self._own_informers:
                last_to_first.push_async_callback(self.informers.stop)
            for leases in (self._elector, self._shards):
                if leases is not None:
                    last_to_first.push_async_callback(leases.release)
        log.info("stopped", operator=self.name)

    async def _unless_stopped(self, step: Awaitable[None]) -> bool:
        """Do one step of the start; ``False`` when asked to stop before it was done."""
        work = asyncio.ensure_future(step)
        stopper = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({work, stopper}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return False
            work.result()
            return True
        finally:
            await _cancel(work, stopper)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel, and wait for the end; what ignores it is left behind after a second, and said."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    ended, left = await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
    for task in ended:
        if not task.cancelled():
            task.exception()
    if left:
        log.error("left behind at shutdown: it ignores being cancelled", tasks=[str(task) for task in left])
