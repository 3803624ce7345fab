"""How a new cluster with sentinels begins with a backup: a Job fills the claim of its first pod before any pod is made.

`decide` is the rule, without I/O. What is recorded in ``status.restore`` comes before its Job, and a StatefulSet is made
only after a restore that succeeded: a cluster never starts empty because its restore failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from mooring.actor import Context, Move, Outcome, Related, Terminal, Verdict, Wait
from mooring.kube.errors import AlreadyExists
from mooring.kube.object import Key
from mooring.kube.objects import apps, core
from mooring.objectstore import Target
from mooring.operators.backup import outcome as runs_
from mooring.operators.backup.rules import reach
from mooring.operators.backup.run import Run, agent_image, job_name, secrets_of
from mooring.operators.backup.runs import Runs
from mooring.operators.backup.source import backup_named
from mooring.operators.backup.targets import problems
from mooring.operators.backup.types import FAILED, PENDING, RUNNING, SUCCEEDED, RestoreStatus
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
from mooring.operators.workload.claims import claim_name, is_older
from mooring.runtime import Manager

__all__ = ["Restore", "Restores", "Seen", "Settle", "decide", "restore_run"]

TRIES: Final = 3
LOST: Final = 30.0
"""Seconds after which a Job that was recorded and is nowhere counts as lost."""
PURPOSE: Final = "restore"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look at a restore."""

    status: RestoreStatus
    run: runs_.Outcome | None
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Restore(Move):
    """Make the Job of a try."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class Settle(Move):
    """Record what became of it."""

    status: RestoreStatus


def decide(seen: Seen) -> Verdict:
    """The next step of a restore that did not succeed yet. Pure."""
    status, tries, run = seen.status, seen.status.tries or 0, seen.run
    if status.phase == FAILED:
        text = (
            f"the restore failed: {status.message}; delete the cluster and its claims, then create it again"
        )
        return Wait("RestoreFailed", text, after=60.0, stalled=True)
    if status.phase != RUNNING:
        pause = timedelta(seconds=10.0 * 2 ** max(tries - 1, 0))
        left = (
            (status.finished_at + pause - seen.now).total_seconds() if status.finished_at is not None else 0.0
        )
        if left > 0:
            return Wait("RetryLater", f"the restore failed: {status.message}; it is tried again", after=left)
        return Restore(attempt=tries + 1, why=f"try {tries + 1} of the restore from {status.prefix}")
    if run is None:
        if (seen.now - (status.started_at or seen.now)).total_seconds() <= LOST:
            return Restore(attempt=tries, why="the Job was recorded and is not there yet")
        return Settle(
            why="the Job is gone", status=_failed(seen, "the Job was deleted before it ended", again=True)
        )
    if run.state == "Succeeded":
        done = replace(
            status, phase=SUCCEEDED, message="", position=run.facts.get("position", ""), finished_at=run.ended
        )
        return Settle(why="the data is restored", status=done)
    if run.state == "Failed":
        return Settle(why="the restore failed", status=_failed(seen, run.message, again=run.again))
    if run.reason:
        return Wait(run.reason, f"{run.job}: {run.message}", after=10.0, stalled=True)
    return Wait("Restoring", f"Job {run.job} restores {status.prefix}", after=30.0)


def _failed(seen: Seen, message: str, *, again: bool) -> RestoreStatus:
    retry = again and (seen.status.tries or 1) < TRIES
    return replace(seen.status, phase=PENDING if retry else FAILED, message=message, finished_at=seen.now)


class Restores:
    """The restores of an actor's clusters."""

    def __init__(self, manager: Manager, by: str, *, namespaces: Sequence[str] = ()) -> None:
        self._runs = Runs(manager, f"{by}-restore", namespaces=namespaces)
        self.related: list[Related[Any]] = self._runs.related
        self._missing: dict[Key, str] = {}
        self._found: dict[Key, runs_.Outcome | None] = {}

    async def read(self, ctx: Context[RedisCluster]) -> None:
        """Read what `observe` needs and no cache has; nothing of a cluster that is not being restored."""
        self._found.pop(ctx.key, None)
        self._missing.pop(ctx.key, None)
        if not _pending(ctx):
            return
        job = _recorded(ctx).job or ""
        self._found[ctx.key] = await self._runs.find(ctx, job, now=ctx.now(), purpose=PURPOSE)
        source = _source(ctx)
        for name in secrets_of(source[0]) if isinstance(source, tuple) else ():
            if await ctx.client.refresh(core.Secret, name, namespace=ctx.key.namespace) is None:
                self._missing[ctx.key] = name

    def observe(self, ctx: Context[RedisCluster], inputs: Inputs) -> Outcome | None:
        """The next step of the restore; ``None`` where there is nothing to restore (any more)."""
        if not _pending(ctx):
            return None
        spec = ctx.obj.spec or RedisClusterSpec()
        if spec.restore_from is None:
            text = "spec.restoreFrom was removed before the restore ended; put it back, or delete the cluster"
            return ctx.wait("RestoreUnfinished", text, stalled=True)
        if (spec.storage or RedisStorage()).persistent_volume_claim is None:
            text = "spec.storage.persistentVolumeClaim: a restore fills a claim; declare one, or remove spec.restoreFrom"
            return ctx.terminal("InvalidSpec", text)
        source = _source(ctx)
        if not isinstance(source, tuple):
            return source
        if missing := self._missing.get(ctx.key):
            text = (
                f"the Secret {missing} of the backup's target does not exist; create it, or correct the name"
            )
            return ctx.wait("SecretNotFound", text, after=10.0, stalled=True)
        return self._claim(ctx, inputs) or self._go_on(ctx, *source)

    def _claim(self, ctx: Context[RedisCluster], inputs: Inputs) -> Outcome | None:
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
            return ctx.act("MakeClaim", _make, ctx, first, message=first.metadata.name or "")
        return None

    def _go_on(self, ctx: Context[RedisCluster], target: Target, prefix: str, backup: str) -> Outcome | None:
        now = ctx.now()
        status = replace(_recorded(ctx), prefix=prefix, backup=backup or None)
        verdict = decide(Seen(status=status, run=self._found.get(ctx.key), now=now))
        match verdict:
            case Restore():
                if status.phase != RUNNING:
                    status = replace(
                        status,
                        phase=RUNNING,
                        tries=verdict.attempt,
                        job=job_name(ctx.obj, PURPOSE, verdict.attempt),
                        started_at=now,
                        finished_at=None,
                        message="",
                    )
                _show(ctx, status)
                run = restore_run(
                    ctx.obj, target=target, prefix=prefix, attempt=verdict.attempt, agent_image=agent_image()
                )
                return ctx.act("Restore", self._runs.begin, ctx, run, message=verdict.why, record=True)
            case Settle():
                _show(ctx, verdict.status)
                if verdict.status.phase == SUCCEEDED:
                    ctx.events.normal(ctx.obj, "Restored", f"{prefix}, {reach(verdict.status.position)}")
                else:
                    ctx.events.warning(ctx.obj, "RestoreFailed", verdict.status.message or "")
                return ctx.act("RecordRestore", ctx.record, message=verdict.why)
            case Wait():
                _show(ctx, status)
                return verdict
            case _:
                return None


def _pending(ctx: Context[RedisCluster]) -> bool:
    """A restore is declared or under way, and no pod was made yet."""
    spec, status = ctx.obj.spec or RedisClusterSpec(), ctx.obj.status or RedisClusterStatus()
    if spec.restore_from is None and status.restore is None:
        return False
    if status.lineage is not None or (status.restore is not None and status.restore.phase == SUCCEEDED):
        return False
    return ctx.children.find(apps.StatefulSet, Names(ctx.key.name).redis) is None


def _source(ctx: Context[RedisCluster]) -> tuple[Target, str, str] | Wait | Terminal:
    """Target, prefix and name of the backup."""
    declared = (ctx.obj.spec or RedisClusterSpec()).restore_from
    if declared is None:
        return Terminal("InvalidSpec", "spec.restoreFrom: is missing")
    if not declared.backup:
        if declared.target is None or not declared.prefix:
            return Terminal(
                "InvalidSpec", "spec.restoreFrom: name a backup, or a target and the prefix in it"
            )
        if wrong := problems(declared.target, "spec.restoreFrom.target"):
            return Terminal("TargetInvalid", "; ".join(map(str, wrong)))
        return declared.target, declared.prefix, ""
    backup = backup_named(ctx, RedisBackup, declared.backup)
    if isinstance(backup, Wait):
        return backup
    status = backup.status
    phase = (status.phase if status is not None else None) or PENDING
    if phase != SUCCEEDED or backup.spec is None or backup.spec.target is None or status is None:
        text = f"spec.restoreFrom.backup: {declared.backup} is {phase}; only a backup that succeeded can be restored"
        return Wait("BackupNotReady", text, after=10.0, stalled=phase == FAILED)
    return backup.spec.target, status.prefix or "", declared.backup


def _recorded(ctx: Context[RedisCluster]) -> RestoreStatus:
    return (ctx.obj.status or RedisClusterStatus()).restore or RestoreStatus()


def _show(ctx: Context[RedisCluster], restore: RestoreStatus) -> None:
    ctx.show(replace(ctx.obj.status or RedisClusterStatus(), restore=restore))


async def _make(ctx: Context[RedisCluster], claim: core.PersistentVolumeClaim) -> None:
    try:
        await ctx.client.create(claim)
    except AlreadyExists:
        return


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
