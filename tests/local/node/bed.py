"""A node without an API server: pods from dictionaries, their status and events kept in memory."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from mooring.cache.clock import SystemClock
from mooring.kube.errors import NotFound
from mooring.kube.object import Object, decode, to_dict
from mooring.kube.objects.core import (
    ConfigMap,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Secret,
    Service,
    ServiceAccountTokenProjection,
)
from mooring.kube.patches import MergePatch, Patch
from mooring.local.claims import claim
from mooring.local.node.cgroups import Cgroups
from mooring.local.node.cleanup import plane_id
from mooring.local.node.images import Catalog
from mooring.local.node.imagestore import ImageStore
from mooring.local.node.logs import LogPump
from mooring.local.node.network import Network, NetworkConfig
from mooring.local.node.node import Node, Settings
from mooring.local.node.pod import PodWorker
from mooring.local.node.rootfs import Tools
from mooring.local.node.spawner import Spawner
from mooring.local.node.tokens import Token

__all__ = ["Bed", "network_config", "pod", "until"]

#: Namespaces can be made: as root, or inside a plain user's own (see test_rootless).
privileged = pytest.mark.skipif(os.geteuid() != 0, reason="test_rootless runs this one in namespaces")


async def until(condition: Callable[[], Any], *, within: float = 30.0) -> Any:
    """Wait for a condition to hold and give its value; fails with the last error."""
    deadline, error = asyncio.get_running_loop().time() + within, ""
    while True:
        try:
            if value := condition():
                return value
        except (AttributeError, LookupError, TypeError, OSError) as failure:
            error = repr(failure)
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within} s {error}")
        await asyncio.sleep(0.002)


def network_config(plane: str, **options: Any) -> NetworkConfig:
    """Ranges that no other test run uses, apart from those that planes take by themselves."""
    number = _numbers.setdefault(plane, None) or _free_number()
    _numbers[plane] = number
    services = IPv4Network(f"10.{210 + number}.0.0/16")
    return NetworkConfig(
        plane=plane,
        pod_cidr=IPv4Network(f"10.{168 + number}.0.0/16"),
        service_cidr=services,
        dns_address=services[10],
        **options,
    )


_numbers: dict[str, int | None] = {}
#: The numbers that are this process's until it ends, so that of two test runs that choose at once each gets its own.
_claims: dict[int, socket.socket] = {}


def _free_number() -> int:
    # The second field is the destination, as little-endian hex.
    routes = Path("/proc/net/route").read_text().splitlines()[1:]
    taken = {bytes.fromhex(line.split()[1])[-2] for line in routes}
    free = [n for n in range(1, 41) if not {168 + n, 210 + n} & taken]
    return next(n for n in sorted(free, key=lambda n: n not in _claims) if n in _claims or _claim(n))


def _claim(number: int) -> bool:
    if (held := claim(f"lab-{number}")) is not None:
        _claims[number] = held
    return held is not None


def pod(name: str = "web", *, containers: list[dict[str, Any]] | None = None, **spec: Any) -> Pod:
    """A pod bound to the bed's node; a container without a name is called ``main``."""
    both = [*(containers or []), *spec.get("initContainers", [])]
    for container in both:
        container.setdefault("name", "main")
        container.setdefault("image", "busybox:1")
    spec.setdefault("nodeName", "n1")
    meta = {"name": name, "namespace": "default", "uid": str(uuid.uuid4()), "generation": 1}
    return decode({"metadata": meta, "spec": {**spec, "containers": containers or []}}, Pod)


@dataclass
class FakeClient:
    """Takes the node's writes; ``on_write`` is told of each."""

    objects: dict[str, Pod] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    patches: list[dict[str, Any]] = field(default_factory=list)
    version: int = 1

    async def patch(
        self, kind: type[Pod], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> Pod:
        assert isinstance(patch, MergePatch)
        await asyncio.sleep(0)
        if name not in self.objects:
            raise NotFound("no such pod", status=404, reason="NotFound")
        self.patches.append(patch.body)
        self.version += 1
        self.objects[name] = _patched(self.objects[name], patch.body["status"], self.version)
        return self.objects[name]

    async def delete(
        self,
        kind: type[Pod],
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        grace_period: int | None = None,
    ) -> Pod | None:
        assert grace_period == 0
        self.deleted.append(name)
        return self.objects.pop(name, None)


def _patched(pod: Pod, change: dict[str, Any], version: int) -> Pod:
    plain = to_dict(pod)
    status = dict(plain.get("status", {}))
    for key, value in change.items():
        if key == "conditions":
            merged = {c["type"]: c for c in status.get(key, [])}
            for each in value:
                both = merged.get(each["type"], {}) | each
                merged[each["type"]] = {k: v for k, v in both.items() if v is not None}
            status[key] = list(merged.values())
        elif isinstance(value, list):
            status[key] = [each for each in value if "$patch" not in each]
        else:
            status[key] = value
    plain["status"] = {key: value for key, value in status.items() if value is not None}
    plain["metadata"]["resourceVersion"] = str(version)
    return decode(plain, Pod)


@dataclass
class FakeEvents:
    """Remembers what was recorded: (type, reason, message)."""

    seen: list[tuple[str, str, str]] = field(default_factory=list)

    def normal(self, obj: Object, reason: str, message: str, *, action: str = "") -> None:
        self.seen.append(("Normal", reason, message))

    def warning(self, obj: Object, reason: str, message: str, *, action: str = "") -> None:
        self.seen.append(("Warning", reason, message))

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.seen]


@dataclass
class FakeTokens:
    """Issues tokens that say whom they are for and the how many-th they are."""

    seconds: float = 3600.0
    issued: int = 0

    async def __call__(self, pod: Pod, wanted: ServiceAccountTokenProjection) -> Token:
        self.issued += 1
        expires = SystemClock().now() + timedelta(seconds=self.seconds)
        return Token(f"{pod.metadata.name} {wanted.audience} {self.issued}", expires)


@dataclass
class FakeSources:
    """Objects that pods refer to, by name."""

    config_maps: dict[str, ConfigMap] = field(default_factory=dict)
    secrets: dict[str, Secret] = field(default_factory=dict)
    claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    service_objects: list[Service] = field(default_factory=list)

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self.config_maps.get(name)

    def secret(self, namespace: str, name: str) -> Secret | None:
        return self.secrets.get(name)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(name)

    def volume(self, name: str) -> PersistentVolume | None:
        return self.volumes.get(name)

    def services(self, namespace: str) -> list[Service]:
        return self.service_objects

    def add_config_map(self, name: str, **data: str) -> None:
        self.config_maps[name] = decode({"metadata": {"name": name}, "data": data}, ConfigMap)

    def add_claim(self, name: str, path: Path) -> None:
        spec = {"volumeName": f"pv-{name}"}
        self.claims[name] = decode(
            {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}, PersistentVolumeClaim
        )
        source = {"hostPath": {"path": str(path)}, "accessModes": ["ReadWriteOnce"]}
        volume = decode({"metadata": {"name": f"pv-{name}"}, "spec": source}, PersistentVolume)
        self.volumes[f"pv-{name}"] = volume


class Bed:
    """``async with Bed(tmp_path) as bed``: a node with a network; everything it made is removed at the end."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Settings | None = None,
        cgroups: Cgroups | None = None,
        images: ImageStore | None = None,
    ):
        self.directory = directory
        plane = plane_id(directory)
        self.client, self.events, self.sources = FakeClient(), FakeEvents(), FakeSources()
        self.tokens = FakeTokens()
        self.network = Network(network_config(plane))
        self.spawner, self.logs = Spawner(), LogPump()
        self.node = Node(
            name="n1",
            plane=plane,
            address=self.network.config.node_address(0),
            data_dir=directory,
            clock=SystemClock(),
            client=self.client,
            events=self.events,
            sources=self.sources,
            tokens=self.tokens,
            spawner=self.spawner,
            logs=self.logs,
            catalog=Catalog(store=images),
            network=self.network,
            tools=Tools(directory / "tools"),
            cgroups=cgroups or Cgroups(0, plane),
            settings=settings or Settings(crash_backoff_initial=0.05, crash_backoff_cap=0.2, force_grace=0.1),
            allocatable={"cpu": "2", "memory": "1Gi"},
        )
        self.workers: list[PodWorker] = []

    async def __aenter__(self) -> Bed:
        await self.network.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.shut_down(0)
        await asyncio.gather(*(worker.ended.wait() for worker in self.workers))
        await self.network.stop()
        self.spawner.close()
        self.logs.close()
        if error is not None:
            for entry in self.events.seen:
                print(*entry, file=sys.stderr)  # noqa: T201

    def run(self, pod: Pod) -> PodWorker:
        """Give the node a pod."""
        self.client.objects[pod.metadata.name or ""] = pod
        worker = PodWorker(self.node, pod)
        self.workers.append(worker)
        worker.start()
        return worker

    def status(self, name: str = "web") -> dict[str, Any]:
        """A pod's status as the API would show it."""
        found = self.client.objects[name].status
        return to_dict(found) if found else {}

    def container(self, name: str = "web", index: int = 0) -> dict[str, Any]:
        """The status of a container."""
        statuses: list[dict[str, Any]] = self.status(name)["containerStatuses"]
        return statuses[index]

    def condition(self, kind: str, name: str = "web") -> dict[str, Any]:
        """A condition of a pod."""
        found: dict[str, Any] = next(c for c in self.status(name)["conditions"] if c["type"] == kind)
        return found

    async def phase(self, phase: str, name: str = "web") -> None:
        """Wait for a phase."""
        await until(lambda: self.status(name).get("phase") == phase)

    async def sh(self, worker: PodWorker, script: str) -> tuple[int, str]:
        """Run a shell line in a pod's first container: exit status and what it wrote."""
        from mooring.local.node.exec import capture

        output = await capture(worker.main[0].entrance, ["sh", "-c", script], timeout=10)
        return output.status, output.text.decode()

    def edit(self, worker: PodWorker, plain: dict[str, Any]) -> None:
        """What a change of the object by somebody else looks like to the node: the API has it, and its watch tells."""
        self.client.version += 1
        plain["metadata"]["resourceVersion"] = str(self.client.version)
        self.client.objects[plain["metadata"]["name"]] = decode(plain, Pod)
        worker.update(decode(plain, Pod))

    def delete(self, worker: PodWorker, *, grace: int = 30) -> None:
        """What the API's graceful deletion looks like to the node."""
        plain = to_dict(worker.view.pod)
        plain["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": grace,
        }
        worker.update(decode(plain, Pod))
