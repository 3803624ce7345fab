"""The actor of Backups whose data goes with them; others are left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from mooring.actor import (
    ConditionState,
    Context,
    InSync,
    Move,
    Outcome,
    Planned,
    Related,
    Report,
    Verdict,
    Wait,
)
from mooring.kube.object import Key, Object
from mooring.kube.objects import core
from mooring.operators.backup import outcome as outcomes
from mooring.operators.backup.run import FOR, agent_image, job_name
from mooring.operators.backup.runs import Runs
from mooring.operators.matrixone.backup.places import place_of, secrets_of, shown
from mooring.operators.matrixone.backup.records import deletes_data, home_of
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.run import MatrixOneRun
from mooring.operators.matrixone.backup.verification import is_tried
from mooring.operators.matrixone.types import (
    COMPLETED,
    FAILED,
    Backup,
    BackupJob,
    BackupStatus,
    RestoreJob,
    SharedStorageProvider,
)
from mooring.runtime import Manager

__all__ = ["BackupRecordActor", "Erase", "RecordSnapshot", "Retry", "decide"]

ERASE: Final = "delete"
AFTER_FAILURE: Final = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class RecordSnapshot:
    """One look at a Backup."""

    deleted: bool
    erases: bool
    """Its place is one that may be deleted."""
    adrift: str = ""
    """Why its data cannot be deleted any more."""
    readers: tuple[str, ...] = ()
    """RestoreJobs that read it, BackupJobs that try it out or build on it, and Backups that were built on it."""
    run: outcomes.Outcome | None = None
    failed_for: float = 0.0
    """Seconds since the deletion failed."""
    missing: str = ""
    """A Secret that is needed and not there."""


@dataclass(frozen=True, kw_only=True)
class Erase(Move):
    """Make the Job that deletes the data."""


@dataclass(frozen=True, kw_only=True)
class Retry(Move):
    """Delete a Job that failed, so that another one is made."""

    job: str


def decide(snapshot: RecordSnapshot) -> Verdict:
    """The next step."""
    if not snapshot.deleted:
        return InSync("its data is deleted with it")
    if not snapshot.erases:
        return InSync("its location is not called as Mooring's backups are: nothing is deleted there")
    if snapshot.adrift:
        return InSync(snapshot.adrift)
    if snapshot.readers:
        return Wait("InUse", f"{snapshot.readers[0]} needs it", after=10.0)
    run = snapshot.run
    if run is None:
        if snapshot.missing:
            text = f"the Secret {snapshot.missing} is needed to delete its data; make it again, or take the finalizer off to keep the data"
            return Wait("SecretNotFound", text, after=30.0, stalled=True)
        return Erase(why="its data goes with it")
    if run.state == "Succeeded":
        return InSync("its data is deleted")
    if run.state == "Failed":
        left = AFTER_FAILURE.total_seconds() - snapshot.failed_for
        if left > 0:
            text = f"its data is not deleted ({run.reason}: {run.message})"
            return Wait(run.reason or "DeletionFailed", text, after=left, stalled=True)
        return Retry(job=run.job, why=run.message)
    text = f"{run.job} deletes its data" + (f"; it does not start: {run.message}" if run.reason else "")
    return Wait(run.reason or "Deleting", text, after=10.0, stalled=bool(run.reason))


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The Backup, and where its data is."""

    backup: Backup = field(repr=False)
    place: tuple[SharedStorageProvider, str] | None = None


class BackupRecordActor(Planned[Backup, Inputs, RecordSnapshot]):
    """Observes one Backup whose data goes with it."""

    kind = Backup
    name: Final = "matrixone-backup"
    finalizer = "mooring.dev/backup-data"
    status_subresource = ""

    def __init__(self, manager: Manager) -> None:
        self._image = agent_image()
        self._runs = Runs(manager, self.name)
        self.related = [
            Related(one.kind, _backup_of, label_selector=one.label_selector) for one in self._runs.related
        ]
        self.related.append(Related(Backup, _base_of))

    def manages(self, obj: Backup) -> bool:
        """Nothing is to be done for the others."""
        return deletes_data(obj) or self.finalizer in (obj.metadata.finalizers or ())

    async def inputs(self, ctx: Context[Backup]) -> Inputs | Outcome:
        """Where its data is."""
        location = ctx.obj.meta.location if ctx.obj.meta is not None else None
        return Inputs(backup=ctx.obj, place=place_of(location) if location is not None else None)

    async def snapshot(self, ctx: Context[Backup], inputs: Inputs) -> RecordSnapshot:
        """The Job that deletes the data, and who still reads it."""
        deleted = ctx.obj.metadata.deletion_timestamp is not None
        if not deleted or inputs.place is None:
            return RecordSnapshot(deleted=deleted, erases=inputs.place is not None)
        now, home = ctx.now(), home_of(ctx.obj)
        run = await self._runs.find(ctx, job_name(ctx.obj, ERASE, 1), now=now, purpose=ERASE, namespace=home)
        ended = run.ended if run is not None else None
        return RecordSnapshot(
            deleted=True,
            erases=True,
            adrift=await _adrift(ctx, home),
            readers=_readers(ctx),
            run=run,
            failed_for=(now - ended).total_seconds() if ended is not None else 0.0,
            missing=await _missing(ctx, home, secrets_of(inputs.place[0])) if run is None else "",
        )

    def plan(self, snapshot: RecordSnapshot) -> Verdict:
        """See `decide`."""
        return decide(snapshot)

    def report(
        self, ctx: Context[Backup], inputs: Inputs, snapshot: RecordSnapshot, verdict: Verdict
    ) -> Report:
        """Whether the data is there."""
        text = getattr(verdict, "message", "") or getattr(verdict, "why", "")
        state = ConditionState(not snapshot.deleted, "Deleting" if snapshot.deleted else "Stored", text)
        return Report(status=ctx.obj.status or BackupStatus(), ready=state)

    async def finalize(self, ctx: Context[Backup]) -> Outcome:
        """Delete the data."""
        return await self.observe(ctx)

    async def step(
        self, ctx: Context[Backup], inputs: Inputs, snapshot: RecordSnapshot, move: Move
    ) -> bool | None:
        """Make or delete the Job."""
        match move:
            case Erase():
                assert inputs.place is not None
                root, place = inputs.place
                ctx.log.info("the data of a backup is deleted", place=f"{shown(root)}/{place}")
                run = MatrixOneRun(
                    purpose=ERASE,
                    request=Request(action="delete", root=root, places=[place]),
                    image=self._image,
                    secrets=secrets_of(root),
                    namespace=home_of(ctx.obj),
                    timeout=3600,
                )
                await self._runs.begin(ctx, run)
            case Retry(job=job):
                await self._runs.drop(ctx, job, namespace=home_of(ctx.obj))
        return None


def _readers(ctx: Context[Backup]) -> tuple[str, ...]:
    name = ctx.key.name
    restores = [
        f"RestoreJob {one.metadata.namespace}/{one.metadata.name}"
        for one in ctx.client.list(RestoreJob)
        if one.spec is not None
        and one.spec.backup_name == name
        and (one.status is None or one.status.phase not in (COMPLETED, FAILED))
    ]
    trials = [
        f"BackupJob {one.metadata.namespace}/{one.metadata.name}"
        for one in ctx.client.list(BackupJob)
        if one.status is not None and one.status.backup == name and is_tried(one.status.verified)
    ]
    begun = [
        f"BackupJob {one.metadata.namespace}/{one.metadata.name}"
        for one in ctx.client.list(BackupJob)
        if one.spec is not None
        and one.spec.incremental_from == name
        and (one.status is None or one.status.phase not in (COMPLETED, FAILED))
    ]
    above = [
        f"Backup {one.metadata.name}"
        for one in ctx.client.list(Backup)
        if one.status is not None and one.status.base == name
    ]
    return (*restores, *trials, *begun, *above)


def _backup_of(one: Object) -> list[Key]:
    name = (one.metadata.annotations or {}).get(FOR, "")
    return [Key("", name)] if name else []


def _base_of(one: Backup) -> list[Key]:
    base = one.status.base if one.status is not None else None
    return [Key("", base)] if base else []


async def _adrift(ctx: Context[Backup], home: str) -> str:
    """Nothing runs any more where the Secret was."""
    if not home:
        return "the namespace of its Secret is not known; its data stays"
    found = await ctx.client.refresh(core.Namespace, home)
    if found is None or found.metadata.deletion_timestamp:
        return f"the namespace {home} with its Secret is gone; its data stays"
    return ""


async def _missing(ctx: Context[Backup], home: str, names: list[str]) -> str:
    for name in names:
        if home and await ctx.client.refresh(core.Secret, name, namespace=home) is None:
            return name
    return ""
