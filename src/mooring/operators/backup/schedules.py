"""The actor of schedules: makes backup objects by the clock, and deletes those that the retention lets go."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Generic, TypeVar

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    InSync,
    Move,
    Outcome,
    Planned,
    Related,
    Report,
    Terminal,
    Verdict,
    Wait,
)
from mooring.kube.errors import AlreadyExists, NotFound
from mooring.kube.object import Key
from mooring.kube.objects import meta
from mooring.operators.backup.retention import Kept, Policy, outdated
from mooring.operators.backup.schedule import Due, due, problem
from mooring.operators.backup.types import (
    DELETE,
    FAILED,
    SUCCEEDED,
    BackupObject,
    BackupStatus,
    ScheduleFields,
    ScheduleObject,
    ScheduleStatus,
)
from mooring.runtime import Manager

__all__ = ["HOLD", "SCHEDULE", "ScheduleActor", "decide"]

SCHEDULE: Final = "mooring.dev/schedule"
"""Label of backups: the schedule that made them; they outlive it, and have no owner."""
HOLD: Final = "mooring.dev/hold"
"""Annotation of a backup: retention leaves it."""
LONGEST: Final = 3600.0
"""Seconds between two looks at most: clocks may be set."""
S = TypeVar("S", bound=ScheduleObject)
B = TypeVar("B", bound=BackupObject)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look at a schedule."""

    spec: ScheduleFields
    due: Due
    running: tuple[str, ...]
    """Backups of it that are not over, oldest first."""
    outdated: tuple[str, ...]
    kept: int
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Make(Move):
    """Make the backup that is due; those named are ended for it."""

    at: datetime
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Skip(Move):
    """The run that is due is left out: the one before still runs."""

    at: datetime


@dataclass(frozen=True, kw_only=True)
class Prune(Move):
    """Delete a backup that the retention lets go, with its data."""

    backup: str


def decide(seen: Seen) -> Verdict:
    """The next step of a schedule. Pure."""
    if seen.spec.suspend:
        return InSync(f"suspended; {seen.kept} backups stay")
    if (at := seen.due.now) is not None:
        if not seen.running:
            return Make(at=at, why=f"the run of {at:%Y-%m-%d %H:%M} UTC is due")
        if seen.spec.concurrency_policy == "Replace":
            return Make(at=at, instead=seen.running, why=f"it replaces {', '.join(seen.running)}")
        return Skip(at=at, why=f"{seen.running[0]} still runs; concurrencyPolicy is Forbid")
    if seen.outdated:
        return Prune(backup=seen.outdated[0], why="spec.retention lets it go")
    if (following := seen.due.following) is None:
        return InSync("the schedule names no further moment")
    left = min(max((following - seen.now).total_seconds(), 0.05), LONGEST)
    return InSync(f"the next run is at {following:%Y-%m-%d %H:%M} UTC; {seen.kept} backups stay", again=left)


class ScheduleActor(Planned[S, Seen, Seen], Generic[S, B]):
    """Observes one schedule; a subclass has ``kind``, ``name``, ``backups`` and `backup`."""

    backups: ClassVar[type[BackupObject]]
    """The kind that it makes."""
    metric: ClassVar[str]
    """What its metrics are named after: ``mooring_METRIC_backup_last_success_timestamp_seconds``."""

    def __init__(self, manager: Manager, *, namespaces: Sequence[str] = ()) -> None:
        self.related = [Related(self.backups, _schedule_of)]
        name = f"mooring_{self.metric}_backup_last_"
        text = "When the newest backup of a schedule that is not suspended {}; before the first, when the schedule was made."
        gauge, labels = manager.metrics.gauge, ["namespace", "name"]
        self._success = gauge(f"{name}success_timestamp_seconds", text.format("was complete"), labels)
        self._verified = gauge(f"{name}verified_timestamp_seconds", text.format("was verified"), labels)

    def forget(self, key: Key) -> None:
        """Drop the metrics."""
        for one in (self._success, self._verified):
            with contextlib.suppress(KeyError):
                one.remove(key.namespace, key.name)

    def _show(self, ctx: Context[S], spec: ScheduleFields, status: ScheduleStatus) -> None:
        self.forget(ctx.key)
        if spec.suspend:
            return
        made = datetime.fromisoformat(ctx.obj.metadata.creation_timestamp or "")
        self._success.labels(*ctx.key).set((status.last_success_at or made).timestamp())
        if spec.verify_every:
            self._verified.labels(*ctx.key).set((status.last_verified_at or made).timestamp())

    @abstractmethod
    def backup(self, schedule: S, due: datetime) -> B:
        """The backup of a run, with `metadata`."""

    def metadata(self, schedule: S, due: datetime) -> meta.ObjectMeta:
        """Name, by the time of the run so that it happens once, and label."""
        name = schedule.metadata.name or ""
        second = f"{due:%S}" if due.second else ""
        return meta.ObjectMeta(
            name=f"{name}-{due:%Y%m%d%H%M}{second}",
            namespace=schedule.metadata.namespace,
            labels={**(schedule.metadata.labels or {}), SCHEDULE: name[:63]},
        )

    async def inputs(self, ctx: Context[S]) -> Seen | Outcome:
        """The declaration, and the backups that it made, from the caches."""
        spec, now = ctx.obj.spec or ScheduleFields(), ctx.now()
        expression, zone = spec.schedule or "", spec.time_zone or ""
        if wrong := problem(expression, zone, now=now):
            field = "spec.timeZone" if "time zone" in wrong and zone else "spec.schedule"
            return Terminal("InvalidSchedule", f"{field}: {wrong}")
        last = (ctx.obj.status or ScheduleStatus()).last_scheduled_at
        made = _of(ctx, self.backups)
        retention = spec.retention
        policy = Policy()
        if retention is not None:
            days = float(retention.keep_days) if retention.keep_days is not None else None
            policy = Policy(last=retention.keep_last, days=days, verified=retention.keep_last_verified)
        old = outdated([_kept(one) for one in made if not one.metadata.deletion_timestamp], policy, now=now)
        return Seen(
            spec=spec,
            due=due(
                expression,
                zone,
                last=last or datetime.fromisoformat(ctx.obj.metadata.creation_timestamp or ""),
                now=now,
                deadline=spec.starting_deadline_seconds,
            ),
            running=tuple(one.metadata.name or "" for one in made if not _over(one)),
            outdated=tuple(old),
            kept=sum(_phase(one) == SUCCEEDED for one in made) - len(old),
            now=now,
        )

    async def snapshot(self, ctx: Context[S], inputs: Seen) -> Seen:
        """Nothing else is asked."""
        return inputs

    def plan(self, snapshot: Seen) -> Verdict:
        """See `decide`."""
        return decide(snapshot)

    def report(self, ctx: Context[S], inputs: Seen, snapshot: Seen, verdict: Verdict) -> Report:
        """The runs so far and the next one; a run is recorded before it is made."""
        status = ctx.obj.status or ScheduleStatus()
        good = [one for one in _of(ctx, self.backups) if _phase(one) == SUCCEEDED]
        good.sort(key=lambda one: _finished(one) or inputs.now)
        verified = [one for one in good if one.status and one.status.verified and one.status.verified.passed]
        following = None if inputs.spec.suspend else inputs.due.following
        status = replace(status, next_at=following)
        if good:
            status = replace(status, last_backup=good[-1].metadata.name, last_success_at=_finished(good[-1]))
        if verified and verified[-1].status is not None and verified[-1].status.verified is not None:
            status = replace(
                status,
                last_verified_backup=verified[-1].metadata.name,
                last_verified_at=verified[-1].status.verified.at,
            )
        self._show(ctx, inputs.spec, status)
        made = _of(ctx, self.backups)
        failing, stuck = _newest_failed(made), _newest_stuck(made)
        reason = "BackupStalled" if stuck else "LastBackupFailed" if failing else "Scheduled"
        ready = ConditionState(not (failing or stuck), reason, stuck or failing or _text(verdict))
        return Report(status=status, ready=ready)

    async def step(self, ctx: Context[S], inputs: Seen, snapshot: Seen, move: Move) -> ScheduleStatus | None:
        """Make or delete a backup object."""
        match move:
            case Make():
                for name in move.instead:
                    await ctx.client.delete(self.backups, name, namespace=ctx.key.namespace)
                with contextlib.suppress(AlreadyExists):
                    await ctx.client.create(_made(self.backup(ctx.obj, move.at), inputs.spec, _status(ctx)))
                return _after(_status(ctx), inputs, move.at, made=True)
            case Skip():
                ctx.events.warning(ctx.obj, "BackupSkipped", move.why)
                return _after(_status(ctx), inputs, move.at, made=False)
            case Prune():
                try:
                    await ctx.client.delete(self.backups, move.backup, namespace=ctx.key.namespace)
                except NotFound:
                    return None
                ctx.events.normal(ctx.obj, "BackupPruned", f"{move.backup}: {move.why}")
        return None


def _made(backup: B, schedule: ScheduleFields, status: ScheduleStatus) -> B:
    """Data goes with the object unless the template says otherwise: else retention would free nothing.

    Every so many are verified, the first one too.
    """
    spec = backup.spec
    if spec is None:
        return backup
    every = schedule.verify_every or 0
    verify = spec.verify or (True if every and (status.runs or 0) % every == 0 else None)
    return replace(backup, spec=replace(spec, deletion_policy=spec.deletion_policy or DELETE, verify=verify))


def _after(status: ScheduleStatus, seen: Seen, at: datetime, *, made: bool) -> ScheduleStatus:
    """The status after a run was begun, or skipped; its object comes first: made again, it is there already."""
    return replace(
        status,
        last_scheduled_at=at,
        runs=(status.runs or 0) + made,
        missed=(status.missed or 0) + seen.due.missed + (not made),
    )


def _status(ctx: Context[S]) -> ScheduleStatus:
    return ctx.status if isinstance(ctx.status, ScheduleStatus) else ScheduleStatus()


def _of(ctx: Context[S], kind: type[BackupObject]) -> list[BackupObject]:
    name = (ctx.obj.metadata.name or "")[:63]
    found = ctx.client.list(kind, namespace=ctx.key.namespace, label_selector=f"{SCHEDULE}={name}")
    return sorted(found, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name or ""))


def _schedule_of(backup: BackupObject) -> list[Key]:
    name = (backup.metadata.labels or {}).get(SCHEDULE, "")
    return [Key(backup.metadata.namespace or "", name)] if name else []


def _phase(backup: BackupObject) -> str:
    return (backup.status.phase if backup.status is not None else None) or ""


def _over(backup: BackupObject) -> bool:
    return _phase(backup) in (SUCCEEDED, FAILED) or backup.metadata.deletion_timestamp is not None


def _finished(backup: BackupObject) -> datetime | None:
    return backup.status.finished_at if backup.status is not None else None


def _kept(backup: BackupObject) -> Kept:
    status = backup.status or BackupStatus()
    made = status.started_at or datetime.fromisoformat(backup.metadata.creation_timestamp or "")
    return Kept(
        name=backup.metadata.name or "",
        at=made,
        good=status.phase == SUCCEEDED,
        failed=status.phase == FAILED,
        verified=status.verified is not None and status.verified.passed,
        held=HOLD in (backup.metadata.annotations or {}),
    )


def _newest_failed(made: list[BackupObject]) -> str:
    over = [one for one in made if _phase(one) in (SUCCEEDED, FAILED)]
    if not over or _phase(over[-1]) == SUCCEEDED:
        return ""
    said = over[-1].status.message if over[-1].status is not None else ""
    return f"{over[-1].metadata.name} failed: {said}"


def _newest_stuck(made: list[BackupObject]) -> str:
    """What keeps the newest backup from being made, where a person has to help."""
    status = made[-1].status if made else None
    if status is None or _over(made[-1]):
        return ""
    stalled = next((one for one in status.conditions or () if one.type == "Stalled"), None)
    if stalled is None or stalled.status != "True":
        return ""
    return f"{made[-1].metadata.name} waits: {stalled.message}"


def _text(verdict: Verdict) -> str:
    return verdict.message if isinstance(verdict, InSync | Wait) else verdict.why
