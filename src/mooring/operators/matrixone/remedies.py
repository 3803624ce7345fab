"""Which field to look at, by what keeps a pod of MatrixOne from running; see `workload.trouble`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooring.kube.object import controller_of
from mooring.operators.matrixone.types import LogSet, MatrixOneCluster
from mooring.operators.workload.last_words import (
    BAD_CONFIGURATION,
    BUCKET_MISSING,
    OUT_OF_MEMORY,
    STORAGE_REFUSED,
)

__all__ = ["remedies_of"]

_IMAGE: Final = "correct spec.image, or give overlay.imagePullSecrets"
_ALWAYS: Final[Mapping[str, str]] = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": "correct spec.image",
    "ErrImageNeverPull": "correct spec.image or overlay.imagePullPolicy",
    "CrashLoopBackOff": "check config, sharedStorage and its Secret",
    "CreateContainerConfigError": "create the Secret that sharedStorage.s3.secretRef names",
    "Unschedulable": "check spec.resources, nodeSelector and topologySpread against the nodes there are",
    "UnboundClaim": "provide a volume or the storage class; a claim stays as it was created",
    BAD_CONFIGURATION: "correct config",
    OUT_OF_MEMORY: "raise the memory in resources.limits",
}


def remedies_of(log_set: LogSet | None, *, here: bool = False) -> Mapping[str, str]:
    """The remedies of pods that store where ``log_set`` says; ``here``: they are its own."""
    storage = log_set.spec.shared_storage if log_set is not None and log_set.spec is not None else None
    if log_set is None or storage is None or storage.s3 is None:
        return _ALWAYS
    owner = controller_of(log_set)
    field, of = "spec.sharedStorage.s3", "" if here else f" of LogSet {log_set.metadata.name}"
    if owner is not None and owner.kind == MatrixOneCluster.resource.kind:
        field, of = "spec.logService.sharedStorage.s3", f" of {owner.kind} {owner.name}"
    secret = storage.s3.secret_ref.name if storage.s3.secret_ref is not None else None
    keys = f"the keys in the Secret {secret}" if secret else "the keys in the environment"
    return {
        **_ALWAYS,
        STORAGE_REFUSED: f"check {field}.secretRef{of}: {keys}, and what they may do with the bucket",
        BUCKET_MISSING: f"create the bucket, or check {field}.path, endpoint and region{of}",
    }
