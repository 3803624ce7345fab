"""The actors of RedisBackup and RedisBackupSchedule: each operator acts on those of its own kind of cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from mooring.actor import Context, Terminal, Wait, run_actor
from mooring.kube.object import Object
from mooring.operators.backup.actor import BackupActor, Prepared
from mooring.operators.backup.layout import cluster_prefix
from mooring.operators.backup.run import Run, agent_image
from mooring.operators.backup.schedules import ScheduleActor
from mooring.operators.redis.backup.jobs import Choice, Servers, backup_run, verify_run
from mooring.operators.redis.backup.types import (
    SENTINEL,
    ClusterRef,
    RedisBackup,
    RedisBackupSchedule,
    RedisBackupScheduleSpec,
    RedisBackupSpec,
)
from mooring.operators.workload.scope import Scoped
from mooring.runtime import Manager

__all__ = [
    "RedisBackupActor",
    "RedisBackupScheduleActor",
    "register_backups",
]


class RedisBackupActor(BackupActor[RedisBackup]):
    """Observes one RedisBackup and acts upon it."""

    kind = RedisBackup
    finalizer = "redis.mooring.dev/backup-data"
    group: ClassVar[str]

    def __init__(self, manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = ()) -> None:
        super().__init__(manager, agent_image=agent_image(), namespaces=namespaces)
        self.scoped = Scoped(manager, self.kind, operator=self.name, scope=scope)

    def manages(self, obj: RedisBackup) -> bool:
        """By kind of cluster, and by scope."""
        return _group(obj.spec) == self.group and self.scoped.manages(obj)

    async def prepare(self, ctx: Context[RedisBackup]) -> Prepared | Wait | Terminal:
        """A snapshot of every shard."""
        spec = ctx.obj.spec or RedisBackupSpec()
        name = (spec.cluster or ClusterRef()).name
        cluster, choice = self.choose(ctx, name)
        if cluster is None:
            text = f"spec.cluster: there is no RedisCluster {name} of {self.group}; create it, or correct name and group"
            return Wait("ClusterNotFound", text, after=30.0, stalled=True)
        if choice.source is None:
            return Wait("NoSource", choice.why, after=10.0)
        return Prepared(
            run=backup_run(cluster, spec, choice, agent_image=self.agent_image),
            cluster=cluster_prefix(name, cluster.metadata.uid or ""),
            source=choice.source.pods[0].pod if not choice.source.sharded else "",
            method="Snapshot",
            version=choice.version,
        )

    async def verification(self, ctx: Context[RedisBackup]) -> Run | Wait | None:
        """A restore by the image of the cluster."""
        spec, status = ctx.obj.spec or RedisBackupSpec(), ctx.obj.status
        name = (spec.cluster or ClusterRef()).name
        servers = self.servers(ctx, name)
        if servers is None or spec.target is None or status is None:
            text = f"spec.cluster: there is no RedisCluster {name} any more; its image is needed to verify"
            return Wait("ClusterNotFound", text, after=60.0, stalled=True)
        return verify_run(
            servers, target=spec.target, prefix=status.prefix or "", agent_image=self.agent_image
        )

    @abstractmethod
    def servers(self, ctx: Context[RedisBackup], name: str) -> Servers | None:
        """By what a backup of the cluster of that name is loaded; ``None`` where the cluster is gone."""

    @abstractmethod
    def choose(self, ctx: Context[RedisBackup], name: str) -> tuple[Object | None, Choice]:
        """The cluster of that name, and what a backup of it would read."""


class RedisBackupScheduleActor(ScheduleActor[RedisBackupSchedule, RedisBackup]):
    """Observes one RedisBackupSchedule and acts upon it."""

    kind = RedisBackupSchedule
    backups = RedisBackup
    group: ClassVar[str]

    def __init__(self, manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = ()) -> None:
        super().__init__(manager, namespaces=namespaces)
        self.scoped = Scoped(manager, self.kind, operator=self.name, scope=scope)

    def manages(self, obj: RedisBackupSchedule) -> bool:
        """By kind of cluster, and by scope."""
        template = obj.spec.template if obj.spec is not None else None
        return _group(template) == self.group and self.scoped.manages(obj)

    def backup(self, schedule: RedisBackupSchedule, due: datetime) -> RedisBackup:
        """The backup that is due."""
        spec = schedule.spec or RedisBackupScheduleSpec()
        return RedisBackup(metadata=self.metadata(schedule, due), spec=spec.template)


def _group(spec: RedisBackupSpec | None) -> str:
    cluster = spec.cluster if spec is not None else None
    return (cluster.group if cluster is not None else None) or SENTINEL


def register_backups(
    manager: Manager,
    backup: type[RedisBackupActor],
    schedule: type[RedisBackupScheduleActor],
    *,
    scope: str,
    namespaces: Sequence[str],
    workers: int,
) -> None:
    """Put the actors of backups of one kind of cluster onto a manager."""
    backups = backup(manager, scope=scope, namespaces=namespaces)
    schedules = schedule(manager, scope=scope, namespaces=namespaces)
    run_actor(backups, manager, namespaces=namespaces, workers=workers)
    run_actor(schedules, manager, namespaces=namespaces, workers=workers)
    backups.scoped.serve()
    schedules.scoped.serve()
