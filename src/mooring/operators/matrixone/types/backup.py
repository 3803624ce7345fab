"""BackupJob, Backup and RestoreJob."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from mooring.kube.object import Object, Resource
from mooring.kube.part import Part
from mooring.operators.matrixone.types.podset import Overlay, Quantity, SetStatus, resource
from mooring.operators.matrixone.types.storage import SharedStorageProvider
from mooring.runtime.crd import AGE, F, PrinterColumn, crd

__all__ = [
    "JOB_TTL",
    "Backup",
    "BackupJob",
    "BackupJobSpec",
    "BackupJobStatus",
    "BackupMeta",
    "BackupSource",
    "RestoreJob",
    "RestoreJobSpec",
    "RestoreJobStatus",
]

JOB_TTL: Final = "1h"
_TTL: Final = F(f"How long the job is kept after its end; default {JOB_TTL}.")
_OVERLAY: Final = F("Changes of the job's pod.")


class BackupSource(Part, frozen=True, kw_only=True):
    """What is backed up: one of clusterRef and cnSetRef."""

    cluster_ref: Annotated[str | None, F("A MatrixOneCluster of the namespace.")] = None
    cn_set_ref: Annotated[str | None, F("A CNSet of the namespace.")] = None
    secret_ref: Annotated[str | None, F("Secret with username and password; needed with cnSetRef.")] = None


class BackupJobSpec(Part, frozen=True, kw_only=True):
    """The declared backup."""

    ttl: Annotated[str | None, _TTL] = None
    source: Annotated[BackupSource | None, F("What is backed up.", required=True)] = None
    target: Annotated[SharedStorageProvider | None, F("Where it is written to.", required=True)] = None
    overlay: Annotated[Overlay | None, _OVERLAY] = None


class BackupJobStatus(SetStatus, frozen=True, kw_only=True):
    """How far it is."""

    phase: Annotated[str | None, F("Pending, Running, Completed or Failed.")] = None
    backup: Annotated[str | None, F("The Backup that was made.")] = None


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
    """A finished backup; of the whole Kubernetes cluster, and with neither spec nor status."""

    resource: ClassVar[Resource] = resource("Backup", namespaced=False)

    meta: Annotated[BackupMeta | None, F("The backup.", required=True)] = None


class RestoreJobSpec(Part, frozen=True, kw_only=True):
    """The declared restore."""

    ttl: Annotated[str | None, _TTL] = None
    backup_name: Annotated[str | None, F("The Backup; needed unless externalSource is given.")] = None
    external_source: Annotated[SharedStorageProvider | None, F("A backup that no Backup describes.")] = None
    target: Annotated[SharedStorageProvider | None, F("Where it is restored to.", required=True)] = None


class RestoreJobStatus(SetStatus, frozen=True, kw_only=True):
    """How far it is."""

    phase: Annotated[str | None, F("Pending, Running, Completed or Failed.", required=True)] = None


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
