"""What a backup object does next. Pure: one `Seen` in, one verdict out; the actor of every operator asks here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from mooring.actor import InSync, Move, Verdict, Wait
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.types import (
    DELETE,
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    BackupFields,
    BackupStatus,
    Progress,
    Verified,
)

__all__ = [
    "Begin",
    "Drop",
    "Erase",
    "Seen",
    "Settle",
    "SettleVerify",
    "Verify",
    "decide",
    "leave",
    "progress_due",
    "reach",
    "settled",
    "summary",
    "verified",
]

STARTING: Final = 30.0
"""Seconds after which a Job that was recorded and is nowhere counts as lost."""
VERIFY_TRIES: Final = 3
PROGRESS: Final = 60.0
"""Seconds between two looks at how far a run is: each is a write of the status."""
LOOK: Final = 30.0
"""Seconds until the next pass over a run that is under way, if nothing happens before."""
AGAIN: Final = 10.0
"""Seconds until the second try; doubled with each further one."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look at a backup object."""

    spec: BackupFields
    status: BackupStatus
    run: Outcome | None
    """The newest run, ``None`` where no Job of the recorded name is there."""
    check: Outcome | None = None
    """The newest test restore."""
    progress: Progress | None = None
    """How far the run is, where that was looked at in this pass."""
    erasure: Outcome | None = None
    """The run that deletes the data."""
    blocked: Wait | None = None
    """Why no run can begin now."""
    now: datetime
    deleted: bool = False
    """The object is being deleted."""
    stored: bool = True
    """Some run began: there may be data to delete."""
    adrift: str = ""
    """Why the data can never be deleted any more: a namespace that ends, a cluster of Kubernetes rights ..."""


@dataclass(frozen=True, kw_only=True)
class Begin(Move):
    """Record a try, then make its Job."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class Settle(Move):
    """Record what became of the run; see `settled`."""

    outcome: Outcome | None


@dataclass(frozen=True, kw_only=True)
class Verify(Move):
    """Record a test restore, then make its Job."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class SettleVerify(Move):
    """Record what became of it; see `verified`."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Erase(Move):
    """Make the Job that deletes the data."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class Drop(Move):
    """Delete a run that is of no use any more."""

    job: str


def decide(seen: Seen) -> Verdict:
    """The next step of an object that is not being deleted."""
    status = seen.status
    if status.phase == SUCCEEDED:
        return _verify(seen) or InSync("the backup is complete")
    if status.phase == FAILED:
        return InSync("the backup failed; its Job is kept for its log")
    tries = status.tries or 0
    if status.phase != RUNNING:
        return _begin(seen, tries + 1)
    if seen.run is None:
        since = status.started_at or seen.now
        if (seen.now - since).total_seconds() > STARTING:
            return Settle(why="the Job is gone", outcome=None)
        return Begin(attempt=max(tries, 1), why="the Job was recorded and is not there yet")
    if seen.run.over:
        return Settle(why=f"the run {seen.run.state.lower()}", outcome=seen.run)
    if seen.run.state == "Starting" and seen.run.reason:
        text = f"{seen.run.job}: {seen.run.message}"
        return Wait(seen.run.reason, text, after=10.0, stalled=True)
    return Wait("BackupRunning", f"Job {seen.run.job} runs", after=LOOK)


def progress_due(status: BackupStatus, run: Outcome | None, now: datetime) -> bool:
    """Whether it is time to see how far the run is."""
    if run is None or run.state != "Running":
        return False
    since = status.progress.at if status.progress is not None else run.began
    return since is not None and (now - since).total_seconds() >= PROGRESS


def _begin(seen: Seen, attempt: int) -> Verdict:
    if seen.blocked is not None:
        return seen.blocked
    if seen.status.finished_at is not None and attempt > 1:  # the try before failed
        due = seen.status.finished_at + timedelta(seconds=AGAIN * 2 ** (attempt - 2))
        if (left := (due - seen.now).total_seconds()) > 0:
            text = f"try {attempt - 1} failed: {seen.status.message}; it is tried again"
            return Wait("RetryLater", text, after=left)
    return Begin(attempt=attempt, why=f"try {attempt}")


def _verify(seen: Seen) -> Verdict | None:
    """The next step of a test restore; ``None`` where none is wanted, or it is over."""
    known = seen.status.verified
    if known is not None and known.at is not None:
        return None
    if known is None and not seen.spec.verify:
        return None
    attempt = known.tries if known is not None and known.tries else 1
    if known is None or seen.check is None:
        return seen.blocked or Verify(attempt=attempt, why="the backup is restored into a throw-away server")
    if seen.check.over:
        return SettleVerify(outcome=seen.check, why=f"the test restore {seen.check.state.lower()}")
    if seen.check.reason:
        return Wait(seen.check.reason, f"{seen.check.job}: {seen.check.message}", after=10.0, stalled=True)
    return Wait("Verifying", f"Job {seen.check.job} restores the backup to check it", after=30.0)


def verified(seen: Seen, outcome: Outcome) -> BackupStatus:
    """The status after a test restore; one that failed for a reason that may pass is done once more."""
    known = seen.status.verified or Verified(tries=1)
    if outcome.state == "Failed" and outcome.again and known.tries < VERIFY_TRIES:
        return replace(seen.status, verified=replace(known, tries=known.tries + 1, message=outcome.message))
    passed = outcome.state == "Succeeded"
    ended = outcome.ended or seen.now
    seconds = (ended - outcome.began).total_seconds() if outcome.began is not None else 0.0
    message = outcome.message
    if passed:
        size = f"{seen.status.size_bytes or 0} bytes in {seconds:.0f} s"
        message = f"restored and checked: {_checked(outcome.facts)}; {size}"
    done = replace(known, at=ended, passed=passed, message=message, seconds=seconds)
    return replace(seen.status, verified=done)


def reach(position: str | None) -> str:
    """How far a backup reaches, in words; a cluster that took no write yet has no position."""
    return f"up to {position}" if position else "taken before the first write"


def _checked(facts: Mapping[str, str]) -> str:
    """What a test restore checked: its own words, or what it counted."""
    counts = (f"{facts[name]} {name}" for name in sorted(facts) if name != "position")
    return facts.get("checked") or ", ".join(counts)


def settled(seen: Seen, outcome: Outcome | None) -> BackupStatus:
    """The status after a run."""
    status = seen.status
    limit = seen.spec.tries or 3
    if outcome is not None and outcome.state == "Succeeded" and outcome.result is not None:
        facts = outcome.result.facts
        return replace(
            status,
            phase=SUCCEEDED,
            reason="",
            message="",
            progress=None,
            size_bytes=outcome.result.size,
            stored_bytes=outcome.result.stored,
            position=facts.get("position", ""),
            version=facts.get("version") or status.version,
            started_at=outcome.began or status.started_at,
            finished_at=outcome.ended,
        )
    reason = outcome.reason if outcome is not None else "JobLost"
    message = (
        outcome.message
        if outcome is not None
        else f"the Job {status.job} was deleted before it ended; leave the Jobs of backups alone"
    )
    again = (outcome is None or outcome.again) and (status.tries or 1) < limit
    return replace(
        status,
        phase=PENDING if again else FAILED,
        reason=reason,
        message=message,
        progress=None,
        finished_at=(outcome.ended if outcome is not None else None) or seen.now,
    )


def leave(seen: Seen) -> Verdict:
    """The next step of an object that is being deleted; `InSync` lets it go."""
    if (seen.spec.deletion_policy or "") != DELETE or not seen.stored:
        return InSync("the stored data is kept")
    if seen.adrift:
        return InSync(f"the stored data is left behind: {seen.adrift}")
    if seen.run is not None and not seen.run.over:
        return Drop(job=seen.run.job, why="the object is being deleted while its run is under way")
    if seen.erasure is None:
        if seen.blocked is not None:
            return seen.blocked
        return Erase(attempt=1, why="the stored data is deleted with the object")
    if seen.erasure.state == "Succeeded":
        return InSync("the stored data is deleted")
    if seen.erasure.state == "Failed":
        ended = seen.erasure.ended or seen.now
        if (left := 60.0 - (seen.now - ended).total_seconds()) > 0:
            text = f"the stored data cannot be deleted: {seen.erasure.message}; or set deletionPolicy: Retain to keep it"
            return Wait(seen.erasure.reason, text, after=left, stalled=True)
        return Drop(job=seen.erasure.job, why="the deletion is tried again")
    if seen.erasure.reason:
        text = f"{seen.erasure.job}: {seen.erasure.message}; or set deletionPolicy: Retain to keep the data"
        return Wait(seen.erasure.reason, text, after=10.0, stalled=True)
    return Wait("Deleting", f"Job {seen.erasure.job} deletes the stored data", after=10.0)


def summary(status: BackupStatus) -> str:
    """What its status says of a backup, in one sentence."""
    if status.phase == SUCCEEDED:
        early = "" if status.position else f", {reach(None)}"
        return f"{status.size_bytes or 0} bytes at {status.location}{early}"
    return status.message or f"the backup is {(status.phase or PENDING).lower()}"
