"""The actor of backup objects: everything but what to run, which each operator says in `BackupActor.prepare`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import datetime
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    Move,
    Outcome,
    Planned,
    Report,
    StepFailed,
    Terminal,
    Verdict,
    Wait,
)
from mooring.actor.planned import Note
from mooring.cache import rfc3339
from mooring.kube.objects import core, meta
from mooring.objectstore import location
from mooring.operators.backup import rules
from mooring.operators.backup.layout import backup_id, backup_prefix
from mooring.operators.backup.rules import Begin, Drop, Erase, Seen, Settle, SettleVerify, Verify
from mooring.operators.backup.run import Run, job_name, secrets_of
from mooring.operators.backup.runs import Runs
from mooring.operators.backup.targets import problems
from mooring.operators.backup.types import (
    DELETE,
    DELETING,
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    BackupFields,
    BackupObject,
    BackupStatus,
    Progress,
    Verified,
)
from mooring.runtime import Manager

__all__ = ["BackupActor", "Inputs", "Prepared", "missing_secret"]

BACKUP: Final = "backup"
ERASE: Final = "delete"
VERIFY: Final = "verify"
VERIFIED: Final = "BackupVerified"
"""Condition: the newest test restore passed."""
B = TypeVar("B", bound=BackupObject)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a backup would be made by now. ``run`` needs neither prefix nor draft's ID: `BackupActor` fills them in."""

    run: Run
    cluster: str
    """See `layout.cluster_prefix`."""
    source: str = ""
    method: str = ""
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The object, and what a run of it would be."""

    spec: BackupFields
    status: BackupStatus
    prepared: Prepared | None
    blocked: Wait | None
    check: Run | None = None
    """The test restore that is due."""


class BackupActor(Planned[B, Inputs, Seen], Generic[B]):
    """Observes one backup object and acts upon it.

    A subclass has ``kind``, ``name``, ``finalizer`` and `prepare`; it registers by `mooring.actor.run_actor`.
    """

    def __init__(self, manager: Manager, *, agent_image: str, namespaces: Sequence[str] = ()) -> None:
        self.agent_image = agent_image
        self.runs = Runs(manager, self.name, namespaces=namespaces)
        self.related = self.runs.related

    @abstractmethod
    async def prepare(self, ctx: Context[B]) -> Prepared | Wait | Terminal:
        """The run that would back it up now: source, script, image; or why there is none, with field and remedy."""

    async def verification(self, ctx: Context[B]) -> Run | Wait | None:
        """The run that restores the backup and checks it; ``None`` where the operator has none."""
        return None

    def security(self, obj: B) -> core.PodSecurityContext | None:
        """The user that deletes stored data. On a claim it must be the user that wrote the backups. Default: 65532."""
        return None

    def finalizes(self, obj: B) -> bool:
        """Only where stored data is to go with the object."""
        return obj.spec is not None and obj.spec.deletion_policy == DELETE

    async def inputs(self, ctx: Context[B]) -> Inputs | Outcome:
        """The declaration; what is to run is looked up only while a run may begin."""
        spec, status = ctx.obj.spec or BackupFields(), ctx.obj.status or BackupStatus()
        if spec.target is None:
            return Terminal("InvalidSpec", "spec.target: is required; say where backups are stored")
        if wrong := problems(spec.target, "spec.target"):
            return Terminal("TargetInvalid", "; ".join(map(str, wrong)))
        prepared: Prepared | Wait | Terminal | None = None
        deleted = ctx.obj.metadata.deletion_timestamp is not None
        if not deleted and status.phase not in (SUCCEEDED, FAILED):
            prepared = await self.prepare(ctx)
            if isinstance(prepared, Terminal) and not status.tries:
                return prepared
        blocked = prepared if isinstance(prepared, Wait) else None
        if isinstance(prepared, Terminal):
            blocked = Wait(prepared.reason, prepared.message, after=30.0, stalled=True)
        over = status.phase in (SUCCEEDED, FAILED) and not deleted
        if not over and (missing := await missing_secret(ctx, secrets_of(spec.target))):
            blocked = blocked or missing
        check = await self._due_check(ctx, spec, status)
        if isinstance(check, Wait):
            blocked, check = check, None
        return Inputs(
            spec=spec,
            status=status,
            check=check,
            prepared=prepared if isinstance(prepared, Prepared) else None,
            blocked=blocked,
        )

    async def _due_check(
        self, ctx: Context[B], spec: BackupFields, status: BackupStatus
    ) -> Run | Wait | None:
        known = status.verified
        over = known is not None and known.at is not None
        if (
            status.phase != SUCCEEDED
            or over
            or not (spec.verify or known)
            or ctx.obj.metadata.deletion_timestamp
        ):
            return None
        return await self.verification(ctx)

    async def snapshot(self, ctx: Context[B], inputs: Inputs) -> Seen:
        """Its runs."""
        status, now = inputs.status, ctx.now()
        deleted = ctx.obj.metadata.deletion_timestamp is not None
        running = status.phase == RUNNING or deleted
        run = await self.runs.find(ctx, status.job or "", now=now, purpose=BACKUP) if running else None
        progress = None
        if not deleted and rules.progress_due(status, run, now):
            size = await self.runs.moved(ctx, status.job or "")
            progress = Progress(at=now, bytes=size) if size is not None else None
        known, check = status.verified, None
        if not deleted and known is not None and known.at is None:
            name = job_name(ctx.obj, VERIFY, known.tries or 1)
            check = await self.runs.find(ctx, name, now=now, purpose=VERIFY)
        erasure = None
        if deleted:
            erasure = await self.runs.find(ctx, job_name(ctx.obj, ERASE, 1), now=now, purpose=ERASE)
        return Seen(
            spec=inputs.spec,
            status=status,
            run=run,
            progress=progress,
            check=check,
            erasure=erasure,
            blocked=inputs.blocked,
            now=now,
            deleted=deleted,
            stored=bool(status.prefix),
            adrift="its namespace is being deleted" if deleted and await _ends(ctx) else "",
        )

    def plan(self, snapshot: Seen) -> Verdict:
        """See `rules.decide`."""
        return rules.leave(snapshot) if snapshot.deleted else rules.decide(snapshot)

    def report(self, ctx: Context[B], inputs: Inputs, snapshot: Seen, verdict: Verdict) -> Report:
        """Phase and conditions; a try is recorded before its Job is made."""
        status = inputs.status
        if isinstance(verdict, Begin) and inputs.prepared is not None:
            status = self._begun(ctx, inputs, inputs.prepared, verdict.attempt)
        elif isinstance(verdict, Settle):
            status = rules.settled(snapshot, verdict.outcome)
        elif isinstance(verdict, Verify):
            status = replace(status, verified=status.verified or Verified(tries=verdict.attempt))
        elif isinstance(verdict, SettleVerify):
            status = with_verified(rules.verified(snapshot, verdict.outcome), now=snapshot.now)
        elif isinstance(verdict, Wait) and status.phase in (None, "", PENDING):
            status = replace(status, phase=PENDING, reason=verdict.reason, message=verdict.message)
        elif snapshot.progress is not None:
            status = replace(status, progress=snapshot.progress)
        if snapshot.deleted:
            text = getattr(verdict, "message", "") or getattr(verdict, "why", "")
            status = replace(status, phase=DELETING, message=text)
        ready = ConditionState(status.phase == SUCCEEDED, _reason(status), rules.summary(status))
        notes = []
        if isinstance(verdict, Settle) and status.phase == SUCCEEDED:
            notes.append(Note(reason="BackupSucceeded", message=rules.summary(status)))
        elif isinstance(verdict, Settle):
            notes.append(
                Note(reason=status.reason or "BackupFailed", message=rules.summary(status), warning=True)
            )
        if (
            isinstance(verdict, SettleVerify)
            and (known := status.verified) is not None
            and known.at is not None
        ):
            reason = "BackupVerified" if known.passed else "VerificationFailed"
            notes.append(Note(reason=reason, message=known.message, warning=not known.passed))
        record = isinstance(verdict, Begin | Settle | Verify | SettleVerify)
        return Report(status=status, ready=ready, notes=notes, record=record)

    def _begun(self, ctx: Context[B], inputs: Inputs, prepared: Prepared, attempt: int) -> BackupStatus:
        status = inputs.status
        if status.phase == RUNNING and status.tries == attempt:
            return status
        now = ctx.now()
        identity = _identity(ctx.obj, attempt)
        assert inputs.spec.target is not None
        prefix = backup_prefix(prepared.cluster, identity)
        return replace(
            status,
            phase=RUNNING,
            reason="",
            message="",
            id=identity,
            prefix=prefix,
            location=f"{location(inputs.spec.target)}: {prefix}",
            job=job_name(ctx.obj, BACKUP, attempt),
            tries=attempt,
            progress=None,
            source=prepared.source,
            method=prepared.method,
            version=prepared.version,
            started_at=now,
            finished_at=None,
        )

    async def step(self, ctx: Context[B], inputs: Inputs, snapshot: Seen, move: Move) -> bool | None:
        """Make or delete a Job."""
        match move:
            case Begin():
                if inputs.prepared is None:
                    raise StepFailed(inputs.blocked.message if inputs.blocked else "nothing to run")
                await self.runs.begin(ctx, self._run(ctx, inputs, inputs.prepared, move.attempt))
            case Verify():
                if inputs.check is None:
                    raise StepFailed("this operator cannot verify backups")
                run = changed(
                    inputs.check,
                    purpose=VERIFY,
                    attempt=move.attempt,
                    bandwidth=inputs.spec.bandwidth or "",
                )
                await self.runs.begin(ctx, run)
            case Erase():
                await self.runs.begin(ctx, self._erasure(ctx, inputs))
            case Drop():
                await self.runs.drop(ctx, move.job)
        return None

    def _run(self, ctx: Context[B], inputs: Inputs, prepared: Prepared, attempt: int) -> Run:
        status = ctx.status if isinstance(ctx.status, BackupStatus) else inputs.status
        run = prepared.run
        draft = run.draft
        return changed(
            run,
            purpose=BACKUP,
            attempt=attempt,
            prefixes=[status.prefix or ""],
            draft=replace(draft, id=status.id or "") if draft is not None else None,
            bandwidth=inputs.spec.bandwidth or "",
            timeout=inputs.spec.timeout_seconds or 86400,
        )

    def _erasure(self, ctx: Context[B], inputs: Inputs) -> Run:
        assert inputs.spec.target is not None
        return Run(
            purpose=ERASE,
            action="delete",
            target=inputs.spec.target,
            prefixes=_prefixes(ctx.obj, inputs.status),
            agent_image=self.agent_image,
            security=self.security(ctx.obj),
            timeout=3600,
        )

    async def finalize(self, ctx: Context[B]) -> Outcome:
        """Delete the stored data where that was asked for."""
        return await self.observe(ctx)


def with_verified(status: BackupStatus, *, now: datetime) -> BackupStatus:
    """The status with the condition BackupVerified as the newest test restore has it."""
    known = status.verified
    if known is None or known.at is None:
        return status
    before = next((one for one in status.conditions or () if one.type == VERIFIED), None)
    state = "True" if known.passed else "False"
    since = before.last_transition_time if before is not None and before.status == state else rfc3339(now)
    condition = meta.Condition(
        type=VERIFIED,
        status=state,
        reason="Restored" if known.passed else "VerificationFailed",
        message=known.message,
        last_transition_time=since,
    )
    others = [one for one in status.conditions or () if one.type != VERIFIED]
    return replace(status, conditions=[*others, condition])


async def missing_secret(ctx: Context[B], names: Sequence[str]) -> Wait | None:
    """A wait for the first of these Secrets that does not exist: a pod that mounts it would hang."""
    for name in names:
        if await ctx.client.refresh(core.Secret, name, namespace=ctx.key.namespace) is None:
            text = f"spec.target: the Secret {name} does not exist; create it, or correct the name"
            return Wait("SecretNotFound", text, after=10.0, stalled=True)
    return None


async def _ends(ctx: Context[B]) -> bool:
    """The namespace is being deleted: nothing can be made in it any more."""
    found = await ctx.client.refresh(core.Namespace, ctx.key.namespace)
    return found is None or found.metadata.deletion_timestamp is not None


def _identity(obj: BackupObject, attempt: int) -> str:
    made = datetime.fromisoformat(obj.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
    return backup_id(made, obj.metadata.uid or "", attempt)


def _prefixes(obj: BackupObject, status: BackupStatus) -> list[str]:
    """Where the tries so far may have left something."""
    cluster = (status.prefix or "").partition("/")[0]
    return [backup_prefix(cluster, _identity(obj, one)) for one in range(1, (status.tries or 1) + 1)]


def _reason(status: BackupStatus) -> str:
    return {SUCCEEDED: "BackupSucceeded", FAILED: status.reason or "BackupFailed"}.get(
        status.phase or "", status.reason or status.phase or PENDING
    )
