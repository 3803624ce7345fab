"""A backup that is continued from the archive: what is declared, the Job, and what the status says then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operators.mysql.declared import cluster
from tests.operators.mysql.test_archive_target import kept

from mooring.actor import Wait
from mooring.cache.clock import SystemClock
from mooring.kube.object import Key
from mooring.kube.objects import meta
from mooring.objectstore import Target
from mooring.objectstore.target import Claim
from mooring.operators.backup.restores import Look
from mooring.operators.backup.run import Run
from mooring.operators.backup.types import BackupStatus, RestoreStatus, Verified
from mooring.operators.mysql.archive.agent import fetch
from mooring.operators.mysql.archive.apply import WAY
from mooring.operators.mysql.archive.relay import FIRST
from mooring.operators.mysql.archive.target import Goal, Refused
from mooring.operators.mysql.backup.jobs import restore_run
from mooring.operators.mysql.backup.nearest import nearest
from mooring.operators.mysql.backup.restore import MySQLRestores, reached
from mooring.operators.mysql.backup.types import ClusterRef, MySQLBackup, MySQLBackupSpec
from mooring.operators.mysql.types import MySQLClusterStatus, PointInTime
from mooring.operators.mysql.validate import validate

PREFIX = "old-12345678/backups/20260102T030405Z-0a1b2c3d"
TARGET = Target(claim=Claim(name="backups"))


def run(point: PointInTime | None) -> Run:
    return restore_run(
        cluster(),
        target=TARGET,
        prefix=PREFIX,
        flavor="mariadb",
        attempt=1,
        agent_image="mooring:1",
        point=point,
    )


def test_the_archive_is_fetched_before_anything_is_restored() -> None:
    made = run(PointInTime(time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), allow_gap=True))
    _, job = made.objects(cluster(), by="mysql-restore")
    pod = job.spec.template.spec  # type: ignore[union-attr]
    assert pod is not None
    (fetcher,) = pod.init_containers or []
    words = fetcher.args or []
    assert {"--root=old-12345678/archive", f"--backup={PREFIX}", "--allow-gap"} <= set(words)
    assert "--time=2026-01-02T03:04:05+00:00" in words
    assert {"/var/lib/mysql", "/mooring/target"} <= {each.mount_path for each in fetcher.volume_mounts or ()}
    assert made.env["FORWARD"]
    assert "apply_archive()" in made.script


def test_without_a_point_in_time_nothing_is_fetched() -> None:
    made = run(None)
    assert not made.before
    assert "FORWARD" not in made.env
    assert "apply_archive()" not in made.script


@pytest.mark.parametrize(
    ("point", "field"),
    [
        ({}, "spec.restoreFrom.pointInTime"),
        ({"gtid": "0-1-5", "time": "2026-01-02T03:04:05Z"}, "spec.restoreFrom.pointInTime"),
        ({"gtid": "everything"}, "spec.restoreFrom.pointInTime.gtid"),
        ({"gtid": "0-1-5"}, ""),
        ({"time": "2026-01-02T03:04:05Z"}, ""),
    ],
)
def test_a_faulty_point_in_time_is_refused_by_its_field(point: dict[str, Any], field: str) -> None:
    problems = validate(cluster({"restoreFrom": {"backup": "one", "pointInTime": point}}))
    assert [one.field for one in problems] == ([field] if field else [])


def test_a_prefix_that_leads_to_no_archive_is_refused() -> None:
    target, point = {"claim": {"name": "backups"}}, {"gtid": "0-1-5"}
    for prefix, faults in ((PREFIX, 0), ("elsewhere", 1)):
        declared = {"target": target, "prefix": prefix, "pointInTime": point}
        assert len(validate(cluster({"restoreFrom": declared}))) == faults


def test_the_status_names_the_transaction_at_which_a_time_ends() -> None:
    facts = {"transaction": "0-1-7", "committed": "2026-01-02T03:04:05.5Z"}
    found = reached(RestoreStatus(phase="Succeeded", position="0-1-7"), facts)
    assert (found.phase, found.transaction) == ("Succeeded", "0-1-7")
    assert found.committed_at == datetime(2026, 1, 2, 3, 4, 5, 500000, tzinfo=UTC)
    assert reached(RestoreStatus(phase="Running"), {}).transaction is None


async def test_what_is_fetched_says_where_it_leads(tmp_path: Path) -> None:
    async with kept("mariadb") as one:
        await one.chain(0, [7, 21])
        into = tmp_path / "archive"
        (into / "left").mkdir(parents=True)
        goal = one.given[9]
        result = await fetch(one.archive, one.base(5), Goal(gtid=goal.gtid.text), into)
        assert result.facts["transaction"] == goal.gtid.text
        assert f"stop={goal.gtid.text}\nposition={one.base(10).newest()}\n" in (into / WAY).read_text()
        assert (into / FIRST).exists()
        assert not (into / "left").exists()
        # Where the backup itself is the goal, there is nothing to apply.
        result = await fetch(one.archive, one.base(21), Goal(), into)
        assert (result.ok, result.size) == (True, 0)
        assert f"position={one.base(21).newest()}\n" in (into / WAY).read_text()
        with pytest.raises(Refused, match="with all up to"):
            await fetch(one.archive, one.base(12), Goal(gtid=goal.gtid.text), into)


class Later(SystemClock):
    """The archive grows while the restore waits."""

    def __init__(self, grow: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._grow = grow

    async def sleep(self, seconds: float) -> None:
        await self._grow()


async def test_a_point_that_is_not_archived_yet_is_waited_for(tmp_path: Path) -> None:
    async with kept("mysql") as one:
        await one.chain(0, [7])
        goal, into = Goal(gtid=one.given[9].gtid.text), tmp_path / "archive"
        clock = Later(lambda: one.segment(7, 21))
        with pytest.raises(Refused, match="is not in the archive, which ends at"):
            await fetch(one.archive, one.base(5), goal, into, clock=clock)
        result = await fetch(one.archive, one.base(5), goal, into, patience=60, clock=clock)
        assert result.facts["transaction"] == goal.gtid


def backup(
    name: str, hour: int, position: str, *, cluster: str = "demo", phase: str = "Succeeded"
) -> MySQLBackup:
    prefix = f"old-12345678/backups/20260102T0{hour}0405Z-0a1b2c3d"
    return MySQLBackup(
        metadata=meta.ObjectMeta(name=name),
        spec=MySQLBackupSpec(cluster=ClusterRef(name=cluster), target=TARGET),
        status=BackupStatus(
            phase=phase, position=position, prefix=prefix, finished_at=datetime(2026, 1, 2, hour, tzinfo=UTC)
        ),
    )


MADE = [
    backup("third", 3, "0-1-300"),
    backup("first", 1, "0-1-100"),
    backup("second", 2, "0-2-200"),
    backup("other", 2, "0-1-240", cluster="other"),
    backup("failed", 2, "0-1-230", phase="Failed"),
]


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (PointInTime(gtid="0-1-101"), "first"),
        (PointInTime(gtid="0-1-200"), "first"),
        (PointInTime(gtid="0-1-299"), "second"),
        (PointInTime(gtid="0-1-9999"), "third"),
        (PointInTime(time=datetime(2026, 1, 2, 2, tzinfo=UTC)), "second"),
        (PointInTime(time=datetime(2026, 1, 2, 2, 59, tzinfo=UTC)), "second"),
        (PointInTime(time=datetime(2026, 1, 2, 2, 59)), "second"),  # noqa: DTZ001 - without a zone it is UTC
    ],
)
def test_of_a_cluster_the_newest_backup_before_the_point_is_restored(
    point: PointInTime, expected: str
) -> None:
    found = nearest(MADE, "demo", point, flavor="mariadb")
    assert isinstance(found, MySQLBackup)
    assert found.metadata.name == expected


def test_a_backup_whose_test_restore_failed_is_the_last_resort() -> None:
    def verified(one: MySQLBackup, passed: bool) -> MySQLBackup:
        at = datetime(2026, 1, 2, 4, tzinfo=UTC)
        assert one.status is not None
        return replace(one, status=replace(one.status, verified=Verified(tries=1, at=at, passed=passed)))

    third, first, second, *_ = MADE
    point = PointInTime(gtid="0-1-9999")
    for backups, expected in (
        ([verified(third, False), first, verified(second, True)], "second"),
        ([verified(third, True), first, second], "third"),
        ([verified(first, False), verified(second, False)], "second"),
    ):
        found = nearest(backups, "demo", point, flavor="mariadb")
        assert isinstance(found, MySQLBackup)
        assert found.metadata.name == expected


def test_a_backup_beside_the_archive_is_preferred_to_a_newer_one_elsewhere() -> None:
    third, first, second, *_ = MADE
    assert third.spec is not None
    elsewhere = replace(third, spec=replace(third.spec, target=Target(claim=Claim(name="offsite"))))
    source = cluster({"archive": {"target": {"claim": {"name": "backups"}}}})
    restores: Any = MySQLRestores.__new__(MySQLRestores)
    client = SimpleNamespace(list=lambda *_, **__: [elsewhere, first, second], find=lambda *_, **__: source)
    declared = {"restoreFrom": {"cluster": "demo", "pointInTime": {"gtid": "0-1-9999"}}}
    context: Any = SimpleNamespace(obj=cluster(declared), client=client, key=Key("default", "new"))
    assert restores._source(context, restores.declared(context.obj)).backup == "second"
    # Where the cluster is gone, nothing tells where its archive is.
    client.find = lambda *_, **__: None
    assert restores._source(context, restores.declared(context.obj)).backup == "third"


def test_a_restore_that_is_tried_again_keeps_its_backup_when_a_newer_one_was_made() -> None:
    restores: Any = MySQLRestores.__new__(MySQLRestores)
    declared = {"restoreFrom": {"cluster": "demo", "pointInTime": {"gtid": "0-1-9999"}}}
    client = SimpleNamespace(list=lambda *_, **__: MADE[1:], find=lambda *_, **__: None)
    context: Any = SimpleNamespace(obj=cluster(declared), client=client, key=Key("default", "new"))
    first = restores._source(context, restores.declared(context.obj))
    assert first.backup == "second"
    client.list = lambda *_, **__: MADE
    tried = RestoreStatus(phase="Pending", tries=1, backup=first.backup, prefix=first.prefix)
    context.obj = replace(context.obj, status=MySQLClusterStatus(restore=reached(tried, {})))
    look = Look(source=restores._source(context, restores.declared(context.obj)))
    assert look.source == first
    assert look.held(tried) is None


@pytest.mark.parametrize(
    ("cluster", "point", "reason", "said"),
    [
        ("nobody", PointInTime(gtid="0-1-5"), "BackupNotFound", "no backup of nobody"),
        ("demo", PointInTime(gtid="0-1-100"), "BeforeBackups", "first, ended at 2026-01-02T01:00:00Z"),
        ("demo", PointInTime(time=datetime(2026, 1, 2, 0, 59, tzinfo=UTC)), "BeforeBackups", "up to 0-1-100"),
    ],
)
def test_a_point_before_every_backup_is_refused_with_the_bound(
    cluster: str, point: PointInTime, reason: str, said: str
) -> None:
    found = nearest(MADE, cluster, point, flavor="mariadb")
    assert isinstance(found, Wait)
    assert found.reason == reason
    assert said in found.message
