"""Backups of real MariaDB servers: taken under a writer, restored into a new cluster, scheduled, deleted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.embedded.conftest import REAL, MakeMySQL

from mooring.kube import MergePatch, NotFound
from mooring.operators.backup import rules
from mooring.operators.backup.types import BackupStatus, ScheduleStatus
from mooring.operators.mysql.backup.types import MySQLBackup, MySQLBackupSchedule
from mooring.operators.mysql.dial import Dial
from mooring.testing.mysql_stage import MySQLStage

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mysql-backup.yaml"
pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(480)]


async def eventually(check: Callable[[], Awaitable[Any]], *, within: float = 60.0) -> Any:
    found: Any = None
    try:
        async with asyncio.timeout(within):
            while not (found := await check()):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {within} s; last seen: {found}") from None
    return found


class Backups:
    """Backup objects of one bed, to one claim."""

    def __init__(self, stage: MySQLStage) -> None:
        self.stage, self.bed, self.client = stage, stage.bed, stage.bed.client

    async def claim(self, name: str = "backups") -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": "default"}
        await self.bed.apply(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        )
        return {"claim": {"name": name}}

    async def directory(self, below: Path) -> tuple[dict[str, Any], Path]:
        """A directory that the database's user may write to."""
        path = below / "store"
        path.mkdir()
        path.chmod(0o777)
        for parent in path.parents[:-1]:
            parent.chmod(parent.stat().st_mode | 0o555)
        return {"directory": {"path": str(path)}}, path

    async def make(self, name: str, target: dict[str, Any], **spec: Any) -> None:
        await self.bed.apply(
            {
                "apiVersion": "mysql.mooring.dev/v1alpha1",
                "kind": "MySQLBackup",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"cluster": {"name": self.stage.name}, "target": target, **spec},
            }
        )

    async def status(self, name: str) -> BackupStatus:
        return (await self.bed.get(MySQLBackup, name)).status or BackupStatus()

    async def over(self, name: str, phase: str = "Succeeded", *, within: float = 60.0) -> BackupStatus:
        async def check() -> BackupStatus | None:
            status = await self.status(name)
            assert status.phase != "Failed" or phase == "Failed", status
            return status if status.phase == phase else None

        try:
            found: BackupStatus = await eventually(check, within=within)
            return found
        except AssertionError:
            raise AssertionError(str(await self.status(name))) from None

    async def gone(self, name: str) -> None:
        await self.client.delete(MySQLBackup, name, namespace="default")

        async def check() -> bool:
            try:
                await self.bed.get(MySQLBackup, name)
            except NotFound:
                return True
            return False

        await eventually(check)


async def fill(mysql: MySQLStage) -> None:
    """A table with two rows on every server."""
    async with Dial().open(await mysql.served(), await mysql.login("root")) as link:
        await link.query("CREATE DATABASE IF NOT EXISTS shop")
        await link.query("CREATE TABLE IF NOT EXISTS shop.orders (id INT PRIMARY KEY, what VARCHAR(20))")
        await link.query("REPLACE INTO shop.orders VALUES (1, 'tea'), (2, 'it''s')")
    await mysql.exact()


async def test_a_backup_is_taken_from_a_replica_and_says_what_it_has(mysql: MySQLStage) -> None:
    backups = Backups(mysql)
    target = await backups.claim()
    await fill(mysql)
    await backups.make("first", target)
    status = await backups.over("first")
    assert status.source != await mysql.primary()
    assert status.position
    assert (status.size_bytes or 0) > 1000
    assert status.prefix is not None
    assert status.tries == 1


@pytest.mark.parametrize("method", [pytest.param("Logical", marks=pytest.mark.nightly), "Physical"])
async def test_a_new_cluster_has_exactly_the_rows_up_to_the_position_of_the_backup(
    mysql: MySQLStage, make_mysql: MakeMySQL, method: str
) -> None:
    name = f"under-load-{method.lower()}"
    backups = Backups(mysql)
    target = await backups.claim()
    await fill(mysql)
    root = await mysql.login("root")
    async with Dial().open(await mysql.served(), root) as link:
        await link.query("CREATE OR REPLACE TABLE shop.log (id INT PRIMARY KEY) ENGINE=InnoDB")
        begin = (await link.one("SELECT @@GLOBAL.gtid_binlog_pos AS p"))["p"]
        # One transaction a row: the position says how many there are.
        written, stop = 0, asyncio.Event()

        async def write() -> None:
            nonlocal written
            while not stop.is_set():
                written += 1
                await link.query(f"INSERT INTO shop.log VALUES ({written})")

        writer = asyncio.create_task(write())
        await eventually(lambda: _later(written > 50))
        await backups.make(name, target, method=method)
        status = await backups.over(name)
        at = written
        await eventually(lambda: _later(written > at + 20))
        stop.set()
        await writer
    rows = _number(status.position or "") - _number(begin)
    assert 0 < rows < written

    copy = await make_mysql(restoreFrom={"backup": name}, size=3 if method == "Logical" else 2)
    async with Dial().open(await copy.served(), await copy.login("root")) as link:
        found = await link.one("SELECT COUNT(*) AS n, MIN(id) AS first, MAX(id) AS last FROM shop.log")
        assert found == {"n": rows, "first": 1, "last": rows}
        assert (await link.one("SELECT what FROM shop.orders WHERE id = 2"))["what"] == "it's"
        await link.query("INSERT INTO shop.log VALUES (1000000)")
    for pod in await copy.pods():
        await eventually(partial(_has, copy, pod.metadata.name or "", 1_000_000))
    restore = (await copy.status()).restore
    assert restore is not None
    assert (restore.phase, restore.position, restore.tries) == ("Succeeded", status.position, 1)
    assert status.method == method
    mine, theirs = await copy.login("root"), await mysql.login("root")
    assert mine.passwords != theirs.passwords


async def test_a_backup_is_verified_by_a_restore_and_one_that_was_changed_is_not(
    mysql: MySQLStage, tmp_path: Path
) -> None:
    backups = Backups(mysql)
    target, directory = await backups.directory(tmp_path)
    await backups.make("good", target, verify=True, verification="Checksums")
    await backups.make("spoilt", target)
    spoilt = await backups.over("spoilt")
    (data,) = (directory / (spoilt.prefix or "")).glob("data.*")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    await backups.client.patch(
        MySQLBackup, "spoilt", MergePatch({"spec": {"verify": True}}), namespace="default"
    )

    def verified(name: str, status: str) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            conditions = (await backups.status(name)).conditions or ()
            return any(one.type == "BackupVerified" and one.status == status for one in conditions)

        return check

    await eventually(verified("good", "True"))
    await eventually(verified("spoilt", "False"))
    known = (await backups.status("good")).verified
    assert known is not None
    assert re.fullmatch(
        r"restored and checked: \d+ rows in \d+ tables, every table passes CHECK TABLE, rows and checksums of \d+ are those "
        r"of the source; \d+ bytes in \d+ s",
        known.message,
    ), known.message
    assert (await backups.status("spoilt")).phase == "Succeeded"


@pytest.mark.skipif(REAL, reason="our node gives no API server but the embedded one the logs of its pods")
async def test_a_slow_backup_says_how_far_it_is(
    mysql: MySQLStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "PROGRESS", 0.5)
    monkeypatch.setattr(rules, "LOOK", 0.5)
    backups = Backups(mysql)
    target, _ = await backups.directory(tmp_path)
    await backups.make("slow", target, bandwidth="150k")

    async def moved() -> int:
        progress = (await backups.status("slow")).progress
        return progress.bytes if progress is not None else 0

    so_far = await eventually(moved)
    status = await backups.over("slow")
    assert so_far <= (status.size_bytes or 0)
    assert status.progress is None


async def test_the_data_goes_with_its_backup_where_that_was_asked_for(
    mysql: MySQLStage, tmp_path: Path
) -> None:
    backups = Backups(mysql)
    target, directory = await backups.directory(tmp_path)
    await backups.make("kept", target)
    await backups.make("thrown-away", target, deletionPolicy="Delete")
    kept, other = await backups.over("kept"), await backups.over("thrown-away")
    files = {str(path.relative_to(directory)) for path in directory.rglob("manifest.json")}
    assert files == {f"{kept.prefix}/manifest.json", f"{other.prefix}/manifest.json"}
    await backups.gone("thrown-away")
    await backups.gone("kept")
    left = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    assert [path.rpartition(".")[0] for path in left] == [f"{kept.prefix}/data", f"{kept.prefix}/manifest"]


@pytest.mark.nightly
async def test_a_schedule_makes_backups_and_keeps_the_newest(mysql: MySQLStage) -> None:
    backups = Backups(mysql)
    target = await backups.claim("scheduled")
    await backups.bed.apply(
        {
            "apiVersion": "mysql.mooring.dev/v1alpha1",
            "kind": "MySQLBackupSchedule",
            "metadata": {"name": "often", "namespace": "default"},
            "spec": {
                "schedule": "@every 2s",
                "retention": {"keepLast": 1},
                "template": {"cluster": {"name": mysql.name}, "target": target},
            },
        }
    )

    async def status() -> ScheduleStatus:
        return (await backups.bed.get(MySQLBackupSchedule, "often")).status or ScheduleStatus()

    async def made() -> list[MySQLBackup]:
        found = await backups.client.list(MySQLBackup, namespace="default")
        return [one for one in found.items if (one.metadata.name or "").startswith("often-")]

    async def several() -> bool:
        return ((await status()).runs or 0) >= 3

    await eventually(several)
    await backups.client.patch(
        MySQLBackupSchedule, "often", MergePatch({"spec": {"suspend": True}}), namespace="default"
    )

    async def at_rest() -> bool:
        phases = [one.status.phase if one.status else None for one in await made()]
        return all(phase in ("Succeeded", "Failed") for phase in phases)

    await eventually(at_rest)
    assert 1 <= len(await made()) <= 2
    assert (await status()).last_backup


async def test_a_backup_that_cannot_be_made_says_why_and_harms_nobody(mysql: MySQLStage) -> None:
    backups = Backups(mysql)
    s3 = {"bucket": "backups", "endpoint": "http://127.0.0.1:1", "credentialsSecret": "nobody"}
    await backups.make("no-secret", {"s3": s3})
    await backups.make("no-cluster", {"claim": {"name": "backups"}}, cluster={"name": "nobody"})

    def says(name: str, reason: str) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return (await backups.status(name)).reason == reason

        return check

    await eventually(says("no-secret", "SecretNotFound"))
    await eventually(says("no-cluster", "ClusterNotFound"))
    await mysql.exact()
    await backups.gone("no-secret")
    await backups.gone("no-cluster")


async def test_a_cluster_whose_restore_failed_says_so_and_has_no_pods(
    mysql: MySQLStage, make_mysql: MakeMySQL
) -> None:
    target = await Backups(mysql).claim()
    copy = await make_mysql(exact=False, restoreFrom={"target": target, "prefix": "none/backups/none"})

    async def failed() -> bool:
        return (await copy.status()).phase == "RestoreFailed"

    await eventually(failed)
    restore = (await copy.status()).restore
    assert restore is not None
    assert restore.phase == "Failed"
    assert "no complete backup at none/backups/none in claim backups;" in (restore.message or "")
    assert await copy.pods() == []


@pytest.mark.nightly
async def test_a_cluster_that_requires_tls_is_backed_up_and_verified(
    mysql: MySQLStage, make_mysql: MakeMySQL
) -> None:
    sealed = await make_mysql(exact=False, size=1, tls={"required": True})

    async def runs() -> bool:
        return (await sealed.status()).phase == "Running"

    await eventually(runs)
    backups = Backups(sealed)
    await backups.make("sealed", await backups.claim(), verify=True)
    await backups.over("sealed")

    async def verified() -> bool:
        known = (await backups.status("sealed")).verified
        return known is not None and known.at is not None

    await eventually(verified)
    known = (await backups.status("sealed")).verified
    assert known is not None
    assert known.passed, known.message


async def test_the_example_is_accepted_and_its_first_backup_made(mysql: MySQLStage) -> None:
    for document in yaml.safe_load_all(EXAMPLE.read_text()):
        document["metadata"]["namespace"] = "default"
        if document["kind"] == "PersistentVolumeClaim":
            document["metadata"]["name"] = "example"
        else:
            template = document["spec"].get("template", document["spec"])
            template["target"]["claim"]["name"] = "example"
        await mysql.bed.apply(document)
    backups = Backups(mysql)
    await backups.over("demo-first")

    async def planned() -> bool:
        schedule = await backups.bed.get(MySQLBackupSchedule, "demo-nightly")
        return schedule.status is not None and schedule.status.next_at is not None

    await eventually(planned)


async def _has(stage: MySQLStage, pod: str, id: int) -> bool:
    """One acknowledgement is enough for a commit: another replica may get the row a moment later."""
    return bool(await stage.query(pod, f"SELECT id FROM shop.log WHERE id = {id}"))


async def _later(value: bool) -> bool:
    return value


def _number(position: str) -> int:
    """The sequence number of a MariaDB position of one domain."""
    return int(position.rpartition("-")[2])
