"""What the status says: phase, reason, one condition per node, and how far a move of slots is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from mooring.cache import rfc3339
from mooring.operators.backup import restore_rules
from mooring.operators.redis.cluster.moves import (
    Expel,
    InSync,
    Move,
    Record,
    Resize,
    RestoreTemplate,
    Verdict,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.cluster.names import Names, selector_of
from mooring.operators.redis.cluster.retries import SLOTS_FAILED, failing_for_long, slots_failed
from mooring.operators.redis.cluster.scale import moved_of
from mooring.operators.redis.cluster.slots import show
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.topology import Node
from mooring.operators.redis.cluster.types import (
    POD_MISSING,
    DataLoss,
    NodeCondition,
    RedisClusterStatus,
    SlotPlan,
)
from mooring.operators.workload.pods import ordinal_of

__all__ = [
    "CHANGING",
    "STRANGER",
    "UNEXPECTED",
    "described",
    "phase_of",
    "progress",
    "recorded",
    "stage_of",
]

CHANGING: Final = ("Scaling", "Upgrading")
"""Phases of a cluster that follows a change of its declaration."""
UNEXPECTED: Final = "UnexpectedError"
"""HarmonyCloud's reason for what nothing more is known of."""
_BETWEEN: Final = frozenset({"Agreeing", "Meeting"})
"""Waits for servers between two tries of a step."""
STRANGER: Final = "Stranger"
"""The reason while a node that belongs to no pod of the cluster is removed from it."""
PROGRESS_PERIOD: Final = timedelta(seconds=5)


def described(
    status: RedisClusterStatus, snapshot: Snapshot, *, names: Names, namespace: str, hosts: dict[str, str]
) -> RedisClusterStatus:
    """The status with what was seen; ``hosts`` has the addresses of the pods' nodes."""
    old = {one.name: one for one in status.conditions or ()}
    conditions = []
    for node in snapshot.seen.nodes:
        before = old.get(node.name)
        one = _condition(node, snapshot, names=names, namespace=namespace, before=before)
        one = replace(one, host_ip=hosts.get(node.name) or None)
        same = before is not None and before.status == one.status
        stamp = before.last_transition_time if same and before else rfc3339(snapshot.now)
        conditions.append(replace(one, last_transition_time=stamp))
    for name in {names.pod(ordinal) for ordinal in range(snapshot.wanted.pods)} - {
        one.name for one in conditions
    }:
        new = NodeCondition(name=name, namespace=namespace, domain_name=names.domain(name, namespace))
        conditions.append(_absent(old.get(name, new), snapshot.now))
    return replace(
        status,
        replicas=sum(1 for node in snapshot.seen.nodes if node.pod.ready),
        selector=",".join(f"{key}={value}" for key, value in selector_of(names.cluster).items()),
        conditions=sorted(conditions, key=lambda one: ordinal_of(one.name or "")) or None,
    )


def _absent(one: NodeCondition, now: datetime) -> NodeCondition:
    """A pod that is away for a moment, or cannot be made; its id tells whose slots are without an owner."""
    if one.reason == POD_MISSING:
        return one
    gone = replace(one, status="False", reason=POD_MISSING, message="there is no such pod", instance=None)
    return replace(gone, last_transition_time=rfc3339(now))


def _condition(
    node: Node, snapshot: Snapshot, *, names: Names, namespace: str, before: NodeCondition | None
) -> NodeCondition:
    one = NodeCondition(
        name=node.name,
        namespace=namespace,
        instance=str(node.address) if node.pod.ip else None,
        domain_name=names.domain(node.name, namespace),
        hostname=node.pod.node or None,
        node_id=node.id or (before.node_id if before else None),
    )
    server = node.server
    if server is None:
        waiting = "it waits until its data is safe" if node.gate else node.pod.trouble_message or node.error
        return replace(
            one,
            type=before.type if before else None,
            status="False" if node.gate or not node.pod.running else "Unknown",
            slots=show(snapshot.lost_by(node.id or (before and before.node_id) or "")) or None,
            reason="HeldBack" if node.gate else node.pod.trouble or "Unreachable",
            message=waiting,
        )
    me = server.me
    master = server.role == "master"
    owned = snapshot.seen.owners.get(me.id, 0) | snapshot.lost_by(me.id)
    if server.loading:
        state = ("False", "Loading", "it loads its data")
    elif not master and (server.syncing or not server.link_up):
        state = ("False", "Synchronising", "it is not in sync with its master yet")
    else:
        state = ("True", "Running", "")
    return replace(
        one,
        type="master" if master else "slave",
        master_node_id=(me.id if master else me.master) or None,
        slots=show(owned) or None,
        status=state[0],
        reason=state[1],
        message=state[2] or None,
    )


def phase_of(
    status: RedisClusterStatus,
    snapshot: Snapshot,
    verdict: Verdict,
    *,
    timeout: timedelta = timedelta(minutes=20),
) -> RedisClusterStatus:
    """Phase and reason after a decision; what goes on without an end for ``timeout`` is called Failed."""
    blocked, failing = snapshot.blocked, failing_for_long(status.retry, snapshot.now)
    reason_type, reason = (blocked.reason, blocked.message) if blocked else (None, None)
    phase = _going_on(stage_of(status), _phase(snapshot, verdict), verdict)
    stalled = isinstance(verdict, Wait) and verdict.stalled
    tried = isinstance(verdict, Move) or (isinstance(verdict, Wait) and verdict.reason in _BETWEEN)
    if isinstance(verdict, Expel):
        reason_type, reason = STRANGER, verdict.why
    if blocked is None and failing and tried:
        reason_type, reason = UNEXPECTED, failing
    elif (
        blocked is None
        and isinstance(verdict, Wait)
        and (stalled or phase in ("Failed", "Restarting", "Restoring"))
    ):
        reason_type, reason = verdict.reason, verdict.message
    if (
        phase in _LATE
        and blocked is None
        and snapshot.recorded.plan is None
        and _under_way(status, snapshot) > timeout
    ):
        now = failing or (verdict.message if isinstance(verdict, Wait) else getattr(verdict, "why", ""))
        minutes = timeout.total_seconds() / 60
        said = f"still {phase} after {minutes:g} minutes: {now}; the operator continues, and running pods are left as they are"
        reason_type, reason, phase = _LATE[phase], said, "Failed"
    plan = snapshot.recorded.plan
    if plan is not None and plan.failure and reason_type in (None, UNEXPECTED, slots_failed(plan)):
        reason_type, reason = slots_failed(plan), plan.failure
        if plan.failing is not None and snapshot.now - plan.failing > timeout:
            minutes = timeout.total_seconds() / 60
            phase = "Failed"
            reason += f"; no slot was finished for {minutes:g} minutes; it is retried, and running pods are left as they are"
    return replace(status, phase=phase, reason=reason, reason_type=reason_type)


def stage_of(status: RedisClusterStatus) -> str:
    """What it was about, also where it was called Failed for taking too long."""
    if status.phase == "Failed":
        return _STAGES.get(status.reason_type or "", "Failed")
    return status.phase or ""


_STAGES: Final = {
    "InitClusterFailed": "Creating",
    "UpgradeFailed": "Upgrading",
    "RollbackFailed": "Rollbacking",
    restore_rules.FAILURE: "Restoring",
    **dict.fromkeys(SLOTS_FAILED.values(), "Upgrading"),
}


def _going_on(was: str, phase: str, verdict: Verdict) -> str:
    """A change goes on until all is at rest: that pods come and go meanwhile is part of it."""
    if phase in ("Running", "Failed", "Restoring"):
        return phase
    if was in ("", "Creating"):
        return "Creating"
    if isinstance(verdict, RestoreTemplate):
        return "Rollbacking"
    if (
        was == "Rollbacking"
        and phase in ("Restarting", "Upgrading")
        and not isinstance(verdict, WriteTemplate)
    ):
        return was
    return was if was in CHANGING and phase == "Restarting" else phase


_LATE: Final = {
    "Creating": "InitClusterFailed",
    "Scaling": "UpgradeFailed",
    "Upgrading": "UpgradeFailed",
    "Rollbacking": "RollbackFailed",
    "Restarting": UNEXPECTED,
}
"""HarmonyCloud's reason for each phase that ends at some time. A move of slots may take long, and shows how far it is."""


def _under_way(status: RedisClusterStatus, snapshot: Snapshot) -> timedelta:
    """For how long it has been neither at rest nor waiting for somebody."""
    for one in status.standard_conditions or ():
        if one.type == "Progressing" and one.status == "True" and one.last_transition_time:
            return snapshot.now - datetime.fromisoformat(one.last_transition_time)
    return timedelta()


def _phase(snapshot: Snapshot, verdict: Verdict) -> str:
    stuck = isinstance(verdict, Wait) and verdict.stalled
    if not snapshot.recorded.formed:
        return "Failed" if stuck else "Creating"
    if snapshot.restore is not None:
        return "Failed" if stuck else "Restoring"
    if isinstance(verdict, InSync):
        return "Running"
    if stuck:
        return "Failed"
    if snapshot.wanted.nodes == 2:
        return "Upgrading" if snapshot.wanted.stale_template else "Restarting"
    if snapshot.wanted.pods != snapshot.wanted.nodes or isinstance(verdict, Resize):
        return "Scaling"
    if snapshot.recorded.plan is not None or isinstance(verdict, Record) or snapshot.wanted.stale_template:
        return "Upgrading"
    if any(one.node.pod.revision not in ("", snapshot.wanted.revision) for one in snapshot.seen.live):
        return "Upgrading"
    if snapshot.missing or snapshot.seen.absent_owners:
        joining = len(snapshot.owners) < snapshot.masters and not snapshot.seen.absent_owners
        return "Scaling" if joining else "Restarting"
    return "Upgrading" if len(snapshot.owners) < snapshot.masters else "Restarting"


def progress(plan: SlotPlan, snapshot: Snapshot) -> SlotPlan:
    """The plan with how far it is; as it was when that was counted less than five seconds ago."""
    if plan.updated is not None and snapshot.now - plan.updated < PROGRESS_PERIOD:
        return plan
    moved = moved_of(snapshot, plan)
    if moved == plan.moved or plan.since is None:
        return plan
    spent = (snapshot.now - plan.since).total_seconds()
    left = round(spent / moved * (plan.total - moved)) if moved else None
    failing = plan.failing and snapshot.now
    return replace(plan, moved=moved, updated=snapshot.now, seconds_left=left, failing=failing)


def recorded(status: RedisClusterStatus, move: Record, now: datetime) -> RedisClusterStatus:
    """The status with what a move writes down."""
    return replace(
        status,
        slot_plan=None if move.drop_plan else move.plan or status.slot_plan,
        formed_cluster_before=status.formed_cluster_before if move.formed is None else move.formed,
        leader=move.leader or status.leader,
        autoscale=None if move.drop_autoscale else move.autoscale or status.autoscale,
        last_data_loss=DataLoss(time=now, message=move.lost) if move.lost else status.last_data_loss,
    )
