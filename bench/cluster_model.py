"""The servers of bench/cluster_world.py in the pods of a `ControlPlane`: for campaigns, in virtual time."""

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
from mooring.testing.plane import ControlPlane

__all__ = ["ClusterModel", "in_virtual_time"]

DATA = "redis-data"


class ClusterModel(Model):
    """The nodes in a control plane's pods; what they keep outlives the pod where it has a claim."""

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
        self._nodes.begin(server, pod=name, volume=self._volumes.setdefault(self._kept(pod), Volume()))

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        return self._nodes.serves(ip)

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        self._nodes.end(self._ips.pop(uid, ""))

    def _kept(self, pod: Pod) -> str:
        """The claim's uid, or the pod's: what a volume lives as long as."""
        claims = self._plane.server.cluster.store.collection("persistentvolumeclaims")
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            if volume.name == DATA and volume.persistent_volume_claim is not None:
                claim = claims.get(
                    (pod.metadata.namespace or "", volume.persistent_volume_claim.claim_name or "")
                )
                return str(claim.obj["metadata"]["uid"]) if claim is not None else ""
        return pod.metadata.uid or ""


@contextmanager
def in_virtual_time() -> Iterator[None]:
    """The mover of slots goes by the loop's time, until the end of the block."""
    with mock.patch.object(mover, "monotonic", _loop_time):
        yield


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
