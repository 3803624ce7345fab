"""The archive of a real MariaDB cluster over a failover, and new clusters that begin at a moment of it."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from tests.embedded.conftest import MakeMySQL
from tests.embedded.test_mysql_backup import Backups, eventually

from mooring.kube import MergePatch
from mooring.kube.objects.apps import Deployment
from mooring.kube.objects.meta import Condition
from mooring.operators.mysql.archive.archiver import Report
from mooring.operators.mysql.types import MySQLCluster
from mooring.testing.mysql_rows import TimedRows, archive_report, rows_of
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


async def condition(stage: MySQLStage, kind: str) -> Condition:
    found = (one for one in (await stage.status()).conditions or () if one.type == kind)
    return next(found, Condition())


async def archived_over_a_failover(mysql: MySQLStage) -> TimedRows:
    """Thirty rows: ten before the backup ``base``, ten after it, ten after a failover; all of them are archived."""
    backups, rows = Backups(mysql), TimedRows(mysql)
    # The archiver holds it while Jobs on other nodes use it.
    target = {"claim": {"name": "archive"}}
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "archive", "namespace": "default"}
    await mysql.bed.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    )
    patch = MergePatch({"spec": {"archive": {"target": target, "intervalSeconds": 1}}})
    await mysql.bed.client.patch(MySQLCluster, mysql.name, patch, namespace="default")
    await rows.write(10)
    await mysql.exact()
    await backups.make("base", target)

    async def works() -> bool:
        return (await condition(mysql, "Archived")).status == "True"

    await eventually(works)
    assert (await backups.over("base")).position
    await rows.write(10)
    old = await mysql.primary()
    mysql.kill(old)
    await mysql.led_by_another(old)
    await mysql.exact()
    await rows.write(10)
    last = rows.positions[-1].newest()

    async def complete() -> Report | None:
        said = await archive_report(mysql)
        if said is None or said.position != last or not said.complete:
            return None
        return said if datetime.fromisoformat(said.complete) > rows.times[-1] else None

    said: Report = await eventually(complete)
    assert (said.state, said.gap, said.chain) == ("Archiving", None, 1)
    archive = (await mysql.status()).archive
    assert archive is not None
    assert (archive.state, archive.gap) == ("Archiving", None)
    return rows


async def begun(make_mysql: MakeMySQL, point: dict[str, str], **source: str) -> MySQLStage:
    """A cluster of one server that begins there."""
    source = source or {"backup": "base"}
    made = await make_mysql(exact=False, size=1, restoreFrom={**source, "pointInTime": point})
    await made.exact(within=200)
    return made


@pytest.mark.full
async def test_new_clusters_begin_at_a_gtid_and_a_time_of_an_archive_over_a_failover(
    mysql: MySQLStage, make_mysql: MakeMySQL
) -> None:
    rows = await archived_over_a_failover(mysql)
    goal = rows.transaction(25)
    position = (await Backups(mysql).status("base")).position
    exact, timely, early = await asyncio.gather(
        begun(make_mysql, {"gtid": goal}),
        begun(make_mysql, {"time": text(rows.times[14])}, cluster=mysql.name),
        make_mysql(
            exact=False, size=1, restoreFrom={"backup": "base", "pointInTime": {"gtid": rows.transaction(5)}}
        ),
    )
    assert await rows_of(exact) == list(range(1, 26))
    restore = (await exact.status()).restore
    assert restore is not None
    assert (restore.position, restore.transaction) == (rows.positions[24].newest(), goal)
    # MariaDB writes whole seconds: what was begun within the second of the target may be in.
    most = rows.most_at(rows.times[14])
    found = await rows_of(timely)
    assert found == list(range(1, len(found) + 1))
    assert 15 <= len(found) <= most
    restore = (await timely.status()).restore
    assert restore is not None
    assert restore.transaction == rows.transaction(len(found))
    assert restore.committed_at is not None
    assert restore.committed_at <= rows.times[14]

    async def refused() -> str:
        now = (await early.status()).restore
        return (now.message or "") if now is not None and now.phase == "Failed" else ""

    assert f"with all up to {position}, is later than" in await eventually(refused)

    patch = MergePatch({"spec": {"archive": None}})
    await mysql.bed.client.patch(MySQLCluster, mysql.name, patch, namespace="default")

    async def no_longer_archived() -> bool:
        left = await mysql.bed.client.list(Deployment, namespace="default")
        return not left.items and not (await condition(mysql, "Archived")).type

    await eventually(no_longer_archived)
    assert (await mysql.status()).archive is None


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


@pytest.mark.nightly
async def test_an_archive_that_cannot_be_made_does_not_keep_a_cluster_from_a_failover(
    mysql: MySQLStage,
) -> None:
    labels = {"app": "theirs"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "any", "image": "mariadb:10.11"}]},
    }
    metadata = {"name": f"{mysql.name}-archive", "namespace": "default"}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    await mysql.bed.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    patch = MergePatch({"spec": {"archive": {"target": {"claim": {"name": "archive"}}}}})
    await mysql.bed.client.patch(MySQLCluster, mysql.name, patch, namespace="default")

    async def refused() -> bool:
        return (await condition(mysql, "Archived")).reason == "ArchiverNotMade"

    await eventually(refused)
    assert f"{mysql.name}-archive exists" in ((await condition(mysql, "Archived")).message or "")
    old = await mysql.primary()
    mysql.kill(old)
    await mysql.led_by_another(old)
    await mysql.exact()
    await mysql.bed.client.delete(Deployment, f"{mysql.name}-archive", namespace="default")

    async def made() -> bool:
        return (await condition(mysql, "Archived")).reason != "ArchiverNotMade"

    await eventually(made)
    patch = MergePatch({"spec": {"archive": None}})
    await mysql.bed.client.patch(MySQLCluster, mysql.name, patch, namespace="default")
