"""How a new cluster begins with a backup: a Job fills the claim of its first pod before any pod is made.

`decide` is the rule, without I/O. What is recorded in ``status.restore`` comes before its Job, and a StatefulSet is made
only after a restore that succeeded: a cluster never starts empty because its restore failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from mooring.actor import Context, InSync, Move, Outcome, Related, Terminal, Verdict, Wait
from mooring.kube.errors import AlreadyExists
from mooring.kube.object import Key
from mooring.kube.objects import apps, core
from mooring.objectstore import Target
from mooring.operators.backup import outcome as runs_
from mooring.operators.backup.rules import reach
from mooring.operators.backup.run import agent_image, job_name, secrets_of
from mooring.operators.backup.runs import Runs
from mooring.operators.backup.source import backup_named
from mooring.operators.backup.targets import problems
from mooring.operators.backup.types import FAILED, PENDING, RUNNING, SUCCEEDED, RestoreStatus
from mooring.operators.mysql.backup.jobs import restore_run
from mooring.operators.mysql.backup.types import MySQLBackup
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.specs import DATA
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterSpec, MySQLClusterStatus, Storage
from mooring.operators.workload.claims import claim_name, is_older
from mooring.runtime import Manager

__all__ = ["Restores", "Seen", "decide"]

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
    status, tries = seen.status, seen.status.tries or 0
    if status.phase == FAILED:
        text = (
            f"the restore failed: {status.message}; delete the cluster and its claims, then create it again"
        )
        return Wait("RestoreFailed", text, after=60.0, stalled=True)
    if status.phase != RUNNING:
        if status.finished_at is not None:
            due = status.finished_at + timedelta(seconds=10.0 * 2 ** max(tries - 1, 0))
            if (left := (due - seen.now).total_seconds()) > 0:
                return Wait(
                    "RetryLater", f"the restore failed: {status.message}; it is tried again", after=left
                )
        return Restore(attempt=tries + 1, why=f"try {tries + 1} of the restore from {status.prefix}")
    run = seen.run
    if run is None:
        since = status.started_at or seen.now
        if (seen.now - since).total_seconds() <= LOST:
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

    async def read(self, ctx: Context[MySQLCluster]) -> None:
        """Read what `observe` needs and no cache has; nothing of a cluster that is not being restored."""
        self._found.pop(ctx.key, None)
        self._missing.pop(ctx.key, None)
        if not _pending(ctx):
            return
        status = _recorded(ctx)
        self._found[ctx.key] = await self._runs.find(ctx, status.job or "", now=ctx.now(), purpose=PURPOSE)
        source = _source(ctx)
        for name in secrets_of(source[0]) if isinstance(source, tuple) else ():
            if await ctx.client.refresh(core.Secret, name, namespace=ctx.key.namespace) is None:
                self._missing[ctx.key] = name

    def observe(self, ctx: Context[MySQLCluster], inputs: Inputs) -> Outcome | None:
        """The next step of the restore; ``None`` where there is nothing to restore (any more)."""
        if not _pending(ctx):
            return None
        spec = ctx.obj.spec or MySQLClusterSpec()
        if spec.restore_from is None:
            text = "spec.restoreFrom was removed before the restore ended; put it back, or delete the cluster"
            return ctx.wait("RestoreUnfinished", text, stalled=True)
        if (spec.storage or Storage()).empty_dir is not None:
            return ctx.terminal(
                "InvalidSpec", "spec.storage.emptyDir: a restore needs claims; remove it, or spec.restoreFrom"
            )
        source = _source(ctx)
        if not isinstance(source, tuple):
            return source
        if missing := self._missing.get(ctx.key):
            text = (
                f"the Secret {missing} of the backup's target does not exist; create it, or correct the name"
            )
            return ctx.wait("SecretNotFound", text, after=10.0, stalled=True)
        return self._prepare(ctx, inputs) or self._go_on(ctx, inputs, *source)

    def _prepare(self, ctx: Context[MySQLCluster], inputs: Inputs) -> Outcome | None:
        """The Secrets and the claim of the first pod."""
        specs = inputs.specs
        name = claim_name(DATA, specs.names.pod(0))
        claim = inputs.around.claims.get(name)
        born = datetime.fromisoformat(ctx.obj.metadata.creation_timestamp or "")
        if claim is not None and is_older(claim, born):
            text = (
                f"spec.restoreFrom: the claim {name} is of an earlier cluster and may hold data; a restore never runs on "
                "it. To go on with the data that is there, remove spec.restoreFrom; to restore, choose another name"
            )
            return ctx.wait("ClaimInUse", text, after=30.0, stalled=True)
        drift = ctx.children.diff(
            [specs.secret(), specs.secret_copy(), *specs.certificates()], unowned=specs.unowned()
        )
        if drift:
            return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift))
        if claim is None:
            return ctx.act("MakeClaim", _make, ctx, specs.first_claim(), message=name)
        return None

    def _go_on(
        self, ctx: Context[MySQLCluster], inputs: Inputs, target: Target, prefix: str, backup: str
    ) -> Outcome | None:
        status = _recorded(ctx)
        now = ctx.now()
        status = replace(status, prefix=prefix, backup=backup or None)
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
                    ctx.obj,
                    target=target,
                    prefix=prefix,
                    flavor=inputs.found.flavor,
                    attempt=verdict.attempt,
                    agent_image=agent_image(),
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
            case InSync():
                return None
        return None


def _pending(ctx: Context[MySQLCluster]) -> bool:
    """A restore is declared or under way, and no pod was made yet."""
    spec, status = ctx.obj.spec or MySQLClusterSpec(), ctx.obj.status or MySQLClusterStatus()
    if spec.restore_from is None and status.restore is None:
        return False
    if status.restore is not None and status.restore.phase == SUCCEEDED:
        return False
    return ctx.children.find(apps.StatefulSet, ctx.key.name) is None


def _source(ctx: Context[MySQLCluster]) -> tuple[Target, str, str] | Wait | Terminal:
    """Target, prefix and name of the backup."""
    declared = (ctx.obj.spec or MySQLClusterSpec()).restore_from
    assert declared is not None
    if not declared.backup:
        if declared.target is None or not declared.prefix:
            return Terminal(
                "InvalidSpec", "spec.restoreFrom: name a backup, or a target and the prefix in it"
            )
        if wrong := problems(declared.target, "spec.restoreFrom.target"):
            return Terminal("TargetInvalid", "; ".join(map(str, wrong)))
        return declared.target, declared.prefix, ""
    backup = backup_named(ctx, MySQLBackup, declared.backup)
    if isinstance(backup, Wait):
        return backup
    status = backup.status
    phase = (status.phase if status is not None else None) or PENDING
    if phase != SUCCEEDED or backup.spec is None or backup.spec.target is None or status is None:
        text = (
            f"spec.restoreFrom.backup: {declared.backup} is {phase}; a backup that succeeded can be restored"
        )
        return Wait("BackupNotReady", text, after=10.0, stalled=phase == FAILED)
    return backup.spec.target, status.prefix or "", declared.backup


def _recorded(ctx: Context[MySQLCluster]) -> RestoreStatus:
    return (ctx.obj.status or MySQLClusterStatus()).restore or RestoreStatus()


def _show(ctx: Context[MySQLCluster], restore: RestoreStatus) -> None:
    status = ctx.obj.status or MySQLClusterStatus()
    ctx.show(replace(status, restore=restore, phase="Restoring"))


async def _make(ctx: Context[MySQLCluster], claim: core.PersistentVolumeClaim) -> None:
    try:
        await ctx.client.create(claim)
    except AlreadyExists:
        return
