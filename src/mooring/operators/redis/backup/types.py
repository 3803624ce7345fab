"""The custom resources ``redis.mooring.dev/v1alpha1`` RedisBackup and RedisBackupSchedule."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from mooring.kube.object import Resource
from mooring.kube.part import Part
from mooring.operators.backup.types import (
    BACKED_UP,
    BACKUP_COLUMNS,
    FIXED,
    SCHEDULE_COLUMNS,
    TEMPLATE,
    BackupFields,
    BackupObject,
    BackupStatus,
    ScheduleFields,
    ScheduleObject,
    ScheduleStatus,
)
from mooring.runtime.crd import F, crd

__all__ = [
    "CLUSTER",
    "SENTINEL",
    "ClusterRef",
    "RedisBackup",
    "RedisBackupSchedule",
    "RedisBackupScheduleSpec",
    "RedisBackupSpec",
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

    cluster: Annotated[ClusterRef | None, BACKED_UP] = None


@crd(
    short_names=("rbk",),
    columns=BACKUP_COLUMNS,
    rules=(FIXED,),
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

    template: Annotated[RedisBackupSpec | None, TEMPLATE] = None


@crd(
    short_names=("rbs",),
    columns=SCHEDULE_COLUMNS,
)
class RedisBackupSchedule(ScheduleObject, frozen=True, kw_only=True):
    """Backups of a RedisCluster by the clock."""

    resource: ClassVar[Resource] = Resource(
        "redis.mooring.dev", "v1alpha1", "RedisBackupSchedule", "redisbackupschedules", True
    )

    spec: Annotated[RedisBackupScheduleSpec | None, F(required=True)] = None
    status: ScheduleStatus | None = None
