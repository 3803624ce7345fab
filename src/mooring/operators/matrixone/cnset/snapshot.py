"""Everything that a decision about a CNSet is made from, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mooring.operators.matrixone.durations import elapsed
from mooring.operators.matrixone.logset.snapshot import HEARD_WITHIN, Claim
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.operators.matrixone.topology import ComputeNode, Topology
from mooring.operators.workload.autoscale import Decision
from mooring.operators.workload.pods import Pod

PROXIES_LEARN: Final = 6.0
"""Seconds until every proxy sends sessions to a new compute node: they ask HAKeeper every five."""

__all__ = ["PROXIES_LEARN", "Gone", "Member", "Snapshot"]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One pod of the set, and its store."""

    pod: Pod
    id: str
    """What the pod's name ends in; a claim keeps it for the next pod."""
    uuid: str
    revision: str
    """Digest of the declaration that it was made from."""
    store: ComputeNode | None = None
    """What HAKeeper says; ``None`` while it is not registered, or HAKeeper does not answer."""
    sessions: int | None = None
    """Sessions that clients have on it; ``None`` while unknown."""
    pipelines: int | None = None
    error: str = ""
    """Why they are unknown."""
    cpu: float | None = None
    """CPU that it uses, in percent of its request; ``None`` while unknown, or not asked."""
    draining_since: datetime | None = None
    handed_over: datetime | None = None
    """When it was asked to give its lock tables away: from then on it refuses new writing transactions."""
    gave_locks: bool | None = None
    """Its lock tables are given away; ``None`` while unknown."""
    cordoned: bool = False
    """No new pods are placed on its node."""
    set_aside: bool = False
    """A person asks that it serves nobody and stays."""
    first_to_go: bool = False
    """A person named it for the next scale-in."""
    serving_since: datetime | None = None
    """Since when its gate is open."""
    phase: str = ""
    """What a pod is for its pool; "" where no pool manages the set."""
    claim_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels that the claim of a bound pod gives its store."""
    leaves: str = ""
    """Why it has to leave, as its annotation says."""
    replaced: bool = False
    """Once it is given back, it is not to be used again."""
    gate: bool | None = None
    """Its readiness gate, ``None`` where it was not set yet."""
    tenure: str = ""
    """Which claim has it, or when the last one gave it back: a step that comes again within one tenure is a repetition."""

    @property
    def draining(self) -> bool:
        """HAKeeper sends no new sessions to it, by the operator's word."""
        return self.store is not None and self.store.state in (WorkState.DRAINING, WorkState.DRAINED)


@dataclass(frozen=True, kw_only=True)
class Gone:
    """A store whose pod is gone, as the status recorded it."""

    uuid: str
    pod: str


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One look at a CNSet."""

    replicas: int
    """Pods there are to be: as declared or as the load calls for; 0 while the set is drained for its deletion."""
    scaling: Decision | None = None
    """What the load calls for; ``None`` where the declared number counts."""
    surge: int = 1
    unavailable: int = 0
    revision: str
    """Digest of the present declaration."""
    members: tuple[Member, ...] = ()
    gone: tuple[Gone, ...] = ()
    claims: Mapping[str, Claim] = field(default_factory=dict)
    """By the pods' ids."""
    wants_claims: bool = False
    reuses_claims: bool = False
    size: str = ""
    """Declared size of each claim."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Declared labels of the stores."""
    pooled: bool = False
    """A pool manages the pods: they serve while they are claimed."""
    drains: bool = True
    drain_timeout: float = 300.0
    min_delay: float = 15.0
    pause_update: bool = False
    view: Topology | None = None
    error: str = ""
    """Why there is no view."""
    waiting: str = ""
    """Which dependency is not ready."""
    begun: bool = False
    """Everything it depends on was ready before: a lost pod is replaced whatever is under way there."""
    ending: datetime | None = None
    """Since when the set is being deleted."""
    now: datetime
    paused: bool = False

    @property
    def alive(self) -> list[Member]:
        """Pods that are not on their way out."""
        return [one for one in self.members if not one.pod.terminating]

    def heard(self, member: Member) -> bool:
        """The store's process lives: its heartbeat is younger than its start."""
        store, pod = member.store, member.pod
        if store is None or not pod.running or pod.terminating:
            return False
        return store.heard <= HEARD_WITHIN and store.heard <= elapsed(pod.started, self.now)

    def serves(self, member: Member) -> bool:
        """New sessions are sent to it."""
        return self.heard(member) and member.store is not None and member.store.state is WorkState.WORKING

    @property
    def serving(self) -> list[Member]:
        """The compute nodes that new sessions are sent to."""
        return [one for one in self.members if self.serves(one)]

    def known(self, member: Member) -> bool:
        """It serves, and the proxies have had the time to learn of it."""
        return self.serves(member) and elapsed(member.serving_since, self.now) >= PROXIES_LEARN

    @property
    def least(self) -> int:
        """Compute nodes that must go on serving; the last one never goes, unless that was asked for."""
        if self.replicas == 0 or self.pooled:
            return 0
        least = self.replicas - self.unavailable
        return max(0, least) if self.surge == 0 and self.unavailable else max(1, least)
