"""What one pass shows: status, readiness, Events, and what is said in place of a verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from mooring.actor import ConditionState, InSync, Move, Note, Report, Verdict, Wait
from mooring.operators.backup.restore_rules import PURPOSE, Restore, Settle
from mooring.operators.backup.run import job_name
from mooring.operators.redis.cluster import events, load, restoring
from mooring.operators.redis.cluster.inputs import Inputs
from mooring.operators.redis.cluster.moves import Expel, Paused, Record, Resize
from mooring.operators.redis.cluster.pair import leader_of
from mooring.operators.redis.cluster.retries import SLOTS_FAILED, after_failure, still_needed
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.specs import template_lines
from mooring.operators.redis.cluster.status import UNEXPECTED, described, phase_of, progress, recorded
from mooring.operators.redis.cluster.types import RedisClusterStatus, pod_of
from mooring.operators.redis.cluster.users import servers_of
from mooring.operators.redis.cluster.validate import unmet, warnings
from mooring.operators.redis.users import status as users
from mooring.operators.workload.autoscale import CONTESTED

__all__ = ["Early", "failure", "held", "not_begun", "refusal", "report", "step_failed"]


@dataclass(frozen=True, kw_only=True)
class Early:
    """What is shown where a pass ends before anything was looked at."""

    status: RedisClusterStatus
    notes: Sequence[Note] = ()
    outcome: Wait


def report(
    inputs: Inputs, snapshot: Snapshot, verdict: Verdict, *, timeout: timedelta, look_again: float
) -> Report:
    """Everything to show; ``look_again`` is in seconds, when nothing is to be done."""
    decided = verdict.decided if isinstance(verdict, Paused) else verdict
    before = _observed(inputs, snapshot, decided)
    status = phase_of(before, snapshot, decided, timeout=timeout)
    ready = _ready(snapshot, status)
    if isinstance(verdict, Paused):
        shown = replace(status, phase=before.phase, reason=verdict.message, reason_type=verdict.reason)
        wait = Wait(verdict.reason, verdict.message, look_again)
        return Report(status=shown, ready=ready, instead=wait)
    notes = events.of_change(before, status, verdict)
    if not isinstance(verdict, Move):
        instead = _at_rest(inputs, snapshot, status, look_again) if isinstance(verdict, InSync) else None
        return Report(status=status, ready=ready, notes=notes, instead=instead)
    failures = {UNEXPECTED, *SLOTS_FAILED.values()} & {before.reason_type, status.reason_type}
    record = (
        bool(notes)
        or isinstance(verdict, Record | Resize | Expel | Restore | Settle)
        or (bool(failures) and status.reason_type != before.reason_type)
        or before.slot_plan != inputs.status.slot_plan
    )
    if isinstance(verdict, Record):
        status = recorded(status, verdict, snapshot.now)
    if isinstance(verdict, Restore | Settle):
        attempt = verdict.attempt if isinstance(verdict, Restore) else 0
        status = restoring.recorded(status, snapshot, verdict, job=job_name(inputs.cluster, PURPOSE, attempt))
    notes += events.of_move(verdict, snapshot)
    return Report(status=status, ready=ready, notes=notes, record=record)


def not_begun(inputs: Inputs, *, look_again: float) -> Early | None:
    """While there is no StatefulSet: why none is made."""
    if inputs.paused:
        begin = "spec.pause: nothing is created while it is true; set it to false to begin"
        message = "; ".join([begin, *inputs.unknown])
        status = replace(inputs.status, reason=message, reason_type="Paused")
        return Early(status=status, outcome=Wait("Paused", message, look_again))
    if (blocked := inputs.blocked) is None:
        return None
    message = "; ".join([blocked.message, *inputs.unknown])
    return failure(inputs.status, message, reason=blocked.reason, after=look_again)


def failure(before: RedisClusterStatus, message: str, *, reason: str, after: float) -> Early:
    """A declaration by which nothing can be made, looked at again ``after`` seconds."""
    status = replace(before, phase="Failed", reason=message, reason_type=reason)
    wait = Wait(reason, message, after, stalled=True)
    return Early(status=status, notes=events.of_change(before, status, wait), outcome=wait)


def held(before: RedisClusterStatus, why: Wait) -> Early:
    """A restore that cannot begin yet: nothing is made meanwhile."""
    if why.stalled:
        return failure(before, why.message, reason=why.reason, after=why.after)
    status = replace(before, phase="Creating", reason=why.message, reason_type=why.reason)
    return Early(status=status, outcome=why)


def refusal(before: RedisClusterStatus, why: Wait) -> Early:
    """The API server refused a step: HarmonyCloud's reason says it too; what runs keeps its phase."""
    phase = before.phase if before.formed_cluster_before else "Failed"
    status = replace(before, phase=phase, reason=why.message, reason_type="InvalidArgs")
    return Early(status=status, notes=events.of_change(before, status, why), outcome=why)


def step_failed(
    before: RedisClusterStatus,
    snapshot: Snapshot,
    move: Move,
    said: str,
    *,
    now: datetime,
    refused: bool = False,
) -> tuple[RedisClusterStatus, list[Note]]:
    """The status after a step that failed, and what is recorded of it unless that was recorded already."""
    note = events.of_failure(move, snapshot, said)
    status = after_failure(before, move, said, note=note, now=now, refused=refused)
    known = before.retry.event if before.retry is not None else None
    new = note is not None and status.retry is not before.retry and note.reason != known
    return status, [note] if note is not None and new else []


def _observed(inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> RedisClusterStatus:
    hosts = {
        pod.metadata.name or "": (pod.status.host_ip if pod.status else None) or "" for pod in inputs.pods
    }
    namespace = inputs.cluster.metadata.namespace or ""
    status = described(inputs.status, snapshot, names=inputs.names, namespace=namespace, hosts=hosts)
    servers = servers_of(snapshot.seen.nodes)
    status = replace(
        status,
        users=users.results(status.users, snapshot.users, servers, now=snapshot.now),
        other_users=users.other_users(snapshot.users, servers),
        volumes=inputs.growth.shown(),
        autogrow=inputs.filling.status,
        keys=snapshot.keys,
    )
    if inputs.spec.autoscale is None:
        status = replace(status, autoscale=None)
    elif isinstance(verdict, InSync):
        status = replace(status, autoscale=load.shown(snapshot))
    if status.slot_plan is not None:
        status = replace(status, slot_plan=progress(status.slot_plan, snapshot))
    return replace(status, retry=still_needed(status.retry, verdict, snapshot.now))


def _ready(snapshot: Snapshot, status: RedisClusterStatus) -> ConditionState:
    serving = leader_of(snapshot) is not None or (
        bool(snapshot.seen.owners) and not snapshot.seen.absent_owners
    )
    if snapshot.restore is not None:
        return ConditionState(
            False, status.phase or "Restoring", status.reason or "it does not have its keys yet"
        )
    ready = snapshot.recorded.formed and serving
    reason = "Serving" if ready else status.phase or "Creating"
    if ready:
        problem = f"; problem: {status.reason}" if status.reason else ""
        return ConditionState(True, reason, f"all slots are served{problem}")
    return ConditionState(False, reason, status.reason or "slots have no live owner")


def _at_rest(
    inputs: Inputs, snapshot: Snapshot, status: RedisClusterStatus, look_again: float
) -> Wait | InSync:
    """What a cluster at rest still does not follow of its declaration."""
    if (blocked := snapshot.blocked) is not None:
        return Wait(blocked.reason, blocked.message, look_again, stalled=True)
    if left := [
        *_unmet(inputs),
        *inputs.growth.unmet(),
        *inputs.filling.unmet(),
        *users.unmet(status.users),
        *inputs.unknown,
    ]:
        return Wait("NotAsDeclared", "; ".join(left), look_again, stalled=True)
    if status.autoscale is not None and status.autoscale.reason == CONTESTED:
        return Wait(CONTESTED, status.autoscale.message or "", look_again, stalled=True)
    if growing := inputs.growth.wait(after=look_again):
        return growing
    again = min(look_again, load.look_again(snapshot))
    return InSync("; ".join(warnings(inputs.cluster)) or "everything is as declared", again)


def _unmet(inputs: Inputs) -> list[str]:
    specs = inputs.specs
    said = unmet(inputs.cluster, specs, inputs.live)
    if refused := specs.refused():
        said.append(f"spec.pod[0]: {refused}; correct it")
    _, dropped = template_lines(inputs.found.template)
    if dropped and not specs.taken_over:  # HarmonyCloud's pods need them as long as there are any
        where = f"ConfigMap {pod_of(inputs.spec).configmap}"
        said.append(f"{where}: {', '.join(dropped)} is for the operator to decide; remove it")
    return said
