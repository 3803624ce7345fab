"""All controllers of the operator put onto a manager: one for each kind that this version acts on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mooring.actor import Actor, run_actor
from mooring.operators.matrixone.backup.job_actor import BackupJobActor
from mooring.operators.matrixone.backup.record_actor import BackupRecordActor
from mooring.operators.matrixone.backup.restore_actor import RestoreJobActor
from mooring.operators.matrixone.bucket.actor import BucketClaimActor
from mooring.operators.matrixone.cluster.actor import ClusterActor
from mooring.operators.matrixone.cnset.actor import CNSetActor
from mooring.operators.matrixone.deployed import ProxySetActor, WebUIActor
from mooring.operators.matrixone.dnset.actor import DNSetActor
from mooring.operators.matrixone.logset.actor import LogSetActor
from mooring.operators.matrixone.pool.claim_actor import ClaimActor
from mooring.operators.matrixone.pool.pool_actor import PoolActor
from mooring.operators.matrixone.pool.set_actor import ClaimSetActor
from mooring.operators.matrixone.rpc.dial import Dial
from mooring.operators.matrixone.sets import NAME, Surroundings
from mooring.operators.workload.scope import Scoped
from mooring.runtime import Manager

__all__ = ["register"]


def register(
    manager: Manager,
    *,
    scope: str = "all",
    namespaces: Sequence[str] = (),
    workers: int = 8,
    failover: bool = True,
    dial: Dial | None = None,
) -> None:
    """Put the operator onto a manager; see `mooring.operators.operator.Operator`."""
    around = Surroundings(manager, namespaces=namespaces, dial=dial)
    actors: list[Actor[Any]] = [
        BucketClaimActor(around),
        LogSetActor(around, failover=failover),
        DNSetActor(around),
        # Nodes belong to the whole cluster: an operator of some namespaces may not read them.
        CNSetActor(around, nodes=not namespaces),
        PoolActor(around),
        ClaimActor(around),
        ClaimSetActor(around),
        ProxySetActor(around),
        WebUIActor(around),
        ClusterActor(around),
        BackupJobActor(around, manager, namespaces=namespaces),
        RestoreJobActor(around, manager, namespaces=namespaces),
    ]
    if not namespaces:  # Backups belong to the whole cluster
        actors.append(BackupRecordActor(manager))
    for actor in actors:
        scoped = Scoped(manager, actor.kind, operator=NAME, scope=scope)
        actor.manages = _both(actor.manages, scoped.manages)  # type: ignore[method-assign,assignment]
        run_actor(actor, manager, namespaces=namespaces, workers=workers)
        if scope == "all":
            _take_up(manager, actor.name, scoped)


def _both(one: Callable[[Any], bool], other: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda obj: one(obj) and other(obj)


def _take_up(manager: Manager, name: str, scoped: Scoped) -> None:
    wake: Callable[[Any], None] = next(one for one in manager.controllers if one.name == name).enqueue
    manager.serve(f"{name} scopes", lambda: scoped.take_up(wake))
