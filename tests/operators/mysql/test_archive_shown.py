"""What status and conditions say of an archive, and how often they are written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, Gauge

from mooring.kube.object import Key
from mooring.kube.objects import meta
from mooring.operators.mysql.archive.agent import serving
from mooring.operators.mysql.archive.archiver import Report
from mooring.operators.mysql.archive.poll import Archivers
from mooring.operators.mysql.archive.shown import Heard, news, shown, with_condition
from mooring.operators.mysql.types import ArchiveStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORKS = Report(
    state="Archiving",
    since="2026-01-01T11:00:00Z",
    first="2026-01-01T11:00:00Z",
    last="2026-01-01T11:59:58.5Z",
    position="0-1-100",
    lag_seconds=3.0,
)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def look(
    before: ArchiveStatus | None, report: Report | None, seconds: float = 0.0, silent: float = 0.0
) -> ArchiveStatus | None:
    return shown(before, Heard(report=report, silent=silent), prefix="demo-u1/archive", now=at(seconds))


def seen(before: ArchiveStatus | None, report: Report | None, seconds: float = 0.0) -> ArchiveStatus:
    found = look(before, report, seconds)
    assert found is not None
    return found


def test_an_archive_that_works_says_between_which_moments_one_can_restore() -> None:
    found = seen(None, WORKS)
    assert found.first_recoverable == datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert found.last_recoverable == datetime(2026, 1, 1, 11, 59, 58, tzinfo=UTC)
    assert (found.position, found.lag_seconds, found.observed_at) == ("0-1-100", 30, NOW)


def test_nothing_is_written_while_nothing_is_archived() -> None:
    first = seen(None, WORKS)
    moved = replace(WORKS, lag_seconds=11.0, complete="2026-01-02T00:00:00Z", source="10.0.0.2", segments=9)
    assert look(first, moved, 86400) is first


def test_progress_is_written_once_a_minute_and_trouble_at_once() -> None:
    first = seen(None, WORKS)
    more = replace(WORKS, position="0-1-101")
    assert look(first, more, 59) is first
    assert seen(first, more, 60).position == "0-1-101"
    gap = replace(more, gap=("0-1-100", "0-1-200"))
    assert seen(first, gap, 1).gap is not None


def test_a_failover_is_no_trouble_worth_a_write() -> None:
    first = seen(None, WORKS)
    stalled = replace(
        WORKS,
        state="Stalled",
        reason="Unreachable",
        message="no server answers",
        since="2026-01-01T12:00:00Z",
    )
    assert look(first, stalled, 19) is first
    assert seen(first, stalled, 21).reason == "Unreachable"
    # Details of a later try are no news.
    again = replace(stalled, message="another try")
    shown_once = seen(first, stalled, 21)
    assert look(shown_once, again, 300) is shown_once


def test_an_archiver_that_does_not_answer_is_reported_after_a_while() -> None:
    first = seen(None, WORKS)
    assert look(first, None, 10, silent=10) is first
    assert look(None, None, 10, silent=10) is None
    lost = look(first, None, 30, silent=30)
    assert lost is not None
    assert (lost.state, lost.position) == ("Unreachable", "0-1-100")


def test_another_archive_begins_without_the_positions_of_the_former_one() -> None:
    first = replace_prefix(seen(None, WORKS), "demo-u0/archive")
    assert look(first, None, 0, silent=0) is None


def replace_prefix(one: ArchiveStatus, prefix: str) -> ArchiveStatus:
    return ArchiveStatus(state=one.state, prefix=prefix, position=one.position, observed_at=one.observed_at)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ("True", "Archiving")),
        ({"gap": ("0-1-1", "0-1-9")}, ("True", "ArchivingAfterGap")),
        ({"lag_seconds": 1000.0}, ("False", "Behind")),
        ({"state": "Stalled", "reason": "NoneSafe"}, ("False", "NoneSafe")),
    ],
)
def test_the_condition_says_whether_the_log_is_archived(
    change: dict[str, object], expected: tuple[str, str]
) -> None:
    (made,) = with_condition((), look(None, replace(WORKS, **change)), now=NOW)  # type: ignore[arg-type]
    assert (made.type, made.status, made.reason) == ("Archived", *expected)


def test_the_condition_keeps_its_time_while_its_status_stays_and_goes_with_the_archive() -> None:
    ready = meta.Condition(type="Ready", status="True", reason="Serving")
    first = with_condition((ready,), seen(None, WORKS), now=NOW)
    later = with_condition(first, seen(None, replace(WORKS, gap=("", "0-1-9"))), now=at(600))
    assert later[1].last_transition_time == first[1].last_transition_time
    assert with_condition(later, None, now=at(700)) == [ready]


def test_what_goes_wrong_is_told_once_and_that_it_is_over() -> None:
    works = seen(None, WORKS)
    stalled = seen(
        works, replace(WORKS, state="Stalled", reason="NoneSafe", message="no replica", remedy="wait")
    )
    gap = seen(works, replace(WORKS, gap=("0-1-5", "0-1-9")))

    def told(before: ArchiveStatus | None, now: ArchiveStatus | None) -> list[tuple[str, bool]]:
        return [(note.reason, note.warning) for note in news(before, now)]

    assert told(None, works) == [("Archiving", False)]
    assert told(works, works) == told(stalled, stalled) == told(works, None) == []
    assert told(works, stalled) == [("ArchiveNoneSafe", True)]
    assert told(stalled, works) == [("Archiving", False)]
    assert told(works, gap) == [("ArchiveGap", True)]
    assert told(gap, gap) == []


class Metered:
    """What `Archivers` needs of a manager."""

    def __init__(self) -> None:
        self.metrics = self
        self.registry = CollectorRegistry()

    def gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    @property
    def complete(self) -> float | None:
        labels = {"namespace": "shop", "name": "demo"}
        return self.registry.get_sample_value("mooring_mysql_archive_complete_timestamp_seconds", labels)


async def test_the_operator_reads_the_page_of_an_archiver_and_is_woken_by_news() -> None:
    key, woken, manager = Key("shop", "demo"), asyncio.Event(), Metered()
    page = replace(WORKS, complete="2026-01-01T12:00:00Z")
    async with serving(lambda: page, host="127.0.0.1", port=0) as port:
        archivers = Archivers(manager, lambda _: woken.set(), port=port, period=0.02)  # type: ignore[arg-type]
        try:
            assert archivers.follow(key, "127.0.0.1", recorded=at(-3600)).report is None
            assert manager.complete == at(-3600).timestamp()
            async with asyncio.timeout(30):
                await woken.wait()
                assert archivers.follow(key, "127.0.0.1", recorded=NOW).report == page
                assert manager.complete == NOW.timestamp()
                woken.clear()
                page.state, page.reason = "Stalled", "Hole"
                await woken.wait()
            archivers.forget(key)
            assert manager.complete is None
        finally:
            archivers.close()
