"""Redis servers and sentinels that only answer, and a node that only says its pods run: for counting at scale.

Every pod gets a loopback address and a listener there that speaks as much of Redis' protocol as an operator
asks. Roles, priorities, keys and what sentinels know change as they are told to; replication and elections do
not happen, a follower is in sync at once, nothing ever fails. Connections are real, so what the operator
spends on them is real too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

from mooring.cache.clock import rfc3339
from mooring.kube import Client, Key, MergePatch, NotFound
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import ConfigMap, Node, NodeCondition, NodeStatus, Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.parameters import canonical
from mooring.operators.redis.sentinel.names import cluster_of
from mooring.operators.redis.sentinel.settings import parse_live
from mooring.operators.redis.sentinel.topology import GATE, MASTER_NAME, REDIS_PORT, SENTINEL_PORT
from mooring.runtime import Manager
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["SimulatedNode"]

NODE = "simulated"
VERSION = "7.0.15"
RENEW = 10.0
"""Seconds between two renewals of the node's Lease."""
FIRST = IPv4Address("127.2.0.1")


@dataclass
class Server:
    """One data server."""

    cluster: str
    ip: str
    config: dict[str, str]
    changed: Callable[[], None]
    run_id: str = field(default_factory=lambda: secrets.token_hex(20))
    replid: str = field(default_factory=lambda: secrets.token_hex(20))
    master: tuple[str, int] | None = (GATE.ip, GATE.port)


@dataclass
class Sentinel:
    """One sentinel."""

    cluster: str
    ip: str
    my_id: str = field(default_factory=lambda: secrets.token_hex(20))
    master: tuple[str, int] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    info_period: str = "10000"


class World:
    """All servers and sentinels, by address."""

    def __init__(self) -> None:
        self.servers: dict[str, Server] = {}
        self.sentinels: dict[str, Sentinel] = {}

    def answer(self, ip: str, port: int, words: Sequence[str]) -> bytes:
        """The reply to one command."""
        if port == SENTINEL_PORT:
            return self._of_sentinel(self.sentinels[ip], words)
        return self._of_server(self.servers[ip], words)

    # --- data servers

    def _of_server(self, it: Server, words: Sequence[str]) -> bytes:
        match [words[0].upper(), *words[1:]]:
            case ["INFO", *_]:
                return _bulk(self._info(it))
            case ["CONFIG", "GET", key]:
                value = it.config.get(canonical(key))
                return _array([] if value is None else [key, value])
            case ["CONFIG", "SET", key, value]:
                it.config[canonical(key)] = value
                return _OK
            case ["SLAVEOF", host, port]:
                self._follow(it, None if host == "NO" else (host, int(port)))
                return _OK
            case ["ACL", "GETUSER", _]:
                return _array(["flags", ["on", "nopass"], "passwords", []])
            case ["ROLE"]:
                return _array(["slave" if it.master else "master"])
        return _unknown(words)

    def _follow(self, it: Server, master: tuple[str, int] | None) -> None:
        it.master = master
        leader = self.servers.get(master[0]) if master else None
        if leader is not None:
            it.replid = leader.replid
        it.changed()

    def _info(self, it: Server) -> str:
        lines = [f"redis_version:{VERSION}", f"run_id:{it.run_id}", "loading:0", "rdb_bgsave_in_progress:0"]
        lines += ["aof_rewrite_in_progress:0", f"master_replid:{it.replid}", f"master_replid2:{'0' * 40}"]
        lines += ["second_repl_offset:-1"]
        if it.master is None or it.master[0] in self.servers:  # a held back one has nothing yet
            lines.append("db0:keys=1,expires=0,avg_ttl=0")
        if it.master is None:
            lines += ["role:master", "master_repl_offset:1000"]
            followers = self._followers(it.ip)
            lines += [
                f"slave{number}:ip={one.ip},port={REDIS_PORT},state=online,offset=1000,lag=0"
                for number, one in enumerate(followers)
            ]
            return "\r\n".join(lines)
        up = it.master[0] in self.servers
        lines += ["role:slave", f"master_host:{it.master[0]}", f"master_port:{it.master[1]}"]
        lines += [f"master_link_status:{'up' if up else 'down'}", "master_sync_in_progress:0"]
        lines += ["slave_repl_offset:1000", f"slave_priority:{it.config.get('replica-priority', '100')}"]
        return "\r\n".join(lines)

    def _followers(self, ip: str) -> list[Server]:
        cluster = self.servers[ip].cluster if ip in self.servers else ""
        return [
            one
            for one in self.servers.values()
            if one.cluster == cluster and one.master and one.master[0] == ip
        ]

    # --- sentinels

    def _of_sentinel(self, it: Sentinel, words: Sequence[str]) -> bytes:
        match [word.upper() if at < 2 else word for at, word in enumerate(words)]:
            case ["SENTINEL", "MASTERS"]:
                return _array([self._master(it)] if it.master else [])
            case ["SENTINEL", "SLAVES", _]:
                return _array(
                    [self._replica(one) for one in self._followers(it.master[0])] if it.master else []
                )
            case ["SENTINEL", "SENTINELS", _]:
                return _array([_peer(one) for one in self._peers(it)])
            case ["SENTINEL", "CKQUORUM", _]:
                return _OK if it.master else b"-ERR No such master with that name\r\n"
            case ["SENTINEL", "MYID"]:
                return _bulk(it.my_id)
            case ["SENTINEL", "DEBUG", *pairs]:
                given = dict(zip(pairs[::2], pairs[1::2], strict=True))
                it.info_period = given.get("info-period", it.info_period)
                return _OK if pairs else _array(["INFO-PERIOD", it.info_period, *_TIMERS])
            case ["SENTINEL", "REMOVE", _]:
                it.master = None
                return _OK
            case ["SENTINEL", "MONITOR", _, host, port, quorum]:
                it.master, it.settings = (host, int(port)), {"quorum": quorum}
                return _OK
            case ["SENTINEL", "SET", _, name, value]:
                it.settings[name] = value
                return _OK
            case ["INFO", *_]:
                return _bulk(f"redis_version:{VERSION}")
            case ["PSUBSCRIBE", pattern]:
                return b"*3\r\n" + _bulk("psubscribe") + _bulk(pattern) + b":1\r\n"
        return _unknown(words)

    def _peers(self, it: Sentinel) -> list[Sentinel]:
        return [
            one
            for one in self.sentinels.values()
            if one is not it and one.cluster == it.cluster and one.master and one.master == it.master
        ]

    def _master(self, it: Sentinel) -> list[str]:
        assert it.master is not None
        pairs = {"name": MASTER_NAME, "ip": it.master[0], "port": str(it.master[1]), "flags": "master"}
        return [
            word for pair in {**_LINK, **pairs, "config-epoch": "0", **it.settings}.items() for word in pair
        ]

    def _replica(self, one: Server) -> list[str]:
        priority = one.config.get("replica-priority", "100")
        pairs = {"ip": one.ip, "port": str(REDIS_PORT), "flags": "slave", "slave-priority": priority}
        return [word for pair in {**_LINK, **_REPLICATION, **pairs}.items() for word in pair]


def _peer(one: Sentinel) -> list[str]:
    pairs = {"ip": one.ip, "port": str(SENTINEL_PORT), "flags": "sentinel", "runid": one.my_id}
    return [word for pair in {**_LINK, **pairs}.items() for word in pair]


#: What a sentinel of 7.0 tells besides: nobody decides by it, but it has to be read.
_LINK = dict.fromkeys(
    (
        *("name", "runid", "link-pending-commands", "link-refcount", "last-ping-sent", "last-ok-ping-reply"),
        *("last-ping-reply", "down-after-milliseconds", "info-refresh", "role-reported-time", "num-slaves"),
    ),
    "0123456789",
)
_REPLICATION = dict.fromkeys(
    (
        *("role-reported", "master-link-down-time", "master-link-status", "master-host", "master-port"),
        *("slave-repl-offset", "replica-announced"),
    ),
    "slave",
)
_TIMERS = [word for number in range(12) for word in (f"TIMER-{number}", "10000")]


# --- the protocol ---

_OK = b"+OK\r\n"


def _bulk(text: str) -> bytes:
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _array(items: Sequence[Any]) -> bytes:
    parts = [_array(one) if isinstance(one, list) else _bulk(str(one)) for one in items]
    return b"*%d\r\n" % len(items) + b"".join(parts)


def _unknown(words: Sequence[str]) -> bytes:
    return f"-ERR the simulation does not know {' '.join(words[:2])}\r\n".encode()


class _Connection(asyncio.Protocol):
    """One client of one simulated server."""

    def __init__(self, world: World, ip: str, port: int) -> None:
        self._world, self._ip, self._port = world, ip, port
        self._data = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        answers = [self._world.answer(self._ip, self._port, words) for words in self._commands()]
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
        self._world = World()
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
                found |= parse_live(text) if name.endswith(".conf") else {}
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
