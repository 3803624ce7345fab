"""The kinds ``mysql.mooring.dev/v1alpha1`` MySQLBackup and MySQLBackupSchedule."""

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
    "CHECKSUMS",
    "LOGICAL",
    "PHYSICAL",
    "ClusterRef",
    "MySQLBackup",
    "MySQLBackupSchedule",
    "MySQLBackupScheduleSpec",
    "MySQLBackupSpec",
]

LOGICAL: Final = "Logical"
PHYSICAL: Final = "Physical"
TABLES: Final = "Tables"
CHECKSUMS: Final = "Checksums"
GROUPS: Final = ("mysql.mooring.dev", "example.com")


class ClusterRef(Part, frozen=True, kw_only=True):
    """A MySQLCluster of the same namespace."""

    name: Annotated[str, F("Its name.", required=True, min_length=1, max_length=63)] = ""
    group: Annotated[str | None, F("Its API group.", enum=GROUPS, default=GROUPS[0])] = None


class MySQLBackupSpec(BackupFields, frozen=True, kw_only=True):
    """The declared backup."""

    cluster: Annotated[ClusterRef | None, BACKED_UP] = None
    method: Annotated[
        str | None,
        F(
            "Logical: all rows of one moment as SQL statements. Physical: the server's files, by mariadb-backup or CLONE.",
            enum=(LOGICAL, PHYSICAL),
            default=LOGICAL,
        ),
    ] = None
    verification: Annotated[
        str | None,
        F(
            "What a test restore compares. Tables: each is there and passes CHECK TABLE. Checksums: also the rows of every "
            "InnoDB table, which the backup reads a second time for it.",
            enum=(TABLES, CHECKSUMS),
            default=TABLES,
        ),
    ] = None
    source: Annotated[
        str | None,
        F(
            "The pod that is read: a replica that is not behind, or else the primary; or always one of the two.",
            enum=("PreferReplica", "Replica", "Primary"),
            default="PreferReplica",
        ),
    ] = None


@crd(
    short_names=("mbk",),
    columns=BACKUP_COLUMNS,
    rules=(FIXED,),
)
class MySQLBackup(BackupObject, frozen=True, kw_only=True):
    """One backup of a MySQLCluster."""

    resource: ClassVar[Resource] = Resource(
        "mysql.mooring.dev", "v1alpha1", "MySQLBackup", "mysqlbackups", True
    )

    spec: Annotated[MySQLBackupSpec | None, F(required=True)] = None
    status: BackupStatus | None = None


class MySQLBackupScheduleSpec(ScheduleFields, frozen=True, kw_only=True):
    """The declared schedule."""

    template: Annotated[MySQLBackupSpec | None, TEMPLATE] = None


@crd(
    short_names=("mbs",),
    columns=SCHEDULE_COLUMNS,
)
class MySQLBackupSchedule(ScheduleObject, frozen=True, kw_only=True):
    """Backups of a MySQLCluster by the clock."""

    resource: ClassVar[Resource] = Resource(
        "mysql.mooring.dev", "v1alpha1", "MySQLBackupSchedule", "mysqlbackupschedules", True
    )

    spec: Annotated[MySQLBackupScheduleSpec | None, F(required=True)] = None
    status: ScheduleStatus | None = None
