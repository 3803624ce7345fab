"""The two kinds that keep a number of equal pods, ReplicaSet and the older ReplicationController.

Both are planned as ReplicaSets; this is all they differ in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mooring.kube.object import Object
from mooring.kube.objects.apps import ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus
from mooring.kube.objects.core import (
    ReplicationController,
    ReplicationControllerCondition,
    ReplicationControllerStatus,
)
from mooring.kube.objects.meta import LabelSelector
from mooring.kube.part import Part

__all__ = ["REPLICATION", "SETS", "Family"]

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Family(Generic[T]):
    """``source`` names the events; ``as_set`` shows an object, ``status`` writes the outcome in its own kind."""

    name: str
    source: str
    kind: type[T]
    as_set: Callable[[T], ReplicaSet]
    status: Callable[[ReplicaSetStatus], Part]


def _itself(replica_set: ReplicaSet) -> ReplicaSet:
    return replica_set


def _as_set(controller: ReplicationController) -> ReplicaSet:
    spec, status = controller.spec, controller.status
    conditions = [
        ReplicaSetCondition(
            type=c.type,
            status=c.status,
            reason=c.reason,
            message=c.message,
            last_transition_time=c.last_transition_time,
        )
        for c in ((status.conditions if status else None) or ())
    ]
    return ReplicaSet(
        metadata=controller.metadata,
        spec=None
        if spec is None
        else ReplicaSetSpec(
            replicas=spec.replicas,
            min_ready_seconds=spec.min_ready_seconds,
            selector=LabelSelector(match_labels=spec.selector),
            template=spec.template,
        ),
        status=ReplicaSetStatus(conditions=conditions or None),
    )


def _status(status: ReplicaSetStatus) -> ReplicationControllerStatus:
    return ReplicationControllerStatus(
        observed_generation=status.observed_generation,
        replicas=status.replicas,
        fully_labeled_replicas=status.fully_labeled_replicas,
        ready_replicas=status.ready_replicas,
        available_replicas=status.available_replicas,
        conditions=None
        if status.conditions is None
        else [
            ReplicationControllerCondition(
                type=c.type,
                status=c.status,
                reason=c.reason,
                message=c.message,
                last_transition_time=c.last_transition_time,
            )
            for c in status.conditions
        ],
    )


SETS = Family("replicaset", "replicaset-controller", ReplicaSet, _itself, lambda status: status)
REPLICATION = Family(
    "replicationcontroller", "replication-controller", ReplicationController, _as_set, _status
)
