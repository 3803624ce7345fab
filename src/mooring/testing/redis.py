"""A RedisCluster on a :class:`~mooring.testing.bed.Bed`: what faults and measurements need of it.

    stage = RedisStage(bed, "demo", password="secret")
    await bed.apply(manifest("demo", password="secret"))
    await stage.exact()
    async with stage.writing() as ledger:
        stage.kill(await stage.master())

`exact` does not believe the operator: it asks every server and every sentinel itself.
"""

from __future__ import annotations

import hashlib
import signal
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mooring.kube import NotFound
from mooring.kube.objects.core import Pod, Service
from mooring.operators.redis.address import SENTINEL_TLS_PORT, TLS_PORT
from mooring.operators.redis.dial import Address, Dial, DialError, Login
from mooring.operators.redis.sentinel.names import Names
from mooring.operators.redis.sentinel.topology import REDIS_PORT, SENTINEL_PORT
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterStatus
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed, NotInTime
from mooring.testing.ledger import Ledger
from mooring.testing.stage import Stage, unready, writing_to

__all__ = ["RedisStage", "digest", "manifest"]

#: Keys in one MSET or MGET.
CHUNK = 1000


def manifest(
    name: str = "demo",
    *,
    size: int = 3,
    sentinels: int = 3,
    password: str = "",
    persistence: bool = True,
    sentinel_settings: Sequence[str] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A small cluster; without persistence on an emptyDir. Further words go into the spec as they are."""
    requests = {"cpu": "10m", "memory": "16Mi"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    storage: dict[str, Any] = {
        "persistentVolumeClaim": {"metadata": {"name": "redis-data"}, "spec": claim},
    }
    body: dict[str, Any] = {
        "size": size,
        "image": "redis:7.0",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": requests},
        "storage": storage if persistence else {"emptyDir": {}},
        "sentinel": {
            "replicas": sentinels,
            "image": "redis:7.0",
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": requests},
        },
    }
    if password:
        body["password"] = password
    if not persistence:
        body["disablePersistence"] = True
    if sentinel_settings:
        body["sentinel"]["customConfig"] = list(sentinel_settings)
    return {
        "apiVersion": "redis.kun/v1beta1",
        "kind": "RedisCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**body, **spec},
    }


def digest(number: int, generation: int = 0) -> str:
    """The value of a numbered key: it can be checked without keeping it, and tells an older one apart."""
    return hashlib.sha1(f"{generation}/{number}".encode(), usedforsecurity=False).hexdigest()


class RedisStage(Stage[RedisCluster]):
    """One cluster, seen from outside."""

    kind = RedisCluster

    def __init__(
        self,
        bed: Bed | ClusterBed | KubernetesBed,
        name: str = "demo",
        *,
        namespace: str = "default",
        password: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(bed, name, namespace=namespace, selector=f"app.kubernetes.io/name={name}")
        self.names, self.password = Names(name), password
        self.tls = tls
        self.login()

    def login(self, *logins: Login) -> None:
        """Come with these from now on, where the default user is off."""
        tls = self.tls
        self._dial = Dial(
            connect_timeout=0.5 if tls is None else 5.0, reply_timeout=5.0, tls=tls, keys=logins
        )

    # --- what it says

    async def status(self) -> RedisClusterStatus:
        """Its status; an empty one before the first look."""
        return (await self.get()).status or RedisClusterStatus()

    async def head(self) -> tuple[str, str]:
        """Type and message of the newest condition."""
        newest = next(iter((await self.status()).conditions or ()), None)
        return (newest.type or "", newest.message or "") if newest else ("", "")

    async def master(self) -> str:
        """The pod that leads, by status; raises when none does."""
        master = (await self.status()).master
        if not master:
            raise NotInTime(f"{self.name} has no master")
        return master

    async def pods(self, component: str = "") -> list[Pod]:
        """Its pods that are not on their way out, by name."""
        selector = f"{self.selector},app.kubernetes.io/managed-by=redis-operator"
        if component:
            selector += f",app.kubernetes.io/component={component}"
        return await self._pods(selector)

    async def address(self, pod: str) -> Address:
        """Where a pod's server listens."""
        found = await self.bed.get(Pod, pod, self.namespace)
        ip = (found.status.pod_ip if found.status else None) or ""
        ports = (SENTINEL_PORT, REDIS_PORT) if self.tls is None else (SENTINEL_TLS_PORT, TLS_PORT)
        return Address(ip, ports[0 if "-sentinel-" in pod else 1])

    async def entry(self) -> Address:
        """The Service of the sentinels, through which clients come."""
        service = await self.bed.get(Service, self.names.sentinel, self.namespace)
        port = SENTINEL_PORT if self.tls is None else SENTINEL_TLS_PORT
        return Address((service.spec.cluster_ip if service.spec else None) or "", port)

    # --- talking to the servers

    async def call(self, pod: str, *words: str | int) -> Any:
        """One command to one pod's server."""
        address = await self.address(pod)
        password = self.password if address.port in (REDIS_PORT, TLS_PORT) else ""
        async with self._dial.link(address, password=password) as link:
            return await link.call(*words)

    async def config(self, pod: str, key: str) -> str:
        """One configuration value of one server."""
        answer = await self.call(pod, "CONFIG", "GET", key)
        words = dict(zip(answer[::2], answer[1::2], strict=True)) if isinstance(answer, list) else answer
        return str(words.get(key, ""))

    async def fill(self, count: int, *, generation: int = 0, timeout: float = 60.0) -> None:
        """Write numbered keys through the master and wait until every replica has them."""
        async with self._dial.link(
            await self.address(await self.master()), password=self.password, reply_timeout=timeout
        ) as link:
            for start in range(0, count, CHUNK):
                words: list[str] = ["MSET"]
                for number in range(start, min(start + CHUNK, count)):
                    words += [f"kept:{number}", digest(number, generation)]
                await link.call(*words)
            replicas = len(await self.pods("redis")) - 1
            reached = await link.call("WAIT", replicas, int(timeout * 900))
            if reached < replicas:
                raise NotInTime(f"{reached} of {replicas} replicas took the keys within {timeout:.0f} s")

    async def kept(self, pod: str, count: int, *, generation: int = 0) -> int:
        """How many of the numbered keys a server holds, whole and of that generation."""
        whole = 0
        async with self._dial.link(
            await self.address(pod), password=self.password, reply_timeout=30.0
        ) as link:
            for start in range(0, count, CHUNK):
                numbers = range(start, min(start + CHUNK, count))
                values = await link.call("MGET", *(f"kept:{number}" for number in numbers))
                whole += sum(
                    1
                    for number, value in zip(numbers, values, strict=True)
                    if value == digest(number, generation)
                )
        return whole

    # --- waiting

    async def healthy(self, within: float = 30.0) -> float:
        """Wait until the operator says Healthy of the present generation; returns the seconds."""
        return await self._until(self._unhealthy, within=within)

    async def exact(self, within: float = 30.0) -> float:
        """Wait until it is Healthy and every server and sentinel agrees; returns the seconds."""
        return await self._until(self.flaw, within=within)

    async def _unhealthy(self) -> str:
        cluster = await self.get()
        status = cluster.status or RedisClusterStatus()
        newest = next(iter(status.conditions or ()), None)
        if newest is None or status.observed_generation != cluster.metadata.generation:
            return "the present generation was not observed yet"
        if newest.type != "Healthy":
            return f"{newest.type}: {newest.reason}: {newest.message}"
        progressing = next((one for one in status.conditions or () if one.type == "Progressing"), None)
        if progressing is None or progressing.status != "False":
            return f"under way: {progressing.message if progressing else ''}"
        return ""

    async def flaw(self) -> str:
        """What is not as declared, as the processes themselves tell it; empty when all is."""
        if said := await self._unhealthy():
            return said
        cluster = await self.get()
        status, spec = cluster.status, cluster.spec
        assert status is not None
        assert spec is not None
        size = spec.size or 3
        sentinels = (spec.sentinel.replicas if spec.sentinel else None) or 3
        for component, count in (("redis", size), ("sentinel", sentinels)):
            if flaw := await self.unready(component, count):
                return flaw
        try:
            return await self.wrong_roles(status.master or "", size, sentinels)
        except (DialError, NotFound) as error:
            return str(error)

    async def unready(self, component: str, count: int) -> str:
        """What is missing of so many ready pods of a component; empty when nothing is."""
        return unready(await self.pods(component), count, what=component)

    async def wrong_roles(self, master: str, size: int, sentinels: int) -> str:
        """What servers and sentinels say that does not fit this master and these sizes; empty when all does."""
        if not master:
            return "status names no master"
        leader = await self.address(master)
        for ordinal in range(size):
            pod = self.names.pod("redis", ordinal)
            role = await self.call(pod, "ROLE")
            wanted = ["master"] if pod == master else ["slave", leader.ip, leader.port, "connected"]
            if role[: len(wanted)] != wanted:
                return f"{pod} answers {role[:4]}, expected {wanted}"
        for ordinal in range(sentinels):
            pod = self.names.pod("sentinel", ordinal)
            words = await self.call(pod, "SENTINEL", "MASTER", "mymaster")
            it = dict(zip(words[::2], words[1::2], strict=True))
            seen = (it["ip"], it["flags"], int(it["num-slaves"]), int(it["num-other-sentinels"]))
            right = (leader.ip, "master", size - 1, sentinels - 1)
            if seen != right:
                return f"{pod} knows {seen}, expected {right}"
        return ""

    # --- writing

    @asynccontextmanager
    async def writing(self, *, rate: float = 200.0, **how: Any) -> AsyncIterator[Ledger]:
        """A client that came through the sentinels writes all through the block; 100 writes are in at first."""
        how.setdefault("password", self.password)
        how.setdefault("tls", self.tls)
        ledger = Ledger(sentinels=[await self.entry()], rate=rate, **how)
        async with writing_to(ledger, lambda one: self.writes(one, 100)):
            yield ledger

    # --- faults

    def pid(self, pod: str) -> int:
        """The pid of a pod's server."""
        return self.bed.plane.agent.program_pid(self.namespace, pod, _container(pod))

    def kill(self, pod: str, number: int = signal.SIGKILL) -> int:
        """Signal a pod's server; returns its pid."""
        return self.bed.kill(self.namespace, pod, _container(pod), number)

    def kill_empty(self, pod: str) -> int:
        """Kill a server such that it finds an empty directory when it restarts; returns its pid."""
        return self.bed.kill_empty(self.namespace, pod, _container(pod))

    async def restarted(self, pods: dict[str, int], *, within: float = 20.0) -> None:
        """Wait until these pods' servers (pid before, by name) run anew."""
        await self.bed.restarted(
            self.namespace, {(pod, _container(pod)): pid for pod, pid in pods.items()}, within=within
        )


def _container(pod: str) -> str:
    return "sentinel" if "-sentinel-" in pod else "redis"
