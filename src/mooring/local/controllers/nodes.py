"""Nodes that are silent or gone: conditions, taints, and the pods that were on them.

A node that has not renewed its Lease for 50 seconds is Unknown; one that is not ready is tainted, its pods
count as not ready and are evicted when their tolerations run out. Pods of a node that is no more are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mooring.cache.clock import rfc3339
from mooring.cache.store import Transition
from mooring.kube.errors import NotFound
from mooring.kube.object import Key, key_of
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import Node, NodeCondition, Pod, Taint, Toleration
from mooring.kube.patches import MergePatch, StrategicMergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.moments import moment
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.placement import tolerates
from mooring.local.controllers.pods import condition_of, is_ready, is_terminal
from mooring.runtime.client import CachedClient
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["NodeLifecycle", "PodCollector", "TaintEviction", "eviction_delay", "taints_of"]

#: Seconds without a sign of life after which a node is Unknown.
GRACE = 50.0
#: Seconds that a node must have been gone before its pods are removed.
QUARANTINE = 40.0
LEASES = "kube-node-lease"

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_OURS = {NOT_READY, UNREACHABLE, _UNSCHEDULABLE, *_PRESSURES.values()}
_SILENT = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


def _conditions(node: Node) -> dict[str, NodeCondition]:
    return {c.type or "": c for c in (node.status.conditions or ()) if node.status} if node.status else {}


def taints_of(node: Node, now: datetime) -> list[Taint]:
    """The taints a node should have: others' as they are, ours as its conditions say."""
    present = list((node.spec.taints or ()) if node.spec else ())
    wanted = [taint for taint in present if taint.key not in _OURS]
    conditions = _conditions(node)
    ready = conditions.get("Ready")
    if ready is not None and ready.status in ("False", "Unknown"):
        key = NOT_READY if ready.status == "False" else UNREACHABLE
        wanted += [Taint(key=key, effect="NoSchedule"), Taint(key=key, effect="NoExecute")]
    for kind, key in _PRESSURES.items():
        condition = conditions.get(kind)
        if condition is not None and condition.status == "True":
            wanted.append(Taint(key=key, effect="NoSchedule"))
    if node.spec is not None and node.spec.unschedulable:
        wanted.append(Taint(key=_UNSCHEDULABLE, effect="NoSchedule"))
    known = {(taint.key, taint.effect): taint for taint in present}
    fresh = rfc3339(now)
    return [
        known.get((taint.key, taint.effect)) or msgspec.structs.replace(taint, time_added=fresh)
        if taint.key in _OURS
        else taint
        for taint in wanted
    ]


def eviction_delay(pod: Pod, taints: Sequence[Taint], now: datetime) -> float | None:
    """Seconds until a pod must leave a node because of its NoExecute taints; ``None``: never."""
    tolerations: list[Toleration] = list((pod.spec.tolerations or ()) if pod.spec else ())
    delays: list[float] = []
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        covering = [t for t in tolerations if tolerates([t], taint)]
        if not covering:
            return 0.0
        limits = [t.toleration_seconds for t in covering if t.toleration_seconds is not None]
        if limits:
            since = (now - moment(taint.time_added)).total_seconds() if taint.time_added else 0.0
            delays.append(max(0.0, max(0, min(limits)) - since))
    return min(delays, default=None)


def _on_node(pod: Pod) -> Iterable[str]:
    name = pod.spec.node_name if pod.spec else None
    return (name,) if name else ()


class NodeLifecycle:
    """Keeps conditions and taints of nodes, and the readiness of pods on silent ones."""

    def __init__(self, context: Context, *, grace: float = GRACE) -> None:
        self._context = context
        self._grace = grace
        self._client = context.client
        self._events = context.recorder("node-controller")
        informers = context.informers
        self._nodes = informers.of(Node)
        self._pods = informers.of(Pod)
        self._leases = informers.of(Lease, namespace=LEASES)
        context.index(self._pods, "node", _on_node)
        self._seen: dict[str, tuple[object, float]] = {}

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("node-lifecycle", self.reconcile)
        made.watch(self._nodes)
        made.watch(self._leases, map=lambda lease: (Key("", lease.metadata.name or ""),))
        return made

    async def reconcile(self, key: Key) -> Result:
        """One pass over a node."""
        node = self._nodes.get(key)
        if node is None:
            self._seen.pop(key.name, None)
            return Done()
        silence = self._silence(node)
        ready = _conditions(node).get("Ready")
        if silence >= self._grace and (ready is None or ready.status != "Unknown"):
            node = await self._mark_unknown(node)
        node = await self._taint(node)
        ready = _conditions(node).get("Ready")
        if ready is not None and ready.status != "True":
            await self._pods_not_ready(node)
            if ready.status == "Unknown":
                return Done()  # its return is a change
        return After(max(0.1, self._grace - silence))

    def _silence(self, node: Node) -> float:
        """Seconds since the node's Lease or status last changed, by our own clock."""
        name = node.metadata.name or ""
        lease = self._leases.peek(Key(LEASES, name))
        renewed = lease.spec.renew_time if lease is not None and lease.spec is not None else None
        heartbeats = tuple(c.last_heartbeat_time for c in _conditions(node).values() if c.status != "Unknown")
        sign = (node.metadata.uid, renewed, heartbeats)
        now = self._context.clock.monotonic()
        known, since = self._seen.get(name, (None, now))
        if known != sign:
            self._seen[name] = (sign, now)
            return 0.0
        return now - since

    async def _mark_unknown(self, node: Node) -> Node:
        now = rfc3339(self._context.clock.now())
        reason, message = _SILENT
        kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
        conditions = [
            {"type": k, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": now}
            for k in kinds
        ]
        body = {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}}
        marked = await self._client.patch(
            Node, node.metadata.name or "", StrategicMergePatch(body), subresource="status"
        )
        self._events.normal(node, "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady")
        return marked

    async def _taint(self, node: Node) -> Node:
        present = list((node.spec.taints or ()) if node.spec else ())
        wanted = taints_of(node, self._context.clock.now())
        if {(t.key, t.value, t.effect) for t in present} == {(t.key, t.value, t.effect) for t in wanted}:
            return node
        body: dict[str, Any] = metadata_patch(node).body
        body["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in wanted] or None}
        return await self._client.patch(Node, node.metadata.name or "", MergePatch(body))

    async def _pods_not_ready(self, node: Node) -> None:
        now = rfc3339(self._context.clock.now())
        for pod in self._pods.by_index("node", node.metadata.name or ""):
            if is_terminal(pod) or not is_ready(pod):
                continue
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": now}
            body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
            await _patch_status(self._client, pod, body)
            self._events.warning(pod, "NodeNotReady", "Node is not ready")


class TaintEviction:
    """Deletes pods whose tolerations of their node's NoExecute taints have run out."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("taint-eviction-controller")
        self._nodes = context.informers.of(Node)
        self._pods = context.informers.of(Pod)
        context.index(self._pods, "node", _on_node)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("taint-eviction", self.reconcile)
        made.watch(self._pods, predicate=_bound)
        made.watch(self._nodes, map=self._pods_of, predicate=_taints_changed)
        return made

    def _pods_of(self, node: Node) -> Iterable[Key]:
        return [key_of(pod) for pod in self._pods.by_index("node", node.metadata.name or "")]

    async def reconcile(self, key: Key) -> Result:
        """One pass over a pod."""
        pod = self._pods.get(key)
        if pod is None or pod.spec is None or pod.metadata.deletion_timestamp or is_terminal(pod):
            return Done()
        node = self._nodes.get(Key("", pod.spec.node_name or ""))
        if node is None or node.spec is None or not node.spec.taints:
            return Done()
        delay = eviction_delay(pod, node.spec.taints, self._context.clock.now())
        if delay is None:
            return Done()
        if delay > 0:
            return After(delay)
        self._events.normal(
            pod, "TaintManagerEviction", f"Marking for deletion Pod {key.namespace}/{key.name}"
        )
        text = "Taint manager: deleting due to NoExecute taint"
        await _disrupt(self._context, pod, "DeletionByTaintManager", text)
        await self._client.delete(
            Pod, key.name, namespace=key.namespace, uid=pod.metadata.uid, propagation=None
        )
        return Done()


class PodCollector:
    """Removes pods that no node will ever remove: their node is no more, or they never had one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._nodes = context.informers.of(Node)
        self._pods = context.informers.of(Pod)
        context.index(self._pods, "node", _on_node)
        self._missing: dict[str, float] = {}

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("pod-collector", self.reconcile)
        made.watch(self._pods, predicate=_bound)
        made.watch(self._nodes, map=self._pods_of, predicate=_came_or_went)
        return made

    def _pods_of(self, node: Node) -> Iterable[Key]:
        return [key_of(pod) for pod in self._pods.by_index("node", node.metadata.name or "")]

    async def reconcile(self, key: Key) -> Result:
        """One pass over a pod."""
        pod = self._pods.get(key)
        if pod is None or pod.spec is None:
            return Done()
        node = pod.spec.node_name or ""
        if not node:
            if pod.metadata.deletion_timestamp:
                await self._remove(pod, "")
            return Done()
        if self._nodes.get(Key("", node)) is not None:
            self._missing.pop(node, None)
            return Done()
        now = self._context.clock.monotonic()
        gone_for = now - self._missing.setdefault(node, now)
        if gone_for < QUARANTINE:
            return After(QUARANTINE - gone_for)
        try:
            await self._client.live.get(Node, node)
        except NotFound:
            await self._remove(pod, "PodGC: node no longer exists")
        return Done()

    async def _remove(self, pod: Pod, why: str) -> None:
        if why and not is_terminal(pod):
            await _disrupt(self._context, pod, "DeletionByPodGC", why, phase="Failed")
        meta = pod.metadata
        await self._client.delete(
            Pod, meta.name or "", namespace=meta.namespace or "", uid=meta.uid, grace_period=0
        )


async def _disrupt(context: Context, pod: Pod, reason: str, message: str, *, phase: str = "") -> None:
    """Say in the pod's status that it is removed through no fault of its own."""
    if condition_of(pod, "DisruptionTarget") is not None:
        return
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(context.clock.now()),
    }
    status: dict[str, Any] = {"conditions": [condition]}
    if phase:
        status["phase"] = phase
    await _patch_status(context.client, pod, {"metadata": {"uid": pod.metadata.uid}, "status": status})


async def _patch_status(client: CachedClient, pod: Pod, body: dict[str, Any]) -> None:
    try:
        await client.patch(
            Pod,
            pod.metadata.name or "",
            StrategicMergePatch(body),
            namespace=pod.metadata.namespace or "",
            subresource="status",
        )
    except NotFound:
        return


def _bound(change: Transition[Pod]) -> bool:
    old, new = change.old, change.new
    if new is None:
        return False
    if old is None:
        return True
    return (
        list(_on_node(old)) != list(_on_node(new))
        or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        or (old.spec.tolerations if old.spec else None) != (new.spec.tolerations if new.spec else None)
    )


def _taints_changed(change: Transition[Node]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (old.spec.taints if old.spec else None) != (new.spec.taints if new.spec else None)


def _came_or_went(change: Transition[Node]) -> bool:
    return change.old is None or change.new is None
