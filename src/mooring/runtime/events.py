"""Events: what a person running ``kubectl describe`` should read, and nothing twice.

They are written as core/v1, with the times and counts of both APIs, as most components of Kubernetes write theirs:
``kubectl`` sorts by ``lastTimestamp``, which events.k8s.io/v1 does not let anybody set.

The same event again becomes a series of the first: one patch at the second time, then at most one every five
minutes. More than ten different texts for one object and reason within ten minutes become one aggregate. An
object may cause 25 events at once and then one every five minutes. (All as client-go limits them.)

Recording never waits, never raises and never writes by itself: a bounded queue feeds one sender, and what
does not fit is dropped and counted. Secrets known to `log.secrets` are cut out of every text.
"""

from __future__ import annotations

import asyncio
import secrets as random_source
import socket
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
import structlog

from mooring.cache.clock import Clock, SystemClock, rfc3339
from mooring.kube.client import Client
from mooring.kube.errors import ApiError, KubeError, NotFound, ServerError, TooManyRequests, TransportError
from mooring.kube.object import Object
from mooring.kube.objects.core import Event, EventSeries, EventSource, ObjectReference
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import MergePatch
from mooring.runtime.lease import FenceLost
from mooring.runtime.log import secrets
from mooring.runtime.metrics import Metrics

__all__ = ["EventRecorder"]

log = structlog.get_logger("mooring.runtime")

#: The API's own limits.
NOTE_BYTES: Final = 1024
REASON_CHARACTERS: Final = 128

SERIES_SECONDS: Final = 300.0
FORGET_SECONDS: Final = 600.0
SIMILAR: Final = 10
BURST: Final = 25
REFILL_SECONDS: Final = 300.0
REMEMBERED: Final = 4096
QUEUED: Final = 1000
ATTEMPTS: Final = 4

K = TypeVar("K")
V = TypeVar("V")

Similar = tuple[str, str, str, str]
Same = tuple[str, str, str, str, str]


@dataclass(slots=True)
class _Series:
    """An event that was recorded, and how often since."""

    namespace: str
    name: str
    count: int = 1
    last: float = 0.0
    last_time: str = ""
    sent: float = 0.0
    queued: bool = False


@dataclass(slots=True)
class _Group:
    """Events about one object with one reason, whatever their text."""

    since: float
    notes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Bucket:
    """How many events one object may still cause."""

    tokens: float
    at: float


class EventRecorder:
    """Records events about objects; see the module's text.

    ``controller`` becomes ``reportingController`` under ``mooring.dev/``; ``instance`` defaults to the host.
    """

    def __init__(
        self,
        client: Client,
        *,
        controller: str,
        instance: str = "",
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._controller = controller if "/" in controller else f"mooring.dev/{controller}"
        self._instance = (instance or socket.gethostname())[:128]
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._series: OrderedDict[Same, _Series] = OrderedDict()
        self._groups: OrderedDict[Similar, _Group] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._queue: asyncio.Queue[Event | _Series] = asyncio.Queue(QUEUED)
        self._task: asyncio.Task[None] | None = None

    def normal(
        self, obj: Object, reason: str, message: str, *, action: str = "", related: Object | None = None
    ) -> None:
        """Something went as it should. ``reason`` is CamelCase; ``action`` what was done."""
        self._record(obj, "Normal", reason, message, action=action, related=related)

    def warning(
        self, obj: Object, reason: str, message: str, *, action: str = "", related: Object | None = None
    ) -> None:
        """Something needs attention; the message should name the remedy."""
        self._record(obj, "Warning", reason, message, action=action, related=related)

    # --- recording

    def _record(
        self, obj: Object, kind: str, reason: str, message: str, *, action: str, related: Object | None
    ) -> None:
        try:
            self._note(obj, kind, reason, secrets.cut(message), action=action or reason, related=related)
        except Exception:
            self._drop()
            log.exception("an event could not be recorded", reason=reason)

    def _note(
        self, obj: Object, kind: str, reason: str, note: str, *, action: str, related: Object | None
    ) -> None:
        now = self._clock.monotonic()
        who = obj.metadata.uid or f"{obj.metadata.namespace}/{obj.metadata.name}"
        note = self._aggregated((who, kind, reason, action), note, now)
        same: Same = (who, kind, reason, action, note)
        series = self._series.get(same)
        if series is not None and now - series.last < FORGET_SECONDS:
            self._again(same, series, now)
            return
        if not self._allowed(who, now):
            self._drop()
            return
        event = self._event(obj, kind, reason, note, action=action, related=related)
        series = _Series(event.metadata.namespace or "", event.metadata.name or "", last=now, sent=now)
        _remember(self._series, same, series)
        self._put(event)

    def _again(self, same: Same, series: _Series, now: float) -> None:
        series.count += 1
        series.last = now
        series.last_time = rfc3339(self._clock.now(), micro=True)
        self._series.move_to_end(same)
        if not series.queued and (series.count == 2 or now - series.sent >= SERIES_SECONDS):
            series.queued = True
            self._put(series)

    def _aggregated(self, similar: Similar, note: str, now: float) -> str:
        group = self._groups.get(similar)
        if group is None or now - group.since > FORGET_SECONDS:
            group = _remember(self._groups, similar, _Group(now))
        if note in group.notes or len(group.notes) < SIMILAR:
            group.notes.add(note)
            return note
        return "(combined from similar events)"

    def _allowed(self, who: str, now: float) -> bool:
        bucket = self._buckets.get(who)
        if bucket is None:
            bucket = _remember(self._buckets, who, _Bucket(BURST, now))
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _event(
        self, obj: Object, kind: str, reason: str, note: str, *, action: str, related: Object | None
    ) -> Event:
        meta = obj.metadata
        namespace = meta.namespace or "default"
        name = f"{(meta.name or 'object')[:230]}.{random_source.token_hex(8)}"
        now = self._clock.now()
        return Event(
            metadata=ObjectMeta(name=name, namespace=namespace),
            event_time=rfc3339(now, micro=True),
            first_timestamp=rfc3339(now),
            last_timestamp=rfc3339(now),
            count=1,
            type=kind,
            reason=reason[:REASON_CHARACTERS],
            action=action[:REASON_CHARACTERS],
            message=_fit(note, NOTE_BYTES),
            involved_object=_reference(obj),
            related=_reference(related) if related is not None else None,
            source=EventSource(component=self._controller),
            reporting_component=self._controller,
            reporting_instance=self._instance,
        )

    def _put(self, item: Event | _Series) -> None:
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            self._drop()

    def _drop(self) -> None:
        if self._metrics is not None:
            self._metrics.events_dropped += 1

    # --- sending

    def start(self) -> None:
        """Begin to send; a second call does nothing. Events recorded before wait."""
        if self._task is None:
            self._task = asyncio.create_task(self._send_all(), name="events")

    async def flush(self) -> None:
        """Wait until everything recorded so far was sent or dropped."""
        await self._queue.join()

    async def stop(self, *, timeout: float = 2.0) -> None:
        """Send what is left for at most ``timeout`` seconds, then end."""
        task, self._task = self._task, None
        if task is None:
            return
        try:
            async with self._clock.deadline(timeout):
                await self._queue.join()
        except TimeoutError:
            log.warning("events dropped at shutdown", count=self._queue.qsize())
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _send_all(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                await self._send(item)
            except Exception:
                self._drop()
                log.exception("an event could not be sent")
            finally:
                self._queue.task_done()

    async def _send(self, item: Event | _Series) -> None:
        for attempt in range(ATTEMPTS):
            try:
                if isinstance(item, Event):
                    await self._client.create(item)
                else:
                    await self._send_series(item)
                return
            except FenceLost:
                break
            except (TransportError, ServerError, TooManyRequests) as error:
                wait = error.retry_after if isinstance(error, ApiError) else None
                await self._clock.sleep(min(30.0, wait or 0.5 * 2**attempt))
            except KubeError as error:
                # Refused: the namespace is going, or RBAC forbids it. Trying again cannot help.
                log.info("event refused", error=str(error))
                break
        self._drop()

    async def _send_series(self, series: _Series) -> None:
        series.queued = False
        series.sent = self._clock.monotonic()
        entry = EventSeries(count=series.count, last_observed_time=series.last_time)
        times = {"count": series.count, "lastTimestamp": f"{series.last_time[:19]}Z"}
        patch = MergePatch({"series": msgspec.to_builtins(entry), **times})
        try:
            await self._client.patch(Event, series.name, patch, namespace=series.namespace)
        except NotFound:
            series.last = float("-inf")  # it has expired on the server; the next one begins anew


def _reference(obj: Object) -> ObjectReference:
    meta = obj.metadata
    return ObjectReference(
        api_version=obj.resource.api_version,
        kind=obj.resource.kind,
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def _fit(text: str, size: int) -> str:
    data = text.encode()
    if len(data) <= size:
        return text
    return data[: size - 3].decode(errors="ignore") + "..."


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> V:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
    return value
