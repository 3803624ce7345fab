"""Everything that a decision about a LogSet is made from, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mooring.operators.matrixone.durations import elapsed
from mooring.operators.matrixone.identity import log_uuid
from mooring.operators.matrixone.topology import Topology
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import Rollout

HEARD_WITHIN: Final = 5.0
"""Seconds within which a store that lives is heard; it sends a heartbeat each second."""

WHOLE_SECONDS: Final = 1.0
"""A container's start is told in whole seconds: it may have begun that much later than it says."""

__all__ = ["HEARD_WITHIN", "Claim", "Member", "Snapshot"]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One pod of the set."""

    pod: Pod
    held: bool = False
    """Its volume is empty, and it waits at the start gate."""

    @property
    def uuid(self) -> str:
        """Its identity in MatrixOne."""
        return log_uuid(self.pod.ordinal)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The claim of one ordinal."""

    name: str
    uid: str
    version: str = ""
    size: str = ""
    """What it asks for."""
    terminating: bool = False


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One look at a LogSet."""

    replicas: int
    """Declared stores."""
    shard_replicas: int
    """Members that each shard has."""
    placed: int | None
    """Pods that the StatefulSet is asked for; ``None`` before there is one."""
    members: tuple[Member, ...]
    claims: Mapping[int, Claim] = field(default_factory=dict)
    """By ordinal, also those whose pod is gone."""
    view: Topology | None = None
    error: str = ""
    """Why there is no view."""
    advances: bool = True
    """HAKeeper's clock moved between two questions."""
    formed: bool = False
    """HAKeeper has answered before: from then on a store with an empty disk is held back."""
    keeps_claims: bool = False
    repairs: bool = True
    """A failed store's claim may be deleted without asking a person."""
    repair_after: float = 600.0
    """Seconds."""
    repair: frozenset[str] = frozenset()
    """Pods whose repair a person confirmed."""
    start_empty: frozenset[str] = frozenset()
    """Pods that a person lets start with an empty disk."""
    size: str = ""
    """Declared size of each claim."""
    rollout: Rollout
    now: datetime
    waiting: str = ""
    """Why the declaration cannot be carried out now."""
    paused: bool = False

    def member(self, uuid: str) -> Member | None:
        """The pod of a store."""
        return next((one for one in self.members if one.uuid == uuid), None)

    def age(self, member: Member) -> float:
        """Seconds since a store's process was started, 0 while it does not run."""
        return max(0.0, elapsed(member.pod.started, self.now))

    def serves(self, member: Member) -> bool:
        """A store is heard, and since its start."""
        store = self.view.logs.get(member.uuid) if self.view is not None else None
        if store is None or not member.pod.running or member.pod.terminating:
            return False
        return store.heard <= HEARD_WITHIN and store.heard <= self.age(member) - WHOLE_SECONDS
