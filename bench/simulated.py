"""Redis servers and sentinels that only answer, and a node that only says its pods run: for counting at scale.

Every pod gets a loopback address and a listener there that speaks as much of Redis' protocol as an operator
asks; what it answers is in bench/redis_world.py. Connections are real, so what the operator spends on them is
real too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

from bench.redis_world import Error, Sentinel, Server, World

from mooring.cache.clock import rfc3339
from mooring.kube import Client, Key, MergePatch, NotFound
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import ConfigMap, Node, NodeCondition, NodeStatus, Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.parameters import canonical
from mooring.operators.redis.sentinel.names import cluster_of
from mooring.operators.redis.sentinel.topology import GATE, REDIS_PORT, SENTINEL_PORT
from mooring.operators.workload.configuration import parse_keys
from mooring.runtime import Manager
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["SimulatedNode"]

NODE = "simulated"
RENEW = 10.0
"""Seconds between two renewals of the node's Lease."""
FIRST = IPv4Address("127.2.0.1")


# --- the protocol ---


def encode(answer: Any) -> bytes:
    """An answer of the model as the protocol has it; a status is a bulk string like any other."""
    match answer:
        case Error():
            return f"-{answer.text}\r\n".encode()
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % answer
        case list():
            return b"*%d\r\n" % len(answer) + b"".join(map(encode, answer))
    data = str(answer).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


class _Connection(asyncio.Protocol):
    """One client of one simulated server."""

    def __init__(self, world: World, ip: str, port: int) -> None:
        self._session = world.session(ip, port)
        self._data = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        answers = [encode(self._session.answer(words)) for words in self._commands()]
        if answers:
            self._transport.write(b"".join(answers))

    def _commands(self) -> Iterator[list[str]]:
        """The whole commands received so far; the rest stays."""
        while True:
            parts = self._data.split(b"\r\n")
            if not parts[0].startswith(b"*") or len(parts) < (count := int(parts[0][1:])) * 2 + 2:
                return
            used = parts[: count * 2 + 1]
            yield [part.decode() for part in used[2::2]]
            self._data = self._data[sum(len(part) + 2 for part in used) :]


# --- the node ---


class SimulatedNode:
    """Says of every pod scheduled to it that it runs, once its servers listen."""

    def __init__(self, client: Client) -> None:
        self.manager = Manager(client, name="simulated-node")
        self._client = client
        self._world = World(used=True)
        self._addresses = (str(FIRST + number) for number in itertools.count())
        self._ips: dict[str, str] = {}
        self._files: dict[Key, dict[str, str]] = {}
        self._listening: list[asyncio.Server] = []
        self._pods = self.manager.informers.of(Pod)
        self._controller = Controller("pods", self._reconcile, workers=8)
        self._controller.watch(self._pods)
        self.manager.add(self._controller)
        self.manager.serve("node-lease", self._keep_lease)

    async def register(self) -> None:
        """Create the Node."""
        now = rfc3339(datetime.now(UTC))
        room = {"cpu": "100000", "memory": "1000000Gi", "pods": "100000", "ephemeral-storage": "1000000Gi"}
        ready = NodeCondition(
            type="Ready",
            status="True",
            reason="Simulated",
            last_heartbeat_time=now,
            last_transition_time=now,
        )
        labels = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}
        await self._client.create(Node(metadata=ObjectMeta(name=NODE, labels=labels)))
        status = NodeStatus(capacity=dict(room), allocatable=dict(room), conditions=[ready])
        await self._client.patch(Node, NODE, MergePatch({"status": status}), subresource="status")

    async def close(self) -> None:
        """Listen no more."""
        for one in self._listening:
            one.close()

    async def _keep_lease(self) -> None:
        while True:
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            spec = LeaseSpec(holder_identity=NODE, lease_duration_seconds=40, renew_time=now)
            meta = ObjectMeta(name=NODE, namespace="kube-node-lease")
            with contextlib.suppress(NotFound):
                await self._client.apply(Lease(metadata=meta, spec=spec))
            await asyncio.sleep(RENEW)

    async def _reconcile(self, key: Key) -> Result:
        pod = self._pods.get(key)
        if pod is None or not (pod.spec and pod.spec.node_name):
            return Done()
        ip = await self._start(key, pod)
        wanted = self._status(pod, ip)
        before = pod.status
        ready = any(
            one.type == "Ready" and one.status == "True"
            for one in (before.conditions if before else None) or ()
        )
        if before is None or before.phase != "Running" or ready != self._serves(ip):
            await self._client.patch(
                Pod, key.name, MergePatch({"status": wanted}), namespace=key.namespace, subresource="status"
            )
        return Done()

    def _serves(self, ip: str) -> bool:
        server = self._world.servers.get(ip)
        return server is None or server.master is None or server.master[0] != GATE.ip

    async def _start(self, key: Key, pod: Pod) -> str:
        """The servers of a pod, started once; returns its address."""
        uid = pod.metadata.uid or ""
        if uid in self._ips:
            return self._ips[uid]
        ip = self._ips[uid] = next(self._addresses)
        cluster = f"{key.namespace}/{cluster_of(pod.metadata.labels)}"
        port = SENTINEL_PORT if "-sentinel-" in key.name else REDIS_PORT
        if port == REDIS_PORT:
            config = {canonical(name): value for name, value in (await self._config(key, pod)).items()}
            config["replica-priority"] = "0"  # the arguments of every start
            self._world.servers[ip] = Server(cluster, ip, config, lambda: self._controller.enqueue(key))
        else:
            self._world.sentinels[ip] = Sentinel(cluster, ip)
        loop = asyncio.get_running_loop()
        made = await loop.create_server(lambda: _Connection(self._world, ip, port), ip, port)
        self._listening.append(made)
        return ip

    async def _config(self, key: Key, pod: Pod) -> dict[str, str]:
        """What a server reads at its start: the mounted files."""
        found: dict[str, str] = {}
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            if volume.config_map is None or not volume.config_map.name:
                continue
            at = Key(key.namespace, volume.config_map.name)
            if at not in self._files:
                self._files[at] = (
                    await self._client.get(ConfigMap, at.name, namespace=at.namespace)
                ).data or {}
            for name, text in sorted(self._files[at].items(), reverse=True):
                found |= parse_keys(text) if name.endswith(".conf") else {}
        return found

    def _status(self, pod: Pod, ip: str) -> dict[str, Any]:
        now = (pod.status.start_time if pod.status else None) or rfc3339(datetime.now(UTC))
        serves = "True" if self._serves(ip) else "False"
        truths = {"PodScheduled": "True", "Initialized": "True", "Ready": serves, "ContainersReady": serves}

        def of(name: str | None, state: dict[str, Any]) -> dict[str, Any]:
            words = {"image": "simulated", "imageID": "simulated", "restartCount": 0, "started": True}
            return {"name": name, "ready": serves == "True", "state": state, **words}

        spec = pod.spec
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
        return {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "hostIP": "127.0.0.1",
            "startTime": now,
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": now} for kind, status in truths.items()
            ],
            "containerStatuses": [
                of(one.name, {"running": {"startedAt": now}})
                for one in (spec.containers if spec else None) or ()
            ],
            "initContainerStatuses": [
                of(one.name, ended) for one in (spec.init_containers if spec else None) or ()
            ],
        }
