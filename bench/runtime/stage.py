"""Where the peers are compared: one real control plane, accounts that tell them apart, and what they cost.

Every process that takes part has a ServiceAccount of its own, so the audit log says who wrote what, whatever
the client library. The controller manager is paused while the benchmark runs: its garbage collector would look
up the owner of every child and share the processors with what is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from bench.runtime.widget import Widget, WidgetSpec
from hack.kubernetes.controlplane import ControlPlane

from mooring.kube import (
    ApplyPatch,
    Client,
    Config,
    HttpTransport,
    MergePatch,
    NotFound,
    Object,
    TooManyRequests,
    TransportError,
)
from mooring.kube.objects.core import ConfigMap, Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import render_crd

__all__ = ["Cpu", "Stage", "Writes", "cpu_of", "resident", "until_quiet"]

TICKS = os.sysconf("SC_CLK_TCK")
#: Requests in flight when objects are made or edited in bulk.
IN_FLIGHT = 48
#: Makes a Widget about as large as a real custom resource: 1.8 kB with its metadata.
NOTES = "Lorem ipsum dolor sit amet, consectetur adipiscing elit. " * 21

KOPF_PEERING: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kopfpeerings.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Namespaced",
        "names": {"plural": "kopfpeerings", "singular": "kopfpeering", "kind": "KopfPeering"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                        },
                    }
                },
            }
        ],
    },
}


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, its threads included; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid: int) -> float:
    """Resident MiB of a process; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def until_quiet(pid: int, *, quiet: float = 2.0, within: float = 600.0) -> float:
    """Wait until a process used less than 5 % of a core for ``quiet`` seconds; seconds until that began."""
    began = last_busy = time.monotonic()
    step, before = 0.25, cpu_of(pid)
    while (now := time.monotonic()) - last_busy < quiet:
        if now - began > within:
            raise TimeoutError(f"process {pid} did not come to rest within {within:.0f} s")
        await asyncio.sleep(step)
        used, before = cpu_of(pid) - before, cpu_of(pid)
        if used > 0.05 * step + 1 / TICKS:
            last_busy = time.monotonic()
    return last_busy - began


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of the servers so far."""

    apiserver: float
    etcd: float


@dataclass(frozen=True, slots=True)
class Writes:
    """What an account did, by the audit log; Leases and KopfPeerings apart."""

    creates: int = 0
    patches: int = 0
    others: int = 0
    election: int = 0
    already_exists: int = 0
    conflicts: int = 0
    failed: int = 0
    reads: int = 0

    @property
    def all(self) -> int:
        """Writes that reached the API server, whatever it answered."""
        return self.creates + self.patches + self.others


class Stage:
    """A running control plane with the benchmark's kind; an async context manager."""

    def __init__(self) -> None:
        self._plane = ControlPlane(audit="Metadata")
        self._audited = 0
        self._pids: dict[str, int] = {}
        self.client: Client
        self.server = ""

    async def __aenter__(self) -> Stage:
        await asyncio.to_thread(self._plane.__enter__)
        try:
            await self._prepare()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if hasattr(self, "client"):
            await self.client.close()
        await asyncio.to_thread(self._plane.__exit__, None, None, None)

    async def _prepare(self) -> None:
        self.client = Client(HttpTransport(Config.load(self._plane.kubeconfig)))
        self.server = self._plane.state.server
        self._pids = {name: process.pid for name, process in self._plane.state.processes.items()}
        for definition in (render_crd(Widget), KOPF_PEERING):
            await self._apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        await self._served(Widget.resource.path(namespace="default"))
        await self._served("/apis/kopf.dev/v1/namespaces/default/kopfpeerings")
        os.kill(self._pids["kube-controller-manager"], signal.SIGSTOP)

    async def _apply(self, collection: str, manifest: dict[str, Any]) -> None:
        await self.client.request(
            "PATCH",
            f"{collection}/{manifest['metadata']['name']}",
            query={"fieldManager": "bench", "force": "true"},
            body=ApplyPatch(manifest).encode(),
            content_type=ApplyPatch.content_type,
        )

    async def _served(self, path: str) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                await self.client.request("GET", path)
                return
            except (NotFound, TooManyRequests):  # not served yet
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    # --- accounts and places

    async def namespace(self, name: str) -> None:
        """Make a namespace with the peering object that kopf asks for."""
        await self.client.create(Namespace(metadata=ObjectMeta(name=name)))
        peering = {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "bench"}}
        await self._apply(f"/apis/kopf.dev/v1/namespaces/{name}/kopfpeerings", peering)

    async def account(self, name: str, directory: Path, *, server: str = "") -> Path:
        """An administrator's account of that name; the path of its kubeconfig. ``server``: another address."""
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        await self._apply(accounts, account)
        await self._apply("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        wish = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86400},
        }
        answer = await self.client.request("POST", f"{accounts}/{name}/token", body=json.dumps(wish).encode())
        config = yaml.safe_load(self._plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": json.loads(answer.body)["status"]["token"]}
        if server:
            config["clusters"][0]["cluster"]["server"] = server
        path = directory / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    # --- objects

    async def make(self, namespace: str, count: int, *, children: int) -> None:
        """Create widgets ``w-0`` and so on."""

        async def one(number: int) -> None:
            meta = ObjectMeta(name=f"w-{number}", namespace=namespace)
            spec = WidgetSpec(children=children, value="first", notes=NOTES)
            await self.client.create(Widget(metadata=meta, spec=spec))

        await _bounded(one(number) for number in range(count))

    async def edit(self, namespace: str, name: str, value: str) -> None:
        """Change a widget's value; on a machine that cannot keep the rate, later than asked."""
        patch = MergePatch({"spec": {"value": value}})
        path = Widget.resource.path(namespace=namespace, name=name)
        await self.client.request(
            "PATCH", path, body=patch.encode(), content_type=patch.content_type, timeout=120
        )

    async def clear(self, namespace: str) -> None:
        """Delete what the benchmark and the peers have made in a namespace."""
        for kind in (Widget, ConfigMap):
            await self._delete_all(kind, namespace)

    async def _delete_all(self, kind: type[Object], namespace: str) -> None:
        path = kind.resource.path(namespace=namespace)
        deadline = time.monotonic() + 300
        while True:
            try:
                await self.client.request("DELETE", path, timeout=240)
            except TransportError:  # the answer is a list of all that was deleted: it may be late
                if time.monotonic() > deadline:
                    raise
            if not (await self.client.list(kind, namespace=namespace, limit=1)).items:
                return

    async def in_sync(self, namespace: str) -> int:
        """How many widgets show their value in their status."""
        listing = await self.client.list(Widget, namespace=namespace)
        return sum(1 for w in listing.items if w.spec and w.status and w.status.value == w.spec.value)

    # --- costs

    def cpu(self) -> Cpu:
        """CPU of the API server and of etcd so far."""
        return Cpu(cpu_of(self._pids["kube-apiserver"]), cpu_of(self._pids["etcd"]))

    def pids(self) -> Sequence[int]:
        """The servers' processes."""
        return tuple(self._pids.values())

    def mark(self) -> int:
        """The present end of the audit log, for `writes`."""
        return sum(path.stat().st_size for path in _parts(self._plane.audit_log))

    async def writes(self, account: str, since: int) -> Writes:
        """What an account did from a mark on."""
        await asyncio.sleep(0.2)  # an event is logged after its answer was sent
        user = f"system:serviceaccount:default:{account}"
        return await asyncio.to_thread(_count, self._plane.audit_log, user, since)


def _parts(log: Path) -> list[Path]:
    """The audit log in order: the API server begins a new file every 100 MB and renames the old one."""
    return [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]


def _count(log: Path, user: str, since: int) -> Writes:
    found: Counter[str] = Counter()
    needle = json.dumps(user).encode()
    for part in _parts(log):
        size = part.stat().st_size
        with part.open("rb") as lines:
            lines.seek(min(since, size))
            since = max(0, since - size)
            for line in lines:
                if needle in line and line.endswith(b"\n"):
                    found.update(_kinds_of(json.loads(line)))
    return Writes(**found)


def _kinds_of(event: dict[str, Any]) -> Iterable[str]:
    verb, reference = event["verb"], event.get("objectRef") or {}
    if verb in ("get", "list", "watch"):
        yield "reads"
        return
    if reference.get("resource") in ("leases", "kopfpeerings"):
        yield "election"
        return
    yield {"create": "creates", "patch": "patches"}.get(verb, "others")
    code = event["responseStatus"].get("code")
    reason = event["responseStatus"].get("reason")
    if reason == "AlreadyExists":
        yield "already_exists"
    elif code == 409:
        yield "conflicts"
    elif code >= 400:
        yield "failed"


async def _bounded(steps: Iterable[Any]) -> None:
    """Run coroutines, so many at a time."""
    todo = iter(steps)

    async def worker() -> None:
        for step in todo:
            await step

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


def port_of(server: str) -> int:
    """The port of a URL."""
    port = urllib.parse.urlsplit(server).port
    if port is None:
        raise ValueError(f"{server} names no port")
    return port
