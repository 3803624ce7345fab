"""Moves that are writes to Kubernetes, for every operator of a StatefulSet, and the orders they amount to.

A planner chooses them; `mooring.operators.workload.effects` carries them out. A move that changes child objects becomes
`Orders`: the operator renders its objects with them once more, and what differs is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooring.actor.verdict import Move
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.pods import Pod

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
    grace: int | None = None
    """Seconds that its containers get to end, where the pod's own time is in vain; ``None``: the pod's own."""


@dataclass(frozen=True, kw_only=True)
class LabelRoles(Move):
    """Label the pods with their roles, for the Services that select by it."""

    roles: Mapping[str, str]
    """``master`` (or ``primary``) or ``replica`` by pod."""
    uids: Mapping[str, str]
    """Of these pods, as they were seen."""
    readers: frozenset[str] = frozenset()
    """Pods that bear the label `READS`."""
    leader_first: bool = False
    """The former leader has ended, or is about to. False: the former leader is labelled first."""

    @classmethod
    def of(
        cls, pods: Iterable[Pod], roles: Mapping[str, str], *, leader_first: bool, why: str
    ) -> LabelRoles | None:
        """Bound to these pods as they were seen; ``None`` where no label is wrong."""
        if not roles:
            return None
        seen = [one for one in pods if one.name in roles]
        uids = {one.name: one.uid for one in seen}
        readers = frozenset(one.name for one in seen if one.reads)
        return cls(roles=roles, uids=uids, readers=readers, leader_first=leader_first, why=why)


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
