"""Pods as claims and pools see them, and what a claim writes to its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from mooring.actor import Context, StepFailed
from mooring.cache import rfc3339
from mooring.kube.errors import Conflict, NotFound
from mooring.kube.objects import core
from mooring.kube.patches import MergePatch
from mooring.kube.selectors import EVERYTHING, Selector
from mooring.operators.matrixone.cnset.fence import SEEN_AFTER
from mooring.operators.matrixone.cnset.snapshot import PROXIES_LEARN
from mooring.operators.matrixone.cnset.specs import HANDED_OVER
from mooring.operators.matrixone.durations import elapsed
from mooring.operators.matrixone.names import CN_LABELS
from mooring.operators.matrixone.pool.labels import (
    BOUND,
    CLAIM_LABELS,
    CLAIM_SET,
    CLAIM_UID,
    CLAIMED_BY,
    DELETE_ON_RECLAIM,
    DRAINING,
    LAST_OWNER,
    LEAVES,
    MOVE,
    OWNER,
    PHASE,
    POOL,
    RECLAIMED_AT,
    ours,
)
from mooring.operators.matrixone.pool.moves import OnPod
from mooring.operators.matrixone.pool.snapshot import Candidate
from mooring.operators.matrixone.specs.compute import READY_GATE
from mooring.operators.matrixone.types import CNClaim, CNClaimSpec

__all__ = ["Dressing", "candidate", "change", "dressing", "given_back"]


@dataclass(frozen=True, kw_only=True)
class Dressing:
    """What a claim writes to its pod."""

    labels: Mapping[str, str | None]
    """``None``: the claim put the label there, and does not ask for it any more."""
    notes: Mapping[str, str]
    kept: tuple[str, ...] = ()
    """Labels that the claim asks for, and that the pod keeps as they are: somebody else set them."""

    def fits(self, labels: Mapping[str, str], notes: Mapping[str, str]) -> bool:
        """Nothing has to be written."""
        return self.notes.items() <= notes.items() and all(
            labels.get(key) == value for key, value in self.labels.items()
        )


def candidate(
    pod: core.Pod,
    *,
    now: datetime | None = None,
    selector: Selector = EVERYTHING,
    claim: CNClaim | None = None,
) -> Candidate:
    """A pod of a CNSet; ``selector`` is the claim's. Without the time, no pod counts as known to the proxies."""
    labels, notes = pod.metadata.labels or {}, pod.metadata.annotations or {}
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    gate = next((one for one in conditions if one.type == READY_GATE and one.status == "True"), None)
    since = gate.last_transition_time if gate is not None else None
    wanted = dressing(claim, pod) if claim is not None else Dressing(labels={}, notes={})
    return Candidate(
        name=pod.metadata.name or "",
        uid=pod.metadata.uid or "",
        version=pod.metadata.resource_version or "",
        phase=labels.get(PHASE, ""),
        claimed_by=labels.get(CLAIMED_BY, ""),
        claim_uid=notes.get(CLAIM_UID, ""),
        matches=selector.matches(labels),
        terminating=pod.metadata.deletion_timestamp is not None,
        serves=gate is not None,
        known=now is not None
        and since is not None
        and elapsed(datetime.fromisoformat(since), now) >= PROXIES_LEARN,
        dressed=wanted.fits(labels, notes),
        kept=wanted.kept,
        handed_over=HANDED_OVER in notes,
        leaves=notes.get(LEAVES, ""),
        token=notes.get(MOVE, ""),
        last_owner=labels.get(LAST_OWNER, ""),
        node=(pod.spec.node_name if pod.spec is not None else None) or "",
        pool=labels.get(POOL, ""),
    )


def dressing(claim: CNClaim, pod: core.Pod) -> Dressing:
    """Labels and annotations that the pod of a claim has.

    The pod notes which labels its claims put there. Only these are changed, and removed when no claim asks for them: any
    other label is the pool's or a person's.
    """
    spec, there = claim.spec or CNClaimSpec(), pod.metadata.labels or {}
    noted = ((pod.metadata.annotations or {}).get(CLAIM_LABELS) or "").split(",")
    put = {key for key in noted if key}
    asked = spec.additional_pod_labels or {}
    given = {key: one for key, one in asked.items() if not ours(key) and (key in put or key not in there)}
    if belongs := (claim.metadata.labels or {}).get(CLAIM_SET):
        given[CLAIM_SET] = belongs
    labels: dict[str, str | None] = {**dict.fromkeys(put), **given}
    labels |= {PHASE: BOUND, CLAIMED_BY: claim.metadata.name or ""}
    if spec.owner_name:
        labels |= {OWNER: spec.owner_name, LAST_OWNER: spec.owner_name}
    store = [{"key": one.key or "", "values": one.values or []} for one in spec.cn_labels or ()]
    notes = {
        CLAIM_UID: claim.metadata.uid or "",
        CN_LABELS: msgspec.json.encode(store).decode(),
        CLAIM_LABELS: ",".join(sorted(given)),
    }
    kept = sorted(key for key, one in asked.items() if key not in given and there.get(key) != one)
    return Dressing(labels=labels, notes=notes, kept=tuple(kept))


def given_back(claim: CNClaim | None, now: Any) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Labels and annotations of a pod that was given back; its CNSet takes the rest from it when it is drained."""
    notes: dict[str, str | None] = {CLAIM_UID: None, MOVE: None, RECLAIMED_AT: rfc3339(now)}
    if claim is not None and (claim.metadata.annotations or {}).get(DELETE_ON_RECLAIM):
        notes[DELETE_ON_RECLAIM] = "true"
    return {PHASE: DRAINING, CLAIMED_BY: None}, notes


async def change(
    ctx: Context[Any], move: OnPod, labels: dict[str, str | None], notes: dict[str, str | None]
) -> None:
    """Change a pod exactly as it was seen; raises `StepFailed` where it changed meanwhile."""
    body = {
        "metadata": {
            "uid": move.uid,
            "resourceVersion": move.version,
            "labels": labels,
            "annotations": notes,
        }
    }
    try:
        await ctx.client.patch(core.Pod, move.pod, MergePatch(body), namespace=ctx.key.namespace)
    except (Conflict, NotFound) as error:
        text = f"{move.pod} changed meanwhile; the next look chooses again"
        raise StepFailed(text, after=SEEN_AFTER) from error
