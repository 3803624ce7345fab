"""What is told in Events, by HarmonyCloud's names: pure, from what was shown, what is shown now and what is done next.

Each is told where something begins or ends, and not once per pass: phases change in the status, which is written before
anything more is done, and steps that are repeated until they get through are told of once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mooring.kube.object import Key
from mooring.operators.redis.cluster import moves
from mooring.operators.redis.cluster.scale import newcomers
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.status import CHANGING, STRANGER, slots_failed, stage_of
from mooring.operators.redis.cluster.types import RedisClusterStatus, SlotPlan
from mooring.runtime import redact

__all__ = ["Failing", "Told", "of_beginning", "of_change", "of_deletion", "of_failure", "of_move"]


@dataclass(frozen=True, kw_only=True)
class Told:
    """One Event."""

    reason: str
    message: str
    warning: bool = False


_STEPS: Final[dict[type[moves.Move], str]] = {
    moves.Claim: "InitCluster",
    moves.Attach: "AddSlave",
    moves.Meet: "AddMaster",
    moves.Resize: "ScalePod",
    moves.Release: "DeleteNode",
    moves.Promote: "Failover",
    moves.HandOver: "Failover",
    moves.DeletePod: "DeletePod",
    moves.WriteTemplate: "UpgradeCluster",
    moves.RestoreTemplate: "RollbackCluster",
}
_PLANS: Final = {"Reshard": "ReshareSlots", "Rebalance": "RebalanceSlots", "Drain": "RebalanceSlots"}
PATIENCE: Final = timedelta(seconds=10)
"""How long steps may fail, as they do while servers come and go, before the status says so."""
LATELY: Final = timedelta(seconds=60)
"""What failed longer ago is over: a try may take half a minute."""
_PHASES: Final = frozenset({"UpgradeCluster", "RollbackCluster"})
"""Told of by the phase they bring about."""


def of_beginning(*, nodes: int, formed: bool) -> list[Told]:
    """There is no StatefulSet: of a new cluster, or one that somebody deleted."""
    if formed:
        return [
            Told(reason="CreatePod", message=f"the StatefulSet is gone; it is made again with {nodes} pods")
        ]
    return [
        Told(reason="CreateClusterStart", message=f"a cluster of {nodes} nodes is made"),
        Told(reason="CreatePod", message=f"a StatefulSet of {nodes} pods"),
    ]


def of_move(move: moves.Move, snapshot: Snapshot) -> list[Told]:
    """A step that is about to be taken."""
    if isinstance(move, moves.Record):
        return [Told(reason=_PLANS[move.plan.kind], message=move.why)] if move.plan is not None else []
    if isinstance(move, moves.Expel):
        return [Told(reason=STRANGER, message=move.why, warning=True)]
    reason = _event(move, snapshot)
    return [Told(reason=reason, message=move.why)] if reason and reason not in _PHASES else []


def of_failure(move: moves.Move, snapshot: Snapshot, error: str) -> Told | None:
    """A step that did not get through, by the name of what it was to do."""
    plan = snapshot.recorded.plan
    if isinstance(move, moves.MoveSlots):
        failed = slots_failed(plan or SlotPlan())
    elif reason := _event(move, snapshot):
        failed = f"{reason}Failed"
    else:
        return None
    said = f"{move.why}: did not get through, and is tried again: {error}"
    return Told(reason=failed, message=said, warning=True)


@dataclass(frozen=True, kw_only=True)
class _Stuck:
    said: str
    since: datetime
    last: datetime


class Failing:
    """Steps that do not get through, each told of once until one gets through."""

    def __init__(self) -> None:
        self._told: dict[Key, str] = {}
        self._stuck: dict[Key, _Stuck] = {}

    def failed(self, key: Key, move: moves.Move, snapshot: Snapshot, error: str) -> list[Told]:
        """What to tell of a step that failed."""
        told = of_failure(move, snapshot, error)
        if told is None or self._told.get(key) == told.reason:
            return []
        self._told[key] = told.reason
        return [told]

    def stuck(self, key: Key, move: moves.Move, error: str, now: datetime) -> None:
        """A step on servers failed, for the first time or again."""
        before = self._stuck.get(key)
        since = before.since if before is not None and now - before.last < LATELY else now
        said = f"{move.why}: does not get through, and is tried again: {error}"
        self._stuck[key] = _Stuck(said=str(redact(said)), since=since, last=now)

    def at_rest(self, key: Key) -> None:
        """Whatever failed is not needed any more."""
        self._stuck.pop(key, None)

    def said(self, key: Key, now: datetime) -> str:
        """What does not get through for long, and did not lately; "" if nothing."""
        stuck = self._stuck.get(key)
        if stuck is None or stuck.last - stuck.since < PATIENCE or now - stuck.last > LATELY:
            return ""
        return stuck.said

    def forget(self, key: Key) -> None:
        """A step got through, or the cluster is gone."""
        self._told.pop(key, None)
        self._stuck.pop(key, None)


def _event(move: moves.Move, snapshot: Snapshot) -> str:
    """The name of what a step does; "" of healing, which changes nothing that was declared."""
    reason = _STEPS.get(type(move), "")
    if isinstance(move, moves.Meet):
        return reason if _joining(move, snapshot) else ""
    if isinstance(move, moves.Attach):
        followers = {one.id for one in snapshot.seen.live if one.master}
        return "" if {target.id for target, _ in move.pairs} <= followers else reason
    return reason


def _joining(move: moves.Meet, snapshot: Snapshot) -> bool:
    """Somebody whom nobody has heard of is to become a master."""
    known = {
        peer.address.ip
        for one in snapshot.seen.live
        for peer in one.server.view
        if "myself" not in peer.flags
    }
    new = {one.name for one in newcomers(snapshot) if one.node.pod.ip not in known}
    return bool(new & {target.name for target, _ in move.pairs})


def of_change(before: RedisClusterStatus, after: RedisClusterStatus, verdict: moves.Verdict) -> list[Told]:
    """What the phase says now and did not say before."""
    was, now = stage_of(before), after.phase or ""
    why = after.reason or _why(verdict)
    if now == "Failed":
        return _failed(before, after, verdict) if before.phase != "Failed" else []
    told = []
    if after.reason_type == "UpgradeFailed" != before.reason_type:
        told.append(Told(reason="UpgradeClusterFailed", message=why, warning=True))
    if now in CHANGING and was not in (*CHANGING, "", "Creating"):
        told.append(Told(reason="UpgradeClusterStart", message=why))
    if now == "Rollbacking" != was:
        if before.phase != "Failed":
            told.append(Told(reason="UpgradeClusterFailed", message=why, warning=True))
        told.append(Told(reason="RollbackClusterStart", message=why))
    if now == "Running" and (success := _SUCCESS.get(was)) and after.reason_type is None:
        told.append(Told(reason=success, message="all slots are served"))
    return told


_SUCCESS: Final = {
    "Creating": "CreateClusterSuccess",
    "Scaling": "UpgradeClusterSuccess",
    "Upgrading": "UpgradeClusterSuccess",
    "Rollbacking": "RollbackClusterSuccess",
}
_FAILED: Final = {
    "": "CreateClusterFailed",
    "Creating": "CreateClusterFailed",
    "Scaling": "UpgradeClusterFailed",
    "Upgrading": "UpgradeClusterFailed",
    "Rollbacking": "RollbackClusterFailed",
}


def _failed(before: RedisClusterStatus, after: RedisClusterStatus, verdict: moves.Verdict) -> list[Told]:
    """What failed; of one that ran the condition Stalled tells, and here only that it takes too long."""
    stalled = isinstance(verdict, moves.Wait) and verdict.stalled
    reason = _FAILED.get(stage_of(before), "" if stalled else after.reason_type or "")
    why = after.reason or _why(verdict)
    told = [Told(reason=reason, message=why, warning=True)] if reason else []
    if isinstance(verdict, moves.Wait) and stalled and verdict.reason == "PodsStarting":
        told.append(Told(reason="CreatePodFailed", message=verdict.message, warning=True))
    return told


def _why(verdict: moves.Verdict) -> str:
    return verdict.message if isinstance(verdict, moves.Wait) else getattr(verdict, "why", "")


def of_deletion(*, claims_go: bool) -> list[Told]:
    """The cluster is gone; Kubernetes removes what belongs to it, and no operator is needed for that."""
    stay = (
        "its claims go with it" if claims_go else "its claims stay, and a cluster of its name takes them up"
    )
    told = [
        Told(reason="DeleteClusterStart", message=f"the cluster was deleted; {stay}"),
        Told(
            reason="DeleteResources", message="StatefulSet, Services, configuration and password go with it"
        ),
    ]
    if claims_go:
        told.append(
            Told(reason="DeleteData", message="spec.finalizers was foreground: its claims are deleted")
        )
    return told
