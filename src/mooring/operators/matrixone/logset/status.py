"""What a LogSet reports. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from mooring.actor import ConditionState, Move, Note, Report, Verdict
from mooring.cache import rfc3339
from mooring.operators.matrixone.conditions import with_synced
from mooring.operators.matrixone.logset.inputs import Inputs
from mooring.operators.matrixone.logset.quorum import has_quorum, leads
from mooring.operators.matrixone.logset.repair import down_for
from mooring.operators.matrixone.logset.snapshot import Member, Snapshot
from mooring.operators.matrixone.names import HAKEEPER, LogNames
from mooring.operators.matrixone.types import LogSetDiscovery, LogSetStatus, LogStore, Store
from mooring.operators.workload.rollout import RecordRolls

__all__ = ["report"]


def report(inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
    """The status, readiness and events of one pass."""
    before, now = inputs.status, snapshot.now
    shown = inputs.blocked or verdict
    missing = has_quorum(snapshot) if snapshot.replicas else "no store is declared"
    stores = [_store(snapshot, one, before, now) for one in snapshot.members]
    up = [one for one in snapshot.members if snapshot.serves(one)]
    ready = not missing and len(up) * 2 > snapshot.shard_replicas
    status = replace(
        before,
        stores=stores or None,
        available_stores=[_upstream(one, before, "Up", now) for one in snapshot.members if one in up] or None,
        failed_stores=[_upstream(one, before, "Down", now) for one in snapshot.members if one not in up]
        or None,
        discovery=before.discovery or (_discovery(inputs) if ready else None),
        formed=True if snapshot.formed else None,
        rolls=(dict(verdict.rolls) if isinstance(verdict, RecordRolls) else before.rolls) or None,
        conditions=with_synced(
            before.conditions, shown, generation=inputs.log_set.metadata.generation, now=now
        ),
    )
    text = (
        missing
        or f"{len(up)} of {len(snapshot.members)} stores are heard; every shard has a leader and a majority"
    )
    state = ConditionState(
        ready, "Serving" if ready else ("NoQuorum" if snapshot.formed else "Starting"), text
    )
    notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
    return Report(
        status=status,
        ready=state,
        notes=notes,
        instead=inputs.blocked,
        record=isinstance(verdict, RecordRolls),
    )


def _discovery(inputs: Inputs) -> LogSetDiscovery:
    return LogSetDiscovery(address=LogNames(inputs.log_set).discovery_host, port=HAKEEPER)


def _upstream(member: Member, before: LogSetStatus, phase: str, now: datetime) -> Store:
    """A store as upstream's operator reports it."""
    known = [*(before.available_stores or ()), *(before.failed_stores or ())]
    old = next((one for one in known if one.pod_name == member.pod.name and one.phase == phase), None)
    since = (old.last_transition if old is not None else None) or rfc3339(now)
    return Store(pod_name=member.pod.name, phase=phase, last_transition=since)


def _store(snapshot: Snapshot, member: Member, before: LogSetStatus, now: datetime) -> LogStore:
    view, pod = snapshot.view, member.pod
    shards = sorted(view.shards_of(member.uuid)) if view is not None else []
    reason = pod.trouble_message
    if member.held:
        state = "Held"
    elif snapshot.placed is not None and pod.ordinal >= snapshot.placed:
        state = "Leaving"
    elif view is None:
        state, reason = "Unknown", reason or snapshot.error
    elif snapshot.serves(member):
        state = "Serving" if shards else "Spare"
    elif down_for(snapshot, member) >= snapshot.repair_after:
        state = "Failed"
    else:
        state = "Joining"
    old = next((one for one in before.stores or () if one.pod_name == pod.name and one.state == state), None)
    return LogStore(
        pod_name=pod.name,
        uuid=member.uuid,
        state=state,
        shards=shards or None,
        leads=(leads(view, member.uuid) if view is not None else []) or None,
        reason=reason,
        since=old.since if old is not None and old.since else rfc3339(now),
    )
