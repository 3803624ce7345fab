"""Events by HarmonyCloud's names: pure, from the status before, the status now and the next step.

Each is recorded where something begins or ends, not once per pass: phases change in the status, which is written before
anything more is done, and a step that fails repeatedly is recorded once, in the status.
"""

from __future__ import annotations

from typing import Final

from mooring.actor import Note
from mooring.operators.backup.restore_rules import Settle, noted
from mooring.operators.redis.cluster import moves
from mooring.operators.redis.cluster.retries import slots_failed
from mooring.operators.redis.cluster.scale import newcomers
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.status import CHANGING, STRANGER, stage_of
from mooring.operators.redis.cluster.types import RedisClusterStatus, SlotPlan
from mooring.operators.redis.passwords.moves import PublishPassword, SwitchPassword
from mooring.operators.workload.autoscale import CONTESTED

__all__ = ["DATA_LOST", "of_beginning", "of_change", "of_deletion", "of_failure", "of_move"]

DATA_LOST: Final = "DataLost"


_STEPS: Final[dict[type[moves.Move], str]] = {
    moves.Claim: "InitCluster",
    moves.Attach: "AddSlave",
    moves.Meet: "AddMaster",
    moves.Resize: "ScalePod",
    moves.Retire: "DeleteNode",
    moves.Promote: "Failover",
    moves.HandOver: "Failover",
    moves.DeletePod: "DeletePod",
    moves.WriteTemplate: "UpgradeCluster",
    moves.RestoreTemplate: "RollbackCluster",
}
_PLANS: Final = {"Reshard": "ReshareSlots", "Rebalance": "RebalanceSlots", "Drain": "RebalanceSlots"}
_PHASES: Final = frozenset({"UpgradeCluster", "RollbackCluster"})
"""Recorded with the phase that they begin."""


def of_beginning(*, nodes: int, formed: bool) -> list[Note]:
    """There is no StatefulSet: the cluster is new, or it was deleted."""
    if formed:
        return [
            Note(
                reason="CreatePod", message=f"the StatefulSet was deleted; it is recreated with {nodes} pods"
            )
        ]
    return [
        Note(reason="CreateClusterStart", message=f"a cluster of {nodes} nodes is being created"),
        Note(reason="CreatePod", message=f"a StatefulSet of {nodes} pods"),
    ]


def of_move(move: moves.Move, snapshot: Snapshot) -> list[Note]:
    """A step that is about to be taken."""
    if isinstance(move, moves.Record) and move.lost:
        return [Note(reason=DATA_LOST, message=move.lost, warning=True)]
    if isinstance(move, Settle):
        return [noted(move)]
    if isinstance(move, PublishPassword | SwitchPassword):
        return [Note(reason="PasswordChanged", message=move.why)]
    if isinstance(move, moves.Record) and move.autoscale is not None:
        stands = move.autoscale.reason == CONTESTED
        return [Note(reason=CONTESTED if stands else "Autoscaled", message=move.why, warning=stands)]
    if isinstance(move, moves.Record):
        return [Note(reason=_PLANS[move.plan.kind], message=move.why)] if move.plan is not None else []
    if isinstance(move, moves.Expel):
        return [Note(reason=STRANGER, message=move.why, warning=True)]
    reason = _event(move, snapshot)
    return [Note(reason=reason, message=move.why)] if reason and reason not in _PHASES else []


def of_failure(move: moves.Move, snapshot: Snapshot, error: str) -> Note | None:
    """The Event of a failed step, named after what it was to do."""
    plan = snapshot.recorded.plan
    if isinstance(move, moves.MoveSlots):
        failed = slots_failed(plan or SlotPlan())
    elif reason := _event(move, snapshot):
        failed = f"{reason}Failed"
    else:
        return None
    said = f"{move.why}: failed, and is retried: {error}"
    return Note(reason=failed, message=said, warning=True)


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
    """A node that no other node knows yet is to become a master."""
    known = {
        peer.address.ip
        for one in snapshot.seen.live
        for peer in one.server.view
        if "myself" not in peer.flags
    }
    new = {one.name for one in newcomers(snapshot) if one.node.pod.ip not in known}
    return bool(new & {target.name for target, _ in move.pairs})


def of_change(before: RedisClusterStatus, after: RedisClusterStatus, verdict: moves.Verdict) -> list[Note]:
    """What the phase says now and did not say before."""
    was, now = stage_of(before), after.phase or ""
    why = after.reason or _why(verdict)
    if now == "Failed":
        return _failed(before, after, verdict) if before.phase != "Failed" else []
    notes = []
    if after.reason_type == "UpgradeFailed" != before.reason_type:
        notes.append(Note(reason="UpgradeClusterFailed", message=why, warning=True))
    if now in CHANGING and was not in (*CHANGING, "", "Creating"):
        notes.append(Note(reason="UpgradeClusterStart", message=why))
    if now == "Rollbacking" != was:
        if before.phase != "Failed":
            notes.append(Note(reason="UpgradeClusterFailed", message=why, warning=True))
        notes.append(Note(reason="RollbackClusterStart", message=why))
    if now == "Running" and (success := _SUCCESS.get(was)) and after.reason_type is None:
        notes.append(Note(reason=success, message="all slots are served"))
    return notes


_SUCCESS: Final = {
    "Creating": "CreateClusterSuccess",
    "Restoring": "CreateClusterSuccess",
    "Scaling": "UpgradeClusterSuccess",
    "Upgrading": "UpgradeClusterSuccess",
    "Rollbacking": "RollbackClusterSuccess",
}
_FAILED: Final = {
    "": "CreateClusterFailed",
    "Creating": "CreateClusterFailed",
    "Restoring": "CreateClusterFailed",
    "Scaling": "UpgradeClusterFailed",
    "Upgrading": "UpgradeClusterFailed",
    "Rollbacking": "RollbackClusterFailed",
}


def _failed(before: RedisClusterStatus, after: RedisClusterStatus, verdict: moves.Verdict) -> list[Note]:
    """What failed; of one that ran the condition Stalled tells, and here only that it takes too long."""
    stalled = isinstance(verdict, moves.Wait) and verdict.stalled
    reason = _FAILED.get(stage_of(before), "" if stalled else after.reason_type or "")
    why = after.reason or _why(verdict)
    notes = [Note(reason=reason, message=why, warning=True)] if reason else []
    if isinstance(verdict, moves.Wait) and stalled and verdict.reason == "PodsStarting":
        notes.append(Note(reason="CreatePodFailed", message=verdict.message, warning=True))
    return notes


def _why(verdict: moves.Verdict) -> str:
    return verdict.message if isinstance(verdict, moves.Wait) else getattr(verdict, "why", "")


def of_deletion(*, claims_go: bool) -> list[Note]:
    """The cluster is gone; Kubernetes removes what belongs to it, and no operator is needed for that."""
    stay = (
        "its claims go with it"
        if claims_go
        else "its claims stay, and a cluster of the same name uses them again"
    )
    notes = [
        Note(reason="DeleteClusterStart", message=f"the cluster was deleted; {stay}"),
        Note(
            reason="DeleteResources", message="StatefulSet, Services, configuration and password go with it"
        ),
    ]
    if claims_go:
        notes.append(
            Note(reason="DeleteData", message="spec.finalizers was foreground: its claims are deleted")
        )
    return notes
