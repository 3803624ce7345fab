"""Backups of Redis Clusters: which nodes are read."""

from __future__ import annotations

from mooring.actor import Context
from mooring.kube.object import Object
from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.backup.actor import RedisBackupActor, RedisBackupScheduleActor
from mooring.operators.redis.backup.jobs import Choice, Servers
from mooring.operators.redis.backup.reader import Candidate, Source
from mooring.operators.redis.backup.types import CLUSTER, RedisBackup
from mooring.operators.redis.cluster.names import Names
from mooring.operators.redis.cluster.specs import BACKUP, Found, Specs
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    pod_of,
)

__all__ = ["ClusterBackupActor", "ClusterScheduleActor", "choose"]


class ClusterBackupActor(RedisBackupActor):
    """Observes one RedisBackup of a Redis Cluster."""

    name = BACKUP
    group = CLUSTER

    async def choose(self, ctx: Context[RedisBackup], name: str) -> tuple[Object | None, Choice]:
        """See `choose`."""
        cluster = ctx.client.find(RedisCluster, name, namespace=ctx.key.namespace)
        return cluster, choose(cluster) if cluster is not None else Choice()

    def servers(self, ctx: Context[RedisBackup], name: str) -> Servers | None:
        """The cluster's own image."""
        cluster = ctx.client.find(RedisCluster, name, namespace=ctx.key.namespace)
        if cluster is None:
            return None
        pod = pod_of(cluster.spec or RedisClusterSpec())
        return Servers(
            image=Specs(cluster, Found()).image,
            pull_policy=pod.image_pull_policy,
            resources=pod.resources,
        )


class ClusterScheduleActor(RedisBackupScheduleActor):
    """Observes one RedisBackupSchedule of a Redis Cluster."""

    name = "redis-cluster-backup-schedule"
    metric = "redis_cluster"
    group = CLUSTER


def choose(cluster: RedisCluster) -> Choice:
    """All nodes of a Redis Cluster that runs; the reader finds the shards."""
    name, status = cluster.metadata.name or "", cluster.status or RedisClusterStatus()
    see = f"see kubectl get {cluster.resource.plural}.{cluster.resource.group} {name} -o yaml"
    if status.slot_plan is not None:
        return Choice(why="slots are moving; the backup begins once that is over")
    pods, masters = [], 0
    for one in status.conditions or ():
        ip, _, port = (one.instance or "").rpartition(":")
        if one.name and ip and one.status == "True":
            pods.append(Candidate(pod=one.name, ip=ip.strip("[]"), port=int(port)))
            masters += bool(one.slots) and one.node_id == one.master_node_id
    if not masters:
        return Choice(why=f"no master with slots is known; {see}")
    return Choice(
        # Their ports are those at which they answered: whatever is declared by now, these are what they take.
        authority=Names(name).tls if any(one.port == TLS_PORT for one in pods) else "",
        source=Source(pods=pods, parts=[f"shard-{at}" for at in range(masters)], sharded=True),
        flavor="cluster",
        secret=Names(name).password,
    )
