"""Volumes that fill up grow by themselves, of each kind of cluster.

The operators are a process of their own: they measure through the API server's sockets.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.operators.redis.cluster.stage import Stage as Shards
from tests.operators.redis.cluster.stage import manifest as shards_manifest

from mooring.kube.objects.events import Event
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage
from mooring.testing.mysql_stage import manifest as mysql_manifest
from mooring.testing.process import operator_process, served
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture
async def bed(directory: Path) -> AsyncIterator[Bed]:
    async with Bed(directory, operators=()) as made, operator_process(made, directory, operators="*"):
        for group in ("redis.kun", "redis.middleware.hc.cn", "mysql.mooring.dev"):
            await served(made, group=group)
        yield made


def claim(size: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": "redis-data"}, "spec": spec}


async def test_a_full_volume_of_redis_is_reported_at_its_maximum_and_grows_once_it_may(bed: Bed) -> None:
    await bed.apply(manifest(storage={"persistentVolumeClaim": claim("32Mi")}))
    stage = RedisStage(bed, "demo")
    await stage.exact(240)
    before = {pod.metadata.uid for pod in await stage.pods("redis")}
    master = await stage.master()
    for number in range(28):
        await stage.call(master, "SET", f"large-{number}", os.urandom(1 << 19).hex())
    await stage.patch({"storage": {"autogrow": {"maxSize": "32Mi"}}})

    async def at_maximum() -> bool:
        status, _, message = await stage.condition("Stalled")
        return status == "True" and "the claims have maxSize 32Mi; raise maxSize, or delete data" in message

    await bed.until(at_maximum, "the maximum is reported", within=300)
    await stage.patch({"storage": {"autogrow": {"maxSize": "10Gi"}}})
    await stage.capacity("2Gi", within=300)
    await stage.patch({"size": 4})  # a later pod gets the grown size, and the spec keeps the declared one
    await stage.exact(240)

    assert set((await stage.capacities()).values()) == {"2Gi"}
    assert {pod.metadata.uid for pod in await stage.pods("redis")} > before  # none restarted
    status = await stage.status()
    assert status.autogrow is not None
    assert (status.autogrow.size, status.autogrow.reason) == ("2Gi", None)
    assert status.volumes is None
    events = (await bed.client.list(Event, namespace=stage.namespace)).items
    told = {one.reason: one.note or "" for one in events}
    assert "have maxSize 32Mi" in told["VolumesAtMaximum"]
    assert "the claims grow from 32Mi to 2Gi, maxSize is 10Gi" in told["VolumesFilling"]


async def test_volumes_of_mysql_and_of_a_redis_cluster_grow_as_well(bed: Bed) -> None:
    mysql = MySQLStage(bed, "files", flavor="mariadb")
    declared = mysql_manifest("files", size=1)
    # A new server's own files are more than a tenth of it.
    autogrow = {"maxSize": "3Gi", "thresholdPercent": 10}
    declared["spec"]["storage"] = {"size": "200Mi", "autogrow": autogrow}
    await bed.apply(declared)
    pair = shards_manifest("pair", replicas=2, storage={"autogrow": autogrow})
    pair["spec"]["volumeClaimTemplates"] = [claim("32Mi")]
    await bed.apply(pair)
    shards = Shards(bed, "pair")
    await mysql.capacity("2Gi", within=300)

    async def leads() -> str:
        return (await shards.status()).leader or ""

    await bed.until(leads, "the pair is led", within=300)
    for number in range(8):
        await shards.call(await leads(), "SET", f"large-{number}", os.urandom(1 << 19).hex())

    async def grown() -> bool:
        found = [(one.status.capacity if one.status else None) or {} for one in await shards.claims()]
        return found == [{"storage": "2Gi"}] * 2

    await bed.until(grown, "the volumes of the pair have 2Gi", within=300)
