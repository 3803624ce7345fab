"""Cron expressions as Kubernetes reads them (robfig/cron v3), and the moments they name. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["Schedule", "ScheduleError", "parse_schedule"]

_SHORT: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: The least and greatest number of each field, and the names that stand for some.
_FIELDS: Final[tuple[tuple[int, int, dict[str, int]], ...]] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    (0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_EVERY: Final = "@every "
_UNITS: Final = {
    "ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9
}  # fmt: skip
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)", re.ASCII)
#: A schedule that names a day which does not come for so many years names none.
_YEARS: Final = 5


class ScheduleError(ValueError):
    """A schedule that cannot be read; its text is the parser's."""


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
        """The first moment after ``moment``, in UTC; ``None`` when there is none in sight.

        Hours and minutes are real ones: where clocks go back an hour happens twice, and where they go forward none.
        """
        if self.every is not None:
            return (moment + self.every).replace(microsecond=0)
        if not (self.minutes and self.hours and self.months):
            return None  # a field of commas alone: going through every minute of five years takes seconds
        found = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        local = found.astimezone(self.zone)
        last = local.year + _YEARS
        while local.year <= last:
            if local.month not in self.months or not self._day(local):
                found = self._next_day(local)
            elif local.hour not in self.hours:
                found += timedelta(minutes=60 - local.minute)
            elif local.minute not in self.minutes:
                found += timedelta(minutes=1)
            else:
                return found
            local = found.astimezone(self.zone)
        return None

    def _day(self, local: datetime) -> bool:
        day = local.day in self.days
        weekday = local.isoweekday() % 7 in self.weekdays
        # Two restricted day fields mean either of them.
        return day and weekday if self.any_day or self.any_weekday else day or weekday

    def _next_day(self, local: datetime) -> datetime:
        """When the next day begins, in UTC; after the change of clocks where there is no midnight."""
        morning = local.replace(tzinfo=None, hour=0, minute=0, fold=0) + timedelta(days=1)
        return morning.replace(tzinfo=self.zone).astimezone(UTC)


@lru_cache(maxsize=256)
def parse_schedule(text: str, zone: str = "") -> Schedule:
    """Read an expression, in ``zone`` (UTC without one); raises :class:`ScheduleError`."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        named, _, text = text.partition(" ")
        zone, text = named.partition("=")[2], text.strip()
    where = _zone(zone)
    if text.startswith(_EVERY):
        return _schedule("* * * * *", where, every=_duration(text))
    if text.startswith("@") and text not in _SHORT:
        raise ScheduleError(f"unrecognized descriptor: {text}")
    return _schedule(_SHORT.get(text, text), where)


def _schedule(text: str, zone: tzinfo, *, every: timedelta | None = None) -> Schedule:
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    read = [_field(field, *bounds) for field, bounds in zip(fields, _FIELDS, strict=True)]
    (minutes, _), (hours, _), (days, any_day), (months, _), (weekdays, any_weekday) = read
    return Schedule(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        any_day=any_day,
        any_weekday=any_weekday,
        every=every,
        zone=zone,
    )


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"provided bad location {name}: unknown time zone {name}") from None


def _duration(text: str) -> timedelta:
    """The period of `@every`: whole seconds, one at least."""
    duration = text.removeprefix(_EVERY)
    complaint = f"failed to parse duration {text}: time:"
    quoted = json.dumps(duration, ensure_ascii=False)
    rest = duration[1:] if duration[:1] in ("-", "+") else duration
    total = Fraction(0)
    if rest != "0":
        if not rest:
            raise ScheduleError(f"{complaint} invalid duration {quoted}")
        while rest:
            part = _PART.match(rest)
            if part is None or len(part[1]) > 40:
                raise ScheduleError(f"{complaint} invalid duration {quoted}")
            if not part[2]:
                raise ScheduleError(f"{complaint} missing unit in duration {quoted}")
            if part[2] not in _UNITS:
                unit = json.dumps(part[2], ensure_ascii=False)
                raise ScheduleError(f"{complaint} unknown unit {unit} in duration {quoted}")
            total += Fraction(part[1].rstrip(".")) * _UNITS[part[2]]
            rest = rest[part.end() :]
    if total >= 2**63:
        raise ScheduleError(f"{complaint} invalid duration {quoted}")
    return timedelta(seconds=1 if duration.startswith("-") else max(1, int(total) // 10**9))


def _field(text: str, low: int, high: int, names: Mapping[str, int]) -> tuple[frozenset[int], bool]:
    """The numbers of a field, and whether it stands for any; a field of commas alone has none."""
    found: set[int] = set()
    every = False
    for part in filter(None, text.split(",")):
        numbers, free = _range(part, low, high, names)
        found.update(numbers)
        every = every or free
    return frozenset(found), every


def _range(part: str, low: int, high: int, names: Mapping[str, int]) -> tuple[range, bool]:
    steps = part.split("/")
    ends = steps[0].split("-")
    first, last = low, high
    if not (free := ends[0] in ("*", "?")):
        first = last = _number(ends[0], names)
        if len(ends) > 2:
            raise ScheduleError(f"too many hyphens: {part}")
        if len(ends) == 2:
            last = _number(ends[1], names)
    step = 1
    if len(steps) > 2:
        raise ScheduleError(f"too many slashes: {part}")
    if len(steps) == 2:
        step = _number(steps[1], {})
        last = high if len(ends) == 1 else last
    if first < low:
        raise ScheduleError(f"beginning of range ({first}) below minimum ({low}): {part}")
    if last > high:
        raise ScheduleError(f"end of range ({last}) above maximum ({high}): {part}")
    if first > last:
        raise ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {part}")
    return range(first, last + 1, step), free and step == 1


def _number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if re.fullmatch(r"[-+]?[0-9]+", text) is None:
        why = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise ScheduleError(f"failed to parse int from {text}: {why}")
    if len(text.lstrip("-+0")) > 18:
        why = f'strconv.Atoi: parsing "{text}": value out of range'
        raise ScheduleError(f"failed to parse int from {text}: {why}")
    number = int(text)
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number
