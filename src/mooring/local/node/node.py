"""What all pods of a node share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Protocol

from mooring.cache.clock import Clock
from mooring.kube.object import Object
from mooring.kube.objects.core import Pod
from mooring.kube.patches import Patch
from mooring.local.node.cgroups import Cgroups
from mooring.local.node.images import Catalog
from mooring.local.node.logs import LogPump
from mooring.local.node.network import Network
from mooring.local.node.rootfs import Tools
from mooring.local.node.sources import Sources
from mooring.local.node.spawner import Spawner
from mooring.local.node.tokens import Issue

__all__ = ["Events", "Node", "PodClient", "Settings"]


class Events(Protocol):
    """Records events about objects."""

    def normal(self, obj: Object, reason: str, message: str, *, action: str = "") -> None: ...
    def warning(self, obj: Object, reason: str, message: str, *, action: str = "") -> None: ...


class PodClient(Protocol):
    """The writes a node makes to its pods."""

    async def patch(
        self, kind: type[Pod], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> Pod: ...

    async def delete(
        self,
        kind: type[Pod],
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        grace_period: int | None = None,
    ) -> Pod | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Times of a node, in seconds; the defaults are the kubelet's."""

    crash_backoff_initial: float = 10.0
    crash_backoff_cap: float = 300.0
    image_backoff_initial: float = 10.0
    image_backoff_cap: float = 300.0
    stop_grace_cap: float = 20.0
    """Longest a pod may take to end when the plane itself stops."""
    force_grace: float = 1.0
    """How long the processes of a force-deleted pod may live on."""
    retry_volumes: float = 0.1
    retry_busy_volume: float = 0.05
    metrics_period: float = 15.0
    """Between looks at what pods use; metrics-server's."""


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's name and the tools that its pods use."""

    name: str
    plane: str
    address: IPv4Address
    data_dir: Path
    clock: Clock
    client: PodClient
    events: Events
    sources: Sources
    tokens: Issue
    spawner: Spawner
    logs: LogPump
    catalog: Catalog
    network: Network
    tools: Tools
    cgroups: Cgroups
    settings: Settings = Settings()
    allocatable: Mapping[str, int | float | str] = field(default_factory=dict)
    domain: str = "cluster.local"
    reporting: asyncio.Event = field(default_factory=_set_event)
    """Set unless the node plays dead."""

    def pod_directory(self, uid: str) -> Path:
        """Where a pod's volumes and files live."""
        return self.data_dir / "pods" / uid

    def log_path(self, pod: Pod, container: str, run: int) -> Path:
        """The log of one run of a container."""
        meta = pod.metadata
        return self.data_dir / "logs" / f"{meta.namespace}_{meta.name}_{meta.uid}" / container / f"{run}.log"
