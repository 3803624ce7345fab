"""How a new cluster with sentinels begins with a backup: a Job fills the claim of its first pod before any pod is made."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.actor import Context, Outcome
from mooring.kube.objects import apps, core
from mooring.objectstore import Target
from mooring.operators.backup.restore_rules import Source
from mooring.operators.backup.restores import VolumeRestores
from mooring.operators.backup.run import Run, agent_image
from mooring.operators.backup.types import RestoreFrom, RestoreStatus
from mooring.operators.redis.backup import scripts
from mooring.operators.redis.backup.types import RedisBackup
from mooring.operators.redis.pods import DATA
from mooring.operators.redis.sentinel.inputs import Inputs
from mooring.operators.redis.sentinel.names import Names
from mooring.operators.redis.sentinel.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    RedisStorage,
    spec_of,
)
from mooring.operators.workload.claims import claim_name, is_older, make_claim

__all__ = ["SentinelRestores", "restore_run"]


class SentinelRestores(VolumeRestores[RedisCluster, Inputs]):
    """The restores of clusters with sentinels."""

    backups = RedisBackup

    def declared(self, cluster: RedisCluster) -> RestoreFrom | None:
        """``spec.restoreFrom``."""
        return (cluster.spec or RedisClusterSpec()).restore_from

    def recorded(self, cluster: RedisCluster) -> RestoreStatus | None:
        """``status.restore``."""
        return (cluster.status or RedisClusterStatus()).restore

    def lives(self, ctx: Context[RedisCluster]) -> bool:
        """It has a StatefulSet, or had a master."""
        status = ctx.obj.status or RedisClusterStatus()
        made_before = ctx.children.find(apps.StatefulSet, Names(ctx.key.name).redis) is not None
        return made_before or status.lineage is not None

    def unfit(self, cluster: RedisCluster) -> str:
        """A restore fills a claim."""
        storage = (cluster.spec or RedisClusterSpec()).storage or RedisStorage()
        return (
            "spec.storage.persistentVolumeClaim: a restore fills a claim; declare one, or remove spec.restoreFrom"
            if storage.persistent_volume_claim is None
            else ""
        )

    def prepare(self, ctx: Context[RedisCluster], inputs: Inputs) -> Outcome | None:
        """The claim of the first pod; one of an earlier cluster is never written to."""
        specs, born = inputs.specs, datetime.fromisoformat(ctx.obj.metadata.creation_timestamp or "")
        for ordinal in range(10):
            name = claim_name(specs.volume_name, specs.names.pod("redis", ordinal))
            claim = inputs.around.claims.get(name)
            if claim is not None and is_older(claim, born):
                text = (
                    f"spec.restoreFrom: the claim {name} is of an earlier cluster and may hold data; a restore never "
                    "runs beside it. To go on with the data that is there, remove spec.restoreFrom; to restore, choose another name"
                )
                return ctx.wait("ClaimInUse", text, after=30.0, stalled=True)
        first = specs.first_claim()
        if first.metadata.name not in inputs.around.claims:
            return ctx.act("MakeClaim", make_claim, ctx, first, message=first.metadata.name or "")
        return None

    def run(self, ctx: Context[RedisCluster], inputs: Inputs, source: Source, attempt: int) -> Run:
        """See `restore_run`."""
        return restore_run(
            ctx.obj,
            target=source.target,
            prefix=source.prefix,
            attempt=attempt,
            agent_image=agent_image(),
        )

    def show(self, ctx: Context[RedisCluster], restore: RestoreStatus) -> None:
        """In ``status.restore``; UCloud's condition says what failed."""
        ctx.show(replace(ctx.obj.status or RedisClusterStatus(), restore=restore))


def restore_run(cluster: RedisCluster, *, target: Target, prefix: str, attempt: int, agent_image: str) -> Run:
    """A restore into the claim of the first pod of a cluster with sentinels."""
    spec, names = spec_of(cluster), Names(cluster.metadata.name or "")
    declared = (spec.storage or RedisStorage()).persistent_volume_claim
    volume = (declared.metadata.name if declared is not None else None) or DATA
    claim = core.PersistentVolumeClaimVolumeSource(claim_name=claim_name(volume, names.pod("redis", 0)))
    return Run(
        purpose="restore",
        action="get",
        target=target,
        prefixes=(prefix,),
        parts=(),
        attempt=attempt,
        agent_image=agent_image,
        image=spec.image or "",
        pull_policy=spec.image_pull_policy,
        pull_secrets=spec.image_pull_secrets,
        script=scripts.RESTORE,
        env={"CLUSTER_UID": cluster.metadata.uid or "", "DBFILENAME": "dump.rdb"},
        volumes=[core.Volume(name="volume", persistent_volume_claim=claim)],
        mounts=[core.VolumeMount(name="volume", mount_path="/data")],
        resources=spec.resources,
        security=_security(spec.security_context),
        node_selector=spec.node_selector,
        tolerations=spec.tole_rations,
    )


def _security(declared: core.PodSecurityContext | None) -> core.PodSecurityContext | None:
    """The user that reads backups on claims, with the group of the servers' volumes, which the file is made writable for.

    ``None``: the default. Servers of a user without such a group could only read a file of their own.
    """
    if declared is None or (declared.run_as_user or 0, declared.fs_group) == (0, None):
        return None
    if declared.fs_group is None:
        return replace(declared, sysctls=None)
    return core.PodSecurityContext(
        run_as_non_root=True,
        run_as_user=_READER,
        run_as_group=declared.fs_group,
        fs_group=declared.fs_group,
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
    )


_READER: Final = 65532
"""The user of Mooring's image; it owns the backups on claims."""
