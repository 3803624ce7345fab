"""MatrixOne: log service, transaction nodes, compute nodes, proxies, and clusters of them, by upstream's API.

`types` has the thirteen kinds. `validate` says what cannot be carried out, `defaults` what stands for what is not said,
`specs` which child objects follow. Read `logset.plan` and `cnset.plan` for the rules, `view` for what is known of the
servers, `actor` for the controllers, `backup` for BackupJob, Backup and RestoreJob, `pool` for CNPool, CNClaim and CNClaimSet.
"""

from __future__ import annotations

import argparse
from typing import Any

from mooring.operators.matrixone.types import (
    KINDS,
    RETAIN,
    Backup,
    BackupJob,
    BucketClaim,
    MatrixOneCluster,
    RestoreJob,
    claim_retention,
    data_retention,
)
from mooring.operators.operator import Demo, Operator, Option, deferred
from mooring.operators.workload.removal import Removable

__all__ = ["KINDS", "OPERATOR", "register", "webhooks"]

_HERE = __name__
register = deferred(f"{_HERE}.actor", "register")
webhooks = deferred(f"{_HERE}.webhook", "webhooks")


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def _keep_data(one: MatrixOneCluster) -> dict[str, Any] | None:
    """The change after which a cluster leaves its claims and its data in S3 behind; ``None`` where it does anyhow."""
    log = one.spec.log_service if one.spec is not None else None
    if log is None:
        return None
    changes: dict[str, Any] = {}
    if claim_retention(log) != RETAIN:
        changes["pvcRetentionPolicy"] = RETAIN
    if data_retention(log) not in (None, RETAIN):
        changes["sharedStorage"] = {"s3": {"s3RetentionPolicy": RETAIN}}
    return {"logService": changes} if changes else None


OPERATOR = Operator(
    "matrixone",
    KINDS,
    register,
    webhooks=webhooks,
    options=(
        Option(
            keyword="failover",
            flags=("--matrixone-failover",),
            default="true",
            doc="repair a log store that failed without asking a person, where its claims may be deleted",
            metavar="BOOL",
            parse=_switch,
        ),
    ),
    without_clients=(Backup, BackupJob, RestoreJob, BucketClaim),
    explain=deferred(f"{_HERE}.explain", "explain"),
    save=deferred(f"{_HERE}.saved", "save"),
    replay=deferred(f"{_HERE}.saved", "replay"),
    plan_upgrade=deferred(f"{_HERE}.upgrade", "plan_upgrade"),
    agent=deferred(f"{_HERE}.backup.main", "main"),
    demo=Demo(
        name="matrixone",
        doc="MatrixOne is scaled out and survives a compute node",
        example="matrixone.yaml",
        kind=MatrixOneCluster,
        story="mooring.testing.demo_matrixone:MatrixOneShow",
    ),
    removal=Removable(
        kind=MatrixOneCluster,
        selector="matrixorigin.io/cluster={name}",
        keeps=_keep_data,
        kept=deferred(f"{_HERE}.removal", "keeps_data"),
    ),
)
