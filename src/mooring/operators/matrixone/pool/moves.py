"""The moves of a claim."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.actor.verdict import Move
from mooring.operators.matrixone.pool.snapshot import Candidate

__all__ = ["Bind", "ChoosePod", "Dress", "GiveBack", "MoveClaim", "OnClaim", "OnPod", "Record"]


@dataclass(frozen=True, kw_only=True)
class OnPod(Move):
    """A change of one pod, exactly as it was seen."""

    pod: str
    uid: str
    version: str


@dataclass(frozen=True, kw_only=True)
class Bind(OnPod):
    """Take an idle pod for the claim."""

    token: str = ""
    """The move that it is taken for; "" for the first pod of a claim."""


@dataclass(frozen=True, kw_only=True)
class Dress(OnPod):
    """Give a bound pod the labels that the claim has now."""


@dataclass(frozen=True, kw_only=True)
class GiveBack(OnPod):
    """Let a pod go; its sessions are moved away before another claim gets it."""


@dataclass(frozen=True, kw_only=True)
class OnClaim(Move):
    """A change of the claim, exactly as it was seen."""

    version: str


@dataclass(frozen=True, kw_only=True)
class Record(OnClaim):
    """Write the first pod into the claim."""

    pod: Candidate


@dataclass(frozen=True, kw_only=True)
class ChoosePod(OnClaim):
    """Write into the claim which pod it moves to, before it takes that pod; "" ends a move that is not needed any more."""

    token: str


@dataclass(frozen=True, kw_only=True)
class MoveClaim(OnClaim):
    """Write the new pod, which serves already, into the claim in the place of the old one."""

    pod: Candidate
    left: str
    """Name of the old pod."""
