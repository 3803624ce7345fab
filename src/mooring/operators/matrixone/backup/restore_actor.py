"""The actor of RestoreJobs: a backup copied into an empty path, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    Move,
    Note,
    Outcome,
    Planned,
    Report,
    StepFailed,
    Verdict,
    Wait,
)
from mooring.cache import rfc3339
from mooring.kube.errors import Forbidden
from mooring.operators.backup import outcome as outcomes
from mooring.operators.backup.run import agent_image, job_name
from mooring.operators.backup.runs import Runs
from mooring.operators.matrixone.backup.job_actor import missing_secret, settled_conditions
from mooring.operators.matrixone.backup.places import place_of, secrets_of, shown
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.rules import Begin, Expire, JobSnapshot, Settle, decide
from mooring.operators.matrixone.backup.run import MatrixOneRun
from mooring.operators.matrixone.bucket.lock import bound
from mooring.operators.matrixone.bucket.paths import overlap
from mooring.operators.matrixone.durations import seconds_or
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.types import (
    COMPLETED,
    FAILED,
    PENDING,
    RUNNING,
    Backup,
    BucketClaim,
    MatrixOneCluster,
    Overlay,
    RestoreJob,
    RestoreJobSpec,
    RestoreJobStatus,
    SharedStorageProvider,
)
from mooring.runtime import Manager

__all__ = ["RestoreJobActor"]

RESTORE: Final = "restore"
_TTL: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The declaration, and where the backup is."""

    job: RestoreJob = field(repr=False)
    location: SharedStorageProvider | None = None
    blocked: Wait | None = None

    @property
    def spec(self) -> RestoreJobSpec:
        """The declaration."""
        return self.job.spec or RestoreJobSpec()

    @property
    def status(self) -> RestoreJobStatus:
        """What earlier passes recorded."""
        return self.job.status or RestoreJobStatus()


class RestoreJobActor(Planned[RestoreJob, Inputs, JobSnapshot]):
    """Observes one RestoreJob and acts upon it."""

    kind = RestoreJob
    name: Final = "matrixone-restorejob"

    def __init__(self, around: Surroundings, manager: Manager, *, namespaces: Sequence[str] = ()) -> None:
        self._around, self._image = around, agent_image()
        self._runs = Runs(manager, self.name, namespaces=namespaces)
        self.related = self._runs.related

    async def precede(self, ctx: Context[RestoreJob]) -> Outcome | None:
        """Nothing is done while upstream's operator runs."""
        status = ctx.obj.status or RestoreJobStatus()
        if not status.phase:  # no status is accepted without one, so that no refusal could be reported
            ctx.show(replace(status, phase=PENDING))
        return self._around.left_alone(ctx)

    async def inputs(self, ctx: Context[RestoreJob]) -> Inputs | Outcome:
        """The declaration, the Backup that it names, and who else has its target."""
        made = Inputs(job=ctx.obj)
        if made.status.phase in (COMPLETED, FAILED):
            return made
        if (wrong := blocked_by(ctx.obj)) is not None:
            return wrong
        found = await self._located(ctx, made.spec)
        if isinstance(found, Wait):
            return Inputs(job=ctx.obj, blocked=found)
        blocked = await missing_secret(ctx, secrets_of(found, made.spec.target))
        if blocked is None:
            blocked = await self._taken(ctx, made.spec.target)
        return Inputs(job=ctx.obj, location=found, blocked=blocked)

    async def _located(self, ctx: Context[RestoreJob], spec: RestoreJobSpec) -> SharedStorageProvider | Wait:
        if spec.external_source is not None:
            return spec.external_source
        name = spec.backup_name or ""
        try:
            found = await ctx.client.refresh(Backup, name)
        except Forbidden:
            text = (
                "spec.backupName: this operator may not read Backups; give their location as externalSource"
            )
            return Wait("BackupNotReadable", text, after=300.0, stalled=True)
        if found is None:
            text = (
                f"spec.backupName: the Backup {name} does not exist; correct the name, or give externalSource"
            )
            return Wait("BackupNotFound", text, after=10.0, stalled=True)
        if found.metadata.deletion_timestamp:
            text = f"spec.backupName: the Backup {name} is being deleted; use another one"
            return Wait("BackupNotFound", text, after=10.0, stalled=True)
        if found.meta is None or found.meta.location is None:
            text = f"spec.backupName: the Backup {name} has no meta.location; use another one"
            return Wait("BackupNotFound", text, after=10.0, stalled=True)
        return found.meta.location

    async def _taken(self, ctx: Context[RestoreJob], target: SharedStorageProvider | None) -> Wait | None:
        """Another LogSet owns the target, or keeps data there; asked live, since nothing is undone afterwards."""
        s3 = target.s3 if target is not None else None
        if s3 is None:
            return None
        namespace = ctx.key.namespace if self._around.namespaced else ""
        claims = (await self._around.live.list(BucketClaim, namespace=namespace)).items
        for one in claims:
            if one.spec is not None and one.spec.s3 is not None and overlap(one.spec.s3, s3):
                where = f"BucketClaim {one.metadata.namespace}/{one.metadata.name}"
                whose = f"which {bound(one)} uses" if bound(one) else "which keeps data"
                text = f"spec.target: overlaps the path of {where}, {whose}; choose another path"
                return Wait("TargetInUse", text, after=30.0, stalled=True)
        return None

    async def snapshot(self, ctx: Context[RestoreJob], inputs: Inputs) -> JobSnapshot:
        """Its newest run."""
        status, now = inputs.status, ctx.now()
        run = None
        if status.phase == RUNNING:
            run = await self._runs.find(ctx, status.job or "", now=now, purpose=RESTORE)
        ended = datetime.fromisoformat(status.finished_at) if status.finished_at else None
        return JobSnapshot(
            phase=status.phase or "",
            tries=status.tries or 0,
            run=run,
            blocked=inputs.blocked,
            ended_for=(now - ended).total_seconds() if ended is not None else None,
            # That of a cluster stays: it says where the data came from.
            ttl=None if _cluster_of(ctx.obj) else seconds_or(inputs.spec.ttl, _TTL),
        )

    def plan(self, snapshot: JobSnapshot) -> Verdict:
        """See `rules`."""
        return decide(snapshot)

    def report(
        self, ctx: Context[RestoreJob], inputs: Inputs, snapshot: JobSnapshot, verdict: Verdict
    ) -> Report:
        """Phase and conditions; a try is recorded before its Job is made."""
        status, now = inputs.status, ctx.now()
        notes: list[Note] = []
        match verdict:
            case Begin(attempt=attempt) if status.phase != RUNNING or status.tries != attempt:
                status = replace(
                    status,
                    phase=RUNNING,
                    reason=None,
                    message=None,
                    job=job_name(ctx.obj, RESTORE, attempt),
                    tries=attempt,
                    started_at=rfc3339(now),
                )
            case Settle(outcome=run):
                status = _settled(inputs, run, now)
                text = status.message or ""
                notes.append(Note(reason=status.reason or "", message=text, warning=status.phase == FAILED))
            case Wait(reason=reason, message=text) if status.phase in (None, "", PENDING):
                status = replace(status, phase=PENDING, reason=reason, message=text)
        conditions = settled_conditions(status.conditions, status.phase, status.message, now=now)
        status = replace(status, phase=status.phase or PENDING, conditions=conditions)
        ready = ConditionState(
            status.phase == COMPLETED,
            status.reason or status.phase or PENDING,
            status.message or f"the restore is {(status.phase or PENDING).lower()}",
        )
        return Report(status=status, ready=ready, notes=notes, record=isinstance(verdict, Begin | Settle))

    async def step(
        self, ctx: Context[RestoreJob], inputs: Inputs, snapshot: JobSnapshot, move: Move
    ) -> bool | None:
        """Make the Job, or delete what has served its time."""
        match move:
            case Begin(attempt=attempt):
                if inputs.location is None:
                    raise StepFailed(inputs.blocked.message if inputs.blocked else "no backup is named")
                await self._runs.begin(ctx, self._run(ctx, inputs, inputs.location, attempt))
            case Expire():
                await ctx.client.delete(
                    RestoreJob, ctx.key.name, namespace=ctx.key.namespace, uid=ctx.obj.metadata.uid
                )
        return None

    def _run(
        self, ctx: Context[RestoreJob], inputs: Inputs, location: SharedStorageProvider, attempt: int
    ) -> MatrixOneRun:
        target = inputs.spec.target
        root, place = place_of(location) or (location, "")
        return MatrixOneRun(
            purpose=RESTORE,
            request=Request(
                action="restore",
                root=root,
                places=[place],
                target=target,
                owner=_cluster_of(ctx.obj) or ctx.obj.metadata.uid or "",
            ),
            image=self._image,
            secrets=secrets_of(root, target),
            attempt=attempt,
            overlay=ctx.obj.overlay or Overlay(),
        )


def _cluster_of(job: RestoreJob) -> str:
    """UID of the MatrixOneCluster that it is for; "" for one that a person made."""
    for one in job.metadata.owner_references or ():
        if one.controller and one.kind == MatrixOneCluster.resource.kind:
            return one.uid or ""
    return ""


def _settled(inputs: Inputs, run: outcomes.Outcome, now: datetime) -> RestoreJobStatus:
    status, result = inputs.status, run.result
    ended = rfc3339(run.ended or now)
    if run.state != "Succeeded" or result is None:
        return replace(status, phase=FAILED, reason=run.reason, message=run.message, finished_at=ended)
    target = inputs.spec.target
    where = shown(target) if target is not None else ""
    return replace(
        status,
        phase=COMPLETED,
        reason="Restored",
        message=f"{result.size} bytes in {result.objects} objects are in {where}",
        size_bytes=result.size,
        position=result.facts.get("position"),
        finished_at=ended,
    )
