"""Steps that fail are retried at growing distances, which the status records: another process goes on where this one was."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from mooring.actor.verdict import Move, Verdict, Wait
from mooring.kube.part import Part
from mooring.runtime.crd import F

__all__ = ["Failure", "failed", "spaced"]

FIRST: Final = 1.0
"""Seconds until the first retry; doubled with each further failure."""
LONGEST: Final = 60.0
TIME: Final = {"type": "string", "format": "date-time"}


class Failure(Part, frozen=True, kw_only=True):
    """A step that failed and was not carried out since."""

    step: Annotated[str, F("The step.")]
    why: Annotated[str, F("What it was for.")] = ""
    message: Annotated[str, F("Why it failed.")] = ""
    times: Annotated[int, F("How often in a row.")] = 1
    at: Annotated[datetime | None, F("When it failed last.", schema=TIME)] = None


def failed(before: Failure | None, move: Move, message: str, now: datetime) -> Failure:
    """The failure to record after ``move`` failed."""
    times = before.times + 1 if before is not None and _same(before, move) else 1
    return Failure(step=move.name, why=move.why, message=message, times=times, at=now)


def spaced(verdict: Verdict, failure: Failure | None, now: datetime) -> Verdict:
    """The verdict, or a wait where it is the step that failed and its time has not come; other steps go on."""
    if failure is None or failure.at is None or not isinstance(verdict, Move) or not _same(failure, verdict):
        return verdict
    delay = min(LONGEST, FIRST * 2.0 ** min(failure.times - 1, 10))
    left = delay - (now - failure.at).total_seconds()
    if left <= 0:
        return verdict
    return Wait("StepFailed", f"{verdict.name} failed: {failure.message}; it is retried", after=left)


def _same(failure: Failure, move: Move) -> bool:
    return (failure.step, failure.why) == (move.name, move.why)
