"""How many pods a pool has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooring.actor.verdict import InSync, Verdict, Wait
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE
from mooring.operators.matrixone.pool.orphans import orphaned
from mooring.operators.matrixone.pool.snapshot import Candidate

__all__ = ["PoolSnapshot", "decide", "wanted"]


@dataclass(frozen=True, kw_only=True)
class PoolSnapshot:
    """One look at a pool."""

    pods: tuple[Candidate, ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    """UIDs of the claims of the namespace, by name."""
    waiting: int = 0
    """Claims that may get a pod of this pool and have none, or have to leave the one they have."""
    max_idle: int = 0
    max_pods: int | None = None
    trouble: str = ""
    """Why the pods are not as declared, by the CNSet's word."""
    ending: bool = False
    paused: bool = False

    def count(self, phase: str) -> int:
        """The pods of a phase."""
        return sum(one.phase == phase for one in self.pods)


def wanted(snapshot: PoolSnapshot) -> int:
    """Pods to have: those in use or given back, one for each claim that waits, and the warm ones."""
    used = snapshot.count(BOUND) + snapshot.count(DRAINING)
    if snapshot.ending:
        return used
    number = used + snapshot.waiting + snapshot.max_idle
    return number if snapshot.max_pods is None else min(number, snapshot.max_pods)


def decide(snapshot: PoolSnapshot) -> Verdict:
    """Give back pods whose claims are gone; else what is waited for."""
    if move := orphaned(snapshot.pods, snapshot.claims):
        return move
    used = snapshot.count(BOUND) + snapshot.count(DRAINING)
    if snapshot.ending:
        if not used:
            return InSync("no pod is claimed")
        names = ", ".join(sorted(_users(snapshot.pods))[:5]) or "none; pods that were given back are drained"
        text = f"{used} pods are in use; delete their claims first: {names}"
        return Wait("PodsInUse", text, after=5.0, stalled=bool(snapshot.count(BOUND)))
    if snapshot.trouble:
        return Wait("PodsNotReady", snapshot.trouble, after=5.0)
    full = snapshot.max_pods is not None and used + snapshot.waiting > snapshot.max_pods
    if full:
        text = (
            f"{snapshot.waiting} claims wait, and there may be no more than {snapshot.max_pods} pods; "
            "raise maxPods, or delete claims"
        )
        return Wait("PoolExhausted", text, after=10.0, stalled=True)
    idle = snapshot.count(IDLE)
    due = min(snapshot.max_idle, wanted(snapshot) - used)
    if idle < due or snapshot.waiting:
        text = f"{idle} of {snapshot.max_idle} pods are idle, {snapshot.waiting} claims wait"
        return Wait("PodsStarting", text, after=5.0)
    return InSync(f"{idle} pods are idle, {snapshot.count(BOUND)} are claimed", again=60.0)


def _users(pods: Iterable[Candidate]) -> Iterable[str]:
    return {one.claimed_by for one in pods if one.phase == BOUND}
