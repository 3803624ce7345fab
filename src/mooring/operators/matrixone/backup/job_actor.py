"""The actor of BackupJobs: one backup, or the runs of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    InSync,
    Move,
    Note,
    Outcome,
    Planned,
    Related,
    Report,
    StepFailed,
    Verdict,
    Wait,
    not_ready,
)
from mooring.cache import rfc3339
from mooring.kube import MergePatch
from mooring.kube.errors import AlreadyExists
from mooring.kube.object import Key, owner_reference
from mooring.kube.objects import core, meta
from mooring.operators.backup import outcome as outcomes
from mooring.operators.backup.layout import backup_id, backup_prefix, cluster_prefix
from mooring.operators.backup.manifest import Origin
from mooring.operators.backup.run import agent_image, job_name
from mooring.operators.backup.runs import Runs
from mooring.operators.matrixone.backup import calendar, verification
from mooring.operators.matrixone.backup.chain import FULL_BECAUSE
from mooring.operators.matrixone.backup.gauges import Gauges
from mooring.operators.matrixone.backup.places import scratch_of, secrets_of, shown, within
from mooring.operators.matrixone.backup.records import (
    HOME,
    SCHEDULE,
    backup_of,
    base_in,
    base_place,
    kept_of,
    name_of,
    newest_verified,
    policy_of,
    verified_condition,
)
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.rules import Begin, Expire, JobSnapshot, Record, Settle, decide
from mooring.operators.matrixone.backup.run import MatrixOneRun
from mooring.operators.matrixone.backup.scratch import HOST, SQL_PORT
from mooring.operators.matrixone.backup.verification import Drop, Publish, SettleVerify, Sweep, Trial, Verify
from mooring.operators.matrixone.conditions import with_condition
from mooring.operators.matrixone.durations import seconds_or
from mooring.operators.matrixone.names import SQL
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.specs.cluster import ClusterSpecs
from mooring.operators.matrixone.types import (
    COMPLETED,
    FAILED,
    PENDING,
    RUNNING,
    Backup,
    BackupJob,
    BackupJobSpec,
    BackupJobStatus,
    CNSet,
    JobSchedule,
    MatrixOneCluster,
    Overlay,
    RestoreJob,
    Verification,
    groups_of,
)
from mooring.runtime import Manager

__all__ = ["PAUSE", "BackupJobActor", "missing_secret", "settled_conditions", "shared_volumes"]

PAUSE: Final = "mooring.dev/pause"
BACKUP: Final = "backup"
VERIFY: Final = "verify"
SWEEP: Final = "sweep"
_TTL: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is backed up, and how it is reached."""

    origin: Origin
    host: str
    port: int
    login: str
    overlay: Overlay = field(default_factory=Overlay, repr=False)
    """Of the compute nodes."""
    image: str = ""
    """Of the compute nodes."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The declaration with all that it names."""

    job: BackupJob = field(repr=False)
    source: Source | None = None
    blocked: Wait | None = None
    base: str = ""
    """The place of the backup that it builds on; "": it is a full one."""
    full_because: str = ""
    """Why it is a full one, where an incremental one was asked for."""
    tries_out: bool = False
    """The test restore of the backup is due, or under way; ``source`` and ``blocked`` are about that."""
    calendar: calendar.CalendarSnapshot | None = None

    @property
    def spec(self) -> BackupJobSpec:
        """The declaration."""
        return self.job.spec or BackupJobSpec()

    @property
    def status(self) -> BackupJobStatus:
        """What earlier passes recorded."""
        return self.job.status or BackupJobStatus()


Snapshot = JobSnapshot | Trial | calendar.CalendarSnapshot


class BackupJobActor(Planned[BackupJob, Inputs, Snapshot]):
    """Observes one BackupJob and acts upon it."""

    kind = BackupJob
    name: Final = "matrixone-backupjob"
    finalizer = "mooring.dev/backup-copy"

    def __init__(self, around: Surroundings, manager: Manager, *, namespaces: Sequence[str] = ()) -> None:
        self._around, self._image, self._wide = around, agent_image(), not namespaces
        self._runs = Runs(manager, self.name, namespaces=namespaces)
        self._gauges = Gauges(manager.metrics)
        self.related = [
            *self._runs.related,
            Related(MatrixOneCluster, self._waiting),
            Related(BackupJob, _schedule_of),
        ]

    def _waiting(self, cluster: MatrixOneCluster) -> list[Key]:
        """The BackupJobs of a cluster that have not begun."""
        found = self._around.backup_jobs(cluster.metadata.namespace or "")
        return [
            Key(one.metadata.namespace or "", one.metadata.name or "")
            for one in found
            if one.spec is not None
            and one.spec.source is not None
            and one.spec.source.cluster_ref == cluster.metadata.name
            and (one.status is None or one.status.phase in (None, "", PENDING))
        ]

    async def precede(self, ctx: Context[BackupJob]) -> Outcome | None:
        """Nothing is done while upstream's operator runs."""
        return self._around.left_alone(ctx)

    def finalizes(self, obj: BackupJob) -> bool:
        """While a test restore is due: its copy of the data is outside of Kubernetes."""
        return _tries_out(obj)

    async def finalize(self, ctx: Context[BackupJob]) -> Outcome:
        """Delete the copy of a test restore that did not end."""
        return await self.observe(ctx)

    def forget(self, key: Key) -> None:
        """Drop the metrics."""
        self._gauges.forget(key)

    # --- one pass ------------------------------------------------------------------------------------------

    async def inputs(self, ctx: Context[BackupJob]) -> Inputs | Outcome:
        """The declaration, and the cluster as it is now."""
        made = Inputs(job=ctx.obj)
        deleted = ctx.obj.metadata.deletion_timestamp is not None
        if made.status.phase in (COMPLETED, FAILED) and not (_tries_out(ctx.obj) or deleted):
            return made
        if not deleted and (wrong := blocked_by(ctx.obj)) is not None:
            return wrong
        if deleted or _tries_out(ctx.obj):
            return await self._trial_inputs(ctx, made)
        if made.spec.schedule is not None:
            return Inputs(job=ctx.obj, calendar=await self._calendar(ctx, made, made.spec.schedule))
        found = self._source(ctx, made.spec)
        if isinstance(found, Wait):
            return Inputs(job=ctx.obj, blocked=found)
        names = [*secrets_of(made.spec.target), found.login]
        made = changed(made, source=found, blocked=await missing_secret(ctx, names))
        return await self._with_base(ctx, made, found) if made.spec.incremental_from else made

    async def _with_base(self, ctx: Context[BackupJob], made: Inputs, source: Source) -> Inputs:
        """The backup that it builds on. A run of a schedule is a full one where that cannot be; others wait."""
        name, root = made.spec.incremental_from or "", made.spec.target
        assert root is not None
        parent = _place(ctx.obj, source, 1).rpartition("/")[0]
        found = await ctx.client.refresh(Backup, name) if self._wide else None
        place, problem = base_place(found, root, parent)
        if not problem:
            return changed(made, base=place)
        text = f"the Backup {name} {problem}"
        if SCHEDULE in (ctx.obj.metadata.labels or {}):
            return changed(made, full_because=text)
        remedy = "name another one of this cluster in this target, or remove the field for a full backup"
        wait = Wait("BaseUnusable", f"spec.incrementalFrom: {text}; {remedy}", after=10.0, stalled=True)
        return changed(made, blocked=made.blocked or wait)

    async def _trial_inputs(self, ctx: Context[BackupJob], made: Inputs) -> Inputs:
        """The server that tries the backup out; a deletion of its copy needs no more than the Secrets of the target."""
        found = self._source(ctx, made.spec, serves=False)
        source = found if isinstance(found, Source) else None
        blocked = found if isinstance(found, Wait) else None
        names = [*secrets_of(made.spec.target), *([source.login] if source is not None else [])]
        if ctx.obj.metadata.deletion_timestamp:
            names, blocked = secrets_of(made.spec.target), None
        blocked = blocked or await missing_secret(ctx, names)
        return Inputs(job=ctx.obj, source=source, blocked=blocked, tries_out=True)

    def _source(self, ctx: Context[BackupJob], spec: BackupJobSpec, *, serves: bool = True) -> Source | Wait:
        """What is backed up; ``serves``: it has to be ready."""
        if spec.source is None or not (spec.source.cluster_ref or spec.source.cn_set_ref):
            return Wait("SourceNotFound", "spec.source: says nothing to back up", stalled=True)
        kind: type[MatrixOneCluster | CNSet] = MatrixOneCluster if spec.source.cluster_ref else CNSet
        name = spec.source.cluster_ref or spec.source.cn_set_ref or ""
        one = ctx.client.find(kind, name, namespace=ctx.key.namespace)
        what = f"{kind.resource.kind} {name}"
        if one is None:
            text = f"spec.source: {what} does not exist; correct the name"
            return Wait("SourceNotFound", text, after=10.0, stalled=True)
        status = one.status
        if serves and ((trouble := not_ready(one)) or status is None or not status.host):
            return Wait("SourceNotReady", f"{what} {trouble or 'has no address yet'}", after=10.0)
        overlay, image = Overlay(), ""
        login = spec.source.secret_ref or ""
        if isinstance(one, MatrixOneCluster):
            reference = one.status.credential_ref if one.status is not None else None
            login = login or (reference.name if reference is not None else None) or ""
            groups = groups_of(one.spec) if one.spec is not None else []
            if groups:
                group = groups[0][2]
                overlay, image = group.overlay or Overlay(), group.image or ClusterSpecs(one).image
        elif one.spec is not None:
            overlay, image = one.spec.overlay or Overlay(), one.spec.image or ""
        return Source(
            origin=Origin(
                namespace=ctx.key.namespace, name=name, uid=one.metadata.uid or "", kind=kind.resource.kind
            ),
            host=(status.host if status is not None else None) or "",
            port=(status.port if status is not None else None) or SQL,
            login=login,
            overlay=overlay,
            image=image,
        )

    async def _calendar(
        self, ctx: Context[BackupJob], inputs: Inputs, schedule: JobSchedule
    ) -> calendar.CalendarSnapshot:
        job, status = inputs.job, inputs.status
        uid, namespace = job.metadata.uid or "", ctx.key.namespace
        mine = [
            one
            for one in self._around.backup_jobs(namespace)
            if (one.metadata.labels or {}).get(SCHEDULE) == uid
        ]
        running = [one for one in mine if one.status is None or one.status.phase not in (COMPLETED, FAILED)]
        tried = {one.status.backup for one in mine if one.status is not None and _tries_out(one)}
        backups: list[Backup] = []
        bases: set[str | None] = {
            one.spec.incremental_from
            for one in self._around.backup_jobs(namespace)
            if one.spec is not None and (one.status is None or one.status.phase not in (COMPLETED, FAILED))
        }
        if self._wide:
            # Those of other BackupJobs too: one that was made by hand may build on one of ours.
            found = await self._around.live.list(Backup, label_selector=f"{HOME}={namespace}")
            backups = [one for one in found.items if (one.metadata.labels or {}).get(SCHEDULE) == uid]
            bases |= {one.status.base for one in found.items if one.status is not None and one not in backups}
        read = (
            tried
            | bases
            | {
                one.spec.backup_name
                for one in ctx.client.list(RestoreJob, namespace="" if self._wide else namespace)
                if one.spec is not None
                and (one.status is None or one.status.phase not in (COMPLETED, FAILED))
            }
        )
        return calendar.CalendarSnapshot(
            name=ctx.key.name,
            schedule=schedule,
            last=_time(status.last_scheduled_at) or _time(job.metadata.creation_timestamp) or ctx.now(),
            running=next((one.metadata.name or "" for one in running), ""),
            backups=[kept_of(one, held=one.metadata.name in read) for one in backups],
            success=max(
                (one.meta.complete_time or "" for one in backups if one.meta is not None), default=""
            ),
            verified=newest_verified(backups),
            now=ctx.now(),
        )

    async def snapshot(self, ctx: Context[BackupJob], inputs: Inputs) -> Snapshot:
        """Its newest run, and whether the Backup is there."""
        if inputs.calendar is not None:
            return inputs.calendar
        if inputs.tries_out:
            return await self._trial(ctx, inputs)
        status, now = inputs.status, ctx.now()
        run = None
        recorded = True
        if status.phase == RUNNING:
            run = await self._runs.find(ctx, status.job or "", now=now, purpose=BACKUP)
            if run is not None and run.state == "Succeeded" and self._wide:
                recorded = await self._recorded(ctx, run)
        ended = (status.verified.at if status.verified is not None else None) or _time(status.finished_at)
        return JobSnapshot(
            phase=status.phase or "",
            tries=status.tries or 0,
            run=run,
            recorded=recorded,
            blocked=inputs.blocked,
            ended_for=(now - ended).total_seconds() if ended is not None else None,
            ttl=seconds_or(inputs.spec.ttl, _TTL),
        )

    async def _trial(self, ctx: Context[BackupJob], inputs: Inputs) -> Trial:
        status, now = inputs.status, ctx.now()
        known = status.verified
        deleted = ctx.obj.metadata.deletion_timestamp is not None
        trial = Trial(known=known, blocked=inputs.blocked, deleted=deleted, now=now)
        if not verification.is_tried(known) or known is None:
            return trial
        verify, sweep = (job_name(ctx.obj, one, known.tries) for one in (VERIFY, SWEEP))
        published = await self._published(ctx, status)
        return changed(
            trial,
            run=await self._runs.find(ctx, verify, now=now, purpose=VERIFY),
            sweep=await self._runs.find(ctx, sweep, now=now, purpose=SWEEP),
            ending=self._runs.alive(verify, namespace=ctx.key.namespace),
            published=published,
            adrift="its namespace is being deleted" if deleted and await _ends(ctx) else "",
        )

    async def _published(self, ctx: Context[BackupJob], status: BackupJobStatus) -> bool:
        """The Backup has a result, or cannot have one any more."""
        if not self._wide or not status.backup:
            return True
        backup = await ctx.client.refresh(Backup, status.backup)
        if backup is None or backup.metadata.deletion_timestamp:
            return True
        return backup.status is not None and backup.status.verified is not None

    async def _recorded(self, ctx: Context[BackupJob], run: outcomes.Outcome) -> bool:
        return await ctx.client.refresh(Backup, name_of(ctx.obj, _identity(run, ctx.obj))) is not None

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `rules` and `calendar`."""
        if isinstance(snapshot, calendar.CalendarSnapshot):
            return calendar.decide(snapshot)
        if isinstance(snapshot, Trial):
            return verification.decide(snapshot)
        return decide(snapshot)

    # --- what it shows -------------------------------------------------------------------------------------

    def report(self, ctx: Context[BackupJob], inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
        """Phase and conditions; a try is recorded before its Job is made."""
        if inputs.calendar is not None:
            return self._calendar_report(ctx, inputs, inputs.calendar, verdict)
        status, now = inputs.status, ctx.now()
        notes: list[Note] = []
        match verdict:
            case Begin(attempt=attempt):
                status = _begun(ctx, inputs, attempt)
            case Settle(outcome=run):
                status = self._settled(ctx, inputs, run)
                text = status.message or ""
                if (
                    why := run.result.facts.get(FULL_BECAUSE) if run.result is not None else None
                ) is not None:
                    notes.append(Note(reason="ChainBroken", message=_full_text(why), warning=True))
                notes.append(Note(reason=status.reason or "", message=text, warning=status.phase == FAILED))
            case Verify(attempt=attempt) if status.verified is None:
                status = replace(status, verified=Verification(tries=attempt))
            case SettleVerify(outcome=run):
                status, notes = _tried(inputs, run, now)
            case Wait(reason=reason, message=text) if status.phase in (None, "", PENDING):
                status = replace(status, phase=PENDING, reason=reason, message=text)
        conditions = settled_conditions(status.conditions, status.phase, status.message, now=now)
        status = replace(status, conditions=conditions)
        ready = ConditionState(
            status.phase == COMPLETED,
            status.reason or status.phase or PENDING,
            status.message or f"the backup is {(status.phase or PENDING).lower()}",
        )
        record = isinstance(verdict, Begin | Settle | Verify | SettleVerify)
        return Report(status=status, ready=ready, notes=notes, record=record)

    def _settled(self, ctx: Context[BackupJob], inputs: Inputs, run: outcomes.Outcome) -> BackupJobStatus:
        status, result = inputs.status, run.result
        ended = rfc3339(run.ended or ctx.now())
        if run.state != "Succeeded" or result is None:
            return replace(status, phase=FAILED, reason=run.reason, message=run.message, finished_at=ended)
        identity = _identity(run, ctx.obj)
        assert inputs.spec.target is not None
        prefix = result.facts.get("prefix") or status.prefix or ""
        place = within(inputs.spec.target, prefix)
        return replace(
            status,
            phase=COMPLETED,
            reason="BackupSucceeded",
            message=f"{result.size} bytes in {result.objects} objects at {shown(place)}{_kind(inputs, result.facts)}",
            base=base_in(inputs.spec, result.facts),
            backup=name_of(ctx.obj, identity) if self._wide else None,
            id=identity,
            prefix=prefix,
            size_bytes=result.size,
            position=result.facts.get("position"),
            finished_at=ended,
        )

    def _calendar_report(
        self,
        ctx: Context[BackupJob],
        inputs: Inputs,
        snapshot: calendar.CalendarSnapshot,
        verdict: Verdict,
    ) -> Report:
        status = inputs.status
        good = [one for one in snapshot.backups if one.good]
        newest = max(good, key=lambda one: one.at, default=None)
        status = replace(
            status,
            phase=RUNNING if snapshot.running else PENDING,
            backup=newest.name if newest is not None else status.backup,
            last_success_at=snapshot.success or status.last_success_at,
            last_verified_backup=snapshot.verified[0] if snapshot.verified else status.last_verified_backup,
            last_verified_at=snapshot.verified[1] if snapshot.verified else status.last_verified_at,
            reason=None,
            message=None,
        )
        self._gauges.show(ctx.key, inputs.job, status)
        if isinstance(verdict, InSync) and verdict.again is not None:
            status = replace(status, next_at=_minute(snapshot.now, verdict.again))
        return Report(
            status=status, ready=ConditionState(True, "Scheduled", "backups are made by the schedule")
        )

    # --- effects -------------------------------------------------------------------------------------------

    async def step(
        self, ctx: Context[BackupJob], inputs: Inputs, snapshot: Snapshot, move: Move
    ) -> BackupJobStatus | bool | None:
        """Make a Job or the Backup, or delete what has served its time."""
        match move:
            case Begin(attempt=attempt):
                if inputs.source is None:
                    raise StepFailed(inputs.blocked.message if inputs.blocked else "nothing to back up")
                await self._runs.begin(ctx, self._run(ctx, inputs, inputs.source, attempt))
            case Record(outcome=run):
                await self._record(ctx, inputs, run)
            case Settle() | SettleVerify():  # it is written already
                return None
            case Verify(attempt=attempt):
                await self._runs.begin(ctx, self._trial_run(inputs, attempt))
            case Sweep(attempt=attempt):
                await self._runs.begin(ctx, self._sweep_run(inputs, attempt))
            case Drop(job=name):
                await self._runs.drop(ctx, name)
            case Publish(outcome=run):
                await self._publish(ctx, inputs, run)
            case Expire():
                await ctx.client.delete(
                    BackupJob, ctx.key.name, namespace=ctx.key.namespace, uid=ctx.obj.metadata.uid
                )
            case calendar.StartRun():
                return await self._start_run(ctx, inputs, move)
            case calendar.Prune(names=names):
                for name in names:
                    await ctx.client.delete(Backup, name, namespace="")
        return None

    def _run(self, ctx: Context[BackupJob], inputs: Inputs, source: Source, attempt: int) -> MatrixOneRun:
        spec, root = inputs.spec, inputs.spec.target
        assert root is not None
        places = [_place(ctx.obj, source, one) for one in range(1, attempt + 1)]
        return MatrixOneRun(
            purpose=BACKUP,
            request=Request(
                action="backup",
                root=root,
                places=places,
                host=source.host,
                port=source.port,
                login=source.login,
                origin=source.origin,
                parallelism=spec.parallelism or 4,
                base=inputs.base,
                tool=spec.image or "",
                full_because=inputs.full_because,
            ),
            image=self._image,
            secrets=[*secrets_of(root), source.login],
            attempt=attempt,
            overlay=_overlay(spec, source),
            timeout=spec.timeout_seconds or 86400,
        )

    def _trial_run(self, inputs: Inputs, attempt: int) -> MatrixOneRun:
        spec, root, source = inputs.spec, inputs.spec.target, inputs.source
        if root is None or source is None:
            raise StepFailed(inputs.blocked.message if inputs.blocked else "nothing to try out")
        place = inputs.status.prefix or ""
        scratch = scratch_of(place)
        return MatrixOneRun(
            purpose=VERIFY,
            request=Request(
                action="verify",
                root=root,
                places=[place],
                target=within(root, f"{scratch}/{attempt}"),
                scratch=scratch,
                host=HOST,
                port=SQL_PORT,
                login=source.login,
            ),
            image=self._image,
            secrets=[*secrets_of(root), source.login],
            attempt=attempt,
            overlay=_overlay(spec, source),
            timeout=spec.timeout_seconds or 86400,
            server=source.image,
        )

    def _sweep_run(self, inputs: Inputs, attempt: int) -> MatrixOneRun:
        spec, root = inputs.spec, inputs.spec.target
        assert root is not None
        return MatrixOneRun(
            purpose=SWEEP,
            request=Request(action="delete", root=root, places=[scratch_of(inputs.status.prefix or "")]),
            image=self._image,
            secrets=secrets_of(root),
            attempt=attempt,
            overlay=_overlay(spec, inputs.source),
            timeout=3600,
        )

    async def _publish(self, ctx: Context[BackupJob], inputs: Inputs, run: outcomes.Outcome) -> None:
        """Write the result to the Backup, which outlives the BackupJob."""
        status = inputs.status
        known = verification.settled(status.verified or Verification(tries=1), run, now=ctx.now())
        name = status.backup or ""
        backup = await ctx.client.refresh(Backup, name)
        if backup is None:
            return
        present = backup.status.conditions if backup.status is not None else None
        made = {"verified": known, "conditions": verified_condition(present, known, now=ctx.now())}
        body = {"metadata": {"uid": backup.metadata.uid}, "status": msgspec.to_builtins(made)}
        await ctx.client.patch(Backup, name, MergePatch(body), namespace="")

    async def _record(self, ctx: Context[BackupJob], inputs: Inputs, run: outcomes.Outcome) -> None:
        assert inputs.spec.target is not None
        made = backup_of(ctx.obj, inputs.spec.target, run, now=ctx.now())
        try:
            await ctx.client.create(made)
        except AlreadyExists:
            found = await ctx.client.live.get(Backup, made.metadata.name or "", namespace="")
            if found.meta is None or made.meta is None or found.meta.id != made.meta.id:
                text = f"a Backup {made.metadata.name} of another BackupJob is there; make this one under another name"
                raise StepFailed(text) from None

    async def _start_run(
        self, ctx: Context[BackupJob], inputs: Inputs, move: calendar.StartRun
    ) -> BackupJobStatus:
        job, spec = ctx.obj, inputs.spec
        made = BackupJob(
            metadata=meta.ObjectMeta(
                name=calendar.run_name(ctx.key.name, move.at),
                namespace=ctx.key.namespace,
                labels={SCHEDULE: job.metadata.uid or ""},
                annotations={_OF: ctx.key.name},
                owner_references=[owner_reference(job)],
            ),
            spec=replace(
                spec,
                schedule=None,
                incremental_from=move.base or None,
                deletion_policy=policy_of(spec),
                verify=_is_verified(spec, inputs.status),
            ),
        )
        try:
            await ctx.client.create(made)
        except AlreadyExists:
            ctx.log.info("the run was begun before", run=made.metadata.name)
        status = ctx.status if isinstance(ctx.status, BackupJobStatus) else inputs.status
        return replace(
            status,
            last_scheduled_at=rfc3339(move.at),
            next_at=rfc3339(move.following) if move.following is not None else None,
            missed=(status.missed or 0) + move.missed,
            runs=(status.runs or 0) + 1,
        )


_OF: Final = "mooring.dev/backup-schedule-name"
"""Annotation of a BackupJob: the name of the one with the schedule."""


async def missing_secret(ctx: Context[BackupJob] | Context[RestoreJob], names: Sequence[str]) -> Wait | None:
    """A wait for the first of these Secrets that does not exist: a pod that mounts it would hang."""
    for name in names:
        if await ctx.client.refresh(core.Secret, name, namespace=ctx.key.namespace) is None:
            text = f"the Secret {name} does not exist in this namespace; create it, or correct the name"
            return Wait("SecretNotFound", text, after=10.0, stalled=True)
    return None


async def _ends(ctx: Context[BackupJob]) -> bool:
    """The namespace is being deleted: nothing can be made in it any more."""
    found = await ctx.client.refresh(core.Namespace, ctx.key.namespace)
    return found is None or found.metadata.deletion_timestamp is not None


def settled_conditions(
    present: Sequence[meta.Condition] | None, phase: str | None, message: str | None, *, now: datetime
) -> list[meta.Condition]:
    """Upstream's condition Ended, once it is."""
    if phase not in (COMPLETED, FAILED):
        return list(present or ())
    reason = "JobComplete" if phase == COMPLETED else "JobFailed"
    return with_condition(present, "Ended", True, reason, message or "", generation=None, now=now)


def shared_volumes(overlay: Overlay, of: Overlay) -> Overlay:
    """An overlay with the volumes of the server's pods, where it has none of its own."""
    return replace(
        overlay,
        volumes=overlay.volumes or of.volumes,
        volume_mounts=overlay.volume_mounts or of.volume_mounts,
        security_context=overlay.security_context or of.security_context,
    )


def _overlay(spec: BackupJobSpec, source: Source | None) -> Overlay:
    """Of the pod of a run; one for a directory has the volumes of the server's pods."""
    overlay = spec.overlay or Overlay()
    if spec.target is not None and spec.target.file_system is not None and source is not None:
        return shared_volumes(overlay, source.overlay)
    return overlay


def _tries_out(job: BackupJob) -> bool:
    """A test restore of its backup is due, or under way."""
    spec, status = job.spec, job.status
    if spec is None or status is None or status.phase != COMPLETED or spec.schedule is not None:
        return False
    return bool(spec.verify) if status.verified is None else verification.is_tried(status.verified)


def _tried(inputs: Inputs, run: outcomes.Outcome, now: datetime) -> tuple[BackupJobStatus, list[Note]]:
    """The status after a try; a backup that was found to be damaged has failed."""
    status = inputs.status
    known = verification.settled(status.verified or Verification(tries=1), run, now=now)
    status = replace(status, verified=known)
    if verification.is_tried(known):
        return status, []
    status = replace(status, conditions=verified_condition(status.conditions, known, now=now))
    reason = "BackupVerified" if known.passed else "VerificationFailed"
    if verification.is_damaged(known):
        status = replace(status, phase=FAILED, reason=known.reason, message=known.message)
    return status, [Note(reason=reason, message=known.message, warning=not known.passed)]


def _is_verified(spec: BackupJobSpec, schedule: BackupJobStatus) -> bool | None:
    """Whether a run is verified: every so many, the first one too."""
    every = (spec.schedule.verify_every if spec.schedule is not None else None) or 0
    return spec.verify or (True if every and (schedule.runs or 0) % every == 0 else None)


def _kind(inputs: Inputs, facts: Mapping[str, str]) -> str:
    """What there is to say of a backup that was to be incremental."""
    if base := base_in(inputs.spec, facts):
        return f", which need the Backup {base}"
    return f"; {_full_text(why)}" if (why := facts.get(FULL_BECAUSE)) else ""


def _full_text(why: str) -> str:
    return f"a full backup was made: {why}"


def _begun(ctx: Context[BackupJob], inputs: Inputs, attempt: int) -> BackupJobStatus:
    status, source = inputs.status, inputs.source
    if source is None or (status.phase == RUNNING and status.tries == attempt):
        return status
    place = _place(ctx.obj, source, attempt)
    return replace(
        status,
        phase=RUNNING,
        reason=None,
        message=None,
        id=place.rpartition("/")[2],
        prefix=place,
        job=job_name(ctx.obj, BACKUP, attempt),
        tries=attempt,
        started_at=rfc3339(ctx.now()),
    )


def _place(job: BackupJob, source: Source, attempt: int) -> str:
    made = _time(job.metadata.creation_timestamp) or datetime.fromisoformat("1970-01-01T00:00:00Z")
    identity = backup_id(made, job.metadata.uid or "", attempt)
    return backup_prefix(cluster_prefix(source.origin.name, source.origin.uid), identity)


def _identity(run: outcomes.Outcome, job: BackupJob) -> str:
    """The try that the run found whole: an earlier one may have been, although nobody heard of it."""
    prefix = run.result.facts.get("prefix", "") if run.result is not None else ""
    return prefix.rpartition("/")[2] or (job.status.id if job.status is not None else None) or ""


def _schedule_of(job: BackupJob) -> list[Key]:
    name = (job.metadata.annotations or {}).get(_OF)
    return [Key(job.metadata.namespace or "", name)] if name else []


def _minute(now: datetime, seconds: float) -> str:
    at = now + timedelta(seconds=seconds)
    return rfc3339(at.replace(second=0, microsecond=0) + timedelta(minutes=at.second >= 30))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
