"""Backups of real Redis servers: read from replicas under a writer, restored into a new cluster, deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.embedded.conftest import MakeCluster

from mooring.kube import NotFound
from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import PersistentVolumeClaim
from mooring.operators.backup.types import BackupStatus
from mooring.operators.redis.backup.types import RedisBackup
from mooring.testing.redis import RedisStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

KEYS = 5000


class Backups:
    """Backup objects of one bed, to one claim."""

    def __init__(self, bed: Any, cluster: str, group: str = "redis.kun") -> None:
        self.bed, self.cluster, self.group = bed, cluster, group

    async def claim(self) -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": f"backups-{self.cluster}", "namespace": "default"}
        await self.bed.apply(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        )
        return {"claim": {"name": metadata["name"]}}

    async def make(self, name: str, target: dict[str, Any], **spec: Any) -> None:
        cluster = {"group": self.group, "name": self.cluster}
        await self.bed.apply(
            {
                "apiVersion": "redis.mooring.dev/v1alpha1",
                "kind": "RedisBackup",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"cluster": cluster, "target": target, **spec},
            }
        )

    async def status(self, name: str) -> BackupStatus:
        return (await self.bed.get(RedisBackup, name)).status or BackupStatus()

    async def over(self, name: str, phase: str = "Succeeded") -> BackupStatus:
        async def ended() -> bool:
            return (await self.status(name)).phase in ("Succeeded", "Failed")

        await self.bed.until(ended, f"{name} ended", within=240)
        status = await self.status(name)
        assert status.phase == phase, status
        return status


async def until(bed: Any, check: Callable[[], Awaitable[bool]], what: str) -> None:
    await bed.until(check, what, within=90)


FILL = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'key:' .. i, string.rep(i, 10)) end"
DIGEST = """
local names, texts = redis.call('KEYS', '*'), {}
table.sort(names)
for at, name in ipairs(names) do texts[at] = redis.sha1hex(name .. redis.call('DUMP', name)) end
return #names .. ' ' .. redis.sha1hex(table.concat(texts))
"""


async def filled(stage: RedisStage, count: int = KEYS) -> str:
    """Write keys to the master; returns the checksum of the data."""
    master = (await stage.status()).master or ""
    await stage.call(master, "EVAL", FILL, 0, count)
    await stage.call(master, "SETEX", "volatile", 100000, "x")
    await stage.call(master, "RPUSH", "list", "a", "b", "c")
    return await checksum(stage)


async def checksum(stage: RedisStage) -> str:
    """How many keys the master has, and a digest of their names and values."""
    return str(await stage.call((await stage.status()).master or "", "EVAL", DIGEST, 0))


async def test_a_new_cluster_has_exactly_the_data_of_the_backup_and_its_own_password(
    cluster: MakeCluster,
) -> None:
    stage = await cluster(password='s3 cr"et')
    backups = Backups(stage.bed, stage.name)
    before = await filled(stage)
    await backups.make("first", await backups.claim(), verify=True)
    status = await backups.over("first")

    async def verified() -> bool:
        known = (await backups.status("first")).verified
        return known is not None and known.at is not None

    assert status.source != (await stage.status()).master
    assert status.tries == 1
    assert (status.size_bytes or 0) > KEYS
    assert (status.position or "").count(":") == 1
    await until(stage.bed, verified, "the backup was verified")
    known = (await backups.status("first")).verified
    assert known is not None
    assert known.passed
    assert known.message.startswith(f"restored and checked: {KEYS + 2} keys; "), known.message

    copy = await cluster(password="another", restoreFrom={"backup": "first"})
    assert await checksum(copy) == before
    for pod in await copy.pods("redis"):
        assert await copy.call(pod.metadata.name or "", "DBSIZE") == KEYS + 2
    found = await copy.status()
    assert found.restore is not None
    assert (found.restore.phase, found.restore.tries) == ("Succeeded", 1)
    assert found.master == copy.names.pod("redis", 0)
    # It happens once: what is written later survives the pods, and the Job is not made again.
    await copy.call(found.master, "SET", "later", "1")
    job = found.restore.job or ""
    await copy.bed.client.delete(Job, job, namespace="default")
    await copy.patch({"restoreFrom": None})
    await copy.exact()
    assert await copy.call((await copy.status()).master or "", "GET", "later") == "1"
    with pytest.raises(NotFound):
        await copy.bed.get(Job, job)


async def test_a_restore_never_runs_on_the_claims_of_an_earlier_cluster(cluster: MakeCluster) -> None:
    stage = await cluster()
    backups = Backups(stage.bed, stage.name)
    await filled(stage, 10)
    await backups.make("small", await backups.claim())
    await backups.over("small")
    copy = await cluster(exact=False, restoreFrom={"backup": "missing"})

    async def waits() -> bool:
        return (await copy.condition("Progressing"))[1] == "BackupNotFound"

    await until(stage.bed, waits, "the missing backup is named")
    with pytest.raises(NotFound):
        await stage.bed.get(PersistentVolumeClaim, f"redis-data-{copy.names.pod('redis', 0)}")


async def test_a_failed_restore_leaves_no_cluster_that_starts_empty(cluster: MakeCluster) -> None:
    stage = await cluster()
    backups = Backups(stage.bed, stage.name)
    target = await backups.claim()
    copy = await cluster(exact=False, restoreFrom={"target": target, "prefix": "none/backups/none"})

    async def failed() -> bool:
        return (await copy.condition("Stalled"))[1] == "RestoreFailed"

    await until(stage.bed, failed, "the restore failed")
    said = (await copy.condition("Stalled"))[2]
    assert f"no complete backup at none/backups/none in claim {target['claim']['name']};" in said
    status = await copy.status()
    assert status.restore is not None
    assert status.restore.phase == "Failed"
    head = (status.conditions or [])[0]
    assert (head.type, head.message) == ("Failed", f"RestoreFailed: {said}")
    assert await copy.pods("redis") == []
