"""How a cluster begins with a backup: its path is filled by a RestoreJob before its log service is made. Pure.

What counts is the status, which is written before anything is made: once a restore was begun, `spec.restoreFrom` may go,
and nothing changes. Once a log service has started on the data, there is never a restore again: it would be over live data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mooring.actor import Terminal, Wait
from mooring.actor.verdict import Move
from mooring.kube.object import owner_reference
from mooring.kube.objects import meta
from mooring.operators.matrixone.names import CLUSTER
from mooring.operators.matrixone.types import (
    COMPLETED,
    FAILED,
    ClusterRestore,
    LogSet,
    LogSetSpec,
    MatrixOneCluster,
    MatrixOneClusterSpec,
    MatrixOneClusterStatus,
    Overlay,
    RestoreJob,
    RestoreJobSpec,
    SharedStorageProvider,
)

__all__ = [
    "FOUNDED",
    "RESTORED",
    "RESTORING",
    "BeginRestore",
    "Founded",
    "MakeRestoreJob",
    "Restored",
    "from_backup",
    "refused",
    "restore",
    "restore_job",
]

RESTORING, RESTORED, FOUNDED = "Restoring", "Restored", "Founded"
_ELSEWHERE: Final = "make a new cluster with spec.restoreFrom and another path"


@dataclass(frozen=True, kw_only=True)
class BeginRestore(Move):
    """Record that the cluster begins with a backup."""

    backup: str


@dataclass(frozen=True, kw_only=True)
class MakeRestoreJob(Move):
    """Make the RestoreJob."""


@dataclass(frozen=True, kw_only=True)
class Restored(Move):
    """Record that the data is there."""

    position: str
    at: str


@dataclass(frozen=True, kw_only=True)
class Founded(Move):
    """Record that a log service was made on the data."""


def from_backup(cluster: MatrixOneCluster, log_set: LogSet | None) -> bool:
    """Its log service starts, or started, from a backup's data."""
    if log_set is not None:
        initial = log_set.spec.initial_config if log_set.spec is not None else None
        return initial is not None and initial.restore_from is not None
    return _recorded(cluster).phase in (RESTORED, FOUNDED)


def refused(cluster: MatrixOneCluster, log_set: LogSet | None) -> Terminal | None:
    """Why ``spec.restoreFrom`` cannot be what it is: a cluster that exists takes no other backup."""
    asked = cluster.spec.restore_from if cluster.spec is not None else None
    recorded = _recorded(cluster)
    if not asked or asked == recorded.backup:
        return None
    if recorded.backup:
        text = f"the cluster began with the Backup {recorded.backup}; put that back, or remove the field"
    elif log_set is not None and not from_backup(cluster, log_set):
        text = "the cluster began without a backup; remove the field"
    else:
        return None
    return Terminal("InvalidSpec", f"spec.restoreFrom: {text}. For the Backup {asked} {_ELSEWHERE}")


def restore(
    cluster: MatrixOneCluster, log_set: LogSet | None, job: RestoreJob | None
) -> Move | Wait | Terminal | None:
    """What comes before the sets; ``None``: nothing does. ``log_set`` and ``job`` as they are, not as cached."""
    recorded = _recorded(cluster)
    asked = cluster.spec.restore_from if cluster.spec is not None else None
    if log_set is not None:
        if recorded.phase in (RESTORING, RESTORED):
            return Founded(why=f"LogSet {log_set.metadata.name} is there")
        return None
    if recorded.phase == FOUNDED:
        return Wait(
            "LogServiceGone",
            f"the LogSet of this restored cluster was deleted; the backup is not restored again over its data: {_ELSEWHERE}",
            after=300.0,
            stalled=True,
        )
    if recorded.phase == RESTORED:
        return None
    if recorded.phase != RESTORING:
        return BeginRestore(backup=asked, why=f"Backup {asked}") if asked else None
    if job is None:
        return MakeRestoreJob(why=f"Backup {recorded.backup}")
    status = job.status
    if status is not None and status.phase == COMPLETED:
        return Restored(
            position=status.position or "",
            at=status.finished_at or "",
            why=f"{job.metadata.name} is complete",
        )
    text = f"RestoreJob {job.metadata.name}"
    if status is not None and status.phase == FAILED:
        rest = f"delete that RestoreJob to try again, or {_ELSEWHERE}"
        return Wait(
            status.reason or "RestoreFailed", f"{text}: {status.message}; {rest}", after=60.0, stalled=True
        )
    said = status.message if status is not None and status.message else "copies the data"
    return Wait("Restoring", f"{text}: {said}", after=30.0)


def restore_job(cluster: MatrixOneCluster) -> RestoreJob:
    """The RestoreJob of a cluster, with the volumes of its log stores."""
    spec = cluster.spec or MatrixOneClusterSpec()
    log = spec.log_service or LogSetSpec()
    storage, overlay = log.shared_storage, log.overlay or Overlay()
    assert storage is not None
    return RestoreJob(
        metadata=meta.ObjectMeta(
            name=f"{cluster.metadata.name}-restore",
            namespace=cluster.metadata.namespace,
            labels={CLUSTER: cluster.metadata.name or ""},
            owner_references=[owner_reference(cluster)],
        ),
        spec=RestoreJobSpec(
            backup_name=_recorded(cluster).backup,
            target=SharedStorageProvider(s3=storage.s3, file_system=storage.file_system),
        ),
        overlay=Overlay(
            volumes=overlay.volumes,
            volume_mounts=overlay.volume_mounts,
            image_pull_secrets=overlay.image_pull_secrets,
            security_context=overlay.security_context,
            tolerations=overlay.tolerations,
        ),
    )


def _recorded(cluster: MatrixOneCluster) -> ClusterRestore:
    return (cluster.status or MatrixOneClusterStatus()).restore or ClusterRestore()
