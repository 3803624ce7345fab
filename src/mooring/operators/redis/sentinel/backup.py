"""Backups of clusters with sentinels: which servers are read."""

from __future__ import annotations

from collections.abc import Collection

from mooring.actor import Context
from mooring.kube.object import Object
from mooring.kube.objects import core
from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.backup.actor import RedisBackupActor, RedisBackupScheduleActor
from mooring.operators.redis.backup.jobs import Choice, Servers
from mooring.operators.redis.backup.reader import Candidate, Source
from mooring.operators.redis.backup.types import SENTINEL, RedisBackup
from mooring.operators.redis.sentinel.names import Names
from mooring.operators.redis.sentinel.specs import BACKUP
from mooring.operators.redis.sentinel.topology import REDIS_PORT
from mooring.operators.redis.sentinel.types import NodeStatus, RedisCluster, RedisClusterStatus, spec_of
from mooring.operators.redis.tls import MARK

__all__ = ["SentinelBackupActor", "SentinelScheduleActor", "choose", "usable"]


class SentinelBackupActor(RedisBackupActor):
    """Observes one RedisBackup of a cluster with sentinels."""

    name = BACKUP
    group = SENTINEL

    async def choose(self, ctx: Context[RedisBackup], name: str) -> tuple[Object | None, Choice]:
        """See `choose`."""
        cluster = ctx.client.find(RedisCluster, name, namespace=ctx.key.namespace)
        if cluster is None:
            return None, Choice()
        encrypted = set()
        for one in usable(cluster):
            pod = await ctx.client.refresh(core.Pod, one.name, namespace=ctx.key.namespace)
            if pod is not None and MARK in (pod.metadata.annotations or {}):
                encrypted.add(one.name)
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


def usable(cluster: RedisCluster) -> list[NodeStatus]:
    """The replicas in sync, the last one first."""
    status = cluster.status or RedisClusterStatus()
    synced = set(status.replicas or ())
    nodes = [one for one in status.nodes or () if one.state == "Online" and one.role == "replica" and one.ip]
    return [one for one in reversed(nodes) if one.name in synced]


def choose(cluster: RedisCluster, *, encrypted: Collection[str] = ()) -> Choice:
    """The replicas in sync of a cluster with sentinels; ``encrypted`` are the pods that take TLS, whatever is declared."""
    name = cluster.metadata.name or ""
    found = usable(cluster)
    if not found:
        return Choice(why=f"no replica is in sync; see kubectl get rediscluster {name} -o yaml")
    pods = [
        Candidate(pod=one.name, ip=one.ip, port=TLS_PORT if one.name in encrypted else REDIS_PORT)
        for one in found
    ]
    return Choice(
        source=Source(pods=pods, parts=["data"]),
        authority=Names(name).tls if encrypted else "",
        version=found[0].version,
        flavor="sentinel",
        secret=Names(name).password,
    )
