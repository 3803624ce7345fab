"""What a schedule of a CronJob and its time zone may look like, in the words of Kubernetes."""

from __future__ import annotations

import re
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mooring.kube.cron import ScheduleError, parse_schedule

__all__ = ["schedule_complaint", "zone_complaints"]


def schedule_complaint(text: str) -> str:
    """Return why a schedule cannot be read, an empty text when it can."""
    try:
        parse_schedule(text)
    except ScheduleError as error:
        return str(error)
    return ""


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
