"""When a scheduled backup is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mooring.operators.backup.schedule import due, problem

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def test_the_newest_missed_run_is_made_up_for_once() -> None:
    found = due("0 3 * * *", "", last=NOW - timedelta(days=3), now=NOW)
    assert found.now == datetime(2026, 3, 10, 3, tzinfo=UTC)
    assert found.following == datetime(2026, 3, 11, 3, tzinfo=UTC)
    assert found.missed == 2


def test_nothing_is_due_twice() -> None:
    found = due("0 3 * * *", "", last=datetime(2026, 3, 10, 3, tzinfo=UTC), now=NOW)
    assert found.now is None


def test_a_run_that_is_too_late_is_skipped() -> None:
    assert due("0 3 * * *", "", last=NOW - timedelta(days=1), now=NOW, deadline=3600).now is None


def test_hours_are_those_of_the_zone() -> None:
    found = due("0 3 * * *", "Asia/Shanghai", last=NOW - timedelta(days=1), now=NOW)
    assert found.now == datetime(2026, 3, 9, 19, tzinfo=UTC)


def test_years_of_missed_minutes_are_bounded() -> None:
    found = due("* * * * *", "", last=NOW - timedelta(days=2000), now=NOW)
    assert found.now == NOW
    assert found.missed < 1200


@pytest.mark.parametrize(
    ("expression", "zone", "says"),
    [
        ("0 3 * *", "", "five fields"),
        ("0 0 30 2 *", "", "never comes"),
        ("0 0 * * *", "Mars/Olympus", "not a time zone; write a name"),
        ("TZ=UTC 0 0 * * *", "", "timeZone"),
        ("0 3 * * *", "Europe/Berlin", ""),
    ],
)
def test_what_is_wrong_with_an_expression_is_told(expression: str, zone: str, says: str) -> None:
    found = problem(expression, zone, now=NOW)
    assert says in found if says else not found
