"""What a CNSet reports. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from mooring.actor import ConditionState, Move, Note, Report, Verdict
from mooring.cache import rfc3339
from mooring.kube.objects import meta
from mooring.operators.matrixone.cnset.autoscale import (
    CONTESTED,
    CONTESTED_TEXT,
    autoscale_status,
    current_of,
    steps_noted,
)
from mooring.operators.matrixone.cnset.inputs import Inputs
from mooring.operators.matrixone.cnset.moves import Several
from mooring.operators.matrixone.cnset.pooling import warm
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.conditions import with_condition, with_synced
from mooring.operators.matrixone.names import SQL, CNNames, labels_of
from mooring.operators.matrixone.pool.labels import IDLE
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.operators.matrixone.types import CNSetStatus, CNStore

__all__ = ["report"]


def report(inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
    """The status, readiness and events of one pass."""
    before, now, names = inputs.status, snapshot.now, CNNames(inputs.cn_set)
    serving = len(snapshot.serving)
    left = [
        one
        for one in before.stores or ()
        if any(gone.uuid == one.uuid for gone in snapshot.gone)
        and (snapshot.view is None or one.uuid in snapshot.view.cns)
    ]
    stores = [*(_store(snapshot, one, before, now) for one in snapshot.members), *left]
    status = replace(
        before,
        stores=stores or None,
        replicas=len(snapshot.members),
        ready_replicas=serving,
        label_selector=",".join(f"{key}={value}" for key, value in sorted(labels_of(inputs.cn_set).items())),
        host=f"{names.main}.{names.namespace}.svc",
        port=SQL,
        autoscale=autoscale_status(inputs.spec, before, snapshot.scaling, now=now, other=inputs.contested),
        conditions=with_synced(
            _contested(inputs, now),
            inputs.blocked or verdict,
            generation=inputs.cn_set.metadata.generation,
            now=now,
        ),
    )
    fit = sum(warm(snapshot, one) for one in snapshot.members) if snapshot.pooled else serving
    ready = fit >= snapshot.replicas
    text = f"{serving} of {snapshot.replicas} compute nodes serve"
    if snapshot.pooled:
        text = f"{fit} of {snapshot.replicas} compute nodes are warm or serve"
    if snapshot.view is None and snapshot.replicas:
        text = f"HAKeeper does not answer: {snapshot.error}"
    state = ConditionState(ready, "Serving" if ready else "NotServing", text)
    done = verdict.moves if isinstance(verdict, Several) else (verdict,)
    notes = [Note(reason=one.name, message=one.why) for one in done if isinstance(one, Move)]
    scaled = list(steps_noted(current_of(inputs.spec, before), snapshot.scaling))
    # Another number is recorded before the first pod is made or drained for it: the next look goes on from there.
    return Report(
        status=status, ready=state, notes=[*scaled, *notes], instead=inputs.blocked, record=bool(scaled)
    )


def _contested(inputs: Inputs, now: datetime) -> list[meta.Condition] | None:
    """The conditions of before, with one that is there while somebody else scales a set that follows its load."""
    present = inputs.status.conditions
    if not inputs.contested:
        return [one for one in present if one.type != CONTESTED] if present is not None else None
    text = CONTESTED_TEXT.format(who=inputs.contested)
    generation = inputs.cn_set.metadata.generation
    return with_condition(present, CONTESTED, True, "ScaledByAnother", text, generation=generation, now=now)


def _store(snapshot: Snapshot, member: Member, before: CNSetStatus, now: datetime) -> CNStore:
    pod, store = member.pod, member.store
    reason = pod.trouble_message or None
    if snapshot.view is None:
        state, reason = "Unknown", snapshot.error
    elif snapshot.pooled and warm(snapshot, member) and member.phase == IDLE:
        state = "Idle"
    elif store is not None and member.draining:
        state = (
            "Drained"
            if store.state is WorkState.DRAINED or member.sessions == 0 == member.pipelines
            else "Draining"
        )
        state = "Starting" if member.draining_since is None and pod.terminating is False else state
        reason = member.error or reason
    elif snapshot.serves(member):
        state = "Up" if member.revision == snapshot.revision else "Outdated"
    else:
        state = "Starting"
    old = next((one for one in before.stores or () if one.uuid == member.uuid and one.state == state), None)
    drains = state in ("Draining", "Drained")
    return CNStore(
        uuid=member.uuid,
        pod_name=pod.name,
        state=state,
        sessions=member.sessions if drains else None,
        pipelines=member.pipelines if drains else None,
        since=(old.since if old is not None else None) or rfc3339(now),
        reason=reason,
    )
