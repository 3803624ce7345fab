"""What the restore of a new cluster does next. Pure: one `Seen` in, one verdict out; every operator asks here.

What is recorded in ``status.restore`` comes before its Job, and no cluster begins before a restore that succeeded: it
never starts empty because its restore failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from mooring.actor import Move, Note, Terminal, Verdict, Wait
from mooring.objectstore import Target
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.rules import reach
from mooring.operators.backup.targets import problems
from mooring.operators.backup.types import (
    DELETING,
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    BackupObject,
    BackupStatus,
    RestoreFrom,
    RestoreStatus,
)

__all__ = [
    "FAILURE",
    "PURPOSE",
    "Restore",
    "Seen",
    "Settle",
    "Source",
    "begun",
    "decide",
    "noted",
    "source_of",
]

PURPOSE: Final = "restore"
FAILURE: Final = "RestoreFailed"
"""The reason of a restore that is not tried again."""
TRIES: Final = 3
LOST: Final = 30.0
"""Seconds after which a Job that was recorded and is nowhere counts as lost."""
AGAIN: Final = 10.0
"""Seconds until the second try; doubled with each further one."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look at a restore; ``run`` is the newest Job, ``None`` where none of the recorded name is there."""

    status: RestoreStatus
    run: Outcome | None
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Restore(Move):
    """Record a try, then make its Job."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class Settle(Move):
    """Record what became of it."""

    status: RestoreStatus


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a backup is."""

    target: Target
    prefix: str
    backup: str = ""
    """The object that describes it, where one was named."""


def decide(seen: Seen) -> Verdict:
    """The next step of a restore that has not succeeded yet."""
    status, tries, run = seen.status, seen.status.tries or 0, seen.run
    if status.phase == FAILED:
        text = (
            f"the restore failed: {status.message}; delete the cluster and its claims, then create it again"
        )
        return Wait(FAILURE, text, after=60.0, stalled=True)
    if status.phase != RUNNING:
        if (left := _pause(status, tries, seen.now)) > 0:
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


def begun(status: RestoreStatus, *, attempt: int, job: str, now: datetime) -> RestoreStatus:
    """What is recorded before the Job of a try is made; unchanged where that try is recorded already."""
    if status.phase == RUNNING:
        return status
    return replace(
        status, phase=RUNNING, tries=attempt, job=job, started_at=now, finished_at=None, message=""
    )


def source_of(declared: RestoreFrom, backup: BackupObject | None, *, kind: str) -> Source | Wait | Terminal:
    """Where the declared backup is; or what has to happen first. ``backup`` is the object of that name, if there is one."""
    where = "spec.restoreFrom"
    if not declared.backup:
        if declared.target is None or not declared.prefix:
            return Terminal("InvalidSpec", f"{where}: name a backup, or a target and the prefix in it")
        if wrong := problems(declared.target, f"{where}.target"):
            return Terminal("TargetInvalid", "; ".join(map(str, wrong)))
        return Source(target=declared.target, prefix=declared.prefix)
    name = declared.backup
    if backup is None:
        text = f"{where}.backup: there is no {kind} {name}; correct the name"
        return Wait("BackupNotFound", text, after=30.0, stalled=True)
    status, target = backup.status or BackupStatus(), backup.spec.target if backup.spec is not None else None
    if status.phase == SUCCEEDED and target is not None:
        return Source(target=target, prefix=status.prefix or "", backup=name)
    text, stalled = _not_ready(status)
    return Wait("BackupNotReady", f"{where}.backup: {kind} {name} {text}", after=10.0, stalled=stalled)


def _not_ready(status: BackupStatus) -> tuple[str, bool]:
    """What keeps a backup from being restored, with the next step; and whether a person has to take it."""
    stuck = next(
        (one for one in status.conditions or () if one.type == "Stalled" and one.status == "True"), None
    )
    if status.phase == DELETING:
        return "is being deleted; name another backup", True
    if status.phase == FAILED:
        why = (status.message or status.reason or "its status says why").rstrip(".;")
        return f"failed: {why}; name a backup that succeeded", True
    if stuck is not None:
        return (
            f"cannot be made: {(stuck.message or stuck.reason or '').rstrip('.;')}; or name another backup",
            True,
        )
    said = f" ({status.message})" if status.message else ""
    return f"is {status.phase or PENDING}{said}; the restore begins once it has succeeded", False


def noted(settled: Settle) -> Note:
    """The Event of a try that ended."""
    status = settled.status
    if status.phase == SUCCEEDED:
        return Note(reason="Restored", message=f"{status.prefix}, {reach(status.position)}")
    return Note(reason=FAILURE, message=status.message or "", warning=True)


def _pause(status: RestoreStatus, tries: int, now: datetime) -> float:
    """Seconds until the next try."""
    if status.finished_at is None:
        return 0.0
    due = status.finished_at + timedelta(seconds=AGAIN * 2 ** max(tries - 1, 0))
    return (due - now).total_seconds()


def _failed(seen: Seen, message: str, *, again: bool) -> RestoreStatus:
    retry = again and (seen.status.tries or 1) < TRIES
    return replace(seen.status, phase=PENDING if retry else FAILED, message=message, finished_at=seen.now)
