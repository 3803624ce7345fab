"""A real MatrixOne cluster on a shared directory: backed up into a directory, and created again from there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.embedded.test_matrixone_backup import Beds, answers, digest, make, session, verified
from tests.embedded.test_matrixone_life import SETTINGS

from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.types import Backup, BackupJob, MatrixOneCluster, RestoreJob
from mooring.testing.bed import Bed

pytestmark = [
    pytest.mark.mo_service,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 10Gi}}
"""
SHARED = (
    "overlay: {volumes: [{name: shared, persistentVolumeClaim: {claimName: shared}}], "
    "volumeMounts: [{name: shared, mountPath: /shared}]}"
)
CLUSTER = """
apiVersion: core.matrixorigin.io/v1alpha1
kind: MatrixOneCluster
metadata: {{name: {name}}}
spec:
  version: 1.2.4
  {restore}
  logService:
    replicas: 1
    volume: {{size: 5Gi}}
    sharedStorage: {{fileSystem: {{path: /shared/{name}}}}}
    {shared}
  tn:
    replicas: 1
    cacheVolume: {{size: 5Gi}}
    sharedStorageCache: {{memoryCacheSize: 128Mi}}
    {shared}
  cnGroups:
    - name: tp
      replicas: 1
      sharedStorageCache: {{memoryCacheSize: 128Mi}}
      {shared}
  proxy: {{replicas: 1, {shared}}}
"""
BACKUP = """
apiVersion: core.matrixorigin.io/v1alpha1
kind: BackupJob
metadata: {name: first}
spec:
  source: {clusterRef: one}
  target: {fileSystem: {path: /shared/backups}}
  verify: true
"""
OVER = """
apiVersion: core.matrixorigin.io/v1alpha1
kind: RestoreJob
metadata: {{name: over}}
spec:
  backupName: {backup}
  target: {{fileSystem: {{path: /shared/one}}}}
{shared}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed() -> AsyncIterator[Bed]:
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(path, operators=[OPERATOR], settings=SETTINGS) as running:
            await running.apply(CLAIM)
            await running.apply(CLUSTER.format(name="one", restore="", shared=SHARED))
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def fill(cursor: Any) -> tuple[int, str]:
    await cursor.execute("create database t")
    await cursor.execute("create table t.n (a int primary key, b varchar(60))")
    await cursor.execute(
        "insert into t.n select result, concat('v', result) from generate_series(1, 20000) g"
    )
    return await digest(cursor)


async def round_trip(bed: Beds, *, within: float = 240) -> None:
    """Back the cluster "one" up into a directory, try the backup out, and make the cluster "two" of it."""
    await bed.until(lambda: answers(bed, "one"), "the cluster answers", within=within, every=0.2)
    async with session(bed, "one") as cursor:
        before = await fill(cursor)
    done = await make(bed, BackupJob, BACKUP, "first")
    assert done.status.phase == "Completed", done.status.message
    backup = await bed.client.get(Backup, done.status.backup, namespace="")
    assert backup.meta is not None
    assert int(str(backup.meta.size)) > 100_000

    await bed.until(lambda: verified(bed, "first"), "the backup is tried out", within=within, every=0.2)
    known = (await bed.get(BackupJob, "first")).status
    assert known is not None
    assert known.verified is not None
    assert known.verified.passed, known.verified.message
    assert "20000 rows in 1 tables" in known.verified.message

    over = await make(bed, RestoreJob, OVER.format(backup=done.status.backup, shared=SHARED), "over")
    assert (over.status.phase, over.status.reason) == ("Failed", "TargetInUse")

    restore = f"restoreFrom: {done.status.backup}"
    await bed.apply(CLUSTER.format(name="two", restore=restore, shared=SHARED))
    await bed.until(lambda: answers(bed, "two"), "the restored cluster answers", within=within, every=0.2)
    async with session(bed, "two") as cursor:
        assert await digest(cursor) == before
        await cursor.execute("insert into t.n values (99999, 'new')")
    found = await bed.get(MatrixOneCluster, "two")
    assert found.status is not None
    assert found.status.restore is not None
    assert found.status.restore.phase == "Founded"


async def test_a_backup_in_a_directory_is_restored_into_a_new_cluster(bed: Bed) -> None:
    await round_trip(bed)
