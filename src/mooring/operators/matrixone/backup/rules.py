"""What a BackupJob or a RestoreJob does next. Pure.

Each try is recorded before its Job is made, and has an identity of its own: a process that dies at any moment finds out
what became of the try, and never begins another one beside it. A Backup is made of nothing but the result that the Job's
container reported, and before the BackupJob says Completed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.backup.outcome import Outcome
from mooring.operators.matrixone.types import COMPLETED, FAILED, RUNNING

__all__ = ["TRIES", "Begin", "Expire", "JobSnapshot", "Record", "Settle", "decide"]

TRIES: Final = 3
"""Tries of one object, where one failed for a reason that may pass."""


@dataclass(frozen=True, kw_only=True)
class JobSnapshot:
    """One look at a BackupJob or a RestoreJob."""

    phase: str = ""
    tries: int = 0
    """As recorded."""
    run: Outcome | None = None
    """The newest try's Job; ``None``: there is none."""
    recorded: bool = True
    """The object that a success leaves behind is there."""
    blocked: Wait | None = None
    """Why no try can begin now."""
    ended_for: float | None = None
    """Seconds since its end."""
    ttl: float | None = None
    """Seconds that it stays after its end; ``None``: for ever."""


@dataclass(frozen=True, kw_only=True)
class Begin(Move):
    """Make the Job of a try."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class Record(Move):
    """Make the Backup of a run that succeeded."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Settle(Move):
    """Say how it ended."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Expire(Move):
    """Delete the object."""


def decide(snapshot: JobSnapshot) -> Verdict:
    """The next step."""
    if snapshot.phase in (COMPLETED, FAILED):
        return _over(snapshot)
    if snapshot.phase != RUNNING:
        return snapshot.blocked or Begin(attempt=1, why="it has not run yet")
    run = snapshot.run
    if run is None:
        # Not made yet, or deleted: the same try, whose place is either empty or has the whole backup.
        return snapshot.blocked or Begin(attempt=max(1, snapshot.tries), why="its Job is not there")
    if not run.over:
        if run.reason:
            return Wait(run.reason, f"{run.job} does not start: {run.message}", after=10.0, stalled=True)
        return Wait("Running", f"{run.job} runs", after=30.0)
    if run.state == "Succeeded":
        if not snapshot.recorded:
            return Record(outcome=run, why=f"{run.job} succeeded")
        return Settle(outcome=run, why=f"{run.job} succeeded")
    if run.again and snapshot.tries < TRIES:
        why = f"try {snapshot.tries} failed ({run.reason}: {run.message})"
        return snapshot.blocked or Begin(attempt=snapshot.tries + 1, why=why)
    return Settle(outcome=run, why=f"{run.job} failed")


def _over(snapshot: JobSnapshot) -> Verdict:
    if snapshot.ttl is None or snapshot.ended_for is None:
        return InSync(f"it is {snapshot.phase.lower()}")
    left = snapshot.ttl - snapshot.ended_for
    if left <= 0:
        return Expire(why=f"it ended {snapshot.ended_for:.0f} s ago")
    return InSync(f"it is {snapshot.phase.lower()}", again=left)
