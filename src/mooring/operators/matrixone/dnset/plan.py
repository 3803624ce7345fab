"""The next safe move of a DNSet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mooring.actor.verdict import InSync, Verdict, Wait
from mooring.kube.quantity import parse_quantity
from mooring.operators.matrixone.durations import elapsed
from mooring.operators.matrixone.identity import tn_uuid
from mooring.operators.matrixone.logset.moves import GrowClaim
from mooring.operators.matrixone.logset.snapshot import HEARD_WITHIN, Claim
from mooring.operators.matrixone.topology import Topology
from mooring.operators.workload.moves import Resize
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import HandOver, Rollout, hopeless
from mooring.operators.workload.waits import while_paused

__all__ = ["COMPONENT", "PAUSE", "Snapshot", "decide"]

COMPONENT: Final = "dn"
PAUSE: Final = "mooring.dev/pause"
LOOK_AGAIN: Final = 15.0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One look at a DNSet."""

    replicas: int
    placed: int | None
    rollout: Rollout
    claims: Mapping[int, Claim] = field(default_factory=dict)
    size: str = ""
    view: Topology | None = None
    error: str = ""
    waiting: str = ""
    """Which dependency is not ready."""
    now: datetime
    paused: bool = False

    @property
    def pods(self) -> tuple[Pod, ...]:
        """By ordinal."""
        return tuple(self.rollout.pods)

    def serves(self, pod: Pod) -> bool:
        """HAKeeper has heard of it since it started."""
        store = self.view.tns.get(tn_uuid(pod.ordinal)) if self.view is not None else None
        if store is None or not pod.running or pod.terminating:
            return False
        return store.heard <= HEARD_WITHIN and store.heard <= elapsed(pod.started, self.now)


def decide(snapshot: Snapshot) -> Verdict:
    """What is to be done, or what would be where the set is paused."""
    verdict = _decide(snapshot)
    return while_paused(verdict, PAUSE) if snapshot.paused else verdict


def _decide(snapshot: Snapshot) -> Verdict:
    rollout, starts = snapshot.rollout, _starting(snapshot)
    waits = Wait("DependenciesNotReady", snapshot.waiting, after=5.0) if snapshot.waiting else starts
    fixes = any(hopeless(pod, snapshot.now) for pod in snapshot.pods)
    step: Verdict | HandOver | None = (
        rollout.begin(wait=waits if snapshot.waiting and not fixes else None)
        or _scale(snapshot)
        or rollout.advance(wait=waits)
    )
    assert not isinstance(step, HandOver)  # nobody leads
    return step or rollout.end() or rollout.halt() or starts or _grow(snapshot) or InSync(again=LOOK_AGAIN)


def _scale(snapshot: Snapshot) -> Resize | None:
    if snapshot.placed in (None, snapshot.replicas):
        return None
    why = f"{snapshot.replicas} transaction nodes are declared"
    return Resize(component=COMPONENT, replicas=snapshot.replicas, why=why)


def _starting(snapshot: Snapshot) -> Wait | None:
    for pod in snapshot.pods:
        if snapshot.serves(pod):
            continue
        stuck = hopeless(pod, snapshot.now)
        unknown = (
            f"HAKeeper does not answer: {snapshot.error}"
            if snapshot.view is None
            else "it has not registered yet"
        )
        text = pod.trouble_message or unknown
        return Wait(pod.trouble if stuck else "PodsStarting", f"{pod.name}: {text}", after=1.0, stalled=stuck)
    if len(snapshot.pods) != snapshot.replicas:
        text = f"{len(snapshot.pods)} of {snapshot.replicas} transaction nodes are there"
        return Wait("Scaling", text, after=1.0)
    return None


def _grow(snapshot: Snapshot) -> GrowClaim | None:
    for claim in snapshot.claims.values():
        if claim.terminating or not snapshot.size or not claim.size:
            continue
        if parse_quantity(claim.size) < parse_quantity(snapshot.size):
            return GrowClaim(claim=claim, size=snapshot.size, why=f"{claim.name} has {claim.size}")
    return None
