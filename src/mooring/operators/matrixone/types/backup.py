"""BackupJob, Backup and RestoreJob."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from mooring.kube.object import Object, Resource
from mooring.kube.part import Part
from mooring.operators.backup.types import Retention, Verified
from mooring.operators.matrixone.types.podset import Overlay, Quantity, SetStatus, resource
from mooring.operators.matrixone.types.storage import DELETE, RETAIN, SharedStorageProvider
from mooring.runtime.crd import AGE, F, PrinterColumn, crd

__all__ = [
    "COMPLETED",
    "FAILED",
    "JOB_TTL",
    "PENDING",
    "RUNNING",
    "Backup",
    "BackupJob",
    "BackupJobSpec",
    "BackupJobStatus",
    "BackupMeta",
    "BackupSource",
    "BackupStatus",
    "JobSchedule",
    "RestoreJob",
    "RestoreJobSpec",
    "RestoreJobStatus",
    "Verification",
]

JOB_TTL: Final = "1h"
_TTL: Final = F(f"How long the job is kept after its end; default {JOB_TTL}.")
_OVERLAY: Final = F("Changes of the job's pod.")
_TIME: Final = "date-time"
PENDING, RUNNING, COMPLETED, FAILED = "Pending", "Running", "Completed", "Failed"


class BackupSource(Part, frozen=True, kw_only=True):
    """What is backed up: one of clusterRef and cnSetRef."""

    cluster_ref: Annotated[str | None, F("A MatrixOneCluster of the namespace.")] = None
    cn_set_ref: Annotated[str | None, F("A CNSet of the namespace.")] = None
    secret_ref: Annotated[str | None, F("Secret with username and password; needed with cnSetRef.")] = None


class JobSchedule(Part, frozen=True, kw_only=True):
    """When backups are made, and which stay; ours, upstream has none."""

    cron: Annotated[
        str | None,
        F(
            'Five fields, minute hour day month weekday, such as "30 3 * * *"; or @hourly, @daily, @weekly.',
            required=True,
            min_length=1,
            max_length=200,
        ),
    ] = None
    time_zone: Annotated[str | None, F("Such as Europe/Berlin. Default: UTC.", max_length=64)] = None
    suspend: Annotated[bool | None, F("No further backups are begun; those there are stay.")] = None
    starting_deadline_seconds: Annotated[
        int | None,
        F(
            "A run that is so late is skipped. Default: the newest missed one is made up for.",
            minimum=10,
            maximum=604800,
        ),
    ] = None
    retention: Annotated[Retention | None, F("Which backups stay; absent: all.")] = None
    full_every: Annotated[
        int | None,
        F(
            "Every so many backups is a full one; those between store what is new since the one before. Default 1: all "
            "are full.",
            minimum=1,
            maximum=1000,
        ),
    ] = None
    verify_every: Annotated[
        int | None,
        F(
            "Every so many backups, the first one too, are restored into a throw-away server and checked. 0: none.",
            minimum=0,
            maximum=1000,
        ),
    ] = None


class BackupJobSpec(Part, frozen=True, kw_only=True):
    """The declared backup."""

    ttl: Annotated[str | None, _TTL] = None
    source: Annotated[BackupSource | None, F("What is backed up.", required=True)] = None
    target: Annotated[SharedStorageProvider | None, F("Where it is written to.", required=True)] = None
    overlay: Annotated[Overlay | None, _OVERLAY] = None
    schedule: Annotated[
        JobSchedule | None,
        F("Not one backup but one BackupJob for each run, called after this one. Ours."),
    ] = None
    image: Annotated[
        str | None,
        F(
            "A tool that writes the backup in place of the server's statement, such as upstream's mo_br. overlay.command and "
            "args call it. Ours.",
            max_length=500,
        ),
    ] = None
    incremental_from: Annotated[
        str | None,
        F(
            "The Backup that this one builds on: it stores what is new since then. Both are needed to restore it. Ours.",
            max_length=253,
        ),
    ] = None
    deletion_policy: Annotated[
        str | None,
        F(
            "Whether the data goes with the Backup object; default Retain, with a schedule Delete. Ours.",
            enum=(DELETE, RETAIN),
        ),
    ] = None
    timeout_seconds: Annotated[
        int | None,
        F("A run that takes longer has failed; default 86400. Ours.", minimum=60, maximum=604800),
    ] = None
    parallelism: Annotated[
        int | None, F("Objects that the server copies at once; default 4. Ours.", minimum=1, maximum=256)
    ] = None
    verify: Annotated[
        bool | None,
        F(
            "Once it is complete, restore it into a throw-away server and check it: condition BackupVerified. Ours."
        ),
    ] = None


class Verification(Verified, frozen=True, kw_only=True):
    """The newest test restore of a backup."""

    reason: Annotated[str, F("Why it did not pass: one word.")] = ""
    size_bytes: Annotated[int, F("Bytes that were restored.")] = 0


class BackupJobStatus(SetStatus, frozen=True, kw_only=True):
    """How far it is."""

    phase: Annotated[str | None, F("Pending, Running, Completed or Failed.")] = None
    backup: Annotated[str | None, F("The Backup that was made; of a schedule the newest one.")] = None
    base: Annotated[str | None, F("The Backup that it builds on; absent: it is a full one.")] = None
    reason: Annotated[str | None, F("Why it failed, or what it waits for: one word.")] = None
    message: Annotated[str | None, F("The same in a sentence, with the remedy.")] = None
    id: Annotated[str | None, F("Identity of the newest try.")] = None
    prefix: Annotated[str | None, F("Where that is in the target.")] = None
    job: Annotated[str | None, F("Its Job.")] = None
    tries: Annotated[int | None, F("Tries begun.")] = None
    size_bytes: Annotated[int | None, F("Bytes of the backup.")] = None
    position: Annotated[str | None, F("It has all transactions up to this timestamp of the server's.")] = None
    started_at: Annotated[str | None, F("When the newest try began.", format=_TIME)] = None
    finished_at: Annotated[str | None, F("When it ended.", format=_TIME)] = None
    last_scheduled_at: Annotated[
        str | None, F("Of a schedule: the newest run that was begun.", format=_TIME)
    ] = None
    next_at: Annotated[str | None, F("Of a schedule: the next run.", format=_TIME)] = None
    missed: Annotated[int | None, F("Of a schedule: runs that were skipped, in all.")] = None
    verified: Annotated[Verification | None, F("The newest test restore.")] = None
    runs: Annotated[int | None, F("Of a schedule: backups begun.")] = None
    last_success_at: Annotated[
        str | None, F("Of a schedule: when its newest backup was complete.", format=_TIME)
    ] = None
    last_verified_backup: Annotated[str | None, F("Of a schedule: the newest Backup that was verified.")] = (
        None
    )
    last_verified_at: Annotated[str | None, F("Of a schedule: when it was.", format=_TIME)] = None


@crd(
    columns=(
        PrinterColumn("phase", ".status.phase"),
        PrinterColumn("Backup", ".status.backup"),
        AGE,
    ),
    preserve_unknown=True,
)
class BackupJob(Object, frozen=True, kw_only=True):
    """One backup of a MatrixOne cluster."""

    resource: ClassVar[Resource] = resource("BackupJob")

    spec: Annotated[BackupJobSpec | None, F(required=True)] = None
    status: BackupJobStatus | None = None


class BackupMeta(Part, frozen=True, kw_only=True):
    """A finished backup."""

    location: Annotated[SharedStorageProvider | None, F("Where it is.", required=True)] = None
    id: Annotated[str | None, F("Its identity.", required=True)] = None
    size: Annotated[Quantity | None, F("How large it is.")] = None
    at_time: Annotated[str | None, F("When it was begun.", format="date-time", required=True)] = None
    complete_time: Annotated[str | None, F("When it was complete.", format="date-time", required=True)] = None
    source_ref: Annotated[
        str | None, F("matrixonecluster/NAMESPACE/NAME or cnset/NAMESPACE/NAME.", required=True)
    ] = None
    raw: Annotated[str | None, F("The record as the backup tool wrote it.", required=True)] = None


class BackupStatus(SetStatus, frozen=True, kw_only=True):
    """Whether it was verified, and whether the data of one that is deleted is gone; ours, upstream has none."""

    verified: Annotated[Verification | None, F("The newest test restore.")] = None
    base: Annotated[
        str | None, F("The Backup that it builds on, which a restore needs too; absent: it is a full one.")
    ] = None


@crd(
    columns=(
        PrinterColumn("ID", ".meta.id"),
        PrinterColumn("At", ".meta.atTime", format="date-time"),
        PrinterColumn("Source", ".meta.sourceRef"),
    ),
    status=False,
    preserve_unknown=True,
)
class Backup(Object, frozen=True, kw_only=True):
    """A finished backup; of the whole Kubernetes cluster, and without a spec."""

    resource: ClassVar[Resource] = resource("Backup", namespaced=False)

    meta: Annotated[BackupMeta | None, F("The backup.", required=True)] = None
    status: BackupStatus | None = None


class RestoreJobSpec(Part, frozen=True, kw_only=True):
    """The declared restore."""

    ttl: Annotated[str | None, _TTL] = None
    backup_name: Annotated[str | None, F("The Backup; needed unless externalSource is given.")] = None
    external_source: Annotated[SharedStorageProvider | None, F("A backup that no Backup describes.")] = None
    target: Annotated[SharedStorageProvider | None, F("Where it is restored to.", required=True)] = None


class RestoreJobStatus(SetStatus, frozen=True, kw_only=True):
    """How far it is."""

    phase: Annotated[str | None, F("Pending, Running, Completed or Failed.", required=True)] = None
    reason: Annotated[str | None, F("Why it failed, or what it waits for: one word.")] = None
    message: Annotated[str | None, F("The same in a sentence, with the remedy.")] = None
    job: Annotated[str | None, F("The Job of the newest try.")] = None
    tries: Annotated[int | None, F("Tries begun.")] = None
    size_bytes: Annotated[int | None, F("Bytes that were restored.")] = None
    position: Annotated[str | None, F("What was restored has all transactions up to here.")] = None
    started_at: Annotated[str | None, F("When the newest try began.", format=_TIME)] = None
    finished_at: Annotated[str | None, F("When it ended.", format=_TIME)] = None


@crd(
    columns=(PrinterColumn("phase", ".status.phase"), AGE),
    preserve_unknown=True,
)
class RestoreJob(Object, frozen=True, kw_only=True):
    """One restore of a backup into an empty path."""

    resource: ClassVar[Resource] = resource("RestoreJob")

    spec: Annotated[RestoreJobSpec | None, F(required=True)] = None
    overlay: Annotated[Overlay | None, _OVERLAY] = None
    status: RestoreJobStatus | None = None
