"""Backups of clusters with sentinels: which servers are read."""

from __future__ import annotations

from mooring.actor import Context
from mooring.kube.object import Object
from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.backup.actor import RedisBackupActor, RedisBackupScheduleActor
from mooring.operators.redis.backup.jobs import Choice, Servers
from mooring.operators.redis.backup.reader import Candidate, Source
from mooring.operators.redis.backup.types import SENTINEL, RedisBackup
from mooring.operators.redis.sentinel.names import Names
from mooring.operators.redis.sentinel.specs import BACKUP
from mooring.operators.redis.sentinel.topology import REDIS_PORT
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterStatus, spec_of

__all__ = ["SentinelBackupActor", "SentinelScheduleActor", "choose"]


class SentinelBackupActor(RedisBackupActor):
    """Observes one RedisBackup of a cluster with sentinels."""

    name = BACKUP
    group = SENTINEL

    def choose(self, ctx: Context[RedisBackup], name: str) -> tuple[Object | None, Choice]:
        """See `choose`."""
        cluster = ctx.client.find(RedisCluster, name, namespace=ctx.key.namespace)
        return cluster, choose(cluster) if cluster is not None else Choice()

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


def choose(cluster: RedisCluster) -> Choice:
    """The replicas in sync of a cluster with sentinels, the last one first."""
    name, status = cluster.metadata.name or "", cluster.status or RedisClusterStatus()
    synced = set(status.replicas or ())
    nodes = [one for one in status.nodes or () if one.state == "Online" and one.role == "replica" and one.ip]
    usable = [one for one in reversed(nodes) if one.name in synced]
    if not usable:
        return Choice(why=f"no replica is in sync; see kubectl get rediscluster {name} -o yaml")
    declared = spec_of(cluster).tls
    if status.tls is not None:
        encrypted = status.tls.transport == "tls"
    else:
        encrypted = declared is not None and declared.ports != "plain"
    port = TLS_PORT if encrypted else REDIS_PORT
    return Choice(
        source=Source(pods=[Candidate(pod=one.name, ip=one.ip, port=port) for one in usable], parts=["data"]),
        authority=Names(name).tls if encrypted else "",
        version=usable[0].version,
        flavor="sentinel",
        secret=Names(name).password,
    )
