"""Labels and annotations of pooled pods and of claims. Those with a domain of MatrixOne's are upstream's."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BOUND",
    "CLAIMED_BY",
    "CLAIM_LABELS",
    "CLAIM_SET",
    "CLAIM_UID",
    "DELETE_ON_RECLAIM",
    "DRAINING",
    "IDLE",
    "LAST_OWNER",
    "LEAVES",
    "MOVE",
    "OWNER",
    "PHASE",
    "POD_UID",
    "POOL",
    "RECLAIMED_AT",
    "TERMINATING",
    "UNKNOWN",
    "ours",
]

_OURS: Final = ("matrixorigin.io", "matrixone.cloud", "mooring.dev")
"""Domains of labels by which pods are found and owned: a claim cannot set them."""

PHASE: Final = "pool.matrixorigin.io/phase"
"""Label of a pod: what it is for the pool. Every change of it is fenced by the pod's version."""
UNKNOWN: Final = "Unknown"
"""Not ready to be claimed yet; pods without the label are, too."""
IDLE: Final = "Idle"
BOUND: Final = "Bound"
DRAINING: Final = "Draining"
"""Given back; it serves nobody until no session of its former user is left."""
TERMINATING: Final = "Terminating"
"""It goes, and cannot be claimed any more."""
CLAIMED_BY: Final = "pool.matrixorigin.io/claimed-by"
"""Label of a pod: the name of its claim."""
POOL: Final = "pool.matrixorigin.io/pool-name"
OWNER: Final = "matrixorigin.io/owner"
LAST_OWNER: Final = "matrixorigin.io/last-owner"
RECLAIMED_AT: Final = "matrixorigin.io/reclaimed-at"
DELETE_ON_RECLAIM: Final = "matrixorigin.io/delete-on-reclaim"
"""Annotation of a pod or of its claim: it is not used again, but replaced."""
CLAIM_SET: Final = "matrixorigin.io/claimset"
"""Label of a claim: the set that it belongs to."""
CLAIM_UID: Final = "mooring.dev/claim-uid"
"""Annotation of a pod: which claim of that name it is bound to."""
CLAIM_LABELS: Final = "mooring.dev/claim-labels"
"""Annotation of a pod: the labels that it got from its claim, by commas; they go with the claim, or once it asks for them no more."""
POD_UID: Final = "mooring.dev/pod-uid"
"""Annotation of a claim: the pod that it is bound to. A later pod of the same name is another one."""
LEAVES: Final = "mooring.dev/leave"
"""Annotation of a pod that is idle or bound: why it has to leave, by its CNSet's word."""
MOVE: Final = "mooring.dev/move"
"""Annotation of a claim that moves to another pod, and of that pod: the UID of the pod and a word that no other move has."""


def ours(key: str) -> bool:
    """The label is the operator's: by its domain, or by one below that."""
    domain = key.partition("/")[0]
    return any(domain == one or domain.endswith(f".{one}") for one in _OURS)
