"""Backups of clusters with sentinels: which servers are read."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mooring.actor import Context
from mooring.kube.object import Key, Object
from mooring.kube.objects import core
from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.backup.actor import RedisBackupActor, RedisBackupScheduleActor
from mooring.operators.redis.backup.jobs import Choice, Servers
from mooring.operators.redis.backup.reader import Candidate, Source
from mooring.operators.redis.backup.types import SENTINEL, RedisBackup
from mooring.operators.redis.sentinel.names import MANAGED_SELECTOR, Names, cluster_of
from mooring.operators.redis.sentinel.specs import BACKUP
from mooring.operators.redis.sentinel.topology import REDIS_PORT
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterStatus, spec_of
from mooring.operators.redis.tls import MARK
from mooring.operators.workload.index import ClusterIndex
from mooring.runtime import Manager

__all__ = ["SentinelBackupActor", "SentinelScheduleActor", "choose"]


class SentinelBackupActor(RedisBackupActor):
    """Observes one RedisBackup of a cluster with sentinels."""

    name = BACKUP
    group = SENTINEL

    def __init__(self, manager: Manager, *, scope: str = "all", namespaces: Sequence[str] = ()) -> None:
        super().__init__(manager, scope=scope, namespaces=namespaces)
        self._pods: ClusterIndex[core.Pod] = ClusterIndex(
            manager, core.Pod, selector=MANAGED_SELECTOR, cluster_of=cluster_of, namespaces=namespaces
        )

    def choose(self, ctx: Context[RedisBackup], name: str) -> tuple[Object | None, Choice]:
        """See `choose`."""
        cluster = ctx.client.find(RedisCluster, name, namespace=ctx.key.namespace)
        if cluster is None:
            return None, Choice()
        pods = self._pods.of(Key(ctx.key.namespace, name))
        encrypted = [one.metadata.name or "" for one in pods if MARK in (one.metadata.annotations or {})]
        return cluster, choose(cluster, encrypted=encrypted)

    def servers(self, ctx: Context[RedisBackup], name: str) -> Servers | None:
        """The cluster's own image."""
        cluster = ctx.client.find(RedisCluster, name, namespace=ctx.key.namespace)
        if cluster is None:
            return None
        spec = spec_of(cluster)
        return Servers(
            image=spec.image or "",
            pull_policy=spec.image_pull_policy,
            pull_secrets=spec.image_pull_secrets,
            resources=spec.resources,
        )


class SentinelScheduleActor(RedisBackupScheduleActor):
    """Observes one RedisBackupSchedule of a cluster with sentinels."""

    name = "redis-sentinel-backup-schedule"
    metric = "redis_sentinel"
    group = SENTINEL


def choose(cluster: RedisCluster, *, encrypted: Collection[str] = ()) -> Choice:
    """The replicas in sync of a cluster with sentinels; ``encrypted`` are the pods that take TLS, whatever is declared."""
    name, status = cluster.metadata.name or "", cluster.status or RedisClusterStatus()
    synced = set(status.replicas or ())
    nodes = [one for one in status.nodes or () if one.state == "Online" and one.role == "replica" and one.ip]
    found = [one for one in reversed(nodes) if one.name in synced]
    if not found:
        return Choice(why=f"no replica is in sync; see kubectl get rediscluster {name} -o yaml")
    pods = [
        Candidate(pod=one.name, ip=one.ip, port=TLS_PORT if one.name in encrypted else REDIS_PORT)
        for one in found
    ]
    return Choice(
        source=Source(pods=pods, parts=["data"]),
        authority=Names(name).tls if any(one.port == TLS_PORT for one in pods) else "",
        version=found[0].version,
        flavor="sentinel",
        secret=Names(name).password,
    )
