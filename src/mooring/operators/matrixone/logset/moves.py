"""The moves of a LogSet; those of any StatefulSet are in `workload.moves`."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.actor.verdict import Move
from mooring.operators.matrixone.logset.snapshot import Claim

__all__ = ["DeleteClaim", "GrowClaim", "Release", "Repair"]


@dataclass(frozen=True, kw_only=True)
class Release(Move):
    """Let pods with an empty volume pass their start gate."""

    pods: tuple[tuple[str, str], ...]
    """Name and UID of each."""


@dataclass(frozen=True, kw_only=True)
class DeleteClaim(Move):
    """Delete the claim of a store that has left; exactly the one that was seen."""

    claim: Claim


@dataclass(frozen=True, kw_only=True)
class Repair(Move):
    """Delete the claim and the pod of a store that failed: the same ordinal comes back with an empty volume."""

    pod: str
    uid: str
    claim: Claim | None


@dataclass(frozen=True, kw_only=True)
class GrowClaim(Move):
    """Ask for a larger volume."""

    claim: Claim
    size: str
