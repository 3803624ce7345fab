"""``mooring demo --what redis``: a Redis cluster with sentinels that survives its master, and what that cost."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mooring.kube import Client
from mooring.kube.objects.core import Pod, Service
from mooring.local.directory import DataDirectory
from mooring.local.plane import Plane
from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.ledger import Ledger
from mooring.testing.show import DemoFailed, Manifest, Show, namespace_of, ready_pods

__all__ = ["RedisShow"]

HEALTHY_SECONDS = 90.0
TAKEOVER_SECONDS = 40.0
PATIENCE = 0.5
"""Seconds the writer waits for a reply before it asks the sentinels again."""
RATE = 200.0


@dataclass(frozen=True, slots=True)
class _Fault:
    """What one fault did, as the writer saw it."""

    served: str
    gap: float
    acknowledged: int
    lost_acknowledged: int
    confirmed: int
    lost_confirmed: int


class RedisShow(Show):
    """The story of a RedisCluster."""

    def __init__(self, directory: DataDirectory, manifest: Manifest, *, stay: bool, program: str) -> None:
        super().__init__(directory, manifest, stay=stay, program=program)
        self._actors: _Stage
        self._sentinels = ""

    async def tell(self, plane: Plane, client: Client) -> None:
        """See `Show`."""
        cluster = self._manifest.cluster
        self._actors = stage = _Stage(plane, client, namespace_of(cluster), cluster["metadata"]["name"], self)
        began = time.monotonic()
        await stage.healthy(HEALTHY_SECONDS)
        self.say(f"Healthy {time.monotonic() - began:.1f} s after the apply")
        password = _password(self._manifest)
        self._sentinels = sentinels = await stage.sentinels()
        self.say(f"writing {RATE:.0f} keys per second through the sentinels at {sentinels}")

        killed = await stage.fault(
            "kill -9 of the master's server", sentinels, password, number=signal.SIGKILL, thaw=False
        )
        frozen = await stage.fault(
            "SIGSTOP of the master's server (it hangs)", sentinels, password, number=signal.SIGSTOP, thaw=True
        )
        for name, fault in (("kill -9", killed), ("SIGSTOP", frozen)):
            self.say(
                f"{name}: {fault.served} served next; no write for {fault.gap:.2f} s; lost "
                f"{fault.lost_acknowledged} of {fault.acknowledged} acknowledged, "
                f"{fault.lost_confirmed} of {fault.confirmed} confirmed by a replica"
            )
        if killed.lost_confirmed or frozen.lost_confirmed:
            raise DemoFailed("confirmed writes were lost")

    def farewell(self) -> Sequence[str]:
        """See `Show`."""
        stage = self._actors
        host, port = self._sentinels.rsplit(":", 1)
        prefix = f"{self._program} enter --data-dir {self._directory.path} "
        return [
            f"  kubectl -n {stage.namespace} get rediscluster,pods -o wide",
            f"  kubectl -n {stage.namespace} describe rediscluster {stage.name}",
            f"  {prefix}redis-cli -h {host} -p {port} sentinel get-master-addr-by-name mymaster",
            f"  kubectl -n {stage.namespace} exec -it {stage.master} -c redis -- redis-cli"
            + ("   # AUTH as in the manifest" if _password(self._manifest) else ""),
        ]


class _Stage:
    """The cluster on stage."""

    def __init__(self, plane: Plane, client: Client, namespace: str, name: str, show: RedisShow) -> None:
        self._plane, self._client, self._show = plane, client, show
        self.namespace, self.name = namespace, name
        self.master = ""

    async def _get(self) -> RedisCluster:
        return await self._client.get(RedisCluster, self.name, namespace=self.namespace)

    async def healthy(self, seconds: float) -> None:
        """Wait until the cluster says Healthy, showing what changes."""
        seen = ""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            cluster = await self._get()
            line = await self._progress(cluster)
            if line != seen:
                self._show.say(line)
                seen = line
            if _healthy(cluster):
                self.master = (cluster.status and cluster.status.master) or ""
                return
            await asyncio.sleep(0.1)
        raise DemoFailed(f"not Healthy within {seconds:.0f} s; last: {seen}")

    async def _progress(self, cluster: RedisCluster) -> str:
        page = await self._client.list(
            Pod, namespace=self.namespace, label_selector=f"app.kubernetes.io/name={self.name}"
        )
        ready = ready_pods(page.items)
        status = cluster.status
        newest = status.conditions[0] if status and status.conditions else None
        state = f"{newest.type}: {newest.message}" if newest else "declared"
        master = f", master {status.master}" if status and status.master else ""
        return f"{state} ({ready}/{len(page.items)} pods ready{master})"

    async def sentinels(self) -> str:
        """Address of the sentinels' Service."""
        found = await self._client.get(Service, f"redis-sentinel-{self.name}", namespace=self.namespace)
        return f"{found.spec.cluster_ip if found.spec else ''}:26379"

    async def fault(
        self, what: str, sentinels: str, password: str, *, number: signal.Signals, thaw: bool
    ) -> _Fault:
        """Do it to the master under a writer; wait until another serves and all is well again."""
        host, port = sentinels.rsplit(":", 1)
        ledger = Ledger(sentinels=[Address(host, int(port))], password=password, rate=RATE, patience=PATIENCE)
        writing = asyncio.create_task(ledger.write())
        try:
            await self._until(lambda: _true(ledger.acknowledged > RATE), 15.0, "the writer got through")
            old = self.master
            pid = self._plane.agent.program_pid(self.namespace, old, "redis")
            self._show.say(f"{what}: {old}, process {pid}")
            os.kill(pid, number)
            began = time.monotonic()
            try:
                await self._until(lambda: self._other_master(old), TAKEOVER_SECONDS, "another master")
                self._show.say(f"{self.master} is master after {time.monotonic() - began:.1f} s")
            finally:
                if thaw:
                    os.kill(pid, signal.SIGCONT)
            if thaw:
                self._show.say(f"thawed {old}")
            await self.healthy(HEALTHY_SECONDS)
            self._show.say(f"{old} follows {self.master}")
            before = ledger.acknowledged
            await self._until(lambda: _true(ledger.acknowledged > before + RATE / 2), 15.0, "writes go on")
        finally:
            ledger.stop()
            await asyncio.wait({writing})
        report = await ledger.check()
        return _Fault(
            served=self.master,
            gap=report.longest_gap,
            acknowledged=report.acknowledged,
            lost_acknowledged=report.lost_acknowledged,
            confirmed=report.confirmed,
            lost_confirmed=report.lost_confirmed,
        )

    async def _other_master(self, old: str) -> bool:
        status = (await self._get()).status
        if status and status.master and status.master != old:
            self.master = status.master
            return True
        return False

    async def _until(self, check: Any, seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if await check():
                return
            await asyncio.sleep(0.02)
        raise DemoFailed(f"waited {seconds:.0f} s in vain: {what}")


async def _true(value: bool) -> bool:
    return value


def _healthy(cluster: RedisCluster) -> bool:
    status = cluster.status
    current = status is not None and status.observed_generation == cluster.metadata.generation
    return bool(current and status and status.conditions and status.conditions[0].type == "Healthy")


def _password(manifest: Manifest) -> str:
    spec = manifest.cluster["spec"]
    if reference := spec.get("passwordSecret"):
        for document in manifest.documents:
            if document["kind"] == "Secret" and document["metadata"]["name"] == reference["name"]:
                return _secret_value(document, reference.get("key", "password"))
        raise DemoFailed(f"the manifest does not hold the Secret {reference['name']} of passwordSecret")
    return str(spec.get("password", ""))


def _secret_value(secret: dict[str, Any], key: str) -> str:
    plain, encoded = secret.get("stringData") or {}, secret.get("data") or {}
    return str(plain[key]) if key in plain else base64.b64decode(encoded.get(key, "")).decode()
