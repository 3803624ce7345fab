"""Moves that are writes to Kubernetes, for every operator of a StatefulSet, and the orders they amount to.

A planner chooses them; `mooring.operators.workload.effects` carries them out. A move that changes child objects becomes
`Orders`: the operator renders its objects with them once more, and what differs is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.actor.verdict import Move
from mooring.operators.workload.credentials import Kept

__all__ = ["DeletePod", "LabelRoles", "Orders", "Resize", "RestoreTemplate", "WriteTemplate"]


@dataclass(frozen=True, kw_only=True)
class Resize(Move):
    """Give a StatefulSet another number of pods."""

    component: str
    replicas: int


@dataclass(frozen=True, kw_only=True)
class WriteTemplate(Move):
    """Write the pod template that the user's inputs ask for; pods take it up one by one."""

    component: str


@dataclass(frozen=True, kw_only=True)
class RestoreTemplate(Move):
    """Put the last good template back, so that no pod comes up with the one that does not work."""

    component: str
    revision: str
    """The ControllerRevision that holds it."""
    inputs: str
    """Digest of the declaration it was made from."""


@dataclass(frozen=True, kw_only=True)
class DeletePod(Move):
    """Let a pod be recreated from the present template; only the one that was seen, as it was then."""

    component: str
    pod: str
    uid: str
    version: str = ""
    """Its resourceVersion."""


@dataclass(frozen=True, kw_only=True)
class LabelRoles(Move):
    """Label the pods with their roles, for the Services that select by it."""

    roles: Mapping[str, str]
    """``master`` (or ``primary``) or ``replica`` by pod; the leader comes last, so that there are never two."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What one move changes about the child objects; everything else stays as it was found."""

    replicas: Mapping[str, int] = field(default_factory=dict)
    """Pods by component."""
    templates: frozenset[str] = frozenset()
    """Components whose template is rendered from the present declaration."""
    live: str | None = None
    """Text of the live configuration."""
    turn: bool = False
    """The certificates take their next step."""
    kept: Kept | None = None
    """Passwords for the cluster's Secret."""
