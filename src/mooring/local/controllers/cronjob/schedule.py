"""Cron expressions: five fields, names, ranges, steps, and the ``@`` shorthands. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["Schedule", "parse_schedule"]

_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = dict(
    zip(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        range(1, 13),
        strict=True,
    )
)
_DAYS = dict(zip(["sun", "mon", "tue", "wed", "thu", "fri", "sat"], range(7), strict=True))
#: A schedule that names a day which never comes gives up after so many years.
HORIZON = timedelta(days=366 * 8)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The moments an expression names, in a time zone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    every: timedelta | None
    zone: tzinfo

    def after(self, moment: datetime) -> datetime | None:
        """The first moment after ``moment``, in UTC; ``None`` when there is none in sight."""
        if self.every is not None:
            return (moment + self.every).replace(microsecond=0)
        local = moment.astimezone(self.zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = local + HORIZON
        while local < end:
            if local.month not in self.months or not self._day(local):
                local = local.replace(hour=0, minute=0) + timedelta(days=1)
            elif local.hour not in self.hours:
                local = local.replace(minute=0) + timedelta(hours=1)
            elif local.minute not in self.minutes:
                local += timedelta(minutes=1)
            else:
                found = local.astimezone(UTC)
                if found > moment:
                    return found
                local += timedelta(minutes=1)
        return None

    def _day(self, local: datetime) -> bool:
        day = local.day in self.days
        weekday = local.isoweekday() % 7 in self.weekdays
        # Two restricted day fields mean either of them, as in every cron.
        return day and weekday if self.any_day or self.any_weekday else day or weekday


@lru_cache(maxsize=256)
def parse_schedule(text: str, zone: str = "") -> Schedule:
    """Read an expression; raises ValueError naming what cannot be read."""
    match = re.match(r"(?:CRON_TZ|TZ)=(\S+)\s+(.*)", text)
    if match:
        zone, text = match[1], match[2]
    where: tzinfo = UTC
    if zone:
        try:
            where = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"unknown time zone {zone}") from None
    every = _every(text)
    text = _SHORT.get(text.strip(), text)
    fields = ["*"] * 5 if every is not None else text.split()
    if len(fields) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: {text}")
    minutes, hours, days, months, weekdays = fields
    return Schedule(
        minutes=_field(minutes, 0, 59, {}),
        hours=_field(hours, 0, 23, {}),
        days=_field(days, 1, 31, {}),
        months=_field(months, 1, 12, _MONTHS),
        weekdays=frozenset(d % 7 for d in _field(weekdays, 0, 7, _DAYS)),
        any_day=days[0] in "*?",
        any_weekday=weekdays[0] in "*?",
        every=every,
        zone=where,
    )


def _every(text: str) -> timedelta | None:
    match = re.fullmatch(r"@every\s+(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    if not match or not any(match.groups()):
        return None
    hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return max(timedelta(seconds=1), timedelta(hours=hours, minutes=minutes, seconds=seconds))


def _field(text: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if step and not step.isdigit():
            raise ValueError(f"failed to parse int from {step}")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            start, end = low, high
        else:
            start = _number(first, low, high, names)
            end = _number(last, low, high, names) if dash else (high if step else start)
        if start > end or step == "0":
            raise ValueError(f"the range {part} is empty")
        found.update(range(start, end + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, low: int, high: int, names: dict[str, int]) -> int:
    value = names.get(text.lower())
    if value is None and not text.isdigit():
        raise ValueError(f"failed to parse int from {text}")
    value = int(text) if value is None else value
    if not low <= value <= high:
        raise ValueError(f"{value} is not between {low} and {high}")
    return value
