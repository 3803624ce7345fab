"""A Redis Cluster on a bed, seen from outside: it does not believe the operator and asks every server itself."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from redis.crc import key_slot

from mooring.kube import MergePatch, NotFound
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.kube.objects.events import Event
from mooring.operators.redis.cluster import KINDS, register
from mooring.operators.redis.cluster.names import selector_of
from mooring.operators.redis.cluster.slots import ALL, Slots, count
from mooring.operators.redis.cluster.topology import Peer, parse_nodes
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterStatus
from mooring.operators.redis.dial import Address, Dial, DialError, Link, Refused
from mooring.operators.registry import Operator
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed, NotInTime

__all__ = ["OPERATOR", "Report", "Stage", "manifest", "remove", "renewed", "restarted"]

OPERATOR = Operator("redis-cluster", KINDS, register)


def manifest(
    name: str = "demo", *, replicas: int = 6, persistence: bool = True, password: str = "", **spec: Any
) -> dict[str, Any]:
    """A small cluster; without persistence on an emptyDir. Further words go into the spec as they are."""
    pod: dict[str, Any] = {
        "middlewareImage": "redis:7.0",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        **spec.pop("pod", {}),
    }
    if password:
        pod["requirepass"] = password
    body: dict[str, Any] = {"replicas": replicas, "pod": [pod], **spec}
    if persistence:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body["volumeClaimTemplates"] = [{"metadata": {"name": "redis-data"}, "spec": claim}]
    return {
        "apiVersion": "redis.middleware.hc.cn/v1alpha1",
        "kind": "RedisCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": body,
    }


@dataclass
class Report:
    """What a writer saw."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    longest: float = 0.0


class Client:
    """Follows MOVED and ASK and asks another node when one is gone, as any client does, and nothing else.

    redis-py's own fails at an ASK to a node it has not heard of.
    """

    def __init__(self, stage: Stage, stack: AsyncExitStack) -> None:
        self._stage, self._stack = stage, stack
        self._seeds: list[Address] = []
        self._links: dict[Address, Link] = {}
        self._owners: dict[int, Address] = {}

    async def call(self, key: str, command: str, *words: str) -> Any:
        """One command on one key; raises what is neither an answer nor a redirection."""
        slot = key_slot(key.encode())
        if not self._seeds:
            self._seeds = await self._stage.served() or list((await self._stage.addresses()).values())
        address = self._owners.get(slot, self._seeds[slot % len(self._seeds)])
        asking = False
        for _ in range(20):
            try:
                link = await self._link(address)
                sent: list[tuple[str, ...]] = [("ASKING",)] if asking else []
                answer = (await link.pipeline([*sent, (command, key, *words)]))[-1]
            except Refused:
                raise
            except DialError:
                self._links.pop(address, None)
                self._owners = {one: owner for one, owner in self._owners.items() if owner != address}
                seeds = await self._stage.served() or list((await self._stage.addresses()).values())
                self._seeds = [one for one in seeds if one != address] or seeds
                address, asking = self._seeds[slot % len(self._seeds)], False
                await asyncio.sleep(0.05)
                continue
            if not isinstance(answer, Refused):
                return answer
            kind, _, where = answer.reply.partition(" ")
            if kind not in ("MOVED", "ASK"):
                raise answer
            host, _, port = where.split()[1].rpartition(":")
            address, asking = Address(host, int(port)), kind == "ASK"
            if not asking:
                self._owners[slot] = address
        raise NotInTime(f"{key} was sent from node to node")

    async def _link(self, address: Address) -> Link:
        if address not in self._links:
            opened = self._stage.dial.link(address, password=self._stage.password)
            self._links[address] = await self._stack.enter_async_context(opened)
        return self._links[address]


class Stage:
    """One cluster."""

    def __init__(
        self,
        bed: Bed | KubernetesBed | ClusterBed,
        name: str,
        *,
        namespace: str = "default",
        password: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.bed, self.name, self.namespace, self.password = bed, name, namespace, password
        self.port = 6379 if tls is None else 6380
        self.dial = Dial(connect_timeout=0.5 if tls is None else 5.0, reply_timeout=10.0, tls=tls)

    # --- what it says

    async def status(self) -> RedisClusterStatus:
        return (await self.bed.get(RedisCluster, self.name, self.namespace)).status or RedisClusterStatus()

    async def told(self) -> Counter[str]:
        """How often each Event was told of it."""
        found = await self.bed.client.list(Event, namespace=self.namespace)
        ours = [one for one in found.items if one.regarding is not None and one.regarding.name == self.name]
        counts: Counter[str] = Counter()
        for one in ours:
            if one.regarding and one.regarding.kind == "RedisCluster":
                counts[one.reason or ""] += (one.series.count if one.series else None) or 1
        return counts

    async def tells(self, *reasons: str) -> None:
        """Wait until each of these Events was told, and see that it was once."""

        counts: Counter[str] = Counter()

        async def said() -> bool:
            nonlocal counts
            counts = await self.told()
            return set(reasons) <= set(counts)

        try:
            await self.bed.until(said, "all Events are there")
        except NotInTime:
            raise NotInTime(f"of {', '.join(reasons)} there are {dict(counts)}") from None
        assert {reason: counts[reason] for reason in reasons} == dict.fromkeys(reasons, 1), counts

    async def patch(self, spec: dict[str, Any]) -> None:
        await self.bed.client.patch(
            RedisCluster, self.name, MergePatch({"spec": spec}), namespace=self.namespace
        )

    async def pods(self) -> list[Pod]:
        selector = ",".join(f"{key}={value}" for key, value in selector_of(self.name).items())
        found = await self.bed.pods(self.namespace, selector)
        return sorted(found, key=lambda pod: int((pod.metadata.name or "").rpartition("-")[2]))

    async def addresses(self) -> dict[str, Address]:
        return {
            pod.metadata.name or "": Address(pod.status.pod_ip, self.port)
            for pod in await self.pods()
            if pod.status and pod.status.pod_ip and not pod.metadata.deletion_timestamp
        }

    async def served(self) -> list[Address]:
        """Where a Service would send a client."""
        found = await self.addresses()
        return [
            found[name]
            for pod in await self.pods()
            if (name := pod.metadata.name or "") in found
            and pod.status
            and any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())
        ]

    # --- talking to the servers

    async def call(self, pod: str, *words: str | int) -> Any:
        async with self.dial.link((await self.addresses())[pod], password=self.password) as link:
            return await link.call(*words)

    async def confirmed(self, master: str) -> None:
        """Wait until a replica has all that this server has: WAIT speaks of its own connection's writes only."""
        async with self.dial.link((await self.addresses())[master], password=self.password) as link:
            await link.call("SET", "confirmed", "1")
            assert await link.call("WAIT", 1, 10_000) == 1

    async def view(self, pod: str) -> dict[str, Peer]:
        return {peer.id: peer for peer in parse_nodes(await self.call(pod, "CLUSTER", "NODES"))}

    async def me(self, pod: str) -> Peer:
        return next(peer for peer in (await self.view(pod)).values() if "myself" in peer.flags)

    async def owned(self) -> dict[str, Slots]:
        """Slots of every master, by pod."""
        return {pod: me.slots for pod in await self.addresses() if (me := await self.me(pod)).is_master}

    async def flaw(self, replicas: int, masters: int | None = None) -> str:
        """What is not as it should be, by the servers' own word; "" when all is."""
        try:
            return await self._flaw(replicas, masters)
        except DialError as error:
            return str(error)
        except KeyError as gone:  # between two questions
            return f"{gone} has no address"

    async def _flaw(self, replicas: int, masters: int | None) -> str:
        addresses = await self.addresses()
        if len(addresses) != replicas or len(await self.pods()) != replicas:
            return f"{len(addresses)} of {replicas} pods"
        views: dict[str, dict[str, Peer]] = {}
        for pod in addresses:
            views[pod] = await self.view(pod)
        mine = {pod: next(p for p in view.values() if "myself" in p.flags) for pod, view in views.items()}
        ids = {peer.id for peer in mine.values()}
        for pod, view in views.items():
            if set(view) != ids:
                return f"{pod} knows {len(view)} nodes, there are {len(ids)}"
            for other, peer in mine.items():
                seen = view[peer.id]
                if seen.slots != peer.slots or seen.master != peer.master:
                    return f"{pod} sees {other} otherwise than itself"
                if not seen.connected or seen.failed or "fail?" in seen.flags:
                    return f"{pod} is not connected to {other}"
                if other != pod and seen.address != addresses[other]:
                    return f"{pod} knows {other} at {seen.address}"
            if mine[pod].marks:
                return f"{pod} has open marks"
        owners = {pod: peer.slots for pod, peer in mine.items() if peer.is_master}
        if any(not slots for slots in owners.values()):
            return "a master has no slots"
        if sum(owners.values()) != ALL or sum(map(count, owners.values())) != 16384:
            return "the slots are not covered exactly once"
        if len(owners) != (masters or replicas // 2):
            return f"{len(owners)} masters"
        for pod, peer in mine.items():
            if "cluster_state:ok" not in await self.call(pod, "CLUSTER", "INFO"):
                return f"{pod} does not serve"
            if peer.master:
                info = await self.call(pod, "INFO", "replication")
                if "master_link_status:up" not in info:
                    return f"{pod} is not in sync"
        followed = {peer.master for peer in mine.values() if peer.master}
        if followed != {mine[pod].id for pod in owners}:
            return "a master has no replica"
        return ""

    async def unsettled(self) -> str:
        """Why the operator does not say Running of this generation; "" when it does."""
        obj = await self.bed.get(RedisCluster, self.name, self.namespace)
        status = obj.status or RedisClusterStatus()
        if status.observed_generation == obj.metadata.generation and status.phase == "Running":
            return ""
        flaw = f"phase {status.phase}: {status.reason_type} {status.reason}"
        progress = next((c for c in status.standard_conditions or () if c.type == "Progressing"), None)
        return flaw + (f" ({progress.reason}: {progress.message})" if progress else "")

    async def exact(self, replicas: int, *, masters: int | None = None, within: float = 60.0) -> float:
        """Wait until the operator says Running of this generation, and every server says so too."""
        began = monotonic()
        while flaw := await self.unsettled() or await self.flaw(replicas, masters):
            if monotonic() - began > within:
                raise NotInTime(f"{self.name} is not exact after {within:.0f} s: {flaw}")
            await asyncio.sleep(0.1)
        return monotonic() - began

    # --- data

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A plain cluster client."""
        async with AsyncExitStack() as stack:
            yield Client(self, stack)

    async def fill(self, number: int) -> None:
        """Write numbered keys, whole batches to each owner, and wait for the replicas."""
        owned = await self.owned()
        addresses = await self.addresses()
        for pod, slots in owned.items():
            mine = [key for at in range(number) if slots >> key_slot((key := f"kept:{at}").encode()) & 1]
            async with self.dial.link(addresses[pod], password=self.password) as link:
                for start in range(0, len(mine), 1000):
                    done = await link.pipeline(
                        [("SET", key, f"v{key}") for key in mine[start : start + 1000]]
                    )
                    assert set(done) == {"OK"}, done[:3]
                assert await link.call("WAIT", 1, 5000)

    async def kept(self, number: int) -> int:
        """How many of the numbered keys are where the slots are, with their value."""
        found = 0
        addresses = await self.addresses()
        for pod, slots in (await self.owned()).items():
            mine = [key for at in range(number) if slots >> key_slot((key := f"kept:{at}").encode()) & 1]
            async with self.dial.link(addresses[pod], password=self.password) as link:
                for start in range(0, len(mine), 1000):
                    part = mine[start : start + 1000]
                    answers = await link.pipeline([("GET", key) for key in part])
                    if refused := [one for one in answers if isinstance(one, Refused)]:
                        raise refused[0]
                    found += sum(1 for key, answer in zip(part, answers, strict=True) if answer == f"v{key}")
        return found

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Report]:
        """A plain cluster client writes as long as the block lasts."""
        report, end = Report(), asyncio.Event()

        async def write() -> None:
            last, at = monotonic(), 0
            async with self.client() as client:
                while not end.is_set():
                    at += 1
                    try:
                        await client.call(f"written:{at}", "SET", str(at))
                    except (DialError, NotInTime) as error:
                        name = f"{type(error).__name__}: {str(error)[:60]}"
                        report.errors[name] = report.errors.get(name, 0) + 1
                        await asyncio.sleep(0.05)
                        continue
                    report.acknowledged[f"written:{at}"] = str(at)
                    report.longest = max(report.longest, monotonic() - last)
                    last = monotonic()
                    await asyncio.sleep(0.005)

        task = asyncio.create_task(write())
        try:
            yield report
        finally:
            end.set()
            await task

    async def lost(self, report: Report) -> list[str]:
        """Acknowledged writes that are gone."""
        async with self.client() as client:
            return [
                key for key, value in report.acknowledged.items() if await client.call(key, "GET") != value
            ]

    async def claims(self) -> list[PersistentVolumeClaim]:
        """Its claims."""
        selector = ",".join(f"{key}={value}" for key, value in selector_of(self.name).items())
        found = await self.bed.client.list(
            PersistentVolumeClaim, namespace=self.namespace, label_selector=selector
        )
        return found.items

    # --- the end

    async def delete(self, *, within: float = 60.0) -> None:
        """Delete it, wait for its pods to go, and take the claims away."""
        with contextlib.suppress(NotFound):
            await self.bed.client.delete(RedisCluster, self.name, namespace=self.namespace)

        async def gone() -> bool:
            return not await self.pods()

        await self.bed.until(gone, f"the pods of {self.name} are gone", within=within)
        for claim in await self.claims():
            with contextlib.suppress(NotFound):
                await self.bed.client.delete(
                    PersistentVolumeClaim, claim.metadata.name or "", namespace=self.namespace
                )


# --- faults


async def remove(stage: Stage, pod: str) -> None:
    """Delete a pod without grace."""
    await stage.bed.client.delete(Pod, pod, namespace=stage.namespace, grace_period=0)


async def renewed(stage: Stage, uids: set[str | None]) -> None:
    """Wait until none of these pods is there any more."""

    async def gone() -> bool:
        return not uids & {pod.metadata.uid for pod in await stage.pods()}

    await stage.bed.until(gone, "the pods are new ones", within=60)  # one after the other, each in sync


async def restarted(stage: Stage, pod: str) -> bool:
    """Its container has been started again."""
    found = await stage.bed.get(Pod, pod, stage.namespace)
    statuses = (found.status.container_statuses if found.status else None) or []
    return any(one.name == "redis" and one.restart_count for one in statuses)
