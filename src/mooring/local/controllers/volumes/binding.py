"""What a claim and a volume need next to find each other, or to part. Pure.

The rules are those of Kubernetes' volume controller: a claim is bound when it names its volume and carries
``bind-completed``; a volume is bound when its claimRef carries the claim's UID.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim, Pod
from mooring.kube.objects.storage import StorageClass
from mooring.local.controllers.volumes.matching import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    SELECTED_NODE,
    best_match,
    class_of,
    is_for,
    mismatch,
    waits_for_consumer,
)

__all__ = [
    "AssignClass",
    "Bind",
    "ClaimAction",
    "Hold",
    "Notice",
    "Provision",
    "Reclaim",
    "Unbind",
    "VolumeAction",
    "claim_action",
    "default_class",
    "volume_action",
]

IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
IS_DEFAULT_BETA = "storageclass.beta.kubernetes.io/is-default-class"


@dataclass(frozen=True, slots=True)
class Notice:
    """An event to record."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The claim has this phase and nothing else can be done now; ``notice`` says why."""

    phase: str
    notice: Notice | None = None


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the claim to the volume, or finish doing so."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class AssignClass:
    """Give a claim that names no class the default one."""

    name: str


@dataclass(frozen=True, slots=True)
class Provision:
    """Make a volume of the class; ``node`` is the one a pod was scheduled to, if the class waits for it."""

    storage: StorageClass
    node: str


ClaimAction = Hold | Bind | AssignClass | Provision


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class that claims get which name none: the newest marked as default."""
    marked = [
        storage
        for storage in classes
        if "true"
        in (
            (storage.metadata.annotations or {}).get(IS_DEFAULT),
            (storage.metadata.annotations or {}).get(IS_DEFAULT_BETA),
        )
    ]
    names = sorted(marked, key=lambda s: s.metadata.name or "")
    return max(names, key=lambda s: s.metadata.creation_timestamp or "", default=None)


def claim_action(
    claim: PersistentVolumeClaim,
    *,
    volumes: Iterable[PersistentVolume],
    classes: Iterable[StorageClass],
    consumers: Iterable[Pod],
) -> ClaimAction:
    """What a claim needs next; ``consumers`` are pods that mount it."""
    if BIND_COMPLETED in (claim.metadata.annotations or {}):
        return _bound(claim, volumes)
    if claim.spec is not None and claim.spec.volume_name:
        return _named(claim, claim.spec.volume_name, volumes)
    return _open(claim, list(volumes), list(classes), consumers)


def _bound(claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> ClaimAction:
    name = (claim.spec.volume_name or "") if claim.spec else ""
    lost = "Bound claim has lost {}. Data on the volume is lost!"
    if not name:
        return Hold("Lost", Notice("Warning", "ClaimLost", lost.format("reference to PersistentVolume")))
    volume = _find(name, volumes)
    if volume is None:
        return Hold("Lost", Notice("Warning", "ClaimLost", lost.format("its PersistentVolume")))
    reference = volume.spec.claim_ref if volume.spec else None
    if reference is None or reference.uid == claim.metadata.uid:
        return Bind(volume)
    twice = "Two claims are bound to the same volume, this one is bound incorrectly"
    return Hold("Lost", Notice("Warning", "ClaimMisbound", twice))


def _named(claim: PersistentVolumeClaim, name: str, volumes: Iterable[PersistentVolume]) -> ClaimAction:
    volume = _find(name, volumes)
    if volume is None:
        return Hold("Pending")
    if volume.spec is None or volume.spec.claim_ref is None:
        trouble = mismatch(volume, claim)
        if not trouble:
            return Bind(volume)
        message = f'Cannot bind to requested volume "{name}": {trouble}'
        return Hold("Pending", Notice("Warning", "VolumeMismatch", message))
    if is_for(volume, claim):
        return Bind(volume)
    message = f'volume "{name}" already bound to a different claim.'
    return Hold("Pending", Notice("Warning", "FailedBinding", message))


def _open(
    claim: PersistentVolumeClaim,
    volumes: list[PersistentVolume],
    classes: list[StorageClass],
    consumers: Iterable[Pod],
) -> ClaimAction:
    name = class_of(claim)
    storage = next((s for s in classes if s.metadata.name == name), None) if name else None
    waits = waits_for_consumer(storage)
    node = (claim.metadata.annotations or {}).get(SELECTED_NODE, "")
    volume = best_match(claim, volumes, delay=waits)
    if volume is not None:
        return Bind(volume)
    if claim.spec is not None and claim.spec.storage_class_name is None and not name:
        chosen = default_class(classes)
        if chosen is not None:
            return AssignClass(chosen.metadata.name or "")
    if waits and not node:
        return Hold("Pending", _waiting(consumers))
    if not name:
        message = "no persistent volumes available for this claim and no storage class is set"
        return Hold("Pending", Notice("Normal", "FailedBinding", message))
    if storage is None:
        message = f'storageclass.storage.k8s.io "{name}" not found'
        return Hold("Pending", Notice("Warning", "ProvisioningFailed", message))
    return Provision(storage, node)


def _waiting(consumers: Iterable[Pod]) -> Notice:
    names = sorted(
        pod.metadata.name or "" for pod in consumers if pod.spec is not None and not pod.spec.node_name
    )
    if names:
        message = f"waiting for pod {','.join(names)} to be scheduled"
        return Notice("Normal", "WaitForPodScheduled", message)
    message = "waiting for first consumer to be created before binding"
    return Notice("Normal", "WaitForFirstConsumer", message)


def _find(name: str, volumes: Iterable[PersistentVolume]) -> PersistentVolume | None:
    return next((volume for volume in volumes if volume.metadata.name == name), None)


@dataclass(frozen=True, slots=True)
class Phase:
    """The volume has this phase."""

    phase: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """The claim is gone: do what the reclaim policy says."""


@dataclass(frozen=True, slots=True)
class Unbind:
    """The claim got another volume: this one is free again, or reserved as its maker wrote it."""

    keep_reservation: bool


VolumeAction = Phase | Reclaim | Unbind | None


def volume_action(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumeAction:
    """What a volume needs next; ``claim`` is the one its claimRef names, if it exists. ``None``: nothing."""
    reference = volume.spec.claim_ref if volume.spec else None
    if reference is None or not reference.uid:
        return Phase("Available")
    if claim is None or claim.metadata.uid != reference.uid:
        return Reclaim()
    name = claim.spec.volume_name if claim.spec else None
    if not name:
        return None  # the claim's own pass completes the binding
    if name == volume.metadata.name:
        return Phase("Bound")
    annotations = volume.metadata.annotations or {}
    policy = volume.spec.persistent_volume_reclaim_policy if volume.spec else None
    if PROVISIONED_BY in annotations and policy == "Delete":
        return Reclaim()
    return Unbind(keep_reservation=BOUND_BY_CONTROLLER not in annotations)
