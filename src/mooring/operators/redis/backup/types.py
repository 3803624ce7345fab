"""The custom resources ``redis.mooring.dev/v1alpha1`` RedisBackup and RedisBackupSchedule, and ``spec.restoreFrom``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from mooring.kube.object import Resource
from mooring.kube.part import Part
from mooring.operators.backup.types import (
    BACKUP_COLUMNS,
    SCHEDULE_COLUMNS,
    BackupFields,
    BackupObject,
    BackupStatus,
    RestoreFrom,
    ScheduleFields,
    ScheduleObject,
    ScheduleStatus,
)
from mooring.runtime.crd import F, PrinterColumn, Rule, crd, rules

__all__ = [
    "CLUSTER",
    "SENTINEL",
    "ClusterRef",
    "RedisBackup",
    "RedisBackupSchedule",
    "RedisBackupScheduleSpec",
    "RedisBackupSpec",
    "RestoreFromSpec",
]

SENTINEL: Final = "redis.kun"
"""Group of the clusters with sentinels."""
CLUSTER: Final = "redis.middleware.hc.cn"
"""Group of the Redis Clusters."""


class ClusterRef(Part, frozen=True, kw_only=True):
    """A RedisCluster of the same namespace."""

    name: Annotated[str, F("Its name.", required=True, min_length=1, max_length=63)] = ""
    group: Annotated[
        str | None,
        F("Its API group: with sentinels, or Redis Cluster.", enum=(SENTINEL, CLUSTER), default=SENTINEL),
    ] = None


class RedisBackupSpec(BackupFields, frozen=True, kw_only=True):
    """The declared backup."""

    cluster: Annotated[ClusterRef | None, F("The cluster that is backed up.", required=True)] = None


@crd(
    short_names=("rbk",),
    columns=(PrinterColumn("Cluster", ".spec.cluster.name"), *BACKUP_COLUMNS),
    rules=(
        Rule(
            "!has(oldSelf.spec) || (self.spec.cluster == oldSelf.spec.cluster && self.spec.target == oldSelf.spec.target)",
            "spec.cluster and spec.target of a backup never change; make another one",
        ),
    ),
)
class RedisBackup(BackupObject, frozen=True, kw_only=True):
    """One backup of a RedisCluster."""

    resource: ClassVar[Resource] = Resource(
        "redis.mooring.dev", "v1alpha1", "RedisBackup", "redisbackups", True
    )

    spec: Annotated[RedisBackupSpec | None, F(required=True)] = None
    status: BackupStatus | None = None


class RedisBackupScheduleSpec(ScheduleFields, frozen=True, kw_only=True):
    """The declared schedule."""

    template: Annotated[
        RedisBackupSpec | None,
        F(
            "What each backup is. Its deletionPolicy is Delete unless it says otherwise: retention removes data.",
            required=True,
        ),
    ] = None


@crd(
    short_names=("rbs",),
    columns=(PrinterColumn("Cluster", ".spec.template.cluster.name"), *SCHEDULE_COLUMNS),
)
class RedisBackupSchedule(ScheduleObject, frozen=True, kw_only=True):
    """Backups of a RedisCluster by the clock."""

    resource: ClassVar[Resource] = Resource(
        "redis.mooring.dev", "v1alpha1", "RedisBackupSchedule", "redisbackupschedules", True
    )

    spec: Annotated[RedisBackupScheduleSpec | None, F(required=True)] = None
    status: ScheduleStatus | None = None


@rules(
    Rule(
        "has(self.backup) != (has(self.target) && has(self.prefix))",
        "name either a backup, or a target and the prefix in it",
    )
)
class RestoreFromSpec(RestoreFrom, frozen=True, kw_only=True):
    """The backup that a new cluster begins with; see docs/redis-sentinel.md."""
