"""Which volume a claim may have. Pure; shared by the binder and the scheduler."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal

from mooring.kube.objects.core import Node, ObjectReference, PersistentVolume, PersistentVolumeClaim
from mooring.kube.objects.storage import StorageClass
from mooring.kube.quantity import parse_quantity
from mooring.kube.selectors import selector_of
from mooring.local.controllers.placement import matches_selector

__all__ = [
    "BIND_COMPLETED",
    "BOUND_BY_CONTROLLER",
    "HOSTNAME",
    "PROVISIONED_BY",
    "PROVISIONER",
    "SELECTED_NODE",
    "STORAGE_PROVISIONER",
    "best_match",
    "capacity_of",
    "class_of",
    "filed_under",
    "fits_node",
    "home_of",
    "is_bound",
    "is_for",
    "mismatch",
    "reference_to",
    "request_of",
    "waits_for_consumer",
]

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: The label by which a volume names its node.
HOSTNAME = "kubernetes.io/hostname"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
#: Who makes the volumes of our class, and how a binder names the maker that a claim waits for.
PROVISIONER = "mooring.dev/local"
STORAGE_PROVISIONER = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
SELECTED_NODE = "volume.kubernetes.io/selected-node"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def class_of(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """The name of the storage class, ``""`` for none; the old annotation still counts."""
    annotated = (obj.metadata.annotations or {}).get(CLASS_ANNOTATION)
    if annotated is not None:
        return annotated
    return (obj.spec.storage_class_name or "") if obj.spec else ""


def request_of(claim: PersistentVolumeClaim) -> Decimal:
    """The bytes a claim asks for."""
    resources = claim.spec.resources if claim.spec else None
    return parse_quantity((resources.requests or {}).get("storage", 0)) if resources else Decimal(0)


def capacity_of(volume: PersistentVolume) -> Decimal:
    """The bytes a volume has."""
    return parse_quantity((volume.spec.capacity or {}).get("storage", 0)) if volume.spec else Decimal(0)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Bound by the binder, completely."""
    bound = BIND_COMPLETED in (claim.metadata.annotations or {})
    return bound and bool(claim.spec and claim.spec.volume_name)


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """The volume's claimRef means this claim (one without UID means any of that name)."""
    reference = volume.spec.claim_ref if volume.spec else None
    return (
        reference is not None
        and reference.name == claim.metadata.name
        and reference.namespace == claim.metadata.namespace
        and reference.uid in (None, "", claim.metadata.uid)
    )


def reference_to(claim: PersistentVolumeClaim) -> ObjectReference:
    """What the claimRef of a claim's volume says."""
    meta = claim.metadata
    return ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def filed_under(volume: PersistentVolume) -> Iterable[str]:
    """Index values of a volume: the claim it is for (``namespace/name``), or ``free``."""
    reference = volume.spec.claim_ref if volume.spec else None
    return ("free",) if reference is None else (f"{reference.namespace}/{reference.name}",)


def waits_for_consumer(storage: StorageClass | None) -> bool:
    """Volumes of the class are chosen when a pod is scheduled, not before."""
    return storage is not None and storage.volume_binding_mode == "WaitForFirstConsumer"


def fits_node(volume: PersistentVolume, node: Node) -> bool:
    """The volume can be reached from the node."""
    affinity = volume.spec.node_affinity if volume.spec else None
    return affinity is None or matches_selector(affinity.required, node)


def home_of(volume: PersistentVolume) -> str:
    """The name of the node that a volume is tied to, ``""`` where it is tied to none by name."""
    affinity = volume.spec.node_affinity if volume.spec else None
    terms = (affinity.required.node_selector_terms or ()) if affinity and affinity.required else ()
    names = [
        value
        for term in terms
        for wanted in term.match_expressions or ()
        if wanted.key == HOSTNAME and wanted.operator == "In"
        for value in wanted.values or ()
    ]
    return names[0] if len(names) == 1 else ""


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Why a volume that the claim names cannot be its own; ``""`` when it can."""
    if request_of(claim) > capacity_of(volume):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if _mode(volume) != _mode(claim):
        return "incompatible volumeMode"
    if not _modes_fit(volume, claim):
        return "incompatible accessMode"
    return ""


def best_match(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    *,
    node: Node | None = None,
    delay: bool = False,
    taken: Collection[str] = (),
) -> PersistentVolume | None:
    """The volume reserved for the claim, else the smallest available one that satisfies it.

    With ``delay`` and no ``node`` only a reserved volume is found: the choice waits for a pod's node.
    ``taken`` are names that another claim of the same pod has chosen already.
    """
    candidates: list[PersistentVolume] = []
    selector = selector_of(claim.spec.selector) if claim.spec and claim.spec.selector else None
    for volume in volumes:
        if volume.metadata.name in taken or volume.metadata.deletion_timestamp:
            continue
        if request_of(claim) > capacity_of(volume) or _mode(volume) != _mode(claim):
            continue
        here = node is None or fits_node(volume, node)
        if volume.spec is not None and volume.spec.claim_ref is not None:
            if is_for(volume, claim):
                return volume if here else None
            continue
        if delay and node is None:
            continue
        if not here or _phase(volume) != "Available" or class_of(volume) != class_of(claim):
            continue
        if selector is not None and not selector.matches(volume.metadata.labels):
            continue
        if _modes_fit(volume, claim):
            candidates.append(volume)
    return min(candidates, key=lambda v: (capacity_of(v), v.metadata.name or ""), default=None)


def _phase(volume: PersistentVolume) -> str:
    return (volume.status.phase or "") if volume.status else ""


def _mode(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    return (obj.spec.volume_mode if obj.spec else None) or "Filesystem"


def _modes_fit(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    offered = set((volume.spec.access_modes or ()) if volume.spec else ())
    return set((claim.spec.access_modes or ()) if claim.spec else ()) <= offered
