"""HarmonyCloud's RedisCluster: Redis Cluster with slots that are moved safely, and a scale-in that drains first.

Read `plan` first, then `scale` and `roll`: they hold every rule. `topology` says what is seen, `steps` and `mover` what is
done, `specs` what is declared, `actor` puts them together.
"""

from __future__ import annotations

from typing import Any

from mooring.kube.object import Object
from mooring.operators.operator import Handover, Ledger, Operator, Option, deferred, minutes, seconds
from mooring.operators.redis import SCOPE_ANNOTATION
from mooring.operators.redis.backup.types import RedisBackup, RedisBackupSchedule
from mooring.operators.redis.cluster.names import MANAGED_SELECTOR
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.workload.removal import Removable

__all__ = ["KINDS", "OPERATOR", "RedisCluster", "register", "webhooks"]

_HERE = __name__
KINDS: tuple[type[Object], ...] = (RedisCluster, RedisBackup, RedisBackupSchedule)
register = deferred(f"{_HERE}.actor", "register")
webhooks = deferred(f"{_HERE}.webhook", "webhooks")


def _keep_claims(one: RedisCluster) -> dict[str, Any] | None:
    return {"finalizers": None} if one.spec and one.spec.finalizers else None


OPERATOR = Operator(
    "redis-cluster",
    KINDS,
    register,
    webhooks=webhooks,
    backups=(RedisBackup, RedisBackupSchedule),
    aliases=("redisCluster",),  # HarmonyCloud's name for it, as of the two options below
    options=(
        Option(
            keyword="timeout",
            flags=("--cluster-timeout", "--clusterTimeOut"),
            metavar="MIN",
            default="20",
            parse=minutes,
            doc="minutes after which a Redis Cluster that is being created or changed counts as Failed",
        ),
        Option(
            keyword="look_again",
            flags=("--resync-period",),
            metavar="S",
            default="15",
            parse=seconds,
            doc="seconds between two reconciles of a Redis Cluster at rest; changes are reconciled at once",
        ),
    ),
    explain=deferred(f"{_HERE}.explain", "explain"),
    handover=Handover(
        leaders=deferred("mooring.operators.redis.handover", "masters"),
        ask=deferred("mooring.operators.redis.handover", "evict"),
    ),
    save=deferred(f"{_HERE}.saved", "save"),
    replay=deferred(f"{_HERE}.saved", "replay"),
    plan_upgrade=deferred(f"{_HERE}.saved", "plan_upgrade"),
    agent=deferred("mooring.operators.redis.backup.agent", "main"),
    ledgers=(
        Ledger(
            flag="--cluster",
            doc="a node of a Redis Cluster (default port 6379); may be repeated",
            repeated=True,
            open=deferred("mooring.testing.ledgers", "redis_cluster"),
        ),
    ),
    removal=Removable(
        kind=RedisCluster, selector=MANAGED_SELECTOR, keeps=_keep_claims, annotation=SCOPE_ANNOTATION
    ),
)
