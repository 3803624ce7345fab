"""What the restore of a new cluster does next; without servers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mooring.actor import Terminal, Wait
from mooring.kube.objects import meta
from mooring.objectstore import Target
from mooring.objectstore.target import Claim
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.restore_rules import Restore, Seen, Settle, Source, begun, decide, source_of
from mooring.operators.backup.restores import Look
from mooring.operators.backup.types import (
    BackupFields,
    BackupObject,
    BackupStatus,
    RestoreFrom,
    RestoreStatus,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TARGET = Target(claim=Claim(name="backups"))


def restore(phase: str | None = None, *, tries: int = 1, ago: float = 0.0) -> RestoreStatus:
    at = NOW - timedelta(seconds=ago)
    return RestoreStatus(phase=phase, prefix="c/backups/i", tries=tries, started_at=at, finished_at=None)


def run(state: str, *, again: bool = False) -> Outcome:
    return Outcome(job="j", purpose="restore", state=state, message="cut", again=again, ended=NOW)


def test_a_restore_is_begun_once_and_its_job_is_made_again_only_while_it_may_be_on_its_way() -> None:
    first = decide(Seen(status=RestoreStatus(), run=None, now=NOW))
    assert isinstance(first, Restore)
    assert first.attempt == 1
    again = decide(Seen(status=restore("Running"), run=None, now=NOW))
    assert isinstance(again, Restore)
    assert again.attempt == 1
    lost = decide(Seen(status=restore("Running", ago=60), run=None, now=NOW))
    assert isinstance(lost, Settle)
    assert (lost.status.phase, lost.status.tries) == ("Pending", 1)


def test_a_restore_that_failed_for_good_is_never_taken_for_data() -> None:
    failed = decide(Seen(status=restore("Running"), run=run("Failed"), now=NOW))
    assert isinstance(failed, Settle)
    assert failed.status.phase == "Failed"
    waits = decide(Seen(status=failed.status, run=None, now=NOW))
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.stalled) == ("RestoreFailed", True)
    third = decide(Seen(status=restore("Running", tries=3), run=run("Failed", again=True), now=NOW))
    assert isinstance(third, Settle)
    assert third.status.phase == "Failed"


def test_a_failure_that_may_pass_is_tried_again_after_a_pause() -> None:
    failed = decide(Seen(status=restore("Running"), run=run("Failed", again=True), now=NOW))
    assert isinstance(failed, Settle)
    assert failed.status.phase == "Pending"
    early = decide(Seen(status=failed.status, run=None, now=NOW + timedelta(seconds=5)))
    assert isinstance(early, Wait)
    later = decide(Seen(status=failed.status, run=None, now=NOW + timedelta(seconds=11)))
    assert isinstance(later, Restore)
    assert later.attempt == 2


def test_a_try_is_recorded_before_its_job_and_keeps_its_name_when_that_is_made_again() -> None:
    first = begun(RestoreStatus(prefix="c/backups/i"), attempt=1, job="j-1", now=NOW)
    assert (first.phase, first.tries, first.job, first.started_at) == ("Running", 1, "j-1", NOW)
    assert begun(first, attempt=1, job="j-2", now=NOW + timedelta(seconds=9)) is first


def backup(phase: str | None, message: str = "", *, stalled: str = "") -> BackupObject:
    conditions = [meta.Condition(type="Stalled", status="True", message=stalled)] if stalled else None
    status = BackupStatus(phase=phase, message=message, prefix="c/backups/i", conditions=conditions)
    return BackupObject(spec=BackupFields(target=TARGET), status=status)


def test_a_backup_that_succeeded_says_where_it_is() -> None:
    found = source_of(RestoreFrom(backup="nightly"), backup("Succeeded"), kind="RedisBackup")
    assert found == Source(target=TARGET, prefix="c/backups/i", backup="nightly")


@pytest.mark.parametrize(
    ("found", "reason", "stalled", "said"),
    [
        (None, "BackupNotFound", True, "there is no RedisBackup nightly; correct the name"),
        (
            backup("Failed", "no space"),
            "BackupNotReady",
            True,
            "failed: no space; name a backup that succeeded",
        ),
        (backup("Deleting"), "BackupNotReady", True, "is being deleted; name another backup"),
        (
            backup("Pending", stalled="the Secret keys does not exist; create it"),
            "BackupNotReady",
            True,
            "cannot be made: the Secret keys does not exist; create it; or name another backup",
        ),
        (
            backup("Running"),
            "BackupNotReady",
            False,
            "is Running; the restore begins once it has succeeded",
        ),
    ],
)
def test_what_keeps_a_backup_from_being_restored_names_the_next_step(
    found: BackupObject | None, reason: str, stalled: bool, said: str
) -> None:
    waits = source_of(RestoreFrom(backup="nightly"), found, kind="RedisBackup")
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.stalled) == (reason, stalled)
    assert waits.message.startswith("spec.restoreFrom.backup: ")
    assert said in waits.message


def test_a_restore_that_began_goes_on_with_the_same_backup_alone() -> None:
    look = Look(source=Source(target=TARGET, prefix="c/backups/newer", backup="nightly"))
    assert look.seen(RestoreStatus(), now=NOW).status.prefix == "c/backups/newer"
    assert look.held(RestoreStatus()) is None
    begun_with = RestoreStatus(phase="Pending", tries=1, prefix="c/backups/i")
    assert look.seen(begun_with, now=NOW).status.prefix == "c/backups/i"
    held = look.held(begun_with)
    assert isinstance(held, Wait)
    assert (held.reason, held.stalled) == ("BackupChanged", True)


def test_a_place_without_a_prefix_is_refused() -> None:
    assert isinstance(source_of(RestoreFrom(target=TARGET), None, kind="RedisBackup"), Terminal)
    found = source_of(RestoreFrom(target=TARGET, prefix="c/backups/i"), None, kind="RedisBackup")
    assert found == Source(target=TARGET, prefix="c/backups/i")
