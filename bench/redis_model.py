"""The servers of bench/simulated.py without sockets: for campaigns, in virtual time.

`Model` is told of pods by the simulated nodes; `in_memory` lets the operators' `Dial` reach its servers. What
the servers answer, and what they leave out (replication, elections, passwords), is said there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from bench.simulated import Sentinel, Server, World
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ResponseError

from mooring.kube import Key
from mooring.kube.objects.core import Pod
from mooring.operators.redis.dial import Address, Dial
from mooring.operators.redis.parameters import canonical
from mooring.operators.redis.sentinel.names import cluster_of
from mooring.operators.redis.sentinel.settings import parse_live
from mooring.operators.redis.sentinel.topology import GATE, REDIS_PORT, SENTINEL_PORT
from mooring.testing.plane import ControlPlane

__all__ = ["Model", "in_memory"]


class Model:
    """The servers and sentinels in a control plane's pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._ips: dict[str, str] = {}
        self.world = World()
        _worlds[:] = [self.world]

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`."""
        uid, name, namespace = pod.metadata.uid or "", pod.metadata.name or "", pod.metadata.namespace or ""
        if uid in self._ips:
            return
        self._ips[uid] = ip
        cluster = f"{namespace}/{cluster_of(pod.metadata.labels)}"
        if "-sentinel-" in name:
            self.world.sentinels[ip] = Sentinel(cluster, ip)
            return
        config = {canonical(key): value for key, value in self._config(pod).items()}
        config["replica-priority"] = "0"  # the arguments of every start
        key = Key(namespace, name)
        self.world.servers[ip] = Server(cluster, ip, config, lambda: self._plane.pods.look(key))

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        server = self.world.servers.get(ip)
        return server is None or server.master is None or server.master[0] != GATE.ip

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        ip = self._ips.pop(uid, "")
        self.world.servers.pop(ip, None)
        self.world.sentinels.pop(ip, None)

    def _config(self, pod: Pod) -> dict[str, str]:
        """What a server reads at its start: the mounted files."""
        found: dict[str, str] = {}
        maps = self._plane.server.cluster.store.collection("configmaps")
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            name = volume.config_map.name if volume.config_map else None
            entry = maps.get((pod.metadata.namespace or "", name)) if name else None
            for file, text in sorted(((entry.obj.get("data") or {}) if entry else {}).items(), reverse=True):
                found |= parse_live(text) if file.endswith(".conf") else {}
        return found


_worlds: list[World] = []


@contextmanager
def in_memory() -> Iterator[None]:
    """Every `Dial` reaches the servers of the newest `Model`, until the end of the block."""

    def connection(dial: Dial, address: Address, reply_timeout: float) -> _Connection:
        return _Connection(_worlds[-1], address)

    with mock.patch.object(Dial, "_connection", connection):
        yield


class _Connection:
    """As much of redis-py's connection as `Dial` uses."""

    def __init__(self, world: World, address: Address) -> None:
        self._world, self._address = world, address
        self._answers: deque[Any] = deque()

    def _there(self) -> None:
        world, (ip, port) = self._world, self._address
        if ip not in (world.sentinels if port == SENTINEL_PORT else world.servers):
            raise NoConnection("connection refused")

    async def connect_check_health(self) -> None:
        await asyncio.sleep(0)
        self._there()

    def pack_commands(self, commands: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        return list(commands)

    async def send_packed_command(self, commands: Sequence[Sequence[Any]]) -> None:
        for words in commands:
            await self.send_command(*words)

    async def send_command(self, *words: Any, check_health: bool = True) -> None:
        self._there()
        said = [word.decode() if isinstance(word, bytes) else str(word) for word in words]
        port = SENTINEL_PORT if self._address.port == SENTINEL_PORT else REDIS_PORT
        self._answers.append(_decoded(self._world.answer(self._address.ip, port, said)))

    async def read_response(self, **_: Any) -> Any:
        if not self._answers:
            await asyncio.Event().wait()  # a subscriber to whom nothing happens
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def disconnect(self, *, nowait: bool = False) -> None:
        self._answers.clear()


def _decoded(data: bytes) -> Any:
    value, rest = _value(data)
    assert not rest, rest
    return value


def _value(data: bytes) -> tuple[Any, bytes]:
    """One value of the protocol, and what follows it."""
    head, rest = data.split(b"\r\n", 1)
    kind, text = head[:1], head[1:].decode()
    match kind:
        case b"+":
            return text, rest
        case b"-":
            return ResponseError(text.removeprefix("ERR ")), rest
        case b":":
            return int(text), rest
        case b"$":
            size = int(text)
            return rest[:size].decode(), rest[size + 2 :]
    items = []
    for _ in range(int(text)):
        one, rest = _value(rest)
        items.append(one)
    return items, rest
