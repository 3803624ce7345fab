"""What a backup object, a schedule and a restore do next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mooring.actor import InSync, Wait
from mooring.operators.backup import rules
from mooring.operators.backup.agent import Result
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.rules import (
    Begin,
    Drop,
    Erase,
    Seen,
    Settle,
    SettleVerify,
    Verify,
    decide,
    leave,
)
from mooring.operators.backup.schedule import Due
from mooring.operators.backup.schedules import Make, Prune, Skip
from mooring.operators.backup.schedules import Seen as Scheduled
from mooring.operators.backup.schedules import decide as decide_schedule
from mooring.operators.backup.types import BackupFields, BackupStatus, Progress, ScheduleFields, Verified

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(state: str, **more: object) -> Outcome:
    return Outcome(job="j", purpose="backup", state=state, began=NOW, **more)  # type: ignore[arg-type]


def seen(phase: str = "", found: Outcome | None = None, **more: object) -> Seen:
    status = more.pop("status", None) or BackupStatus(phase=phase, tries=1, started_at=NOW)
    spec = more.pop("spec", None) or BackupFields()
    return Seen(spec=spec, status=status, run=found, now=NOW, **more)  # type: ignore[arg-type]


def test_a_new_backup_begins_once_it_can() -> None:
    fresh = BackupStatus()
    assert decide(seen(status=fresh)) == Begin(attempt=1, why="try 1")
    blocked = Wait("NoSource", "no replica")
    assert decide(seen(status=fresh, blocked=blocked)) is blocked


def test_a_job_that_was_recorded_is_made_again_and_one_that_vanished_counts_as_failed() -> None:
    assert isinstance(decide(seen("Running")), Begin)
    old = BackupStatus(phase="Running", tries=1, started_at=NOW - timedelta(seconds=60))
    assert decide(seen(status=old)) == Settle(outcome=None, why="the Job is gone")


def test_only_a_run_that_reported_success_is_a_backup() -> None:
    good = run("Succeeded", result=Result(ok=True, size=7, stored=9, facts={"position": "0-1-2"}), ended=NOW)
    status = rules.settled(seen("Running", good), good)
    assert (status.phase, status.size_bytes, status.position) == ("Succeeded", 7, "0-1-2")
    silent = run("Succeeded", ended=NOW)
    assert rules.settled(seen("Running", silent), silent).phase != "Succeeded"


@pytest.mark.parametrize(
    ("again", "tries", "phase"), [(True, 1, "Pending"), (True, 3, "Failed"), (False, 1, "Failed")]
)
def test_a_failed_run_is_repeated_where_that_may_help(again: bool, tries: int, phase: str) -> None:
    failed = run("Failed", reason="R", message="m", again=again, ended=NOW)
    status = BackupStatus(phase="Running", tries=tries, started_at=NOW)
    assert rules.settled(seen(status=status), failed).phase == phase


def test_another_try_waits_its_time() -> None:
    status = BackupStatus(phase="Pending", tries=1, finished_at=NOW - timedelta(seconds=4), message="m")
    verdict = decide(seen(status=status))
    assert isinstance(verdict, Wait)
    assert verdict.after == 6.0


def test_a_run_that_cannot_start_says_why() -> None:
    verdict = decide(seen("Running", run("Starting", reason="ImagePullBackOff", message="m")))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("ImagePullBackOff", True)


def test_a_complete_backup_is_verified_once() -> None:
    asked = BackupFields(verify=True)
    assert isinstance(decide(seen("Succeeded")), InSync)
    assert isinstance(decide(seen("Succeeded", spec=asked)), Verify)
    status = BackupStatus(phase="Succeeded", verified=Verified(tries=1))
    done = run("Failed", message="m", ended=NOW)
    verdict = decide(seen(status=status, spec=asked, check=done))
    assert isinstance(verdict, SettleVerify)
    after = rules.verified(seen(status=status), done)
    assert after.verified is not None
    assert not after.verified.passed
    assert isinstance(decide(seen(status=after, spec=asked)), InSync)


def test_a_backup_from_before_the_first_write_says_so() -> None:
    empty = BackupStatus(phase="Succeeded", size_bytes=7, location="claim b: x", position="")
    assert rules.summary(empty) == "7 bytes at claim b: x, taken before the first write"
    later = BackupStatus(phase="Succeeded", size_bytes=7, location="claim b: x", position="0-1-2")
    assert rules.summary(later) == "7 bytes at claim b: x"
    assert rules.reach("0-1-2") == "up to 0-1-2"


def test_a_run_is_looked_at_once_a_minute_at_most() -> None:
    begun = run("Running")
    status = BackupStatus(phase="Running", tries=1)
    assert not rules.progress_due(status, begun, NOW + timedelta(seconds=59))
    assert rules.progress_due(status, begun, NOW + timedelta(seconds=60))
    known = BackupStatus(phase="Running", tries=1, progress=Progress(at=NOW + timedelta(seconds=60), bytes=7))
    assert not rules.progress_due(known, begun, NOW + timedelta(seconds=119))
    assert rules.progress_due(known, begun, NOW + timedelta(seconds=120))
    assert not rules.progress_due(status, run("Starting"), NOW + timedelta(hours=1))
    assert not rules.progress_due(status, None, NOW + timedelta(hours=1))


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_run_that_is_over_is_on_its_way_no_longer(end: str) -> None:
    status = BackupStatus(phase="Running", tries=1, progress=Progress(at=NOW, bytes=7))
    over = run(end, result=Result(ok=end == "Succeeded", size=9), again=True, ended=NOW)
    assert rules.settled(seen(status=status), over).progress is None


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"checked": "7 rows in 2 tables", "tables": "2", "position": "0-1-7"}, "7 rows in 2 tables"),
        ({"keys": "2000", "position": "17"}, "2000 keys"),
    ],
)
def test_a_verified_backup_says_what_was_checked_its_size_and_how_long_it_took(
    facts: dict[str, str], said: str
) -> None:
    status = BackupStatus(phase="Succeeded", size_bytes=4711, verified=Verified(tries=1))
    good = run("Succeeded", facts=facts, ended=NOW + timedelta(seconds=12.3))
    known = rules.verified(seen(status=status), good).verified
    assert known is not None
    assert known.message == f"restored and checked: {said}; 4711 bytes in 12 s"


def test_data_goes_only_where_that_was_asked_for() -> None:
    gone = BackupFields(deletion_policy="Delete")
    assert isinstance(leave(seen("Succeeded", deleted=True)), InSync)
    assert isinstance(leave(seen("Succeeded", spec=gone, deleted=True, stored=False)), InSync)
    assert isinstance(leave(seen("Succeeded", spec=gone, deleted=True)), Erase)
    assert leave(seen("Running", run("Running"), spec=gone, deleted=True)) == Drop(
        job="j", why="the object is being deleted while its run is under way"
    )
    assert isinstance(leave(seen("Succeeded", spec=gone, adrift="it ends", deleted=True)), InSync)
    failed = run("Failed", reason="Unreachable", message="m", ended=NOW)
    verdict = leave(seen("Succeeded", spec=gone, erasure=failed, deleted=True))
    assert isinstance(verdict, Wait)
    assert "deletionPolicy: Retain" in verdict.message


def scheduled(
    *,
    running: tuple[str, ...] = (),
    outdated: tuple[str, ...] = (),
    at: datetime | None = NOW,
    **spec: object,
) -> Scheduled:
    return Scheduled(
        spec=ScheduleFields(schedule="@daily", **spec),  # type: ignore[arg-type]
        due=Due(now=at, following=NOW + timedelta(hours=5)),
        running=running,
        outdated=outdated,
        kept=1,
        now=NOW,
    )


def test_a_schedule_forbids_or_replaces_what_still_runs() -> None:
    assert isinstance(decide_schedule(scheduled()), Make)
    assert isinstance(decide_schedule(scheduled(running=("a",))), Skip)
    replaced = decide_schedule(scheduled(running=("a",), concurrency_policy="Replace"))
    assert isinstance(replaced, Make)
    assert replaced.instead == ("a",)


def test_a_suspended_schedule_does_nothing() -> None:
    assert isinstance(decide_schedule(scheduled(suspend=True, outdated=("a",))), InSync)


def test_a_schedule_prunes_between_runs_and_sleeps_until_the_next() -> None:
    assert isinstance(decide_schedule(scheduled(at=None, outdated=("a",))), Prune)
    verdict = decide_schedule(scheduled(at=None))
    assert isinstance(verdict, InSync)
    assert verdict.again == 3600.0
