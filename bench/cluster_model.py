"""The servers that the Redis Cluster operator makes, in the pods of a `ControlPlane`: for campaigns, in virtual time.

Nodes of a cluster are those of bench/cluster_world.py, a pair's master and replica those of bench/redis_world.py. What
either keeps outlives the pod where it has a claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from bench.cluster_world import ClusterWorld, Volume
from bench.redis_model import Model
from bench.redis_world import Server

from mooring.kube import Key
from mooring.kube.objects.core import Pod
from mooring.operators.redis.cluster import mover
from mooring.operators.redis.cluster.names import cluster_of
from mooring.testing.plane import ControlPlane

__all__ = ["ClusterModel", "PairModel", "in_virtual_time"]

DATA = "redis-data"


class ClusterModel(Model):
    """The nodes of clusters."""

    cluster_of = staticmethod(cluster_of)

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._volumes: dict[str, Volume] = {}
        self._nodes = self.world = ClusterWorld()

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`."""
        uid, name, namespace = pod.metadata.uid or "", pod.metadata.name or "", pod.metadata.namespace or ""
        if uid in self._ips:
            return
        self._ips[uid] = ip
        password = self._password(pod)
        config = {"requirepass": password, "masterauth": password, "replica-priority": "0"}
        key = Key(namespace, name)
        server = Server(namespace, ip, config, lambda: self._plane.pods.look(key))
        server.load(self._secret(pod, "users.conf"))
        volume = self._volumes.setdefault(self.volume_of(pod, DATA), Volume())
        self._nodes.begin(server, pod=name, volume=volume)

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        return self._nodes.serves(ip)

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        self._nodes.end(self._ips.pop(uid, ""))
        self._volumes.pop(uid, None)  # what no claim holds goes with its pod

    def told(self) -> list[str]:
        """See `Model.told`; a key that was written and that no volume has any more is lost, too."""
        left = set().union(*(keys for one in self._volumes.values() for keys in one.keys.values()))
        lost = sorted(self._nodes.written - left)
        return [*super().told(), *([f"keys are lost: {', '.join(lost[:3])}"] if lost else [])]


class PairModel(Model):
    """The master and the replica of pairs."""

    cluster_of = staticmethod(cluster_of)

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._disks: dict[str, str] = {}
        self._written: dict[str, dict[str, str]] = {}

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`."""
        uid = pod.metadata.uid or ""
        if uid not in self._ips:
            super().started(pod, ip)
            self._disks[uid] = self.volume_of(pod, DATA)
            self.world.servers[ip].data = self._written.get(self._disks[uid], {})

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        if (server := self.world.servers.get(self._ips.get(uid, ""))) is not None:
            self._written[self._disks.pop(uid)] = server.data
        super().ended(uid)


@contextmanager
def in_virtual_time() -> Iterator[None]:
    """The mover of slots goes by the loop's time, until the end of the block."""
    with mock.patch.object(mover, "monotonic", _loop_time):
        yield


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
