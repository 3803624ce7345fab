"""Pods that are bound to claims which are gone: bound by an operator that had not seen their end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mooring.operators.matrixone.pool.labels import BOUND
from mooring.operators.matrixone.pool.moves import GiveBack
from mooring.operators.matrixone.pool.snapshot import Candidate

__all__ = ["orphaned"]


def orphaned(pods: Iterable[Candidate], claims: Mapping[str, str]) -> GiveBack | None:
    """Give back the first pod whose claim is gone; ``claims``: the UIDs of those that exist, by name."""
    for pod in pods:
        if pod.phase == BOUND and claims.get(pod.claimed_by) != pod.claim_uid:
            why = f"{pod.name}: the claim {pod.claimed_by} is gone"
            return GiveBack(pod=pod.name, uid=pod.uid, version=pod.version, why=why)
    return None
