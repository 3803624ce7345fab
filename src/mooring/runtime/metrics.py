"""Metrics under controller-runtime's names, so existing dashboards and alerts work.

Counting happens in plain numbers owned by whoever counts (one event loop, so no locks: an increment costs
tens of nanoseconds, a prometheus_client child ten times that); they become samples only when scraped.
Operators' own metrics are ordinary prometheus_client metrics on `Metrics.registry`.
"""

from __future__ import annotations

import asyncio
import weakref
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mooring.cache.clock import Clock, SystemClock
from mooring.cache.informer import Informer, InformerSet
from mooring.kube.transport import Response, StreamResponse, Transport
from mooring.runtime.context import span
from mooring.runtime.queue import WorkQueue

__all__ = ["ControllerStats", "MeteredTransport", "Metrics", "QueueStats", "Samples"]

#: controller-runtime's buckets of reconcile_time_seconds.
RECONCILE_SECONDS: Final[tuple[float, ...]] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0),
)
#: controller-runtime's buckets of the work queue.
QUEUE_SECONDS: Final = (1e-08, 1e-07, 1e-06, 1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
REQUEST_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
RESULTS: Final = ("success", "error", "requeue", "requeue_after")


class Samples:
    """A histogram: how many values fell under each bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Note one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values were noted."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as Prometheus wants them."""
        out: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            running += count
            out.append(("+Inf" if bound == float("inf") else repr(float(bound)), running))
        return out


class ControllerStats:
    """What one controller has done."""

    def __init__(self, name: str, workers: int) -> None:
        self.name = name
        self.workers = workers
        self.active = 0
        self.results: dict[str, int] = dict.fromkeys(RESULTS, 0)
        self.terminal = 0
        self.panics = 0
        self.timeouts = 0
        self.hot_loops = 0
        self.repeated_steps = 0
        self.stale_skips = 0
        self.seconds = Samples(RECONCILE_SECONDS)


class QueueStats:
    """What happened in one work queue (a `QueueObserver`)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.adds = 0
        self.retries = 0
        self.waited = Samples(QUEUE_SECONDS)
        self.worked = Samples(QUEUE_SECONDS)

    def on_add(self) -> None:
        """See `QueueObserver`."""
        self.adds += 1

    def on_get(self, waited: float) -> None:
        """See `QueueObserver`."""
        self.waited.observe(waited)

    def on_done(self, worked: float) -> None:
        """See `QueueObserver`."""
        self.worked.observe(worked)

    def on_retry(self) -> None:
        """See `QueueObserver`."""
        self.retries += 1


class Metrics(Collector):
    """All numbers of a process, and the registry they are scraped from."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests: dict[tuple[str, str, str], int] = defaultdict(int)
        self.request_seconds: dict[tuple[str, str], Samples] = {}
        self.leading: dict[str, bool] = {}
        self.events_dropped = 0
        self.loop_lag = 0.0
        self.loop_lag_max = 0.0
        self._controllers: list[ControllerStats] = []
        self._queues: list[tuple[QueueStats, weakref.ref[WorkQueue[Any]]]] = []
        self._informers: dict[str, weakref.ref[InformerSet]] = {}
        self._gauges: dict[str, Gauge] = {}
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def controller(self, stats: ControllerStats) -> None:
        """Publish a controller's numbers."""
        self._controllers = [other for other in self._controllers if other.name != stats.name] + [stats]

    def queue(self, stats: QueueStats, queue: WorkQueue[Any]) -> None:
        """Publish a queue's numbers, until it is gone."""
        self._queues = [pair for pair in self._queues if pair[0].name != stats.name]
        self._queues.append((stats, weakref.ref(queue)))

    def informers(self, operator: str, informers: InformerSet) -> None:
        """Publish the state of an operator's informers, unless they are another's too, until they are gone."""
        others = [reference() for name, reference in self._informers.items() if name != operator]
        if informers not in others:
            self._informers[operator] = weakref.ref(informers)

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Gauge:
        """An operator's own gauge, without values: asked for again, as after another election, it is emptied."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(name, text, labels, registry=self.registry)
        self._gauges[name].clear()
        return self._gauges[name]

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: prometheus_client would otherwise collect once on registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families with their samples."""
        yield from self._collect_controllers()
        yield from self._collect_queues()
        yield from self._collect_informers()
        yield from self._collect_client()
        leader = GaugeMetricFamily(
            "leader_election_master_status",
            "Whether this process leads the election of that name (1) or not (0).",
            labels=["name"],
        )
        for name, leads in self.leading.items():
            leader.add_metric([name], float(leads))
        yield leader
        yield GaugeMetricFamily(
            "loop_lag_seconds", "How late the event loop was at its last check.", value=self.loop_lag
        )
        yield GaugeMetricFamily(
            "loop_lag_max_seconds", "How late the event loop has ever been.", value=self.loop_lag_max
        )
        yield CounterMetricFamily(
            "events_dropped_total", "Events not sent: too many, or refused.", value=self.events_dropped
        )

    def _collect_controllers(self) -> Iterator[Metric]:
        prefix = "controller_runtime_"
        reconciles = CounterMetricFamily(
            prefix + "reconcile_total", "Reconciles by result.", labels=["controller", "result"]
        )
        counters: dict[str, tuple[str, Callable[[ControllerStats], float]]] = {
            prefix + "reconcile_errors_total": ("Reconciles that failed.", lambda s: s.results["error"]),
            prefix + "terminal_reconcile_errors_total": (
                "Failures that are not tried again.",
                lambda s: s.terminal,
            ),
            prefix + "reconcile_panics_total": (
                "Reconciles that ended in a programming error.",
                lambda s: s.panics,
            ),
            prefix + "reconcile_timeouts_total": ("Reconciles that took too long.", lambda s: s.timeouts),
            prefix + "reconcile_hot_loops_total": (
                "Times a key was slowed down for waking itself.",
                lambda s: s.hot_loops,
            ),
            "mooring_actor_repeated_steps_total": (
                "Times a step was held back since it repeats and changes nothing.",
                lambda s: s.repeated_steps,
            ),
            "stale_sync_skips_total": (
                "Times a key waited for the cache to show what it may have created.",
                lambda s: s.stale_skips,
            ),
        }
        gauges: dict[str, tuple[str, Callable[[ControllerStats], float]]] = {
            "max_concurrent_reconciles": ("Workers.", lambda s: s.workers),
            "active_workers": ("Workers that are busy.", lambda s: s.active),
        }
        seconds = HistogramMetricFamily(
            prefix + "reconcile_time_seconds", "Time per reconcile.", labels=["controller"]
        )
        for stats in self._controllers:
            for result, count in stats.results.items():
                reconciles.add_metric([stats.name, result], count)
            seconds.add_metric([stats.name], stats.seconds.buckets(), stats.seconds.total)
        yield reconciles
        yield seconds
        for name, (text, value) in counters.items():
            counter = CounterMetricFamily(name, text, labels=["controller"])
            for stats in self._controllers:
                counter.add_metric([stats.name], value(stats))
            yield counter
        for name, (text, value) in gauges.items():
            gauge = GaugeMetricFamily(prefix + name, text, labels=["controller"])
            for stats in self._controllers:
                gauge.add_metric([stats.name], value(stats))
            yield gauge

    def _collect_queues(self) -> Iterator[Metric]:
        labels = ["name", "controller"]
        depth = GaugeMetricFamily("workqueue_depth", "Keys that are due.", labels=labels)
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Seconds of work in progress, all workers.", labels=labels
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "Age of the oldest reconcile.", labels=labels
        )
        adds = CounterMetricFamily("workqueue_adds_total", "Keys that became due.", labels=labels)
        retries = CounterMetricFamily("workqueue_retries_total", "Keys added again.", labels=labels)
        waited = HistogramMetricFamily("workqueue_queue_duration_seconds", "Time waiting.", labels=labels)
        worked = HistogramMetricFamily("workqueue_work_duration_seconds", "Time of work.", labels=labels)
        for stats, reference in self._queues:
            name = [stats.name, stats.name]
            adds.add_metric(name, stats.adds)
            retries.add_metric(name, stats.retries)
            waited.add_metric(name, stats.waited.buckets(), stats.waited.total)
            worked.add_metric(name, stats.worked.buckets(), stats.worked.total)
            if (queue := reference()) is not None:
                total, oldest = queue.unfinished()
                depth.add_metric(name, len(queue))
                unfinished.add_metric(name, total)
                longest.add_metric(name, oldest)
        yield from (depth, unfinished, longest, adds, retries, waited, worked)

    def _collect_informers(self) -> Iterator[Metric]:
        labels = ["kind", "group", "namespace", "selector", "operator"]
        objects = GaugeMetricFamily("informer_objects", "Objects in the cache.", labels=labels)
        age = GaugeMetricFamily(
            "informer_last_rv_age_seconds", "Seconds since the server was last heard of.", labels=labels
        )
        relists = CounterMetricFamily("informer_relists_total", "Complete lists taken.", labels=labels)
        bad = CounterMetricFamily(
            "informer_decode_errors_total", "Objects that do not fit their type.", labels=labels
        )
        users: dict[Informer[Any], list[str]] = defaultdict(list)
        for operator, reference in self._informers.items():
            for informer in reference() or ():
                users[informer].append(operator)
        for informer, operators in users.items():
            selector = ",".join(filter(None, (informer.label_selector, informer.field_selector)))
            resource = informer.kind.resource
            name = [resource.kind, resource.group, informer.namespace, selector, ",".join(sorted(operators))]
            objects.add_metric(name, len(informer))
            age.add_metric(name, informer.age)
            relists.add_metric(name, informer.relists)
            bad.add_metric(name, informer.decode_errors)
        yield from (objects, age, relists, bad)

    def _collect_client(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "rest_client_requests_total", "Requests by status code.", labels=["code", "method", "host"]
        )
        for (code, method, host), count in self.requests.items():
            total.add_metric([code, method, host], count)
        seconds = HistogramMetricFamily(
            "rest_client_request_duration_seconds", "Time per request.", labels=["verb", "host"]
        )
        for (method, host), samples in self.request_seconds.items():
            seconds.add_metric([method, host], samples.buckets(), samples.total)
        yield total
        yield seconds


class MeteredTransport:
    """A transport that counts its requests (``rest_client_*``).

    ``loop``: where to count when the transport is used on another thread than the numbers belong to.
    """

    def __init__(
        self,
        inner: Transport,
        metrics: Metrics,
        *,
        host: str = "",
        clock: Clock | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._inner = inner
        self._metrics = metrics
        self._host = host
        self._clock = clock or SystemClock()
        self._loop = loop

    def _note(self, method: str, code: str, seconds: float | None) -> None:
        if self._loop is None:
            self._count(method, code, seconds)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._count, method, code, seconds)

    def _count(self, method: str, code: str, seconds: float | None) -> None:
        self._metrics.requests[code, method, self._host] += 1
        if seconds is None:
            return
        samples = self._metrics.request_seconds.get((method, self._host))
        if samples is None:
            samples = self._metrics.request_seconds[method, self._host] = Samples(REQUEST_SECONDS)
        samples.observe(seconds)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """See `Transport.request`."""
        started = self._clock.monotonic()
        code = "<error>"
        try:
            with span(f"{method} {path}"):
                answer = await self._inner.request(
                    method, path, query=query, body=body, headers=headers, timeout=timeout
                )
            code = str(answer.status)
        finally:
            self._note(method, code, self._clock.monotonic() - started)
        return answer

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[StreamResponse]:
        """See `Transport.stream`; counted when its head has come."""
        opened = False
        try:
            async with self._inner.stream(
                method, path, query=query, headers=headers, timeout=timeout
            ) as answer:
                opened = True
                self._note("WATCH", str(answer.status), None)
                yield answer
        finally:
            if not opened:
                self._note("WATCH", "<error>", None)

    async def close(self) -> None:
        """See `Transport.close`."""
        await self._inner.close()
