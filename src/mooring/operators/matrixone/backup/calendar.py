"""The runs of a BackupJob with a schedule, and which of its Backups go. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.backup.retention import Kept, Policy, outdated
from mooring.operators.backup.schedule import due
from mooring.operators.matrixone.types import JobSchedule

__all__ = ["CalendarSnapshot", "Prune", "StartRun", "decide", "next_base", "policy_of", "run_name"]


@dataclass(frozen=True, kw_only=True)
class CalendarSnapshot:
    """One look at a schedule."""

    name: str
    schedule: JobSchedule
    last: datetime
    """The newest run that was begun, or when the schedule was made."""
    running: str = ""
    """A BackupJob of an earlier run that has not ended."""
    backups: Sequence[Kept] = ()
    success: str = ""
    """When the newest good backup was complete; "" where none is known."""
    verified: tuple[str, str] | None = None
    """The newest backup that was verified, and when it was."""
    now: datetime


@dataclass(frozen=True, kw_only=True)
class StartRun(Move):
    """Make the BackupJob of a run."""

    at: datetime
    missed: int
    following: datetime | None
    base: str = ""
    """The Backup that it builds on; "" for a full one."""


@dataclass(frozen=True, kw_only=True)
class Prune(Move):
    """Delete Backups that the retention lets go."""

    names: Sequence[str]


def decide(snapshot: CalendarSnapshot) -> Verdict:
    """The next step."""
    schedule, now = snapshot.schedule, snapshot.now
    if gone := outdated(snapshot.backups, policy_of(schedule), now=now):
        return Prune(names=gone, why=f"spec.schedule.retention lets {', '.join(gone)} go")
    if schedule.suspend:
        return InSync("spec.schedule.suspend holds back further backups")
    deadline = schedule.starting_deadline_seconds
    found = due(
        schedule.cron or "", schedule.time_zone or "UTC", last=snapshot.last, now=now, deadline=deadline
    )
    if found.now is not None:
        if snapshot.running:
            text = f"the run of {found.now:%H:%M} begins when {snapshot.running} has ended"
            return Wait("EarlierRunning", text, after=30.0)
        return StartRun(
            at=found.now,
            missed=found.missed,
            following=found.following,
            base=next_base(snapshot.backups, schedule.full_every or 1),
            why=f"{found.now:%Y-%m-%d %H:%M} is due",
        )
    left = (found.following - now).total_seconds() if found.following is not None else None
    return InSync("the next run is awaited", again=left)


def next_base(backups: Sequence[Kept], full_every: int) -> str:
    """The backup that the next one builds on; "" where that has to be a full one.

    The next one is full where enough incremental ones are in a row, where the newest one is damaged, and where one of the
    chain is gone or damaged.
    """
    by_name = {one.name: one for one in backups}
    newest = max(backups, key=lambda one: (one.at, one.name), default=None)
    if full_every <= 1 or newest is None or not newest.good:
        return ""
    one, length = newest, 1
    while one.base:
        below = by_name.get(one.base)
        if below is None or not below.good or length >= len(backups):
            return ""
        one, length = below, length + 1
    return newest.name if length < full_every else ""


def policy_of(schedule: JobSchedule) -> Policy:
    """What the retention asks for."""
    kept = schedule.retention
    if kept is None:
        return Policy()
    return Policy(last=kept.keep_last, days=kept.keep_days, verified=kept.keep_last_verified)


def run_name(schedule: str, at: datetime) -> str:
    """The BackupJob of a run: always the same one, so that no run is begun twice."""
    return f"{schedule[:42].rstrip('-.')}-{int(at.timestamp()) // 60}"
