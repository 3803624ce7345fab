"""MatrixOne: log service, transaction nodes, compute nodes, proxies, and clusters of them, by upstream's API.

`types` has the thirteen kinds. `validate` says what cannot be carried out, `defaults` what stands for what is not said,
`specs` which child objects follow. Read `logset.plan` and `cnset.plan` for the rules, `view` for what is known of the
servers, `actor` for the controllers. BackupJob, Backup, RestoreJob, CNPool, CNClaim and CNClaimSet are declared, and not
acted upon yet.
"""

from __future__ import annotations

import argparse
from typing import Any

from mooring.operators.matrixone.types import KINDS, MatrixOneCluster
from mooring.operators.operator import Operator, Option, deferred
from mooring.operators.workload.removal import Removable

__all__ = ["KINDS", "OPERATOR", "register", "webhooks"]

_HERE = __name__
register = deferred(f"{_HERE}.actor", "register")
webhooks = deferred(f"{_HERE}.webhook", "webhooks")


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def _keep_claims(one: MatrixOneCluster) -> dict[str, Any] | None:
    log = one.spec.log_service if one.spec is not None else None
    deletes = log is not None and log.pvc_retention_policy != "Retain"
    return {"logService": {"pvcRetentionPolicy": "Retain"}} if deletes else None


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
    explain=deferred(f"{_HERE}.explain", "explain"),
    removal=Removable(kind=MatrixOneCluster, selector="matrixorigin.io/cluster", keeps=_keep_claims),
)
