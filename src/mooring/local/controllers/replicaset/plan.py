"""How many pods a ReplicaSet lacks, which ones it can best do without, and its status. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.objects.apps import ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from mooring.kube.objects.core import Pod
from mooring.local.controllers.moments import seconds_since
from mooring.local.controllers.pods import (
    condition_of,
    is_active,
    is_available,
    is_ready,
    is_terminal,
    next_availability,
    phase_of,
)

__all__ = ["Plan", "expendable", "failure", "plan", "with_failure"]

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
HASH = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Plan:
    """``create`` so many pods, ``delete`` these; ``after``: seconds until a pod becomes available."""

    create: int
    delete: tuple[Pod, ...]
    status: ReplicaSetStatus
    after: float | None


def plan(replica_set: ReplicaSet, pods: Sequence[Pod], *, now: datetime) -> Plan:
    """What a ReplicaSet needs; ``pods`` are its own, ended and terminating ones included."""
    spec = replica_set.spec
    wanted = 1 if spec is None or spec.replicas is None else spec.replicas
    min_ready = (spec.min_ready_seconds or 0) if spec else 0
    active = [pod for pod in pods if is_active(pod)]
    going = [pod for pod in pods if pod.metadata.deletion_timestamp and not is_terminal(pod)]
    surplus = len(active) - wanted
    alive = replica_set.metadata.deletion_timestamp is None
    delete = expendable(active, now=now)[:surplus] if alive and surplus > 0 else []
    status = _status(replica_set, active, going, min_ready=min_ready, now=now)
    after = None
    if min_ready and status.ready_replicas != status.available_replicas:
        after = next_availability(active, min_ready, now)
    return Plan(max(0, -surplus) if alive else 0, tuple(delete), status, after)


def _status(
    replica_set: ReplicaSet, active: Sequence[Pod], going: Sequence[Pod], *, min_ready: int, now: datetime
) -> ReplicaSetStatus:
    template = replica_set.spec.template if replica_set.spec else None
    labels = (template.metadata.labels or {}) if template and template.metadata else {}
    ready = [pod for pod in active if is_ready(pod)]
    return ReplicaSetStatus(
        observed_generation=replica_set.metadata.generation,
        replicas=len(active),
        fully_labeled_replicas=sum(_has(pod, labels) for pod in active) or None,
        ready_replicas=len(ready) or None,
        available_replicas=sum(is_available(pod, min_ready, now) for pod in ready) or None,
        terminating_replicas=len(going),
        conditions=replica_set.status.conditions if replica_set.status else None,
    )


def _has(pod: Pod, labels: Mapping[str, str]) -> bool:
    return labels.items() <= (pod.metadata.labels or {}).items()


def failure(reason: str, message: str, now: datetime) -> ReplicaSetCondition:
    """The condition that says that pods could not be made or removed."""
    return ReplicaSetCondition(
        type="ReplicaFailure",
        status="True",
        reason=reason,
        message=message,
        last_transition_time=rfc3339(now),
    )


def with_failure(status: ReplicaSetStatus, condition: ReplicaSetCondition | None) -> ReplicaSetStatus:
    """The status with or without that condition; one that is there already stays as it is."""
    present = list(status.conditions or ())
    others = [c for c in present if c.type != "ReplicaFailure"]
    if condition is None:
        kept = others
    else:
        before = next((c for c in present if c.type == "ReplicaFailure"), None)
        kept = present if before is not None else [*others, condition]
    return msgspec.structs.replace(status, conditions=kept or None)


def expendable(pods: Iterable[Pod], *, now: datetime) -> list[Pod]:
    """Pods in the order in which they are best given up.

    Without a node before with one, pending before running, not ready before ready, by deletion cost, on
    crowded nodes first, ready for a shorter time, more restarts, younger.
    """
    known = list(pods)
    crowd = Counter(pod.spec.node_name for pod in known if pod.spec and pod.spec.node_name)

    def rank(pod: Pod) -> tuple[object, ...]:
        node = pod.spec.node_name if pod.spec else None
        ready = condition_of(pod, "Ready")
        ready_for = seconds_since(ready.last_transition_time, now) if ready and is_ready(pod) else 0.0
        return (
            bool(node),
            {"Pending": 0, "Unknown": 1, "Running": 2}.get(phase_of(pod), 0),
            is_ready(pod),
            _cost(pod),
            -crowd[node] if node else 0,
            ready_for,
            -_restarts(pod),
            -_age_order(pod),
            pod.metadata.name or "",
        )

    return sorted(known, key=rank)


def _cost(pod: Pod) -> int:
    try:
        return int((pod.metadata.annotations or {}).get(DELETION_COST, "0"))
    except ValueError:
        return 0


def _restarts(pod: Pod) -> int:
    statuses = (pod.status.container_statuses or ()) if pod.status else ()
    return max((status.restart_count or 0 for status in statuses), default=0)


def _age_order(pod: Pod) -> float:
    """Grows with the moment of creation."""
    created = pod.metadata.creation_timestamp
    return datetime.fromisoformat(created).timestamp() if created else 0.0
