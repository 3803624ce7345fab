"""Nodes that only say so: every pod scheduled to them runs at once, and ends as soon as it is told to.

For operators whose pods hold nothing that they talk to, and, with `SimulatedPods.answers`, for those whose servers
a test models: it says when such a pod is ready, and is told when it begins and ends.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any, Protocol

from mooring.cache.clock import rfc3339
from mooring.kube import Client, Conflict, Key, MergePatch, NotFound
from mooring.kube.objects.core import Node, NodeCondition, NodeStatus, Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import Controller, Done, Manager, Result

__all__ = ["AlwaysReady", "PodModel", "SimulatedPods"]

FIRST = IPv4Address("10.244.0.10")
ROOM = {"cpu": "1000", "memory": "1000Gi", "pods": "10000", "ephemeral-storage": "1000Gi"}


class PodModel(Protocol):
    """What the processes of pods would do."""

    def started(self, pod: Pod, ip: str) -> None:
        """A pod runs from now on, at this address; told again when its status is looked at anew."""
        ...

    def ready(self, pod: Pod, ip: str) -> bool:
        """Whether its readiness probe would succeed now."""
        ...

    def ended(self, uid: str) -> None:
        """The pod is gone."""
        ...


class AlwaysReady:
    """A model without processes: every pod is ready."""

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`."""

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        return True

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""


class SimulatedPods:
    """The nodes ``nodes`` and a controller on ``manager`` that runs their pods; see the module's text.

    `register` creates the nodes. Addresses are given in the order of starts, so that two equal runs agree.
    """

    def __init__(
        self, manager: Manager, *, model: PodModel | None = None, nodes: tuple[str, ...] = ("node-1",)
    ) -> None:
        self._clock = manager.clock
        self._client = manager.client
        self._model = model or AlwaysReady()
        self._nodes = nodes
        self._addresses = (str(FIRST + number) for number in itertools.count())
        self._ips: dict[str, str] = {}
        self._uids: dict[Key, str] = {}
        self._pods = manager.informers.of(Pod)
        self._controller = Controller("simulated-pods", self._reconcile).watch(self._pods)
        manager.add(self._controller)

    def look(self, key: Key) -> None:
        """Have a pod's readiness asked for again: its model changed."""
        self._controller.enqueue(key)

    async def register(self, client: Client) -> None:
        """Create the nodes, with room for everything."""
        now = rfc3339(self._clock.now())
        ready = NodeCondition(
            type="Ready",
            status="True",
            reason="Simulated",
            last_heartbeat_time=now,
            last_transition_time=now,
        )
        status = NodeStatus(capacity=dict(ROOM), allocatable=dict(ROOM), conditions=[ready])
        for name in self._nodes:
            labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
            await client.create(Node(metadata=ObjectMeta(name=name, labels=labels)))
            await client.patch(Node, name, MergePatch({"status": status}), subresource="status")
            # No controller here takes the taint of a new node away.
            await client.patch(Node, name, MergePatch({"spec": {"taints": None}}))

    async def _reconcile(self, key: Key) -> Result:
        pod = self._pods.get(key)
        uid = (pod.metadata.uid if pod else None) or ""
        before = self._uids.get(key, "")
        if before and before != uid:
            self._model.ended(self._uids.pop(key))
        if pod is None or not (pod.spec and pod.spec.node_name):
            return Done()
        if pod.metadata.deletion_timestamp is not None:
            return await self._end(key, pod)
        if pod.status is not None and pod.status.phase in ("Succeeded", "Failed"):
            return Done()  # its model ended it
        self._uids[key] = uid
        ip = self._ips.setdefault(uid, "") or next(self._addresses)
        self._ips[uid] = ip
        self._model.started(pod, ip)
        await self._say(key, pod, ip)
        return Done()

    async def _end(self, key: Key, pod: Pod) -> Result:
        with suppress(NotFound, Conflict):  # somebody was faster; the watch tells
            await self._client.delete(
                Pod, key.name, namespace=key.namespace, uid=pod.metadata.uid, grace_period=0
            )
        return Done()

    async def _say(self, key: Key, pod: Pod, ip: str) -> None:
        """Write the status when it says something else."""
        ready = self._model.ready(pod, ip)
        status = pod.status
        said = any(
            one.type == "Ready" and one.status == "True"
            for one in (status.conditions if status else None) or ()
        )
        if status is not None and status.phase == "Running" and said == ready:
            return
        patch = MergePatch(
            {"metadata": {"uid": pod.metadata.uid}, "status": self._status(pod, ip, ready=ready)}
        )
        try:
            await self._client.patch(Pod, key.name, patch, namespace=key.namespace, subresource="status")
        except (NotFound, Conflict):
            return  # another pod of that name, or none

    def _status(self, pod: Pod, ip: str, *, ready: bool) -> dict[str, Any]:
        now = rfc3339(self._clock.now())
        started = (pod.status.start_time if pod.status else None) or now
        serves = "True" if ready else "False"
        truths = {"PodScheduled": "True", "Initialized": "True", "Ready": serves, "ContainersReady": serves}
        spec = pod.spec
        ended = {
            "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": started}
        }

        def of(name: str | None, state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
            words = {"image": "simulated", "imageID": "simulated", "restartCount": 0, "started": True}
            return {"name": name, "ready": ready, "state": state, **words}

        return {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "hostIP": "192.0.2.10",
            "startTime": started,
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": now} for kind, status in truths.items()
            ],
            "containerStatuses": [
                of(one.name, {"running": {"startedAt": started}}, ready=ready)
                for one in (spec.containers if spec else None) or ()
            ],
            "initContainerStatuses": [
                of(one.name, ended, ready=True) for one in (spec.init_containers if spec else None) or ()
            ],
        }
