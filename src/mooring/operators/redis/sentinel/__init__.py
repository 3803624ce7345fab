"""UCloud's RedisCluster: a master, replicas and sentinels, and an operator that does not lose its data.

Read `plan` first: it holds every rule. `topology` says what is seen, `steps` what is done, `specs` what is
declared, `actor` puts them together.
"""

from __future__ import annotations

from typing import Any

from mooring.kube.object import Object
from mooring.operators.operator import Demo, Handover, Importer, Ledger, Operator, deferred
from mooring.operators.redis import SCOPE_ANNOTATION
from mooring.operators.redis.backup.types import RedisBackup, RedisBackupSchedule
from mooring.operators.redis.sentinel.names import MANAGED_SELECTOR
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.workload.removal import Removable

__all__ = ["KINDS", "OPERATOR", "RedisCluster", "register", "webhooks"]

_HERE = __name__
KINDS: tuple[type[Object], ...] = (RedisCluster, RedisBackup, RedisBackupSchedule)
register = deferred(f"{_HERE}.actor", "register")
webhooks = deferred(f"{_HERE}.webhook", "webhooks")


def _keep_claims(one: RedisCluster) -> dict[str, Any] | None:
    storage = one.spec.storage if one.spec else None
    deletes = storage is not None and storage.keep_after_deletion is False
    return {"storage": {"keepAfterDeletion": True}} if deletes else None


OPERATOR = Operator(
    "redis-sentinel",
    KINDS,
    register,
    webhooks=webhooks,
    backups=(RedisBackup, RedisBackupSchedule),
    explain=deferred(f"{_HERE}.explain", "explain"),
    handover=Handover(
        leaders=deferred("mooring.operators.redis.handover", "sentinel_master"),
        ask=deferred("mooring.operators.redis.handover", "evict"),
    ),
    save=deferred(f"{_HERE}.saved", "save"),
    replay=deferred(f"{_HERE}.saved", "replay"),
    plan_upgrade=deferred(f"{_HERE}.saved", "plan_upgrade"),
    agent=deferred("mooring.operators.redis.backup.agent", "main"),
    demo=Demo(
        name="redis",
        doc="Redis with sentinels survives its master",
        example="redis-sentinel.yaml",
        kind=RedisCluster,
        story="mooring.testing.demo_redis:RedisShow",
    ),
    ledgers=(
        Ledger(
            flag="--redis",
            doc="one server (default port 6379)",
            open=deferred("mooring.testing.ledgers", "redis_server"),
        ),
        Ledger(
            flag="--sentinel",
            doc="a sentinel that names the master (default port 26379); may be repeated",
            repeated=True,
            open=deferred("mooring.testing.ledgers", "redis_sentinels"),
        ),
    ),
    importer=Importer(
        name="redis",
        doc="HOST[:PORT] of a server or of a node of a Redis Cluster, or an RDB file",
        run=deferred("mooring.operators.redis.backup.imports", "import_redis"),
    ),
    removal=Removable(
        kind=RedisCluster, selector=MANAGED_SELECTOR, keeps=_keep_claims, annotation=SCOPE_ANNOTATION
    ),
)
