"""When a scheduled backup is due. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mooring.kube.cron import ScheduleError, parse_schedule

__all__ = ["Due", "due", "problem", "zone_problem"]

TOO_MANY: Final = 1000
"""Missed runs that are counted; only the newest of them is made up for."""


@dataclass(frozen=True, kw_only=True)
class Due:
    """``now`` is the run that is due, if one is; ``following`` the next one; ``missed`` the older ones that are skipped."""

    now: datetime | None
    following: datetime | None
    missed: int = 0


def problem(expression: str, zone: str, *, now: datetime) -> str:
    """What is wrong with an expression, and the remedy; "" for nothing. One that never fires is wrong."""
    if expression.startswith(("TZ=", "CRON_TZ=")):
        return "holds a time zone; put that into timeZone"
    if wrong := zone_problem(zone):
        return wrong
    try:
        schedule = parse_schedule(expression, zone)
    except ScheduleError as error:
        return f'{error}; write five fields such as "30 3 * * *", or @daily'
    if schedule.after(now) is None:
        return "names a moment that never comes, such as February 30; correct the day or the month"
    return ""


def zone_problem(zone: str) -> str:
    """What is wrong with a time zone, and the remedy; "" for nothing."""
    try:
        parse_schedule("@daily", zone)
    except ScheduleError:
        return f"{zone} is not a time zone; write a name of the tz database, such as Europe/Berlin"
    return ""


def due(expression: str, zone: str, *, last: datetime, now: datetime, deadline: float | None = None) -> Due:
    """The newest run after ``last`` that should have begun, unless it is more than ``deadline`` seconds late.

    Raises `ScheduleError`.
    """
    schedule = parse_schedule(expression, zone)
    since = last if deadline is None else max(last, now - timedelta(seconds=deadline))
    found: datetime | None = None
    missed = 0
    following = schedule.after(since)
    while following is not None and following <= now:
        missed += found is not None
        found = following
        following = schedule.after(found)
        if missed > TOO_MANY:  # nobody looked for long: find the newest from nearby
            span = following - found if following is not None else timedelta(0)
            following = schedule.after(max(found, now - 3 * max(span, timedelta(minutes=1))))
    return Due(now=found, following=following, missed=missed)
