"""CPU that the pods of a cluster use, as metrics.k8s.io (metrics-server) reports it, as a signal of `autoscale`.

The share is that of the server's container, in percent of its CPU request, or of its limit where it has no request. What
cannot be read is unknown, and why is a sentence that stays the same from one pass to the next: it is shown in a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any, Final

import msgspec

from mooring.kube.client import Client
from mooring.kube.errors import Forbidden, KubeError, NotFound
from mooring.kube.object import Key
from mooring.kube.objects import core
from mooring.kube.quantity import parse_quantity

__all__ = ["CPU", "NOT_SERVED", "CPUReader", "share_of"]

NOT_SERVED: Final = "metrics.k8s.io is not served: install metrics-server, or name another metric"
_FORBIDDEN: Final = "the operator may not list pods of metrics.k8s.io: set rbac.cpuMetrics of the chart, or name another metric"
_SILENT: Final = "metrics.k8s.io does not answer: see metrics-server"
_FRESH: Final = 12.0
"""Seconds for which an answer is used again: metrics-server measures every 15 at most."""
_STALE: Final = 180.0
"""A measurement that is older in seconds says nothing about now."""
_TIMEOUT: Final = 5.0
"""Seconds that an answer may take."""
_PATIENCE: Final = 0.25
"""Seconds that a pass waits for it; a failover must not. What comes later counts in the next pass."""
_OUTAGE: Final = 180.0
"""Seconds without an answer after which that is shown: metrics-server is away for a moment where its pod moves."""


@dataclass(frozen=True, kw_only=True)
class CPU:
    """What is known of the pods of one cluster."""

    percent: Mapping[str, float] = field(default_factory=dict)
    """Share of the request, by pod; a pod that was not measured is missing."""
    why: str = ""
    """Why pods stay unknown until somebody acts, with the remedy; "" while nothing is in the way."""


class _Metadata(msgspec.Struct):
    name: str = ""


class _Container(msgspec.Struct):
    name: str = ""
    usage: dict[str, Any] = msgspec.field(default_factory=dict)


class _Pod(msgspec.Struct):
    metadata: _Metadata
    timestamp: datetime | None = None
    containers: list[_Container] = msgspec.field(default_factory=list)


class _Pods(msgspec.Struct):
    items: list[_Pod] = msgspec.field(default_factory=list)


class CPUReader:
    """Reads it beside the passes; an answer is kept for some seconds, and may be forgotten at any time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[Key, tuple[float, CPU]] = {}
        self._asked: dict[Key, asyncio.Task[None]] = {}
        self._silent: dict[Key, float] = {}
        """Since when there is no answer."""

    async def of(
        self, key: Key, pods: Iterable[core.Pod], *, selector: str, container: str, now: datetime
    ) -> CPU:
        """The shares of the pods of a cluster; nothing is known while the answer takes longer than a pass may wait.

        ``selector`` is their label selector, ``container`` the server's.
        """
        known = self._known.get(key)
        if known is None or monotonic() - known[0] >= _FRESH:
            if (task := self._asked.get(key)) is None:
                asking = self._ask(key, pods, selector=selector, container=container, now=now)
                task = self._asked[key] = asyncio.create_task(asking)
            for one in (await asyncio.wait([task], timeout=_PATIENCE))[0]:
                one.result()
            known = self._known.get(key)
        return known[1] if known is not None and monotonic() - known[0] < _STALE else CPU()

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        for one in (self._known, self._asked, self._silent):
            one.pop(key, None)

    async def _ask(
        self, key: Key, pods: Iterable[core.Pod], *, selector: str, container: str, now: datetime
    ) -> None:
        try:
            found = await self._read(key, pods, selector=selector, container=container, now=now)
        finally:
            ours = self._asked.get(key) is asyncio.current_task()
            if ours:
                del self._asked[key]
        if not ours:  # it was forgotten meanwhile
            return
        if found is not None:
            self._silent.pop(key, None)
        elif monotonic() - self._silent.setdefault(key, monotonic()) >= _OUTAGE:
            found = CPU(why=_SILENT)
        self._known[key] = (monotonic(), found or CPU())

    async def _read(
        self, key: Key, pods: Iterable[core.Pod], *, selector: str, container: str, now: datetime
    ) -> CPU | None:
        """``None`` without an answer."""
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{key.namespace}/pods"
        try:
            async with asyncio.timeout(_TIMEOUT):
                answer = await self._client.request("GET", path, query={"labelSelector": selector})
            found = msgspec.json.decode(answer.body, type=_Pods)
        except NotFound:
            return CPU(why=NOT_SERVED)
        except Forbidden:
            return CPU(why=_FORBIDDEN)
        except (KubeError, TimeoutError, msgspec.MsgspecError):
            return None
        used = {
            one.metadata.name: share
            for one in found.items
            if (share := _used(one, container, now)) is not None
        }
        return share_of(pods, used, container)


def share_of(pods: Iterable[core.Pod], used: Mapping[str, float], container: str) -> CPU:
    """The shares of ``pods``; ``used``: cores that the container of each uses."""
    percent: dict[str, float] = {}
    why = ""
    for pod in pods:
        name, least = pod.metadata.name or "", _request(pod, container)
        if least <= 0:
            why = f"the container {container} has no CPU request and no limit: declare resources.requests.cpu"
        elif name in used:
            percent[name] = 100 * used[name] / least
    return CPU(percent=percent, why=why)


def _used(one: _Pod, container: str, now: datetime) -> float | None:
    """Cores that the container used; ``None`` where that is not known, or too old."""
    if one.timestamp is not None and (now - one.timestamp).total_seconds() > _STALE:
        return None
    text = next((each.usage.get("cpu") for each in one.containers if each.name == container), None)
    return _cores(text) if text is not None else None


def _request(pod: core.Pod, container: str) -> float:
    """Cores that the container asks for, else those that it may have at most; 0 where neither is said."""
    containers = (pod.spec.containers if pod.spec is not None else None) or ()
    given = next((one.resources for one in containers if one.name == container), None)
    if given is None:
        return 0.0
    text = (given.requests or {}).get("cpu") or (given.limits or {}).get("cpu")
    return (_cores(text) if text is not None else None) or 0.0


def _cores(text: Any) -> float | None:
    try:
        return float(parse_quantity(text))
    except (TypeError, ValueError):
        return None
