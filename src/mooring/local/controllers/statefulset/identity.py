"""Who a pod of a StatefulSet is: name, ordinal, labels, host name, volumes. Pure."""

from __future__ import annotations

import re

import msgspec

from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import (
    PersistentVolumeClaim,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    PodTemplateSpec,
    Volume,
)
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.controllers.pods import from_template

__all__ = [
    "INDEX_LABEL",
    "NAME_LABEL",
    "REVISION_LABEL",
    "claim_name",
    "claims_of",
    "identity_matches",
    "in_range",
    "new_pod",
    "ordinal_of",
    "ordinals",
    "parent_of",
    "replicas_of",
    "revision_of",
    "start_of",
    "storage_matches",
    "templates_of",
    "with_identity",
    "with_storage",
]

NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"

_NAME = re.compile(r"(.*)-([0-9]+)")


def parent_of(pod: Pod) -> str:
    """The name of the set that a pod's name points to, ``""`` when it has not that form."""
    found = _NAME.fullmatch(pod.metadata.name or "")
    return found[1] if found else ""


def ordinal_of(pod: Pod) -> int:
    """The number at the end of a pod's name, -1 when there is none."""
    found = _NAME.fullmatch(pod.metadata.name or "")
    return int(found[2]) if found and int(found[2]) < 2**31 else -1


def replicas_of(sts: StatefulSet) -> int:
    """How many pods are wanted."""
    replicas = sts.spec.replicas if sts.spec else None
    return 1 if replicas is None else replicas


def start_of(sts: StatefulSet) -> int:
    """The first ordinal."""
    ordinals = sts.spec.ordinals if sts.spec else None
    return (ordinals.start or 0) if ordinals else 0


def ordinals(sts: StatefulSet) -> range:
    """The ordinals of the wanted pods."""
    start = start_of(sts)
    return range(start, start + replicas_of(sts))


def in_range(pod: Pod, sts: StatefulSet) -> bool:
    """Whether the pod is one of those wanted."""
    return ordinal_of(pod) in ordinals(sts)


def revision_of(pod: Pod) -> str:
    """The name of the revision a pod was made from."""
    return (pod.metadata.labels or {}).get(REVISION_LABEL, "")


def claim_name(sts: StatefulSet, template: PersistentVolumeClaim, ordinal: int) -> str:
    """``TEMPLATE-SET-ORDINAL``."""
    return f"{template.metadata.name}-{sts.metadata.name}-{ordinal}"


def templates_of(sts: StatefulSet) -> list[PersistentVolumeClaim]:
    """The volume claim templates."""
    return list((sts.spec.volume_claim_templates or ()) if sts.spec else ())


def claims_of(sts: StatefulSet, ordinal: int) -> list[PersistentVolumeClaim]:
    """The claims a pod of that ordinal needs, as they are created."""
    selector = sts.spec.selector if sts.spec else None
    labels = (selector.match_labels or {}) if selector else {}
    claims = []
    for template in templates_of(sts):
        meta = ObjectMeta(
            name=claim_name(sts, template, ordinal),
            namespace=sts.metadata.namespace,
            labels={**(template.metadata.labels or {}), **labels} or None,
            annotations=template.metadata.annotations,
            finalizers=template.metadata.finalizers,
            owner_references=template.metadata.owner_references,
        )
        claims.append(PersistentVolumeClaim(metadata=meta, spec=template.spec))
    return claims


def identity_matches(sts: StatefulSet, pod: Pod) -> bool:
    """Name and label say that the pod belongs to the set."""
    ordinal = ordinal_of(pod)
    return (
        ordinal >= 0
        and pod.metadata.name == f"{sts.metadata.name}-{ordinal}"
        and (pod.metadata.labels or {}).get(NAME_LABEL) == pod.metadata.name
    )


def storage_matches(sts: StatefulSet, pod: Pod) -> bool:
    """Every claim template is mounted under the name that is the pod's."""
    ordinal = ordinal_of(pod)
    volumes = {volume.name: volume for volume in ((pod.spec.volumes or ()) if pod.spec else ())}
    for template in templates_of(sts):
        volume = volumes.get(template.metadata.name)
        source = volume.persistent_volume_claim if volume else None
        if source is None or source.claim_name != claim_name(sts, template, ordinal):
            return False
    return ordinal >= 0


def with_identity(sts: StatefulSet, pod: Pod) -> Pod:
    """The pod with the labels of its name."""
    ordinal = ordinal_of(pod)
    labels = {
        **(pod.metadata.labels or {}),
        NAME_LABEL: f"{sts.metadata.name}-{ordinal}",
        INDEX_LABEL: str(ordinal),
    }
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def with_storage(sts: StatefulSet, pod: Pod) -> Pod:
    """The pod with its claims as volumes; they win over the template's volumes of the same names."""
    ordinal = ordinal_of(pod)
    names = {template.metadata.name: claim_name(sts, template, ordinal) for template in templates_of(sts)}
    claims = [
        Volume(name=name, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim))
        for name, claim in names.items()
    ]
    spec = pod.spec or PodSpec()
    others = [volume for volume in spec.volumes or () if volume.name not in names]
    volumes = claims + others
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, volumes=volumes or None))


def new_pod(sts: StatefulSet, template: PodTemplateSpec, *, revision: str, ordinal: int) -> Pod:
    """The pod of an ordinal, at a revision."""
    pod = from_template(template, sts, name=f"{sts.metadata.name}-{ordinal}")
    pod = with_storage(sts, with_identity(sts, pod))
    labels = {**(pod.metadata.labels or {}), REVISION_LABEL: revision}
    service = sts.spec.service_name if sts.spec else None
    spec = msgspec.structs.replace(
        pod.spec or PodSpec(), hostname=pod.metadata.name, subdomain=service or None
    )
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels), spec=spec
    )
