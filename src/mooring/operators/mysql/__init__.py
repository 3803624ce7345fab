"""MySQL and MariaDB clusters that stay up: a primary, replicas that acknowledge its writes, and no agent beside them.

Read `plan` first: it holds every rule. `topology` says what is seen, `steps` what is done, `specs` what is declared,
`actor` puts them together.
"""

from __future__ import annotations

from typing import Any

from mooring.kube.object import Object
from mooring.operators.mysql import compatible
from mooring.operators.mysql.backup.types import MySQLBackup, MySQLBackupSchedule
from mooring.operators.mysql.names import CLUSTER, MANAGED_SELECTOR
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.operator import Demo, Handover, Ledger, Operator, deferred
from mooring.operators.workload.removal import Removable

__all__ = ["KINDS", "OPERATOR", "MySQLBackup", "MySQLBackupSchedule", "MySQLCluster", "register", "webhooks"]

_HERE = __name__
KINDS: tuple[type[Object], ...] = (
    MySQLCluster,
    compatible.MySQLCluster,
    MySQLBackup,
    MySQLBackupSchedule,
)
register = deferred(f"{_HERE}.actor", "register")
webhooks = deferred(f"{_HERE}.webhook", "webhooks")


def _keep_claims(one: MySQLCluster) -> dict[str, Any] | None:
    storage = one.spec.storage if one.spec else None
    deletes = storage is not None and storage.keep_after_deletion is False
    return {"storage": {"keepAfterDeletion": True}} if deletes else None


OPERATOR = Operator(
    "mysql",
    KINDS,
    register,
    webhooks=webhooks,
    backups=(MySQLBackup, MySQLBackupSchedule),
    explain=deferred(f"{_HERE}.explain", "explain"),
    handover=Handover(
        leaders=deferred("mooring.operators.mysql.handover", "primary"),
        ask=deferred("mooring.operators.mysql.handover", "ask"),
    ),
    save=deferred(f"{_HERE}.explain", "save"),
    replay=deferred(f"{_HERE}.explain", "replay"),
    plan_upgrade=deferred(f"{_HERE}.upgrade", "plan_upgrade"),
    demo=Demo(
        name="mysql",
        doc="MariaDB as a MySQLCluster survives its primary",
        example="mysql.yaml",
        kind=MySQLCluster,
        story="mooring.testing.demo_mysql:MySQLShow",
    ),
    ledgers=(
        Ledger(
            flag="--mysql",
            doc="a MariaDB or MySQL server (default port 3306)",
            open=deferred("mooring.testing.ledgers", "mysql_server"),
            leader="primary",
            takes=("table",),
        ),
    ),
    removal=Removable(
        kind=MySQLCluster,
        selector=MANAGED_SELECTOR,
        keeps=_keep_claims,
        label=CLUSTER,
        also=(compatible.MySQLCluster,),
    ),
    agent=deferred(f"{_HERE}.archive.agent", "main"),
)
