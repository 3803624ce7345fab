"""A pod's volumes as the scheduler sees them: where they are, and which are still to be chosen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mooring.kube.objects.core import Node, PersistentVolume, PersistentVolumeClaim, Pod
from mooring.kube.objects.storage import StorageClass
from mooring.local.controllers.volumes.matching import (
    best_match,
    class_of,
    fits_node,
    home_of,
    is_bound,
    waits_for_consumer,
)

__all__ = [
    "BIND_CONFLICT",
    "NODE_CONFLICT",
    "ONCE_POD",
    "ClaimView",
    "PodClaims",
    "VolumeChoice",
    "claim_names",
]

NO_PROVISIONER = "kubernetes.io/no-provisioner"

BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
ONCE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
    "another pod"
)


@dataclass(frozen=True)
class ClaimView:
    """How to look up what volumes stand on; ``candidates`` are volumes that a claim might take."""

    claim: Callable[[str, str], PersistentVolumeClaim | None]
    volume: Callable[[str], PersistentVolume | None]
    candidates: Callable[[PersistentVolumeClaim], Iterable[PersistentVolume]]
    storage: Callable[[str], StorageClass | None]
    in_use: Callable[[str, str, Pod], bool] = lambda namespace, claim, pod: False


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    """What a node means for the volumes still open: existing ones to take, others to be made there."""

    bind: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    provision: tuple[PersistentVolumeClaim, ...] = ()


def claim_names(pod: Pod) -> list[tuple[str, bool]]:
    """The claims a pod mounts; true for one that is made for the pod itself (ephemeral)."""
    names = []
    for volume in (pod.spec.volumes or ()) if pod.spec else ():
        if volume.persistent_volume_claim is not None:
            names.append((volume.persistent_volume_claim.claim_name or "", False))
        elif volume.ephemeral is not None:
            names.append((f"{pod.metadata.name}-{volume.name}", True))
    return names


class PodClaims:
    """The claims of one pod, sorted by what is known of them; ``trouble`` says why none can be used yet.

    ``for_good``: no change of nodes can help; the pod is refused before nodes are looked at.
    """

    def __init__(self, pod: Pod, view: ClaimView) -> None:
        self._view = view
        self.trouble = ""
        self.once_pod = False
        self._bound: list[tuple[str, PersistentVolume]] = []
        self._open: list[PersistentVolumeClaim] = []
        namespace = pod.metadata.namespace or ""
        for name, ephemeral in claim_names(pod):
            claim = view.claim(namespace, name)
            if not self._take(pod, name, claim, ephemeral=ephemeral):
                return

    def _take(self, pod: Pod, name: str, claim: PersistentVolumeClaim | None, *, ephemeral: bool) -> bool:
        if claim is None:
            wait = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            self.trouble = wait if ephemeral else f'persistentvolumeclaim "{name}" not found'
            return False
        if claim.metadata.deletion_timestamp:
            self.trouble = f'persistentvolumeclaim "{name}" is being deleted'
            return False
        if claim.status is not None and claim.status.phase == "Lost":
            volume = claim.spec.volume_name if claim.spec else ""
            self.trouble = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
            return False
        modes = (claim.spec.access_modes or ()) if claim.spec else ()
        if "ReadWriteOncePod" in modes:
            self.once_pod |= self._view.in_use(pod.metadata.namespace or "", name, pod)
        if is_bound(claim):
            return self._take_bound(name, claim)
        prebound = bool(claim.spec and claim.spec.volume_name)
        if prebound or not waits_for_consumer(self._view.storage(class_of(claim))):
            self.trouble = "pod has unbound immediate PersistentVolumeClaims"
            return False
        self._open.append(claim)
        return True

    def _take_bound(self, name: str, claim: PersistentVolumeClaim) -> bool:
        wanted = (claim.spec.volume_name or "") if claim.spec else ""
        volume = self._view.volume(wanted)
        if volume is None:
            self.trouble = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{wanted}"'
            return False
        self._bound.append((name, volume))
        return True

    @property
    def settled(self) -> bool:
        """Every claim is bound."""
        return not self._open

    def stranded(self, nodes: Iterable[str]) -> str:
        """The first claim whose data is on a node that does not exist, as a sentence; empty if there is none."""
        there = frozenset(nodes)
        for name, volume in self._bound:
            if (home := home_of(volume)) and home not in there:
                return f'persistentvolumeclaim "{name}" is bound to node "{home}", which does not exist.'
        return ""

    def refusals(self, node: Node) -> list[str]:
        """Why the volumes keep the pod off a node."""
        if not all(fits_node(volume, node) for _, volume in self._bound):
            return [NODE_CONFLICT]
        return [BIND_CONFLICT] if self.choose(node) is None else []

    def choose(self, node: Node) -> VolumeChoice | None:
        """How the open claims would be met on a node; ``None`` when they cannot be."""
        bind: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
        provision = []
        taken: set[str] = set()
        for claim in self._open:
            volume = best_match(claim, self._view.candidates(claim), node=node, delay=True, taken=taken)
            if volume is not None:
                taken.add(volume.metadata.name or "")
                bind.append((claim, volume))
            elif self._can_provision(claim, node):
                provision.append(claim)
            else:
                return None
        return VolumeChoice(tuple(bind), tuple(provision))

    def _can_provision(self, claim: PersistentVolumeClaim, node: Node) -> bool:
        storage = self._view.storage(class_of(claim))
        if storage is None or storage.provisioner in (None, "", NO_PROVISIONER):
            return False
        labels = node.metadata.labels or {}
        terms = storage.allowed_topologies or ()
        return not terms or any(
            all(labels.get(e.key or "") in (e.values or ()) for e in term.match_label_expressions or ())
            for term in terms
        )
