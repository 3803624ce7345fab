"""What a BackupJob, a RestoreJob, a schedule and a cluster from a backup do next; the statement; the Job."""

from __future__ import annotations

import random
from dataclasses import replace as copy
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operators.matrixone.builders import STORAGE, typed

from mooring.actor.verdict import InSync, Wait
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.backup.agent import Result
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.retention import Kept, Policy, outdated
from mooring.operators.backup.types import Retention
from mooring.operators.matrixone.backup import calendar, job_actor, places, record_actor, verification
from mooring.operators.matrixone.backup.records import kept_of, newest_verified
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.rules import (
    TRIES,
    Begin,
    Expire,
    JobSnapshot,
    Record,
    Settle,
    decide,
)
from mooring.operators.matrixone.backup.run import MatrixOneRun
from mooring.operators.matrixone.backup.statement import Keys, StatementError, backup_statement, masked
from mooring.operators.matrixone.backup.verification import (
    Drop,
    Publish,
    SettleVerify,
    Sweep,
    Trial,
    Verify,
)
from mooring.operators.matrixone.cluster import restore as restoring
from mooring.operators.matrixone.types import (
    Backup,
    BackupJobStatus,
    BackupMeta,
    BackupStatus,
    ClusterRestore,
    JobSchedule,
    LogSet,
    MatrixOneClusterStatus,
    Overlay,
    RestoreJobStatus,
    SharedStorageProvider,
    Verification,
)

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
RUNS = Outcome(job="j", purpose="backup", state="Running")
GOOD = Outcome(job="j", purpose="backup", state="Succeeded", result=Result(ok=True, size=5))
BAD = Outcome(job="j", purpose="backup", state="Failed", reason="SessionLost", message="gone", again=True)
FINAL = Outcome(job="j", purpose="backup", state="Failed", reason="CredentialsRejected", message="no")
BLOCKED = Wait("SourceNotReady", "not yet")


def bucket(path: str = "bucket/backups", **more: Any) -> SharedStorageProvider:
    made = target(STORAGE)
    assert made.s3 is not None
    return replace(made, s3=replace(made.s3, path=path, **more))


def target(provider: Any) -> SharedStorageProvider:
    found: SharedStorageProvider = typed("BackupJob", spec__target=provider).spec.target
    return found


def directory(path: str = "/shared/backups") -> SharedStorageProvider:
    return target({"fileSystem": {"path": path}})


CASES: list[tuple[str, JobSnapshot, Any]] = [
    ("nothing ran", JobSnapshot(), Begin(attempt=1)),
    ("the source is not ready", JobSnapshot(blocked=BLOCKED), BLOCKED),
    ("recorded, and killed before the Job", JobSnapshot(phase="Running", tries=1), Begin(attempt=1)),
    ("its Job runs", JobSnapshot(phase="Running", tries=1, run=RUNS, blocked=BLOCKED), Wait),
    ("it succeeded", JobSnapshot(phase="Running", tries=1, run=GOOD, recorded=False), Record),
    ("the Backup is there", JobSnapshot(phase="Running", tries=1, run=GOOD), Settle),
    ("it may pass", JobSnapshot(phase="Running", tries=1, run=BAD), Begin(attempt=2)),
    ("too often", JobSnapshot(phase="Running", tries=TRIES, run=BAD), Settle),
    ("it will not pass", JobSnapshot(phase="Running", tries=1, run=FINAL), Settle),
    ("done", JobSnapshot(phase="Completed", ended_for=10, ttl=3600), InSync),
    ("its time is over", JobSnapshot(phase="Completed", ended_for=3600, ttl=3600), Expire),
    ("it stays", JobSnapshot(phase="Failed", ended_for=1e9), InSync),
]


@pytest.mark.parametrize(("what", "snapshot", "expected"), CASES, ids=[case[0] for case in CASES])
def test_the_next_step(what: str, snapshot: JobSnapshot, expected: Any) -> None:
    found = decide(snapshot)
    if isinstance(expected, type):
        assert isinstance(found, expected), found
    elif isinstance(expected, Begin):
        assert isinstance(found, Begin)
        assert found.attempt == expected.attempt
    else:
        assert found == expected


def test_only_a_result_that_was_reported_makes_a_backup() -> None:
    for state in ("Starting", "Running", "Failed"):
        for recorded in (False, True):
            for tries in range(1, TRIES + 1):
                run = Outcome(job="j", purpose="backup", state=state, again=tries % 2 == 0)
                found = decide(JobSnapshot(phase="Running", tries=tries, run=run, recorded=recorded))
                assert not isinstance(found, Record)


def test_a_schedule_begins_each_run_once_and_keeps_the_newest_good_backup() -> None:
    schedule = JobSchedule(cron="*/10 * * * *", retention=Retention(keep_last=2))
    look = calendar.CalendarSnapshot(
        name="nightly", schedule=schedule, last=NOW - timedelta(minutes=5), now=NOW
    )
    due = calendar.decide(look)
    assert isinstance(due, calendar.StartRun)
    assert due.at == NOW.replace(minute=0)
    assert calendar.run_name("nightly", due.at) == calendar.run_name("nightly", due.at)
    assert isinstance(calendar.decide(changed(look, running="nightly-1")), Wait)
    after = calendar.decide(changed(look, last=due.at))
    assert isinstance(after, InSync)
    assert after.again == 360
    kept = [Kept(name=f"b{at}", at=NOW - timedelta(hours=at), good=True) for at in range(4)]
    found = calendar.decide(changed(look, last=due.at, backups=kept))
    assert isinstance(found, calendar.Prune)
    assert list(found.names) == ["b3", "b2"]
    held = [replace_kept(one) for one in kept]
    assert not isinstance(calendar.decide(changed(look, last=due.at, backups=held)), calendar.Prune)
    assert isinstance(calendar.decide(changed(look, schedule=replace(schedule, suspend=True))), InSync)


def changed(look: calendar.CalendarSnapshot, **changes: Any) -> calendar.CalendarSnapshot:
    return copy(look, **changes)


def replace_kept(one: Kept) -> Kept:
    return copy(one, held=True)


def test_the_statement_names_the_place_and_refuses_what_could_leave_its_texts() -> None:
    keys = Keys(id="id", secret="se/cr+et=")
    text = backup_statement("ID", bucket("bucket/backups/ID"), keys)
    assert "'endpoint'='http://minio:9000'" in text
    assert "'filepath'='backups/ID'" in text
    assert "'is_minio'='true'" in text
    assert backup_statement("ID", directory("/shared/ID"), Keys()) == (
        "backup 'ID' filesystem '/shared/ID' parallelism '4'"
    )
    for bad in ("a'b", "a\\b", "a b", "a;b", "a\nb", 'a"b'):
        with pytest.raises(StatementError) as error:
            backup_statement("ID", bucket(), Keys(id="id", secret=bad))
        assert bad not in str(error.value)
    assert masked("key se/cr+et= of id", keys) == "key ****** of ******"
    assert "se/cr" not in repr(keys)


@pytest.mark.parametrize(
    ("given", "endpoint", "region"),
    [
        ({"region": "eu-central-1"}, "https://s3.eu-central-1.amazonaws.com", "eu-central-1"),
        ({}, "https://s3.us-west-2.amazonaws.com", "us-west-2"),  # that of the servers' own storage
        ({"endpoint": "http://minio:9000"}, "http://minio:9000", "us-east-1"),
        ({"endpoint": "http://minio:9000", "region": "here"}, "http://minio:9000", "here"),
    ],
    ids=[
        "Amazon's, with a region",
        "Amazon's, with none",
        "one's own, with none",
        "one's own, with a region",
    ],
)
def test_the_server_and_the_run_ask_for_a_bucket_in_the_same_region(
    given: dict[str, Any], endpoint: str, region: str
) -> None:
    where = target({"s3": {"path": "bucket/backups", **given}})
    text = backup_statement("ID", where, Keys())
    assert f"'endpoint'='{endpoint}'" in text
    assert f"'region'='{region}'" in text
    found = places.target_for(where).s3
    assert found is not None
    assert (found.region or "us-east-1") == region  # the default of the object storage layer
    assert (found.endpoint or f"https://s3.{found.region}.amazonaws.com") == endpoint


def test_only_what_is_called_as_a_backup_may_be_deleted() -> None:
    identity = "20260102T030405Z-0a1b2c3d"
    where = places.within(bucket("bucket/x"), f"mo-12345678/backups/{identity}")
    found = places.place_of(where)
    assert found is not None
    assert found[1] == identity
    assert places.place_of(bucket("bucket/mo/data")) is None
    assert places.place_of(bucket(identity)) is None
    look = record_actor.RecordSnapshot(deleted=True, erases=False)
    assert isinstance(record_actor.decide(look), InSync)
    assert isinstance(
        record_actor.decide(record_actor.RecordSnapshot(deleted=True, erases=True)), record_actor.Erase
    )
    read = record_actor.RecordSnapshot(deleted=True, erases=True, readers=("default/r",))
    assert isinstance(record_actor.decide(read), Wait)


def test_the_job_holds_no_credentials_and_has_no_rights() -> None:
    request = Request(action="backup", root=bucket(), places=["a"], login="login")
    overlay = Overlay(command=["evil"], args=["evil"], service_account_name=None)
    run = MatrixOneRun(
        purpose="backup", request=request, image="mooring:1", secrets=["keys", "login"], overlay=overlay
    )
    job = run.job(typed("BackupJob"), by="x")
    assert job.spec is not None
    assert job.spec.template is not None
    pod = job.spec.template.spec
    assert pod is not None
    assert (job.spec.backoff_limit, pod.automount_service_account_token, pod.restart_policy) == (
        0,
        False,
        "Never",
    )
    (container,) = pod.containers or []
    assert container.command is None
    assert container.args == ["agent", "matrixone", "--report=/dev/termination-log"]
    assert {one.secret.secret_name for one in pod.volumes or () if one.secret} == {"keys", "login"}


# --- a cluster from a backup


def cluster(*, asked: str | None = "nightly", phase: str = "") -> Any:
    made = typed("MatrixOneCluster", spec__restoreFrom=asked)
    if not phase:
        return made
    return replace(made, status=MatrixOneClusterStatus(restore=ClusterRestore(backup="nightly", phase=phase)))


def job(phase: str) -> Any:
    return replace(typed("RestoreJob"), status=RestoreJobStatus(phase=phase))


def log_set(*, restored: bool = True) -> LogSet:
    found: LogSet = typed(
        "LogSet", **({"spec__initialConfig": {"restoreFrom": "hk_data"}} if restored else {})
    )
    return found


def test_a_restore_is_recorded_then_made_then_recorded_then_over() -> None:
    steps = [
        restoring.restore(cluster(), None, None),
        restoring.restore(cluster(phase="Restoring"), None, None),
        restoring.restore(cluster(phase="Restoring"), None, job("Running")),
        restoring.restore(cluster(phase="Restoring"), None, job("Completed")),
        restoring.restore(cluster(phase="Restored"), None, job("Completed")),
        restoring.restore(cluster(phase="Restored"), log_set(), job("Completed")),
        restoring.restore(cluster(phase="Founded"), log_set(), None),
    ]
    assert [type(one).__name__ for one in steps] == [
        "BeginRestore", "MakeRestoreJob", "Wait", "Restored", "NoneType", "Founded", "NoneType",
    ]  # fmt: skip


@pytest.mark.parametrize("phase", ["Restoring", "Restored", "Founded"])
def test_taking_the_field_away_changes_nothing(phase: str) -> None:
    for have in (None, log_set()):
        for done in (None, job("Running"), job("Completed"), job("Failed")):
            with_it = restoring.restore(cluster(phase=phase), have, done)
            assert restoring.restore(cluster(asked=None, phase=phase), have, done) == with_it
            assert restoring.from_backup(cluster(asked=None, phase=phase), have) == restoring.from_backup(
                cluster(phase=phase), have
            )


def test_nothing_is_restored_into_a_cluster_that_has_a_log_service_or_had_one() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        phase = chance.choice(["", "Restoring", "Restored", "Founded"])
        asked = chance.choice([None, "nightly"])
        have = chance.choice([None, log_set(), log_set(restored=False)])
        done = chance.choice([None, job("Pending"), job("Running"), job("Completed"), job("Failed")])
        found = restoring.restore(cluster(asked=asked, phase=phase), have, done)
        if have is not None or phase in ("Restored", "Founded"):
            assert not isinstance(found, restoring.BeginRestore | restoring.MakeRestoreJob)
        if isinstance(found, restoring.MakeRestoreJob):
            assert phase == "Restoring"
    lost = restoring.restore(cluster(phase="Founded"), None, None)
    assert isinstance(lost, Wait)
    assert lost.reason == "LogServiceGone"


MOUNTS = """\
1 0 0:1 / / rw - overlay overlay rw
2 1 8:1 /claims/7 /shared rw - ext4 /dev/sda rw
3 1 8:1 /claims/8 /my\\040data rw - ext4 /dev/sda rw
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/shared", True),
        ("/shared/backups/of/mo", True),
        ("/my data/x", True),
        ("/sharedelsewhere", False),
        ("/var/backups", False),
    ],
)
def test_a_directory_is_made_in_a_volume_and_not_in_the_containers_own_file_system(
    path: str, found: bool
) -> None:
    assert places.in_volume(PurePosixPath(path), MOUNTS) is found


# --- test restores -----------------------------------------------------------------------------------------

PLACE = "mo-12345678/backups/20260102T030405Z-0a1b2c3d"
BEGUN = Verification(tries=1)
LEFT = Outcome(job="v", purpose="verify", state="Failed", reason="ObjectCorrupt", result=Result(ok=False))
CLEANED = Outcome(
    job="v", purpose="verify", state="Succeeded", result=Result(ok=True, facts={"scratch": "deleted"})
)
TRYING = Outcome(job="v", purpose="verify", state="Running")
SWEPT = Outcome(job="s", purpose="sweep", state="Succeeded", result=Result(ok=True))
UNSWEPT = Outcome(job="s", purpose="sweep", state="Failed", reason="StoreUnreachable", ended=NOW)
TRIALS: list[tuple[str, Trial, Any]] = [
    ("none was made", Trial(now=NOW), Verify),
    ("no image is known", Trial(blocked=BLOCKED, now=NOW), BLOCKED),
    ("recorded, and killed before the Job", Trial(known=BEGUN, now=NOW), Verify),
    ("it runs", Trial(known=BEGUN, run=TRYING, now=NOW), Wait),
    ("it is over and clean", Trial(known=BEGUN, run=CLEANED, now=NOW), SettleVerify),
    ("the Backup comes first", Trial(known=BEGUN, run=CLEANED, published=False, now=NOW), Publish),
    ("a copy is left", Trial(known=BEGUN, run=LEFT, now=NOW), Sweep),
    ("a pod still writes", Trial(known=BEGUN, run=LEFT, ending=True, now=NOW), Wait),
    ("its Job was deleted, and its pod writes", Trial(known=BEGUN, ending=True, now=NOW), Wait),
    ("the copy is deleted", Trial(known=BEGUN, run=LEFT, sweep=SWEPT, now=NOW), SettleVerify),
    ("the copy cannot be deleted", Trial(known=BEGUN, run=LEFT, sweep=UNSWEPT, now=NOW), Wait),
    (
        "once more",
        Trial(known=BEGUN, run=LEFT, sweep=UNSWEPT, now=NOW + timedelta(minutes=2)),
        Drop,
    ),
    ("over", Trial(known=Verification(tries=1, at=NOW), now=NOW), InSync),
    ("deleted before it began", Trial(deleted=True, now=NOW), InSync),
    ("deleted while it runs", Trial(known=BEGUN, run=TRYING, deleted=True, now=NOW), Drop),
    ("deleted, its pod ends", Trial(known=BEGUN, ending=True, deleted=True, now=NOW), Wait),
    ("deleted, the pod is gone", Trial(known=BEGUN, deleted=True, now=NOW), Sweep),
    ("deleted, nothing is left", Trial(known=BEGUN, sweep=SWEPT, deleted=True, now=NOW), InSync),
    ("its namespace goes", Trial(known=BEGUN, deleted=True, adrift="it ends", now=NOW), InSync),
]


@pytest.mark.parametrize(("what", "trial", "expected"), TRIALS, ids=[case[0] for case in TRIALS])
def test_the_next_step_of_a_test_restore(what: str, trial: Trial, expected: Any) -> None:
    found = verification.decide(trial)
    assert isinstance(found, expected) if isinstance(expected, type) else found == expected


def test_a_test_restore_passes_only_by_a_result_that_says_so() -> None:
    for state in ("Starting", "Running", "Failed"):
        for again in (False, True):
            run = Outcome(job="v", purpose="verify", state=state, again=again, reason="ServerEnded")
            for tries in range(1, verification.TRIES + 1):
                assert not verification.settled(Verification(tries=tries), run, now=NOW).passed
    passing = copy(LEFT, again=True, reason="ServerEnded")
    assert verification.settled(BEGUN, passing, now=NOW).tries == 2
    assert verification.settled(Verification(tries=verification.TRIES), passing, now=NOW).at == NOW


def test_a_damaged_backup_pushes_out_no_good_one() -> None:
    def kept(name: str, hours: int, **known: Any) -> Kept:
        made = Backup(
            metadata=ObjectMeta(name=name),
            meta=BackupMeta(at_time=(NOW - timedelta(hours=hours)).isoformat()),
            status=BackupStatus(verified=Verification(at=NOW, **known)) if known else None,
        )
        return kept_of(made, held=False)

    old, new = kept("old", 5, passed=True), kept("new", 1, passed=False, reason="ObjectCorrupt")
    assert (new.good, new.failed) == (False, True)
    assert outdated([old, new], Policy(last=1), now=NOW) == []
    for reason in ("ServerEnded", "LoginRejected", "DeadlineExceeded"):
        assert kept("new", 1, passed=False, reason=reason).good


def test_the_copy_of_a_test_restore_is_beside_the_backups() -> None:
    assert places.scratch_of(PLACE) == PLACE.replace("/backups/", "/verify/")
    for other in ("", "backups", "mo/backups/", "mo/backups/other", PLACE + "/tae"):
        with pytest.raises(ValueError, match="is not the place of a backup"):
            places.scratch_of(other)


def test_the_server_of_a_test_restore_listens_on_loopback_alone_and_writes_below_the_copy() -> None:
    copied = places.within(bucket(), f"{places.scratch_of(PLACE)}/1")
    request = Request(action="verify", root=bucket(), places=[PLACE], target=copied, login="login")
    run = MatrixOneRun(
        purpose="verify", request=request, image="mooring", secrets=["s3", "login"], server="mo:1.2.4"
    )
    settings, job = run.objects(typed("BackupJob"), by="x")
    text = "".join(settings.data.values())  # type: ignore[attr-defined]
    assert "0.0.0.0" not in text
    assert 'key-prefix = "backups/mo-12345678/verify/20260102T030405Z-0a1b2c3d/1/data"' in text
    pod = job.spec.template.spec  # type: ignore[attr-defined]
    assert [one.image for one in pod.containers] == ["mo:1.2.4", "mooring"]
    mounted = {one.name for one in pod.volumes}
    assert all(mount.name in mounted for one in pod.containers for mount in one.volume_mounts)
    (conf,) = [one for one in pod.volumes if one.name == "conf"]
    assert conf.config_map.name == settings.metadata.name == job.metadata.name


@pytest.mark.parametrize("root", [bucket(), directory("/shared")])
def test_a_tool_is_told_where_a_backup_belongs_and_where_the_keys_are(root: SharedStorageProvider) -> None:
    request = Request(action="backup", root=root, places=[PLACE], host="db", login="login", tool="mobr:1")
    run = MatrixOneRun(
        purpose="backup",
        request=request,
        image="mooring",
        secrets=["keys", "login"],
        overlay=Overlay(command=["/tool"], args=["backup"], lifecycle=core.Lifecycle()),
    )
    settings, job = run.objects(typed("BackupJob"), by="x")
    pod = job.spec.template.spec  # type: ignore[attr-defined]
    tool, store = pod.containers
    assert (tool.image, store.image) == ("mobr:1", "mooring")
    assert tool.command == ["sh", "/mooring/conf/run.sh", "/tool", "backup"]
    assert (store.command, store.lifecycle) == (None, None)
    told = {one.name: one.value for one in tool.env}
    identity = PLACE.rpartition("/")[2]
    assert (told["BACKUP_ID"], told["BACKUP_HOST"], told["BACKUP_PORT"]) == (identity, "db", "6001")
    if root.s3 is not None:
        assert told["BACKUP_FILEPATH"].endswith(PLACE)
        assert told["BACKUP_ENDPOINT"] == "http://minio:9000"
    else:
        assert told["BACKUP_PATH"] == f"/shared/{PLACE}"
    mounted = {one.mount_path for one in tool.volume_mounts}
    assert {value for name, value in told.items() if name in ("BACKUP_LOGIN", "BACKUP_KEYS")} <= mounted
    assert all(one.value_from is None for one in tool.env), "no secret is in a variable"
    named = {one.name for one in pod.volumes}
    assert all(mount.name in named for one in pod.containers for mount in one.volume_mounts)
    assert settings.metadata.name == job.metadata.name


def test_a_cluster_that_exists_takes_no_other_backup() -> None:
    for phase in ("Restoring", "Restored", "Founded"):
        assert restoring.refused(cluster(phase=phase), log_set()) is None
        assert restoring.refused(cluster(asked=None, phase=phase), log_set()) is None
        found = restoring.refused(cluster(asked="other", phase=phase), log_set())
        assert found is not None
        assert "began with the Backup nightly" in found.message
    assert restoring.refused(cluster(), None) is None
    assert restoring.refused(cluster(), log_set()) is None  # upstream's operator made it from a backup
    found = restoring.refused(cluster(), log_set(restored=False))
    assert found is not None
    assert "began without a backup" in found.message


def test_every_so_many_runs_of_a_schedule_are_verified_the_first_one_too() -> None:
    def runs(every: int | None, **more: Any) -> list[bool | None]:
        schedule = JobSchedule(cron="@daily", verify_every=every)
        spec = replace(typed("BackupJob", **more).spec, schedule=schedule)
        return [job_actor._is_verified(spec, BackupJobStatus(runs=at)) for at in range(4)]

    assert runs(2) == [True, None, True, None]
    assert runs(0) == runs(None) == [None] * 4
    assert runs(None, spec__verify=True) == [True] * 4


def test_the_newest_backup_that_passed_is_the_newest_verified_one() -> None:
    def one(name: str, hours: int, *, passed: bool) -> Backup:
        return Backup(
            metadata=ObjectMeta(name=name),
            meta=BackupMeta(at_time=(NOW - timedelta(hours=hours)).isoformat()),
            status=BackupStatus(verified=Verification(at=NOW - timedelta(hours=hours - 1), passed=passed)),
        )

    assert newest_verified([]) is None
    assert newest_verified([one("bad", 1, passed=False)]) is None
    found = newest_verified([one("a", 9, passed=True), one("b", 5, passed=True), one("c", 1, passed=False)])
    assert found == ("b", "2026-01-01T23:04:00Z")
