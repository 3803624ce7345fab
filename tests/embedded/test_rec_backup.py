"""Backups of real Redis Clusters: every shard from a replica, with its slots."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.embedded.conftest import Make
from tests.embedded.test_redis_backup import Backups

from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import Pod
from mooring.operators.backup.outcome import outcome_of

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


async def test_every_shard_is_read_from_a_replica_and_the_manifest_has_its_slots(make: Make) -> None:
    stage = await make(password="s3cret")
    await stage.fill(2000)
    backups = Backups(stage.bed, stage.name, "redis.middleware.hc.cn")
    await backups.make("shards", await backups.claim(), verify=True)
    status = await backups.over("shards")
    job = await stage.bed.get(Job, status.job or "")
    pods = [
        one
        for one in (await stage.bed.client.list(Pod, namespace="default")).items
        if (one.metadata.labels or {}).get("batch.kubernetes.io/job-name") == job.metadata.name
    ]
    result = outcome_of(job, pods, now=datetime.now(UTC)).result
    assert result is not None
    facts = result.facts
    shards = [facts[f"slots.shard-{at}"] for at in range(3)]
    assert shards == ["0-5460", "5461-10922", "10923-16383"]
    masters = {one.name for one in (await stage.status()).conditions or () if one.type == "master"}
    assert not masters & set((facts.get("source") or "").split(","))
    keys = [int(facts[f"keys.shard-{at}"].partition(":")[2]) for at in range(3)]
    assert sum(keys) == 2000

    async def verified() -> bool:
        known = (await backups.status("shards")).verified
        return known is not None and known.at is not None

    await stage.bed.until(verified, "the backup was verified", within=90)
    known = (await backups.status("shards")).verified
    assert known is not None
    assert known.passed
    assert known.message.startswith("restored and checked: 2000 keys; "), known.message
