"""The actors of MySQLBackup and MySQLBackupSchedule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mooring.actor import Context, Terminal, Wait, run_actor
from mooring.kube.object import Key
from mooring.kube.objects import core
from mooring.operators.backup.actor import BackupActor, Prepared
from mooring.operators.backup.layout import cluster_prefix
from mooring.operators.backup.run import Run, agent_image
from mooring.operators.backup.schedules import ScheduleActor
from mooring.operators.mysql import compatible
from mooring.operators.mysql.backup.jobs import backup_run, choose, impossible, verify_run
from mooring.operators.mysql.backup.types import (
    LOGICAL,
    PHYSICAL,
    ClusterRef,
    MySQLBackup,
    MySQLBackupSchedule,
    MySQLBackupScheduleSpec,
    MySQLBackupSpec,
)
from mooring.operators.mysql.flavors import flavor_of
from mooring.operators.mysql.names import MANAGED_SELECTOR, cluster_of
from mooring.operators.mysql.specs import pod_security
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import DEFAULT_IMAGE, MySQLCluster, MySQLClusterSpec, MySQLClusterStatus
from mooring.operators.workload.index import ClusterIndex
from mooring.operators.workload.scope import Scoped
from mooring.runtime import Manager

__all__ = ["MySQLBackupActor", "MySQLBackupScheduleActor", "kind_of", "register_backups"]

NAME: Final = "mysql-backup"


def kind_of(cluster: ClusterRef) -> type[MySQLCluster]:
    """The kind that is meant."""
    return (
        compatible.MySQLCluster if cluster.group == compatible.MySQLCluster.resource.group else MySQLCluster
    )


class MySQLBackupActor(BackupActor[MySQLBackup]):
    """Observes one MySQLBackup and acts upon it."""

    kind = MySQLBackup
    name = NAME
    finalizer = "mysql.mooring.dev/backup-data"

    def __init__(self, manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = ()) -> None:
        super().__init__(manager, agent_image=agent_image(), namespaces=namespaces)
        self.scoped = Scoped(manager, self.kind, operator=NAME, scope=scope)
        self._pods: ClusterIndex[core.Pod] = ClusterIndex(
            manager, core.Pod, selector=MANAGED_SELECTOR, cluster_of=cluster_of, namespaces=namespaces
        )

    def manages(self, obj: MySQLBackup) -> bool:
        """By scope."""
        return self.scoped.manages(obj)

    def security(self, obj: MySQLBackup) -> core.PodSecurityContext | None:
        """The database's user."""
        return pod_security()

    async def verification(self, ctx: Context[MySQLBackup]) -> Run | Wait | None:
        """A restore by the image and with the accounts of the cluster."""
        spec, status = ctx.obj.spec or MySQLBackupSpec(), ctx.obj.status
        wanted = spec.cluster or ClusterRef()
        cluster = ctx.client.find(kind_of(wanted), wanted.name, namespace=ctx.key.namespace)
        if cluster is None or spec.target is None or status is None:
            text = f"spec.cluster: there is no MySQLCluster {wanted.name} any more; its image is needed to verify"
            return Wait("ClusterNotFound", text, after=60.0, stalled=True)
        return verify_run(
            cluster,
            target=spec.target,
            prefix=status.prefix or "",
            flavor=_flavor(cluster),
            agent_image=self.agent_image,
        )

    async def prepare(self, ctx: Context[MySQLBackup]) -> Prepared | Wait | Terminal:
        """A dump of the best server there is, or its files."""
        spec = ctx.obj.spec or MySQLBackupSpec()
        wanted = spec.cluster or ClusterRef()
        cluster = ctx.client.find(kind_of(wanted), wanted.name, namespace=ctx.key.namespace)
        if cluster is None:
            text = f"spec.cluster: there is no MySQLCluster {wanted.name}; create it, or correct the name"
            return Wait("ClusterNotFound", text, after=30.0, stalled=True)
        flavor = _flavor(cluster)
        if text := impossible(cluster, spec, flavor):
            return Terminal("InvalidSpec", text)
        choice = choose(cluster, spec.source or "")
        if not choice.pod:
            return Wait("NoSource", choice.why, after=10.0)
        node = self._node_of(cluster, choice.pod)
        if spec.method == PHYSICAL and not node:
            return Wait("NoSource", f"the pod {choice.pod} runs on no node yet", after=10.0)
        status, declared = cluster.status or MySQLClusterStatus(), cluster.spec or MySQLClusterSpec()
        run = backup_run(
            cluster,
            spec,
            pod=choice.pod,
            node=node,
            flavor=flavor,
            tls=declared.tls is not None,
            agent_image=self.agent_image,
        )
        return Prepared(
            run=run,
            cluster=cluster_prefix(cluster.metadata.name or "", cluster.metadata.uid or ""),
            source=choice.pod,
            method=spec.method or LOGICAL,
            version=status.version or "",
        )

    def _node_of(self, cluster: MySQLCluster, pod: str) -> str:
        key = Key(cluster.metadata.namespace or "", cluster.metadata.name or "")
        found = next((one for one in self._pods.of(key) if one.metadata.name == pod), None)
        return (found.spec.node_name if found is not None and found.spec is not None else None) or ""


def _flavor(cluster: MySQLCluster) -> Flavor:
    status, declared = cluster.status or MySQLClusterStatus(), cluster.spec or MySQLClusterSpec()
    return flavor_of(declared.image or DEFAULT_IMAGE, status.flavor or declared.flavor) or "mariadb"


class MySQLBackupScheduleActor(ScheduleActor[MySQLBackupSchedule, MySQLBackup]):
    """Observes one MySQLBackupSchedule and acts upon it."""

    kind = MySQLBackupSchedule
    backups = MySQLBackup
    name = "mysql-backup-schedule"
    metric = "mysql"

    def __init__(self, manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = ()) -> None:
        super().__init__(manager, namespaces=namespaces)
        self.scoped = Scoped(manager, self.kind, operator=self.name, scope=scope)

    def manages(self, obj: MySQLBackupSchedule) -> bool:
        """By scope."""
        return self.scoped.manages(obj)

    def backup(self, schedule: MySQLBackupSchedule, due: datetime) -> MySQLBackup:
        """The backup that is due."""
        spec = schedule.spec or MySQLBackupScheduleSpec()
        return MySQLBackup(metadata=self.metadata(schedule, due), spec=spec.template)


def register_backups(
    manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = (), workers: int = 8
) -> None:
    """Put the actors of backups onto a manager."""
    backups = MySQLBackupActor(manager, scope=scope, namespaces=namespaces)
    schedules = MySQLBackupScheduleActor(manager, scope=scope, namespaces=namespaces)
    run_actor(backups, manager, namespaces=namespaces, workers=workers)
    run_actor(schedules, manager, namespaces=namespaces, workers=workers)
    backups.scoped.serve()
    schedules.scoped.serve()
