"""What a cluster's status and its condition Archived say of the archive, from what the archiver reported. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.actor.planned import Note
from mooring.cache import rfc3339
from mooring.kube.objects import meta
from mooring.operators.mysql.archive.archiver import Report
from mooring.operators.mysql.types import ArchiveGap, ArchiveStatus

__all__ = ["ARCHIVED", "Heard", "hindered", "news", "shown", "with_condition"]

ARCHIVED: Final = "Archived"
"""Condition: the binary log is archived, and not far behind."""
EVERY: Final = 60.0
"""Seconds between two writes that only tell of progress."""
PASSES: Final = 20.0
"""Seconds for which an archiver may stand still, or answer nothing, before that is shown: a failover ends sooner."""
LATE: Final = 900
"""Seconds that it may be behind."""
_LAGS: Final = (30, 60, 300, 900, 3600, 21600, 86400, 604800)
_LONGEST: Final = 500
"""Characters of what another process says."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The newest answer of an archiver."""

    report: Report | None = None
    silent: float = 0.0
    """Seconds for which it has not answered."""


def shown(before: ArchiveStatus | None, heard: Heard, *, prefix: str, now: datetime) -> ArchiveStatus | None:
    """The status to show: the one before, unless something else is worth a write."""
    made = _made(before, heard, prefix, now)
    if before is None or made is None:
        return replace(made, observed_at=_second(now)) if made is not None else None
    if replace(made, observed_at=before.observed_at) == before:
        return before
    told = (made.state, made.reason, made.gap, made.prefix) != (
        before.state,
        before.reason,
        before.gap,
        before.prefix,
    )
    age = (now - before.observed_at).total_seconds() if before.observed_at is not None else EVERY
    return replace(made, observed_at=_second(now)) if told or age >= EVERY else before


def _made(before: ArchiveStatus | None, heard: Heard, prefix: str, now: datetime) -> ArchiveStatus | None:
    if before is not None and before.prefix != prefix:
        before = None
    report = heard.report
    if report is None:
        if heard.silent < PASSES:
            return before
        text = "the pod that archives does not answer; see its events and its log (kubectl describe, kubectl logs)"
        return replace(
            before or ArchiveStatus(prefix=prefix),
            state="Unreachable",
            reason="ArchiverUnreachable",
            message=text,
        )
    since = _time(report.since)
    if report.state != "Archiving" and since is not None and (now - since).total_seconds() < PASSES:
        return before
    text = f"{report.message}; {report.remedy}" if report.remedy else report.message
    return ArchiveStatus(
        state=report.state[:40],
        reason=report.reason[:40],
        # Addresses, bytes and times in it change from try to try: the first text of a reason stays.
        message=before.message if before and before.reason == report.reason else text[:_LONGEST],
        prefix=prefix,
        first_recoverable=_time(report.first),
        last_recoverable=_time(report.last),
        position=report.position[:_LONGEST],
        lag_seconds=_bucket(report.lag_seconds),
        gap=ArchiveGap(after=report.gap[0][:_LONGEST], until=report.gap[1][:_LONGEST])
        if report.gap
        else None,
    )


def hindered(before: ArchiveStatus | None, why: str, *, prefix: str, now: datetime) -> ArchiveStatus:
    """The status while no archiver can be made."""
    known = before if before is not None and before.prefix == prefix else ArchiveStatus(prefix=prefix)
    made = replace(known, state="Stalled", reason="ArchiverNotMade", message=why[:_LONGEST])
    return known if made == known else replace(made, observed_at=_second(now))


def with_condition(
    conditions: Sequence[meta.Condition], archive: ArchiveStatus | None, *, now: datetime
) -> list[meta.Condition]:
    """The conditions with Archived as the status has it; none where there is no archive."""
    others = [one for one in conditions if one.type != ARCHIVED]
    if archive is None:
        return others
    good, reason, message = _said(archive)
    state = "True" if good else "False"
    known = next((one for one in conditions if one.type == ARCHIVED), None)
    since = known.last_transition_time if known is not None and known.status == state else rfc3339(now)
    made = meta.Condition(
        type=ARCHIVED, status=state, reason=reason, message=message, last_transition_time=since
    )
    return [*others, made]


def news(before: ArchiveStatus | None, archive: ArchiveStatus | None) -> list[Note]:
    """The Events of a change: a gap, the archive standing still, and that it goes on."""
    if archive is None or archive == before:
        return []
    notes = []
    good, reason, message = _said(archive)
    was, _, _ = _said(before) if before is not None else (False, "", "")
    if archive.gap is not None and (before is None or before.gap != archive.gap):
        notes.append(Note(reason="ArchiveGap", message=_gap(archive, archive.gap), warning=True))
    if good is not was:
        notes.append(Note(reason=reason if good else f"Archive{reason}", message=message, warning=not good))
    return notes


def _gap(archive: ArchiveStatus, gap: ArchiveGap) -> str:
    return (
        f"transactions between {gap.after or 'the beginning'} and {gap.until} are missing: only backups made since "
        f"{archive.first_recoverable} can be continued; make one now"
    )


def _said(archive: ArchiveStatus) -> tuple[bool, str, str]:
    if archive.state != "Archiving":
        return False, archive.reason or archive.state, archive.message or "the archive begins"
    if (archive.lag_seconds or 0) > LATE:
        text = (
            f"the archive is up to {archive.lag_seconds} s behind the primary; see whether the target is slow, or a "
            "replica far behind"
        )
        return False, "Behind", text
    if archive.gap is not None:
        return True, "ArchivingAfterGap", _gap(archive, archive.gap)
    return True, "Archiving", "the binary log is archived"


def _bucket(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    return next((one for one in _LAGS if seconds <= one), _LAGS[-1])


def _time(text: str) -> datetime | None:
    """To the second; ``None`` for what is no time."""
    try:
        return _second(datetime.fromisoformat(text)) if text else None
    except ValueError:
        return None


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)
