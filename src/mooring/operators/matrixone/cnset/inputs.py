"""The declaration of a CNSet with what Kubernetes has of it, and the snapshot made from both; reads only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Final

import msgspec

from mooring.actor import Terminal
from mooring.kube.objects import core
from mooring.operators.matrixone.cnset.autoscale import current_of, decided
from mooring.operators.matrixone.cnset.plan import PAUSE
from mooring.operators.matrixone.cnset.snapshot import Gone, Member, Snapshot
from mooring.operators.matrixone.cnset.specs import CORDON, DRAINING, GATE, HANDED_OVER
from mooring.operators.matrixone.durations import seconds_or
from mooring.operators.matrixone.logset.specs import DATA
from mooring.operators.matrixone.look import Seen
from mooring.operators.matrixone.names import CN_LABELS, CN_UUID, INPUTS, STORE_ID, CNNames
from mooring.operators.matrixone.pool.labels import (
    BOUND,
    CLAIM_UID,
    DELETE_ON_RECLAIM,
    LEAVES,
    PHASE,
    RECLAIMED_AT,
    UNKNOWN,
)
from mooring.operators.matrixone.remedies import remedies_of
from mooring.operators.matrixone.stateful import claims_by_id
from mooring.operators.matrixone.types import POOLING, CNLabel, CNSet, CNSetSpec, CNSetStatus, LogSet
from mooring.operators.workload.cpu import CPU
from mooring.operators.workload.pods import pod_of

__all__ = ["Inputs", "snapshot_of"]

DRAIN_TIMEOUT: Final = 300.0
MIN_DELAY: Final = 15.0


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pass found outside MatrixOne."""

    cn_set: CNSet = field(repr=False)
    """With its defaults."""
    log_set: LogSet = field(repr=False)
    pods: tuple[core.Pod, ...] = field(default=(), repr=False)
    claims: tuple[core.PersistentVolumeClaim, ...] = field(default=(), repr=False)
    cordoned: frozenset[str] = frozenset()
    """Nodes that take no new pods."""
    revision: str = ""
    """Digest of what pods are made from."""
    waiting: str = ""
    begun: bool = False
    contested: str = ""
    """Who sets the number of pods by the scale subresource, where it is to follow the load."""
    cpu: CPU = field(default_factory=CPU, repr=False)
    """Of the pods, where the set follows it."""
    blocked: Terminal | None = None
    ending: datetime | None = None

    @property
    def spec(self) -> CNSetSpec:
        """The declaration."""
        return self.cn_set.spec or CNSetSpec()

    @property
    def status(self) -> CNSetStatus:
        """What earlier passes recorded."""
        return self.cn_set.status or CNSetStatus()


def snapshot_of(
    inputs: Inputs,
    seen: Seen,
    *,
    gave_locks: Collection[str],
    now: datetime,
) -> Snapshot:
    """Everything that a decision is made from; ``gave_locks``: the UUIDs of which that is known."""
    spec, names, remedies = inputs.spec, CNNames(inputs.cn_set), remedies_of(inputs.log_set)
    members = tuple(
        sorted(
            (_member(inputs, one, seen, gave_locks, remedies) for one in inputs.pods),
            key=lambda one: (len(one.id), one.id),
        )
    )
    scaling, strategy, volume = spec.scaling_config, spec.update_strategy, spec.cache_volume
    paused = PAUSE in (inputs.cn_set.metadata.annotations or {})
    decision = None
    if inputs.blocked is not None:
        replicas = len(members)
    elif spec.autoscale is None or inputs.contested:
        replicas = spec.replicas or 0
    elif paused or inputs.ending is not None:
        replicas = current_of(inputs.spec, inputs.status)
    else:
        decision = decided(
            spec, inputs.status, members, revision=inputs.revision, now=now, cpu_unknown=inputs.cpu.why
        )
        replicas = decision.replicas
    there = {one.uuid for one in members}
    recorded = inputs.status.stores or ()
    return Snapshot(
        replicas=0 if inputs.ending is not None else replicas,
        scaling=decision,
        surge=_share(strategy.max_surge if strategy is not None else None, replicas, 1, up=True),
        unavailable=_share(strategy.max_unavailable if strategy is not None else None, replicas, 0, up=False),
        revision=inputs.revision,
        members=members,
        gone=tuple(
            Gone(uuid=one.uuid, pod=one.pod_name or "")
            for one in recorded
            if one.uuid and one.uuid not in there
        ),
        claims=claims_by_id(inputs.claims, f"{DATA}-{names.main}-"),
        wants_claims=volume is not None,
        reuses_claims=spec.reuse_pvc is True,
        size=str(volume.size) if volume is not None and volume.size is not None else "",
        labels={one.key: tuple(one.values or ()) for one in spec.cn_labels or () if one.key},
        drains=scaling is None or scaling.store_drain_enabled is not False,
        drain_timeout=seconds_or(scaling.store_drain_timeout if scaling is not None else None, DRAIN_TIMEOUT),
        min_delay=MIN_DELAY
        if scaling is None or scaling.min_delay_seconds is None
        else float(scaling.min_delay_seconds),
        pooled=spec.pod_management_policy == POOLING,
        pause_update=spec.pause_update is True or inputs.blocked is not None,
        view=seen.view,
        error=seen.error,
        waiting=inputs.waiting,
        begun=inputs.begun,
        ending=inputs.ending,
        now=now,
        paused=paused,
    )


def _member(
    inputs: Inputs,
    pod: core.Pod,
    seen: Seen,
    gave_locks: Collection[str],
    remedies: Mapping[str, str],
) -> Member:
    labels, notes = pod.metadata.labels or {}, pod.metadata.annotations or {}
    made = pod_of(pod, component="main", claims={}, born=None, remedies=remedies)
    uuid = labels.get(CN_UUID, "")
    store = seen.view.cns.get(uuid) if seen.view is not None else None
    load = store.load if store is not None else None
    gate = next(
        (one for one in (pod.status.conditions if pod.status else None) or () if one.type == GATE), None
    )
    pooled = inputs.spec.pod_management_policy == POOLING
    return Member(
        pod=made,
        id=labels.get(STORE_ID) or made.name.rpartition("-")[2],
        uuid=uuid,
        revision=notes.get(INPUTS, ""),
        store=store,
        sessions=load.sessions if load is not None else None,
        pipelines=load.pipelines if load is not None else None,
        error=store.silence if store is not None else "",
        cpu=inputs.cpu.percent.get(made.name),
        draining_since=_time(notes.get(DRAINING)),
        handed_over=_time(notes.get(HANDED_OVER)),
        gave_locks=True if uuid in gave_locks else None,
        cordoned=made.node in inputs.cordoned,
        set_aside=bool(notes.get(CORDON)),
        first_to_go=made.name in (inputs.spec.pods_to_delete or ()),
        serving_since=_time(gate.last_transition_time)
        if gate is not None and gate.status == "True"
        else None,
        phase=(labels.get(PHASE) or UNKNOWN) if pooled else "",
        claim_labels=_labels(notes.get(CN_LABELS)) if labels.get(PHASE) == BOUND else {},
        leaves=notes.get(LEAVES, ""),
        replaced=bool(notes.get(DELETE_ON_RECLAIM)),
        gate=gate.status == "True" if gate is not None else None,
        tenure=notes.get(CLAIM_UID) or notes.get(RECLAIMED_AT, ""),
    )


def _labels(text: str | None) -> dict[str, tuple[str, ...]]:
    """The labels that a claim wrote to its pod; those that cannot be read are none."""
    try:
        found = msgspec.json.decode(text or "null", type=list[CNLabel] | None) or ()
    except msgspec.DecodeError:
        return {}
    return {one.key: tuple(one.values or ()) for one in found if one.key}


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _share(value: int | str | None, replicas: int, default: int, *, up: bool) -> int:
    """A number of pods, or a percentage of them."""
    if value is None:
        return default
    text = str(value)
    if not text.endswith("%"):
        return int(text) if text.isdecimal() else default
    part = replicas * int(text[:-1]) / 100 if text[:-1].isdecimal() else default
    return ceil(part) if up else int(part)
