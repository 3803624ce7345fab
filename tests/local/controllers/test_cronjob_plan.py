"""When a CronJob runs, and what becomes of its runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.local.controllers.builders import NOW, ago, make

from mooring.kube.cron import parse_schedule
from mooring.kube.object import owner_reference
from mooring.kube.objects.batch import CronJob, Job
from mooring.local.controllers.cronjob.plan import Plan, plan

TIMES: list[tuple[str, str, str, str]] = [
    ("*/15 * * * *", "", "2030-01-01T00:07:30", "2030-01-01T00:15:00"),
    ("0 3 * * *", "", "2030-01-01T03:00:00", "2030-01-02T03:00:00"),
    ("30 2 1 jan *", "", "2030-01-02T00:00:00", "2031-01-01T02:30:00"),
    ("0 0 * * mon-fri", "", "2030-01-04T12:00:00", "2030-01-07T00:00:00"),
    ("0 0 13 * 5", "", "2030-01-01T00:00:00", "2030-01-04T00:00:00"),
    ("0 0 */10 * 5", "", "2030-01-01T00:00:00", "2030-01-04T00:00:00"),
    ("0 0 */1 * 5", "", "2030-01-01T00:00:00", "2030-01-04T00:00:00"),
    ("1,,2 * * * *", "", "2030-01-01T00:01:30", "2030-01-01T00:02:00"),
    ("+5 * * * *", "", "2030-01-01T00:00:00", "2030-01-01T00:05:00"),
    ("*-3 * * * *", "", "2030-01-01T00:30:00", "2030-01-01T00:31:00"),
    ("0 9,17 * * *", "", "2030-01-01T10:00:00", "2030-01-01T17:00:00"),
    ("5/20 * * * *", "", "2030-01-01T00:26:00", "2030-01-01T00:45:00"),
    ("@hourly", "", "2030-01-01T00:00:01", "2030-01-01T01:00:00"),
    ("@every 1h30m", "", "2030-01-01T00:00:00", "2030-01-01T01:30:00"),
    ("@every 1.5h", "", "2030-01-01T00:00:00", "2030-01-01T01:30:00"),
    ("@every 90.7s", "", "2030-01-01T00:00:00", "2030-01-01T00:01:30"),
    ("@every -3h", "", "2030-01-01T00:00:00", "2030-01-01T00:00:01"),
    # Clocks go forward at 2 on 2030-03-31, and back at 3 on 2030-10-27.
    ("30 2 * * *", "Europe/Berlin", "2030-03-30T12:00:00", "2030-04-01T00:30:00"),
    ("30 2 * * *", "Europe/Berlin", "2030-10-27T00:30:00", "2030-10-27T01:30:00"),
    ("TZ=Europe/Berlin 30 2 * * *", "", "2030-01-01T12:00:00", "2030-01-02T01:30:00"),
    ("0 8 * * *", "Asia/Shanghai", "2030-01-01T00:00:00", "2030-01-02T00:00:00"),
    ("0 12 * * *", "America/New_York", "2030-07-01T00:00:00", "2030-07-01T16:00:00"),
    ("0 0 29 2 *", "", "2030-01-01T00:00:00", "2032-02-29T00:00:00"),
]


@pytest.mark.parametrize(("text", "zone", "now", "following"), TIMES)
def test_the_next_time(text: str, zone: str, now: str, following: str) -> None:
    def utc(moment: str) -> datetime:
        return datetime.fromisoformat(moment).replace(tzinfo=UTC)

    assert parse_schedule(text, zone).after(utc(now)) == utc(following)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "61 * * * *",
        "a * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "@sometimes",
        "0 0 * * 7",
        "@every 5",
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_schedule(text)


def test_a_day_that_never_comes_is_no_time() -> None:
    assert parse_schedule("0 0 30 2 *").after(NOW) is None
    assert parse_schedule(", * * * *").after(NOW) is None


def cron(*, last: float | None = 60, **spec: Any) -> CronJob:
    body = {"schedule": "* * * * *", "jobTemplate": {"spec": {}}, **spec}
    status = {"lastScheduleTime": ago(last)} if last is not None else {}
    return make(CronJob, "c", {"spec": body, "status": status}, creationTimestamp=ago(90))


def run(of: CronJob, name: str, *, ended: str = "", made: float = 60) -> Job:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    owners = [msgspec.to_builtins(owner_reference(of))]
    body = {"status": {"conditions": conditions}}
    return make(Job, name, body, ownerReferences=owners, creationTimestamp=ago(made))


def act(of: CronJob, *jobs: Job, later: float = 0) -> Plan:
    schedule = parse_schedule(of.spec.schedule or "") if of.spec else parse_schedule("* * * * *")
    return plan(of, list(jobs), schedule, now=NOW + timedelta(seconds=later))


def test_a_run_is_named_by_its_time_so_that_it_happens_once() -> None:
    made = act(cron(), later=5)
    assert made.create is not None
    assert made.create.metadata.name == f"c-{int(NOW.timestamp()) // 60}"
    assert made.status.last_schedule_time == ago(0)
    assert made.after == 55
    again = act(cron(), run(cron(), made.create.metadata.name or ""), later=5)
    assert again.create is None


def test_only_the_latest_of_missed_runs_is_made_up_for() -> None:
    made = act(cron(last=600), later=5)
    assert made.create is not None
    assert made.status.last_schedule_time == ago(0)
    assert not made.notices
    ages = act(cron(last=86400 * 365), later=5)
    assert ages.create is not None
    assert ages.create.metadata.name == made.create.metadata.name
    assert ages.notices[0][0] == "TooManyMissedTimes"


def test_a_run_later_than_its_deadline_is_left_out() -> None:
    assert act(cron(startingDeadlineSeconds=10), later=5).create is not None
    assert act(cron(startingDeadlineSeconds=10), later=30).create is None


def test_concurrency() -> None:
    for policy, creates, ends in (("Allow", True, 0), ("Forbid", False, 0), ("Replace", True, 1)):
        of = cron(concurrencyPolicy=policy)
        made = act(of, run(of, "c-1"), later=5)
        assert (made.create is not None, len(made.replace)) == (creates, ends)
    assert act(cron(suspend=True), later=5).create is None


def test_history_is_kept_to_its_limits() -> None:
    of = cron(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    jobs = [run(of, f"c-{n}", ended="Complete", made=100 - n) for n in range(3)] + [
        run(of, "f", ended="Failed")
    ]
    assert [job.metadata.name for job in act(of, *jobs).drop] == ["c-0", "c-1", "f"]


def test_active_runs_are_shown() -> None:
    of = cron()
    made = act(of, run(of, "c-2"), run(of, "c-1"), run(of, "done", ended="Complete"))
    assert [reference.name for reference in made.status.active or ()] == ["c-1", "c-2"]
