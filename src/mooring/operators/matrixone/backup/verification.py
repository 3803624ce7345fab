"""What becomes of the test restore of a backup. Pure.

Each try is recorded before its Job is made. Its result is recorded only once the copy of the data is deleted: by the run
itself, or by a Job of its own where the run could not tell. An object that is deleted meanwhile waits for that, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.backup.outcome import Outcome
from mooring.operators.matrixone.types import Verification

__all__ = [
    "CLEAN",
    "TRIES",
    "Drop",
    "Publish",
    "SettleVerify",
    "Sweep",
    "Trial",
    "Verify",
    "decide",
    "is_damaged",
    "is_tried",
    "settled",
]

TRIES: Final = 3
"""Test restores of one backup, where one failed for a reason that may pass."""
CLEAN: Final = "scratch"
"""The fact of a result that says that nothing of the copy is left."""
AGAIN: Final = 60.0
"""Seconds until the deletion of the copy is tried again."""
_DAMAGE: Final = frozenset(
    {
        "ChainBroken",
        "ManifestUnusable",
        "ObjectCorrupt",
        "ObjectNotFound",
        "TableUnreadable",
        "TablesMissing",
    }
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One look at the test restore of a backup that is complete."""

    known: Verification | None = None
    """As recorded."""
    run: Outcome | None = None
    """The newest try's Job; ``None``: there is none."""
    ending: bool = False
    """A pod of it may still write."""
    sweep: Outcome | None = None
    """The Job that deletes the copy."""
    published: bool = True
    """The Backup has the result too, or there is none."""
    blocked: Wait | None = None
    """Why no Job can begin now."""
    deleted: bool = False
    """The BackupJob is being deleted."""
    adrift: str = ""
    """Why the copy cannot be deleted any more."""
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Verify(Move):
    """Record a try, then make its Job."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class Sweep(Move):
    """Make the Job that deletes what a try left."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class Drop(Move):
    """Delete a Job."""

    job: str


@dataclass(frozen=True, kw_only=True)
class Publish(Move):
    """Write the result to the Backup."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class SettleVerify(Move):
    """Record the result; see `settled`."""

    outcome: Outcome


def decide(trial: Trial) -> Verdict:
    """The next step; `InSync` where it is over."""
    known = trial.known
    if known is not None and not is_tried(known):
        return InSync("the test restore is over")
    if trial.deleted:
        return _leave(trial)
    if known is None:
        return trial.blocked or Verify(attempt=1, why="the backup is restored into a throw-away server")
    run = trial.run
    if trial.ending and (run is None or run.over):
        return _ends(trial)
    if run is None:
        return trial.blocked or Verify(attempt=known.tries, why="its Job is not there")
    if not run.over:
        if run.reason:
            return Wait(run.reason, f"{run.job} does not start: {run.message}", after=10.0, stalled=True)
        return Wait("Verifying", f"Job {run.job} restores the backup to check it", after=30.0)
    if (verdict := _swept(trial, run)) is not None:
        return verdict
    if not trial.published and settled(known, run, now=trial.now).at is not None:
        return Publish(outcome=run, why=f"the test restore {run.state.lower()}")
    return SettleVerify(outcome=run, why=f"the test restore {run.state.lower()}")


def _leave(trial: Trial) -> Verdict:
    """What comes before a BackupJob goes."""
    if trial.known is None:
        return InSync("no test restore began")
    if trial.adrift:
        return InSync(trial.adrift)
    if trial.run is not None and not trial.run.over:
        return Drop(job=trial.run.job, why="the BackupJob is being deleted")
    if trial.ending:
        return _ends(trial)
    return _swept(trial, trial.run) or InSync("nothing is left of the test restore")


def _ends(trial: Trial) -> Wait:
    return Wait("PodEnding", "the pod of the test restore has not ended; it may still write", after=5.0)


def _swept(trial: Trial, run: Outcome | None) -> Verdict | None:
    """How the copy is deleted; ``None`` once it is."""
    if run is not None and run.result is not None and run.result.facts.get(CLEAN):
        return None
    sweep, attempt = trial.sweep, trial.known.tries if trial.known is not None else 1
    if sweep is None:
        return trial.blocked or Sweep(attempt=attempt, why="the copy of the backup is deleted")
    if sweep.state == "Succeeded":
        return None
    text = f"the copy of the backup is not deleted ({sweep.reason}: {sweep.message})"
    if sweep.state == "Failed":
        ended = sweep.ended or trial.now
        if (left := AGAIN - (trial.now - ended).total_seconds()) > 0:
            return Wait(sweep.reason or "DeletionFailed", text, after=left, stalled=True)
        return Drop(job=sweep.job, why="the deletion is tried again")
    if sweep.reason:
        return Wait(sweep.reason, text, after=10.0, stalled=True)
    return Wait("Deleting", f"Job {sweep.job} deletes the copy of the backup", after=10.0)


def settled(known: Verification, outcome: Outcome, *, now: datetime) -> Verification:
    """What is recorded of a try; one that failed for a reason that may pass is done once more."""
    if outcome.state != "Succeeded" and outcome.again and known.tries < TRIES:
        return replace(known, tries=known.tries + 1, reason=outcome.reason, message=outcome.message)
    ended = outcome.ended or now
    seconds = (ended - outcome.began).total_seconds() if outcome.began is not None else 0.0
    result = outcome.result
    passed = outcome.state == "Succeeded" and result is not None
    size = result.size if result is not None else 0
    message = outcome.message
    if passed and result is not None:
        message = f"restored and checked: {result.facts.get('checked', '')}; {size} bytes in {seconds:.0f} s"
    return replace(
        known,
        at=ended,
        passed=passed,
        reason="" if passed else outcome.reason,
        message=message,
        seconds=seconds,
        size_bytes=size,
    )


def is_damaged(known: Verification | None) -> bool:
    """The test restore has shown that the backup is of no use; others fail for want of memory, an image, a password."""
    return known is not None and known.at is not None and not known.passed and known.reason in _DAMAGE


def is_tried(known: Verification | None) -> bool:
    """A test restore is under way."""
    return known is not None and known.at is None
