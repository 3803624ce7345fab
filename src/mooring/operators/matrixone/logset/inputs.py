"""The declaration of a LogSet with what Kubernetes has of it, and the snapshot made from both; reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mooring.actor import Terminal, Wait
from mooring.kube.objects import core
from mooring.operators.matrixone.durations import seconds_or
from mooring.operators.matrixone.identity import read_bootstrap
from mooring.operators.matrixone.logset.gate import START_EMPTY
from mooring.operators.matrixone.logset.plan import PAUSE
from mooring.operators.matrixone.logset.repair import REPAIR
from mooring.operators.matrixone.logset.scale import COMPONENT
from mooring.operators.matrixone.logset.snapshot import Member, Snapshot
from mooring.operators.matrixone.logset.specs import DATA, GATE, RELEASED
from mooring.operators.matrixone.look import Seen
from mooring.operators.matrixone.names import BOOTSTRAP, INPUTS, LogNames
from mooring.operators.matrixone.remedies import remedies_of
from mooring.operators.matrixone.stateful import Found, claims_by_id
from mooring.operators.matrixone.topology import Topology
from mooring.operators.matrixone.types import (
    DELETE,
    RETAIN,
    LogSet,
    LogSetSpec,
    LogSetStatus,
    claim_retention,
)
from mooring.operators.workload.pods import pods_of
from mooring.operators.workload.rollout import Rollout
from mooring.operators.workload.statefulset import made_from, state_of

__all__ = ["Inputs", "snapshot_of"]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pass found outside MatrixOne."""

    log_set: LogSet = field(repr=False)
    """With its defaults."""
    found: Found = field(repr=False)
    asked: str = ""
    """Digest of what pods are made from."""
    blocked: Wait | Terminal | None = None
    """What keeps the declaration from being met; the service runs on as it is."""
    failover: bool = True
    """Failed stores are repaired without a person, where the declaration lets it."""

    @property
    def spec(self) -> LogSetSpec:
        """The declaration."""
        return self.log_set.spec or LogSetSpec()

    @property
    def status(self) -> LogSetStatus:
        """What earlier passes recorded."""
        return self.log_set.status or LogSetStatus()

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of the LogSet."""
        return self.log_set.metadata.annotations or {}

    @property
    def shard_replicas(self) -> int:
        """Members of each shard, as HAKeeper was bootstrapped."""
        try:
            recorded = len(read_bootstrap(self.annotations.get(BOOTSTRAP, "[]")))
        except ValueError:
            recorded = 0
        declared = self.spec.initial_config.log_shard_replicas if self.spec.initial_config else None
        return recorded or declared or 1


def snapshot_of(inputs: Inputs, seen: Seen, *, now: datetime) -> Snapshot:
    """Everything that a decision is made from."""
    spec, status, found, view = inputs.spec, inputs.status, inputs.found, seen.view
    names = LogNames(inputs.log_set)
    claims = {one.metadata.name or "": one for one in found.claims}
    born = inputs.log_set.metadata.creation_timestamp
    pods = pods_of(
        found.pods,
        component="main",
        owner_uid=found.uid,
        claims=claims,
        born=datetime.fromisoformat(born) if born else None,
        remedies=remedies_of(inputs.log_set, here=True),
    )
    raw = {one.metadata.name or "": one for one in found.pods}
    members = tuple(Member(pod=pod, held=is_held(raw[pod.name])) for pod in pods)
    replicas = spec.replicas or 0
    asked = inputs.asked if inputs.blocked is None else made_from(found.set, INPUTS)
    by_id = claims_by_id(found.claims, f"{DATA}-{names.main}-")
    return Snapshot(
        replicas=replicas if inputs.blocked is None else (found.placed or 0),
        shard_replicas=inputs.shard_replicas,
        placed=found.placed,
        members=members,
        claims={int(id): one for id, one in by_id.items() if id.isdecimal()},
        view=view,
        error=seen.error,
        advances=seen.advances,
        formed=bool(status.formed) or (view is not None and bool(view.shards)),
        keeps_claims=claim_retention(spec) == RETAIN,
        repairs=inputs.failover and claim_retention(spec) == DELETE and spec.failed_pod_strategy != "Orphan",
        repair_after=seconds_or(spec.store_failure_timeout, 600.0),
        repair=_names(inputs.annotations, REPAIR),
        start_empty=_names(inputs.annotations, START_EMPTY),
        size=str(spec.volume.size) if spec.volume is not None and spec.volume.size is not None else "",
        rollout=Rollout(
            component=COMPONENT,
            state=state_of(found.set, replicas=replicas, asked=asked, annotation=INPUTS),
            pods=pods,
            rolls=status.rolls or {},
            now=now,
            silent=_silent(members, view),
        ),
        now=now,
        paused=PAUSE in inputs.annotations,
    )


def is_held(pod: core.Pod) -> bool:
    """The pod waits at its start gate."""
    if RELEASED in (pod.metadata.annotations or {}):
        return False
    status = pod.status or core.PodStatus()
    gate = next((one for one in status.init_container_statuses or () if one.name == GATE), None)
    return gate is not None and gate.state is not None and gate.state.running is not None


def _names(annotations: Mapping[str, str], key: str) -> frozenset[str]:
    return frozenset(one.strip() for one in annotations.get(key, "").split(",") if one.strip())


def _silent(members: tuple[Member, ...], view: Topology | None) -> dict[str, float]:
    """Seconds for which running stores have not been heard."""
    if view is None:
        return {}
    stores = view.logs
    return {one.pod.name: stores[one.uuid].heard for one in members if one.pod.running and one.uuid in stores}
