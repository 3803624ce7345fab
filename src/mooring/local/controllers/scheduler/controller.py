"""The scheduling loop: all pods that wait, by priority, whenever something changed that may help them.

One pass looks at every waiting pod that has not been tried since the last change of the cluster; a decision
is taken without awaiting, and counted at once, so that no two pods get the same room. A pod whose volumes
are still to be bound keeps its place on the chosen node until they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog

from mooring.cache.clock import rfc3339
from mooring.cache.store import Transition
from mooring.kube.errors import ApiError, Conflict, KubeError, NotFound
from mooring.kube.object import Key, Object, key_of
from mooring.kube.objects.core import (
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
)
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.kube.objects.storage import StorageClass
from mooring.kube.patches import MergePatch, StrategicMergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.pods import condition_of, is_terminal
from mooring.local.controllers.scheduler.claims import ClaimView, PodClaims, VolumeChoice, claim_names
from mooring.local.controllers.scheduler.decide import NO_NODES, Placement, Unfit, decide
from mooring.local.controllers.scheduler.preempt import (
    BY_SCHEDULER,
    Preemption,
    preempt,
    priority_of,
    waits_for_victims,
)
from mooring.local.controllers.scheduler.state import ClusterState
from mooring.local.controllers.volumes.claims import claims_of_pod
from mooring.local.controllers.volumes.matching import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    filed_under,
    reference_to,
)
from mooring.runtime.backoff import KeyedBackoff
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["Scheduler"]

log = structlog.get_logger("mooring.local.scheduler")

NAME = "default-scheduler"
ROUND = Key("", "round")
#: Instead of a number of moves: the pod waits for its claims, or for its node to change.
FOR_VOLUMES = -1


class Scheduler:
    """Binds pods that name no node to one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder(NAME)
        informers = context.informers
        self._pods = informers.of(Pod)
        self._nodes = informers.of(Node)
        self._claims = informers.of(PersistentVolumeClaim)
        self._volumes = informers.of(PersistentVolume)
        self._storage = informers.of(StorageClass)
        self._namespaces = informers.of(Namespace)
        self._budgets = informers.of(PodDisruptionBudget)
        context.index(self._pods, "unscheduled", _unscheduled)
        context.index(self._pods, "claim", claims_of_pod)
        context.index(self._volumes, "claim", filed_under)
        self._cluster = ClusterState()
        self._moves = 0
        self._tried: dict[str, int] = {}
        self._backoff: KeyedBackoff[Key] = KeyedBackoff(most=60.0)
        self._not_before: dict[Key, float] = {}
        self._bound: set[str] = set()
        self._controller = Controller("scheduler", self.reconcile, workers=1, timeout=None)
        self._view = ClaimView(
            claim=lambda namespace, name: self._claims.peek(Key(namespace, name)),
            volume=lambda name: self._volumes.peek(Key("", name)),
            candidates=self._candidates,
            storage=lambda name: self._storage.peek(Key("", name)),
            in_use=self._in_use,
        )

    def controller(self) -> Controller:
        """The controller with its watches."""
        self._pods.add_handler(self._on_pod)
        self._nodes.add_handler(self._on_node)
        self._claims.add_handler(self._on_claim)
        for informer in (self._volumes, self._storage, self._namespaces):
            informer.add_handler(self._on_other)
        return self._controller

    # --- what changes tell

    def _on_pod(self, change: Transition[Pod]) -> None:
        old, new = change.old, change.new
        self._cluster.pod_changed(change.key, new)
        if new is None or _placed(new) or is_terminal(new):
            uid = change.object.metadata.uid or ""
            self._tried.pop(uid, None)
            self._bound.discard(uid)
            self._not_before.pop(change.key, None)
            self._backoff.forget(change.key)
        if _takes_room(old) or _takes_room(new):
            if not _same_neighbour(old, new):
                self._moved()
        elif new is not None and not _same_neighbour(old, new):
            self._tried.pop(new.metadata.uid or "", None)
            self._wake()

    def _on_node(self, change: Transition[Node]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _same_node(old, new):
            return
        self._cluster.node_changed(change.key.name, new)
        self._tried = {uid: at for uid, at in self._tried.items() if at != FOR_VOLUMES}
        self._moved()

    def _on_claim(self, change: Transition[PersistentVolumeClaim]) -> None:
        if _same_object(change.old, change.new):
            return
        for pod in self._pods.by_index("claim", str(change.key)):
            self._tried.pop(pod.metadata.uid or "", None)
        self._moved()

    def _on_other(self, change: Transition[Any]) -> None:
        if not _same_object(change.old, change.new):
            self._moved()

    def _moved(self) -> None:
        self._moves += 1
        if self._pods.by_index("unscheduled", "yes"):
            self._wake()

    def _wake(self) -> None:
        self._controller.enqueue(ROUND)

    # --- the loop

    async def reconcile(self, key: Key) -> Result:
        """One round over the waiting pods."""
        now = self._context.clock.monotonic()
        waiting = [pod for pod in self._pods.by_index("unscheduled", "yes") if self._due(pod, now)]
        waiting.sort(key=_urgency)
        for pod in waiting:
            current = self._pods.peek(key_of(pod))
            if current is not None and current.metadata.uid == pod.metadata.uid and not _placed(current):
                await self._schedule(current)
        return self._next_round()

    def _next_round(self) -> Result:
        """When the first of the pods that are held back is due: a wake in between must not lose its turn."""
        now = self._context.clock.monotonic()
        delays = [
            max(0.001, self._not_before[key] - now)
            for pod in self._pods.by_index("unscheduled", "yes")
            if (key := key_of(pod)) in self._not_before
            and pod.metadata.uid not in self._bound
            and self._tried.get(pod.metadata.uid or "") not in (self._moves, FOR_VOLUMES)
        ]
        return After(min(delays)) if delays else Done()

    def _due(self, pod: Pod, now: float) -> bool:
        key = key_of(pod)
        if self._not_before.get(key, 0.0) > now or pod.metadata.uid in self._bound:
            return False
        return self._tried.get(pod.metadata.uid or "") not in (self._moves, FOR_VOLUMES)

    async def _schedule(self, pod: Pod) -> None:
        self._tried[pod.metadata.uid or ""] = self._moves
        promised = self._cluster.assumed(pod)
        self._cluster.forget(pod)
        claims = PodClaims(pod, self._view)
        labels = {ns.metadata.name or "": ns.metadata.labels or {} for ns in self._namespaces.list()}
        with self._kept_free(pod):
            nominated = (pod.status.nominated_node_name or "") if pod.status else ""
            decision = decide(
                pod, self._cluster, claims=claims, namespaces=labels, preferred=promised or nominated
            )
            room: Preemption | str = ""
            if isinstance(decision, Unfit) and decision.message != NO_NODES:
                if waits_for_victims(pod, self._cluster):
                    return  # their end brings the pod back
                room = preempt(
                    pod, self._cluster, claims=claims, namespaces=labels, budgets=self._budgets.list()
                )
        if isinstance(decision, Placement):
            self._cluster.assume(pod, decision.node)
        try:
            match decision:
                case Unfit(message=message) if isinstance(room, Preemption):
                    await self._refuse(pod, message, nominated=room.node)
                    await self._make_room(pod, room)
                case Unfit(message=message):
                    # The first words are those of the plugin for resource claims, which has none here.
                    why = f" no new claims to deallocate, preemption: {room}" if room else ""
                    await self._refuse(pod, message + why, nominated="")
                case Placement(node=node, volumes=volumes) if claims.settled:
                    await self._bind(pod, node)
                case Placement(node=node, volumes=volumes):
                    self._tried[pod.metadata.uid or ""] = FOR_VOLUMES
                    await self._choose_volumes(volumes, node)
        except NotFound:
            self._cluster.forget(pod)  # deleted while we decided; its event is on the way
        except KubeError as error:
            self._cluster.forget(pod)
            self._try_later(pod, error)

    def _try_later(self, pod: Pod, error: KubeError) -> None:
        key = key_of(pod)
        delay = self._backoff.next(key)
        if not isinstance(error, Conflict):
            log.warning("a pod could not be bound", pod=str(key), error=str(error), retry_in=round(delay, 3))
        self._not_before[key] = self._context.clock.monotonic() + delay
        self._tried.pop(pod.metadata.uid or "", None)

    @contextmanager
    def _kept_free(self, pod: Pod) -> Iterator[None]:
        """Count those pods for which room was made and that are no less important than this one."""
        kept = [
            (other, other.status.nominated_node_name)
            for other in self._pods.by_index("unscheduled", "yes")
            if other.status is not None
            and other.status.nominated_node_name
            and other.metadata.uid != pod.metadata.uid
            and priority_of(other) >= priority_of(pod)
            and self._cluster.place_of(key_of(other)) is None
        ]
        for other, node in kept:
            self._cluster.bring_back(other, node)
        try:
            yield
        finally:
            for other, _ in kept:
                self._cluster.take_away(other)

    # --- effects

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        namespace, name = meta.namespace or "", meta.name or ""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = Pod.resource.path(namespace=namespace, name=name, subresource="binding")
        try:
            await self._client.live.request("POST", path, body=json.dumps(body).encode())
        except ApiError as error:
            if not isinstance(error, NotFound):
                self._events.warning(
                    pod, "FailedScheduling", f"binding rejected: {error}", action="Scheduling"
                )
            raise
        self._bound.add(meta.uid or "")  # until the cache shows it
        self._backoff.forget(key_of(pod))
        self._events.normal(
            pod, "Scheduled", f"Successfully assigned {namespace}/{name} to {node}", action="Binding"
        )

    async def _refuse(self, pod: Pod, message: str, *, nominated: str) -> None:
        """Say why a pod waits, and which node is made free for it, if any."""
        present = condition_of(pod, "PodScheduled")
        promised = (pod.status.nominated_node_name or "") if pod.status else ""
        if present is not None and (present.status, present.message, promised) == (
            "False",
            message,
            nominated,
        ):
            return
        since = present.last_transition_time if present is not None and present.status == "False" else None
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since or rfc3339(self._context.clock.now()),
        }
        if pod.metadata.generation:
            condition["observedGeneration"] = pod.metadata.generation
        status: dict[str, Any] = {"conditions": [condition]}
        if nominated != promised:
            status["nominatedNodeName"] = nominated or None
        await self._patch_status(pod, status)
        self._events.warning(pod, "FailedScheduling", message, action="Scheduling")

    async def _patch_status(self, pod: Pod, status: dict[str, Any]) -> None:
        await self._client.patch(
            Pod,
            pod.metadata.name or "",
            StrategicMergePatch({"metadata": {"uid": pod.metadata.uid}, "status": status}),
            namespace=pod.metadata.namespace or "",
            subresource="status",
        )

    async def _make_room(self, pod: Pod, room: Preemption) -> None:
        """Delete the victims, and take a promise back from those who are less important."""
        for other in self._pods.by_index("unscheduled", "yes"):
            promised = (other.status.nominated_node_name or "") if other.status else ""
            if promised == room.node and priority_of(other) < priority_of(pod):
                await self._patch_status(other, {"nominatedNodeName": None})
        for victim in room.victims:
            if victim.metadata.deletion_timestamp is None:
                try:
                    await self._evict(pod, victim, room.node)
                except NotFound:
                    continue

    async def _evict(self, pod: Pod, victim: Pod, node: str) -> None:
        condition: dict[str, Any] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": BY_SCHEDULER,
            "message": f"{NAME}: preempting to accommodate a higher priority pod",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(self._context.clock.now()),
        }
        if victim.metadata.generation:
            condition["observedGeneration"] = victim.metadata.generation
        await self._patch_status(victim, {"conditions": [condition]})
        meta = victim.metadata
        await self._client.delete(Pod, meta.name or "", namespace=meta.namespace or "", uid=meta.uid)
        text = f"Preempted by pod {pod.metadata.uid} on node {node}"
        self._events.normal(victim, "Preempted", text, action="Preempting")

    async def _choose_volumes(self, choice: VolumeChoice, node: str) -> None:
        """Reserve the volumes that exist and ask for the others; their binding brings the pod back."""
        for claim, volume in choice.bind:
            await self._reserve(claim, volume)
        for claim in choice.provision:
            if (claim.metadata.annotations or {}).get(SELECTED_NODE) != node:
                await self._client.patch(
                    PersistentVolumeClaim,
                    claim.metadata.name or "",
                    metadata_patch(claim, annotations={SELECTED_NODE: node}),
                    namespace=claim.metadata.namespace or "",
                )

    async def _reserve(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        if volume.spec is not None and volume.spec.claim_ref is not None and volume.spec.claim_ref.uid:
            return
        body = metadata_patch(volume).body
        if volume.spec is None or volume.spec.claim_ref is None:
            body["metadata"]["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        body["spec"] = {"claimRef": msgspec.to_builtins(reference_to(claim))}
        await self._client.patch(PersistentVolume, volume.metadata.name or "", MergePatch(body))

    def _candidates(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        by_index = self._volumes.by_index
        return [*by_index("claim", str(key_of(claim))), *by_index("claim", "free")]

    def _in_use(self, namespace: str, claim: str, pod: Pod) -> bool:
        """Another pod that has a node mounts the claim."""
        return any(
            key_of(other) != key_of(pod)
            and other.metadata.namespace == namespace
            and any(name == claim for name, _ in claim_names(other))
            for state in self._cluster.nodes
            for other in state.pods.values()
        )


def _unscheduled(pod: Pod) -> Iterable[str]:
    spec = pod.spec
    waits = (
        spec is not None
        and not spec.node_name
        and not spec.scheduling_gates
        and (spec.scheduler_name or NAME) == NAME
        and pod.metadata.deletion_timestamp is None
        and not is_terminal(pod)
    )
    return ("yes",) if waits else ()


def _placed(pod: Pod) -> bool:
    return bool(pod.spec and pod.spec.node_name)


def _takes_room(pod: Pod | None) -> bool:
    return pod is not None and _placed(pod) and not is_terminal(pod)


def _urgency(pod: Pod) -> tuple[int, str, Key]:
    return -priority_of(pod), pod.metadata.creation_timestamp or "", key_of(pod)


def _same_neighbour(old: Pod | None, new: Pod | None) -> bool:
    """Nothing changed that another pod's placement, or the pod's own, could depend on."""
    if old is None or new is None:
        return False
    a, b = old.metadata, new.metadata
    return (
        a.uid == b.uid
        and a.labels == b.labels
        and a.deletion_timestamp == b.deletion_timestamp
        and _takes_room(old) == _takes_room(new)
        and old.spec == new.spec
    )


def _same_node(old: Node, new: Node) -> bool:
    before = (old.status.allocatable, old.status.capacity) if old.status else (None, None)
    after = (new.status.allocatable, new.status.capacity) if new.status else (None, None)
    return old.metadata.labels == new.metadata.labels and old.spec == new.spec and before == after


def _same_object(old: Object | None, new: Object | None) -> bool:
    """Equal but for the version and who wrote it."""
    if old is None or new is None:
        return False
    version = new.metadata.resource_version
    return msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, resource_version=version)
    ) == (new)
