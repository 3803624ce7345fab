"""How a new Redis Cluster begins with a backup: the cluster is founded, then a Job sends it every key, then clients may come.

Before a StatefulSet is made, `ClusterRestores.intend` records that a restore is to come: from then on no process takes the
cluster for an empty one. `restoring` has the rules.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from mooring.actor import Act, Context, Terminal, Wait
from mooring.kube.objects import apps
from mooring.operators.backup.restore_rules import Restore, Source
from mooring.operators.backup.restores import Restores
from mooring.operators.backup.run import agent_image
from mooring.operators.backup.types import PENDING, RestoreFrom, RestoreStatus
from mooring.operators.redis.backup.jobs import load_run
from mooring.operators.redis.backup.load import Into
from mooring.operators.redis.backup.reader import Candidate
from mooring.operators.redis.backup.types import RedisBackup
from mooring.operators.redis.cluster.inputs import Inputs
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    status_of,
)
from mooring.operators.workload.claims import is_older

__all__ = ["ClusterRestores", "unfit"]


def unfit(spec: RedisClusterSpec) -> str:
    """Why a cluster so declared cannot begin with a backup, with field and remedy; "" where it can.

    A pair has no slots, and keys are sent as the default user.
    """
    if spec.replicas == 2:
        return (
            "spec.restoreFrom: a pair of two nodes cannot begin with a backup; give 6 replicas or more, or make a cluster "
            "with sentinels (redis.kun)"
        )
    if spec.default_user is not None and spec.default_user.mode not in (None, "Unchanged"):
        return (
            "spec.defaultUser: a restore sends every key as the default user, who may do so with mode Unchanged alone; "
            f"remove it, and set {spec.default_user.mode} again once the cluster is restored"
        )
    return ""


class ClusterRestores(Restores[RedisCluster]):
    """The restores of Redis Clusters."""

    backups = RedisBackup

    def declared(self, cluster: RedisCluster) -> RestoreFrom | None:
        """``spec.restoreFrom``."""
        return (cluster.spec or RedisClusterSpec()).restore_from

    def recorded(self, cluster: RedisCluster) -> RestoreStatus | None:
        """``status.restore``."""
        return (cluster.status or RedisClusterStatus()).restore

    def lives(self, ctx: Context[RedisCluster]) -> bool:
        """It was made without a restore."""
        status = ctx.obj.status or RedisClusterStatus()
        there = ctx.children.find(apps.StatefulSet, ctx.key.name) is not None or status.formed_cluster_before
        return status.restore is None and bool(there)

    def unfit(self, cluster: RedisCluster) -> str:
        """See `unfit`."""
        return unfit(cluster.spec or RedisClusterSpec())

    def intend(self, ctx: Context[RedisCluster], inputs: Inputs) -> Act | Wait | None:
        """Record that a restore is to come, or say what has to happen first; ``None`` once it is recorded."""
        look = inputs.restore
        if look is None or self.recorded(ctx.obj) is not None:
            return None
        if why := self.unfit(ctx.obj):
            return Wait("InvalidArgs", why, after=30.0, stalled=True)
        held = look.held(RestoreStatus()) or self._in_use(ctx, inputs)
        if isinstance(held, Terminal):
            return Wait(held.reason, held.message, after=30.0, stalled=True)
        if held is not None:
            return held
        assert isinstance(look.source, Source)
        known = RestoreStatus(phase=PENDING, prefix=look.source.prefix, backup=look.source.backup or None)
        ctx.show(replace(status_of(ctx.status), restore=known))
        return ctx.act("RecordRestore", ctx.record, message=look.source.prefix)

    def _in_use(self, ctx: Context[RedisCluster], inputs: Inputs) -> Wait | None:
        """A claim of an earlier cluster: it may hold data."""
        born = datetime.fromisoformat(ctx.obj.metadata.creation_timestamp or "")
        old = sorted(one.metadata.name or "" for one in inputs.claims if is_older(one, born))
        if not old:
            return None
        text = (
            f"spec.restoreFrom: the claim {old[0]} is of an earlier cluster and may hold data; a restore never runs beside "
            "it. To go on with the data that is there, remove spec.restoreFrom; to restore, choose another name"
        )
        return Wait("ClaimInUse", text, after=30.0, stalled=True)

    async def load(
        self, ctx: Context[RedisCluster], inputs: Inputs, snapshot: Snapshot, move: Restore
    ) -> None:
        """Make the Job of a try."""
        look = inputs.restore
        assert look is not None
        assert isinstance(look.source, Source)
        pods = [
            Candidate(pod=one.name, ip=one.node.address.ip, port=one.node.address.port)
            for one in snapshot.seen.live
        ]
        run = load_run(
            Into(pods=pods),
            target=look.source.target,
            prefix=look.source.prefix,
            secret=inputs.names.password,
            authority=inputs.names.tls if inputs.found.tls is not None else "",
            attempt=move.attempt,
            agent_image=agent_image(),
        )
        await self.runs.begin(ctx, run)
