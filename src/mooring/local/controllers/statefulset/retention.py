"""Who owns a pod's claims: persistentVolumeClaimRetentionPolicy as owner references. Pure.

==========  ===========  ====================================================
whenScaled  whenDeleted  owners of a claim
==========  ===========  ====================================================
Retain      Retain       neither
Retain      Delete       the set
Delete      Retain       the pod, once it is scaled away
Delete      Delete       the set; the pod instead, once it is scaled away
==========  ===========  ====================================================
"""

from __future__ import annotations

from mooring.kube.object import Object, owner_reference
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.kube.objects.meta import OwnerReference
from mooring.local.controllers.statefulset.identity import in_range

__all__ = ["conflicting", "is_stale", "owners_wanted"]


def owners_wanted(claim: PersistentVolumeClaim, sts: StatefulSet, pod: Pod) -> list[OwnerReference] | None:
    """The owner references the claim should have, ``None`` when they are right or not ours to touch."""
    references = list(claim.metadata.owner_references or ())
    if _stale(references, sts) or _stale(references, pod):
        return None  # of an earlier incarnation: the garbage collector's business
    others = [r for r in references if not _names(r, sts) and not _names(r, pod)]
    owned = {r.uid for r in references}
    ours = {sts.metadata.uid, pod.metadata.uid} - {None}
    if conflicting(claim, sts, pod):
        return others if owned & ours else None
    wanted = _wanted(sts, pod)
    proper = all(r.controller for r in references if r.uid in ours)
    if proper and owned & ours == {owner.metadata.uid for owner in wanted}:
        return None
    return others + [owner_reference(owner) for owner in wanted]


def _wanted(sts: StatefulSet, pod: Pod) -> list[Object]:
    when_scaled, when_deleted = _policy(sts)
    scaled_away = not in_range(pod, sts)
    if when_scaled == "Delete" and scaled_away:
        return [pod]
    return [sts] if when_deleted == "Delete" else []


def _policy(sts: StatefulSet) -> tuple[str, str]:
    policy = sts.spec.persistent_volume_claim_retention_policy if sts.spec else None
    if policy is None:
        return "Retain", "Retain"
    return policy.when_scaled or "Retain", policy.when_deleted or "Retain"


def conflicting(claim: PersistentVolumeClaim, sts: StatefulSet, pod: Pod) -> bool:
    """Someone else controls the claim, so that the policy cannot be kept."""
    if _policy(sts) == ("Retain", "Retain"):
        return False
    for reference in claim.metadata.owner_references or ():
        mine = next((owner for owner in (sts, pod) if _names(reference, owner)), None)
        if mine is not None:
            if reference.uid != mine.metadata.uid:
                return True
        elif reference.controller:
            return True
    return False


def is_stale(claim: PersistentVolumeClaim, sts: StatefulSet, pod: Pod) -> bool:
    """The claim belongs to an earlier pod of this name and will go: a new pod has to wait for that."""
    when_scaled, _ = _policy(sts)
    return when_scaled == "Delete" and _stale(claim.metadata.owner_references or [], pod)


def _names(reference: OwnerReference, owner: Object) -> bool:
    return (
        reference.api_version == owner.resource.api_version
        and reference.kind == owner.resource.kind
        and reference.name == owner.metadata.name
    )


def _stale(references: list[OwnerReference], owner: Object) -> bool:
    named = next((r for r in references if _names(r, owner)), None)
    return named is not None and named.uid != owner.metadata.uid
