"""Failed steps are retried at growing intervals, recorded in status, so that another process continues where this one was.

Steps that fail in turn share one count: a planner that alternates between two failing steps slows down as one that repeats
a single step does, and the status is written once per interval.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from mooring.actor.verdict import Move, Verdict, Wait
from mooring.cache import rfc3339
from mooring.kube.part import Part
from mooring.runtime.crd import F

__all__ = ["Failure", "failed", "spaced"]

FIRST: Final = 1.0
"""Seconds until the first retry; doubled with each further failure."""
LONGEST: Final = 60.0
"""Seconds; a failure that is older than twice this is over."""
IN_TURN: Final = 4
"""Steps that fail in turn and are remembered."""
TIME: Final = {"type": "string", "format": "date-time"}


class Failure(Part, frozen=True, kw_only=True):
    """A step that failed and was not carried out since."""

    step: Annotated[str, F("The step.")]
    why: Annotated[str, F("What it was for.")] = ""
    message: Annotated[str, F("Why it failed.")] = ""
    times: Annotated[int, F("Failures in a row, of this step and of those that fail in turn with it.")] = 1
    at: Annotated[datetime | None, F("When it failed last.", schema=TIME)] = None
    since: Annotated[datetime | None, F("When the first of these failures was.", schema=TIME)] = None
    others: Annotated[list[str] | None, F("Steps that fail in turn with it.")] = None


def failed(before: Failure | None, move: Move, message: str, now: datetime) -> Failure:
    """The failure to record after ``move`` failed; ``before`` is the one recorded until now."""
    if before is None or before.at is None or (now - before.at).total_seconds() > 2 * LONGEST:
        return Failure(step=move.name, why=move.why, message=message, at=now, since=now)
    known = _covers(before, move)
    this, last = _name(move.name, move.why), _name(before.step, before.why)
    others = [one for one in (last, *(before.others or ())) if one != this]
    return Failure(
        step=move.name,
        why=move.why,
        message=message,
        times=before.times + 1 if known else 1,
        at=now,
        since=before.since or before.at,
        others=others[:IN_TURN] or None,
    )


def spaced(verdict: Verdict, failure: Failure | None, now: datetime) -> Verdict:
    """The verdict, or a wait where it is a step that failed and its time has not come; other steps go on."""
    if (
        failure is None
        or failure.at is None
        or not isinstance(verdict, Move)
        or not _covers(failure, verdict)
    ):
        return verdict
    delay = min(LONGEST, FIRST * 2.0 ** min(failure.times - 1, 10))
    left = delay - (now - failure.at).total_seconds()
    if left <= 0:
        return verdict
    message = (
        f"{failure.step} failed: {failure.message}; failing since {rfc3339(failure.since or failure.at)}"
    )
    return Wait("StepFailed", f"{message}; it is retried", after=left)


def _covers(failure: Failure, move: Move) -> bool:
    """The step is the one that failed, or fails in turn with it."""
    name = _name(move.name, move.why)
    return name == _name(failure.step, failure.why) or name in (failure.others or ())


def _name(step: str, why: str) -> str:
    return f"{step}: {why}"
