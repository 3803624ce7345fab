"""What a schedule of a CronJob may look like, in the words of the parser that Kubernetes uses.

Controllers read schedules on their own: they live in another layer, and need times, not words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["schedule_complaint", "zone_complaints"]

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
_DESCRIPTORS: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY: Final = "@every "
_DURATION: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)"


class _ScheduleError(ValueError):
    """A field that cannot be read; its text is the complaint."""


@lru_cache(maxsize=256)
def schedule_complaint(text: str) -> str:
    """Return why a schedule cannot be read, an empty text when it can."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if text.startswith("@"):
        return _descriptor(text)
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    try:
        for field, (low, high, names) in zip(fields, _FIELDS, strict=True):
            for part in filter(None, field.split(",")):
                _check_range(part, low, high, names)
    except _ScheduleError as error:
        return str(error)
    return ""


def _descriptor(text: str) -> str:
    if text in _DESCRIPTORS:
        return ""
    if not text.startswith(_EVERY):
        return f"unrecognized descriptor: {text}"
    duration = text.removeprefix(_EVERY)
    if duration == "0" or re.fullmatch(f"(?:{_DURATION})+", duration):
        return ""
    return f'failed to parse duration {text}: time: invalid duration "{duration}"'


def _check_range(part: str, low: int, high: int, names: dict[str, int]) -> None:
    steps = part.split("/")
    ends = steps[0].split("-")
    first, last = low, high
    if ends[0] not in ("*", "?"):
        first = last = _number(ends[0], names)
        if len(ends) > 2:
            raise _ScheduleError(f"too many hyphens: {part}")
        if len(ends) == 2:
            last = _number(ends[1], names)
    step = 1
    if len(steps) > 2:
        raise _ScheduleError(f"too many slashes: {part}")
    if len(steps) == 2:
        step = _number(steps[1], {})
        last = high if len(ends) == 1 else last
    if first < low:
        raise _ScheduleError(f"beginning of range ({first}) below minimum ({low}): {part}")
    if last > high:
        raise _ScheduleError(f"end of range ({last}) above maximum ({high}): {part}")
    if first > last:
        raise _ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    if step == 0:
        raise _ScheduleError(f"step of range should be a positive number: {part}")


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if re.fullmatch(r"[-+]?[0-9]+", text) is None:
        why = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise _ScheduleError(f"failed to parse int from {text}: {why}")
    number = int(text)
    if number < 0:
        raise _ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def zone_complaints(zone: str) -> list[str]:
    """Return what is wrong with the name of a time zone, nothing when it is known."""
    wrong = [] if zone else ["timeZone must be nil or non-empty string"]
    for part in zone.split("/"):
        known = re.fullmatch(r"[A-Za-z._0-9+][A-Za-z.\-_0-9+]{0,13}", part)
        if part in (".", "..") or known is None:
            wrong.append(f"unknown time zone {zone}")
    if zone.lower() == "local":
        wrong.append("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
    if zone and not wrong and not _exists(zone):
        wrong.append(f"unknown time zone {zone}")
    return wrong


@lru_cache(maxsize=256)
def _exists(zone: str) -> bool:
    """Tell whether this machine knows a zone; where it knows none, every name may be one."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return zone != "UTC" and not _exists("UTC")
    return True
