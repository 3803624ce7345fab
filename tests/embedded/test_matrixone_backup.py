"""A real MatrixOne cluster on a real S3 server: backed up, deleted, and created again from its backup."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncmy
import msgspec
import pytest
import pytest_asyncio
import yaml
from asyncmy.errors import MySQLError
from hack.build import versitygw
from tests.embedded.conftest import make_bed
from tests.embedded.test_matrixone_life import SETTINGS, cleared

from mooring.kube import MergePatch, NotFound
from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import Pod, Secret, Service
from mooring.local.node.images import Catalog, Image, Program, built_in
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.backup.statement import Keys, backup_statement
from mooring.operators.matrixone.types import (
    Backup,
    BackupJob,
    LogSet,
    MatrixOneCluster,
    RestoreJob,
    S3Provider,
    SharedStorageProvider,
)
from mooring.operators.workload.credentials import secret_value
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed

pytestmark = [pytest.mark.mo_service, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

Beds = Bed | KubernetesBed | ClusterBed
KEY, SECRET = "rootkey0123", "root/secret+0123456789"
STORE = f"""
apiVersion: v1
kind: Secret
metadata: {{name: keys}}
stringData: {{AWS_ACCESS_KEY_ID: {KEY}, AWS_SECRET_ACCESS_KEY: {SECRET}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: s3, labels: {{app: s3}}}}
spec:
  containers:
    - name: s3
      image: versitygw:1
      command: [sh, -c, "mkdir -p /data/store && exec versitygw --port 0.0.0.0:7070 --quiet posix /data"]
      env:
        - {{name: ROOT_ACCESS_KEY, valueFrom: {{secretKeyRef: {{name: keys, key: AWS_ACCESS_KEY_ID}}}}}}
        - {{name: ROOT_SECRET_KEY, valueFrom: {{secretKeyRef: {{name: keys, key: AWS_SECRET_ACCESS_KEY}}}}}}
      readinessProbe: {{tcpSocket: {{port: 7070}}, periodSeconds: 1}}
      volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, emptyDir: {{}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: s3}}
spec:
  selector: {{app: s3}}
  ports: [{{port: 7070}}]
"""
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
    sharedStorage: {{s3: {s3}}}
  tn:
    replicas: 1
    cacheVolume: {{size: 5Gi}}
    sharedStorageCache: {{memoryCacheSize: 128Mi}}
  cnGroups:
    - name: tp
      replicas: 1
      sharedStorageCache: {{memoryCacheSize: 128Mi}}
  proxy: {{replicas: 1}}
"""
BACKUP = """
apiVersion: core.matrixorigin.io/v1alpha1
kind: BackupJob
metadata: {{name: {name}}}
spec:
  source: {{clusterRef: one}}
  target: {{s3: {s3}}}
  deletionPolicy: Delete
"""
RESTORE = """
apiVersion: core.matrixorigin.io/v1alpha1
kind: RestoreJob
metadata: {{name: {name}}}
spec:
  backupName: {backup}
  target: {{s3: {s3}}}
"""


def s3(path: str, **more: str) -> str:
    given = {"type": "minio", "endpoint": "http://s3.default.svc:7070", "region": "us-east-1", **more}
    fields = ", ".join(f'{name}: "{value}"' for name, value in {"path": f"store/{path}", **given}.items())
    return "{" + fields + ", secretRef: {name: keys}}"


def target(path: str) -> SharedStorageProvider:
    given = msgspec.convert(yaml.safe_load(s3(path)), S3Provider)
    return SharedStorageProvider(s3=given)


def catalog() -> Catalog:
    """With the S3 server, which no image of the node stands for."""
    shell = next(one for one in built_in() if one.name == "busybox")
    place = versitygw()
    server = Program(path=str(place))
    programs = {"versitygw": server, **shell.programs, "mkdir": Program(path="/usr/bin/mkdir")}
    image = Image(
        name="versitygw",
        match=("*/versitygw:*", "versitygw:*"),
        programs=programs,
        paths=(str(place.parent),),
    )
    return Catalog([image, *built_in()])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed(request: pytest.FixtureRequest) -> AsyncIterator[Bed | KubernetesBed]:
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with make_bed(
            request, path, operators=[OPERATOR], settings=SETTINGS, catalog=catalog()
        ) as running:
            await running.apply(STORE)
            await running.until(lambda: ready_pod(running, "s3"), "the S3 server is ready", within=60)
            await running.apply(CLUSTER.format(name="one", restore="", s3=s3("one")))
            yield running
            await cleared(running)
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def ready_pod(bed: Beds, name: str) -> bool:
    found = await bed.get(Pod, name)
    conditions = (found.status.conditions if found.status else None) or []
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


async def ready(bed: Beds, name: str) -> bool:
    found = await bed.get(MatrixOneCluster, name)
    conditions = (found.status.conditions if found.status else None) or []
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


async def is_refused(bed: Bed, name: str) -> bool:
    found = await bed.get(MatrixOneCluster, name)
    conditions = (found.status.conditions if found.status else None) or []
    return any("spec.restoreFrom" in (one.message or "") for one in conditions)


async def pods_of(bed: Bed, cluster: str) -> dict[str, str]:
    """UIDs of its pods by their names."""
    found = await bed.client.list(
        Pod, namespace="default", label_selector=f"matrixorigin.io/cluster={cluster}"
    )
    pods = {one.metadata.name or "": one.metadata.uid or "" for one in found.items}
    assert len(pods) == 4, pods
    return pods


async def phase(bed: Beds, kind: Any, name: str) -> str:
    found = await bed.get(kind, name)
    said = found.status.phase if found.status is not None else None
    return said if said in ("Completed", "Failed") else ""


@asynccontextmanager
async def session(bed: Beds, cluster: str) -> AsyncIterator[Any]:
    service = await bed.get(Service, f"{cluster}-proxy")
    secret = await bed.get(Secret, f"{cluster}-credential")
    assert service.spec is not None
    connection = await asyncmy.connect(
        host=service.spec.cluster_ip,
        port=6001,
        user=secret_value(secret, "username"),
        password=secret_value(secret, "password"),
        autocommit=True,
        connect_timeout=30,
    )
    try:
        async with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


async def answers(bed: Beds, cluster: str) -> bool:
    """It is ready, and the proxy has learned of the compute node, which takes longer on a busy machine."""
    if not await ready(bed, cluster):
        return False
    try:
        async with session(bed, cluster) as cursor:
            await cursor.execute("select 1")
    except MySQLError:
        return False
    return True


async def digest(cursor: Any) -> tuple[int, str]:
    """The rows of the table, and a digest of them in their order."""
    await cursor.execute("select a, b from t.n order by a")
    rows = await cursor.fetchall()
    return len(rows), hashlib.sha256(repr(list(rows)).encode()).hexdigest()


async def make(bed: Beds, kind: Any, manifest: str, name: str) -> Any:
    """Apply a job and wait for its end."""
    await bed.apply(manifest)
    await bed.until(lambda: phase(bed, kind, name), f"{name} ends", within=180, every=0.2)
    return await bed.get(kind, name)


def objects(bed: Bed, below: str) -> list[str]:
    """What is stored, as the S3 server has it on its disk."""
    pid = bed.plane.agent.program_pid("default", "s3", "s3")
    root = Path(f"/proc/{pid}/root/data/store/{below}")
    return sorted(str(one.relative_to(root)) for one in root.rglob("*") if one.is_file())


async def gone(bed: Bed, kind: Any, name: str, namespace: str = "default") -> bool:
    try:
        await bed.client.get(kind, name, namespace=namespace)
    except NotFound:
        return True
    return False


async def test_a_backup_is_restored_into_a_new_cluster(bed: Bed) -> None:
    await bed.until(lambda: answers(bed, "one"), "the cluster on S3 serves", within=240, every=0.2)
    async with session(bed, "one") as cursor:
        await cursor.execute("create database t")
        await cursor.execute("create table t.n (a int primary key, b varchar(60))")
        await cursor.execute(
            "insert into t.n select result, concat('v', result) from generate_series(1, 20000) g"
        )
        before = await digest(cursor)
        assert before[0] == 20000

    done = await make(bed, BackupJob, BACKUP.format(name="first", s3=s3("backups")), "first")
    assert done.status.phase == "Completed", done.status
    async with session(bed, "one") as cursor:
        await cursor.execute("delete from t.n where a > 100")  # after the backup: it must not show in it
    backup = await bed.client.get(Backup, done.status.backup, namespace="")
    assert backup.meta is not None
    assert int(str(backup.meta.size)) == done.status.size_bytes > 100_000
    assert backup.meta.source_ref == "matrixonecluster/default/one"
    assert SECRET not in msgspec.json.encode(backup).decode() + str(done)

    # No key in the Job: neither in arguments nor in variables.
    jobs = (await bed.client.list(Job, namespace="default")).items
    assert jobs
    assert all(SECRET not in str(one) and KEY not in str(one) for one in jobs)

    # Never over live data: the path of the first cluster is refused, and so is that of the backups.
    refused = RESTORE.format(name="over", backup=done.status.backup, s3=s3("backups"))
    over = await make(bed, RestoreJob, refused, "over")
    assert (over.status.phase, over.status.reason) == ("Failed", "TargetInUse")

    await bed.apply(CLUSTER.format(name="two", restore=f"restoreFrom: {done.status.backup}", s3=s3("two")))
    await bed.until(lambda: answers(bed, "two"), "the restored cluster serves", within=240, every=0.2)
    async with session(bed, "two") as cursor:
        assert await digest(cursor) == before
        await cursor.execute("insert into t.n values (99999, 'new')")
    found = await bed.get(MatrixOneCluster, "two")
    assert found.status is not None
    assert found.status.restore is not None
    assert (found.status.restore.phase, found.status.restore.backup) == ("Founded", done.status.backup)

    # The field may go: nothing changes, and nothing is restored again, also when the log store restarts.
    log = await bed.get(LogSet, "two")
    others = await pods_of(bed, "two")
    await bed.client.patch(
        MatrixOneCluster, "two", MergePatch({"spec": {"restoreFrom": None}}), namespace="default"
    )
    pod = await bed.get(Pod, "two-log-0")
    await bed.client.delete(Pod, "two-log-0", namespace="default")

    async def restarted() -> bool:
        try:
            now = await bed.get(Pod, "two-log-0")
        except NotFound:
            return False
        return now.metadata.uid != pod.metadata.uid and await ready(bed, "two")

    await bed.until(restarted, "the log store is back", within=240, every=0.2)
    assert (await bed.get(LogSet, "two")).spec == log.spec
    assert {name: uid for name, uid in others.items() if name != "two-log-0"}.items() <= (
        await pods_of(bed, "two")
    ).items()

    # Another backup is refused: it names the field, and the cluster serves on.
    change = MergePatch({"spec": {"restoreFrom": "another"}})
    await bed.client.patch(MatrixOneCluster, "two", change, namespace="default")
    await bed.until(lambda: is_refused(bed, "two"), "the change is refused", within=60, every=0.2)
    change = MergePatch({"spec": {"restoreFrom": None}})
    await bed.client.patch(MatrixOneCluster, "two", change, namespace="default")
    async with asyncio.timeout(60):
        async with session(bed, "two") as cursor:
            assert (await digest(cursor))[0] == 20001


async def test_no_key_shows_in_process_lists(bed: Bed) -> None:
    text = backup_statement("shown", target("shown"), Keys(id=KEY, secret=SECRET))

    async def back_up() -> None:
        async with session(bed, "one") as cursor:
            await cursor.execute(text)

    # The S3 server holds its answers back until the statement was seen.
    bed.kill("default", "s3", "s3", signal.SIGSTOP)
    try:
        running = asyncio.create_task(back_up())
        seen: list[str] = []

        async def listed() -> bool:
            async with session(bed, "one") as cursor:
                await cursor.execute("show processlist")
                seen[:] = [str(row) for row in await cursor.fetchall() if "s3option" in str(row)]
            return bool(seen)

        await bed.until(listed, "the statement is in the process list", within=30, every=0.2)
    finally:
        bed.kill("default", "s3", "s3", signal.SIGCONT)
    await running
    assert all("******" in one and SECRET not in one and KEY not in one for one in seen), seen


async def verified(bed: Beds, name: str) -> Any:
    """The BackupJob once its test restore is over, if it is."""
    found = await bed.get(BackupJob, name)
    known = found.status.verified if found.status is not None else None
    return found if known is not None and known.at is not None else None


async def test_a_backup_is_verified_by_a_server_that_starts_on_a_copy_of_it(bed: Bed) -> None:
    await bed.apply(BACKUP.format(name="first", s3=s3("backups")) + "  verify: true\n")
    await bed.until(lambda: verified(bed, "first"), "the backup is tried out", within=180, every=0.2)
    job = await bed.get(BackupJob, "first")
    assert job.status is not None
    known = job.status.verified
    assert known is not None
    assert known.passed, known.message
    assert "20000 rows in 1 tables" in known.message
    assert "1 tables and views listed at the backup are there" in known.message
    assert known.size_bytes > 100_000
    (backup,) = (await bed.client.list(Backup, namespace="")).items
    assert backup.status is not None
    assert backup.status.verified == known
    # The copy is gone, the backup is whole: it can be restored.
    found = objects(bed, "backups")
    assert found
    assert not [one for one in found if "/verify/" in one]


async def rows_of(cursor: Any) -> tuple[int, str]:
    await cursor.execute("select a, b from c.n order by a")
    rows = await cursor.fetchall()
    return len(rows), hashlib.sha256(repr(list(rows)).encode()).hexdigest()


async def fill(cursor: Any, first: int, last: int) -> None:
    values = f"select result, concat('v', result) from generate_series({first}, {last}) g"
    await cursor.execute(f"insert into c.n {values}")


TOOL = """
  image: mariadb:10.11
  verify: true
  overlay:
    command: [sh, -ec]
    args:
      - |
        printf '[client]\\nuser=%s\\npassword=%s\\n' "$(cat "$BACKUP_LOGIN/username")" "$(cat "$BACKUP_LOGIN/password")" >/tmp/login
        mariadb --defaults-file=/tmp/login --host="$BACKUP_HOST" --port="$BACKUP_PORT" --skip-ssl <<END
        backup '$BACKUP_ID' s3option {'endpoint'='$BACKUP_ENDPOINT', 'bucket'='$BACKUP_BUCKET', 'filepath'='$BACKUP_FILEPATH',
        'access_key_id'='$(cat "$BACKUP_KEYS/AWS_ACCESS_KEY_ID")', 'secret_access_key'='$(cat "$BACKUP_KEYS/AWS_SECRET_ACCESS_KEY")',
        'region'='$BACKUP_REGION', 'is_minio'='$BACKUP_IS_MINIO', 'compression'='', 'format'='jsonline', 'jsondata'='object',
        'parallelism'='$BACKUP_PARALLELISM'};
        END
"""


@pytest.mark.nightly
async def test_a_tool_of_the_users_writes_a_backup_and_it_is_checked_as_any_other(bed: Bed) -> None:
    text = BACKUP.format(name="by-tool", s3=s3("by-tool")) + TOOL
    done = await make(bed, BackupJob, text, "by-tool")
    assert done.status.phase == "Completed", done.status
    await bed.until(lambda: verified(bed, "by-tool"), "the backup is tried out", within=180, every=0.2)
    job = await bed.get(BackupJob, "by-tool")
    assert job.status is not None
    assert job.status.verified is not None
    assert job.status.verified.passed, job.status.verified.message


@pytest.mark.nightly
async def test_a_chain_of_incremental_backups_is_verified_and_restored(bed: Bed) -> None:
    await bed.until(lambda: answers(bed, "one"), "the cluster on S3 answers", within=240, every=0.2)

    async def back_up(name: str, base: str = "", *, verify: bool = False) -> Any:
        text = BACKUP.format(name=name, s3=s3("chain")) + f"  verify: {str(verify).lower()}\n"
        text += f"  incrementalFrom: {base}\n" if base else ""
        job = await make(bed, BackupJob, text, name)
        assert job.status.phase == "Completed", job.status
        return job.status

    async with session(bed, "one") as cursor:
        await cursor.execute("create database c")
        await cursor.execute("create table c.n (a int primary key, b varchar(60))")
        await fill(cursor, 1, 60000)
    full = await back_up("chain-1")
    async with session(bed, "one") as cursor:
        await fill(cursor, 60001, 70000)
        await cursor.execute("delete from c.n where a <= 100")
    second = await back_up("chain-2", full.backup)
    async with session(bed, "one") as cursor:
        await cursor.execute("update c.n set b = 'changed' where a between 1000 and 2000")
        await fill(cursor, 70001, 71000)
        before = await rows_of(cursor)
        assert before[0] == 70900
    third = await back_up("chain-3", second.backup, verify=True)
    assert (full.base, second.base, third.base) == (None, full.backup, second.backup)
    async with session(bed, "one") as cursor:
        await cursor.execute("drop table c.n")  # after the backup: it must not show in it
    await bed.until(lambda: verified(bed, "chain-3"), "the chain is tried out", within=180, every=0.2)
    known = (await bed.get(BackupJob, "chain-3")).status.verified  # type: ignore[union-attr]
    assert known is not None
    assert known.passed, known.message
    assert known.size_bytes > third.size_bytes, "the throw-away server has objects of the whole chain"

    await bed.apply(CLUSTER.format(name="three", restore=f"restoreFrom: {third.backup}", s3=s3("three")))
    await bed.until(lambda: answers(bed, "three"), "the restored cluster answers", within=240, every=0.2)
    async with session(bed, "three") as cursor:
        assert await rows_of(cursor) == before
        await cursor.execute("insert into c.n values (0, 'new')")
    await bed.client.delete(MatrixOneCluster, "three", namespace="default")

    # An object of the full one is lost: that is noticed, and the next backup is full, and whole by itself.
    pid = bed.plane.agent.program_pid("default", "s3", "s3")
    root = Path(f"/proc/{pid}/root/data/store/chain/{full.prefix}")
    lost = next(one for one in sorted((root / "tae").iterdir()) if one.name.endswith("_00000"))
    lost.unlink()
    fourth = await back_up("chain-4", third.backup)
    assert fourth.base is None
    assert "a full backup was made" in (fourth.message or "")
    assert lost.name in (fourth.message or "")

    names = [one.backup for one in (full, second, third, fourth)]
    for name in names:
        await bed.client.delete(Backup, name, namespace="")
    for name in names:
        await bed.until(partial(gone, bed, Backup, name, ""), f"{name} is gone", within=90, every=0.1)
    assert objects(bed, "chain") == []


async def test_a_damaged_backup_is_never_called_good(bed: Bed) -> None:
    done = await make(bed, BackupJob, BACKUP.format(name="second", s3=s3("damaged")), "second")
    assert done.status.phase == "Completed", done.status
    pid = bed.plane.agent.program_pid("default", "s3", "s3")
    root = Path(f"/proc/{pid}/root/data/store/damaged/{done.status.prefix}")
    lost = next(one for one in sorted((root / "tae").iterdir()) if one.name.endswith("_00000"))
    lost.unlink()
    change = MergePatch({"spec": {"verify": True}})
    await bed.client.patch(BackupJob, "second", change, namespace="default")
    await bed.until(lambda: verified(bed, "second"), "the backup is tried out", within=120, every=0.2)
    job = await bed.get(BackupJob, "second")
    assert job.status is not None
    assert (job.status.phase, job.status.reason) == ("Failed", "ObjectCorrupt")
    assert lost.name in (job.status.message or "")
    states = {one.type: one.status for one in job.status.conditions or ()}
    assert (states["BackupVerified"], states["Ready"]) == ("False", "False")
    assert not [one for one in objects(bed, "damaged") if "/verify/" in one]
    await bed.client.delete(Backup, done.status.backup, namespace="")
    await bed.until(lambda: gone(bed, Backup, done.status.backup, ""), "it is gone", within=60, every=0.1)


async def test_stored_data_goes_with_its_backup(bed: Bed) -> None:
    listed = await bed.client.list(Backup, namespace="")
    backup = next(one for one in listed.items if (one.metadata.name or "").startswith("first-"))
    assert objects(bed, "backups")
    await bed.client.delete(Backup, backup.metadata.name or "", namespace="")
    name = backup.metadata.name or ""
    await bed.until(lambda: gone(bed, Backup, name, ""), "the Backup is gone", within=60, every=0.1)
    assert objects(bed, "backups") == []
