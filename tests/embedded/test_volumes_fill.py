"""Volumes that fill up grow by themselves, of each kind of cluster.

The operators are a process of their own: they measure through the API server's sockets.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
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


@pytest.mark.nightly
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


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}M,mode=777", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(disk: Path, *, left: int) -> Path:
    """A file that leaves so many bytes."""
    found, filler = os.statvfs(disk), disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - left)
    return filler


def volume_at(disk: Path, *, claim: str, size: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": disk.name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "small",
            "claimRef": {"namespace": "default", "name": claim},
            "hostPath": {"path": str(disk)},
        },
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
async def test_a_mysql_cluster_without_room_holds_writes_and_loses_nothing(
    bed: Bed, directory: Path
) -> None:  # trap 22
    with ExitStack() as stack:
        disks = [stack.enter_context(small_disk(directory / f"disk-{number}", 220)) for number in range(3)]
        for number, disk in enumerate(disks):
            await bed.apply(volume_at(disk, claim=f"data-demo-{number}", size="220Mi"))
        await bed.apply(mysql_manifest("demo", storage={"size": "220Mi", "storageClass": "small"}))
        mysql = MySQLStage(bed, "demo")
        await mysql.exact(240)
        primary, term = await mysql.primary(), (await mysql.status()).term
        fillers = [fill(disk, left=6 << 20) for disk in disks]

        async with mysql.writing() as ledger:
            await mysql.patch({"storage": {"autogrow": {"maxSize": "220Mi"}}})

            async def held() -> bool:
                _, reason, message = await mysql.condition("Ready")
                return reason == "VolumeFull" and "% full" in message and "autogrow.maxSize" in message

            await bed.until(held, "writes are held", within=120)
            assert (await mysql.status()).phase == "ReadOnly"
            for filler in fillers:
                filler.unlink()
            await mysql.writes(ledger, 100, within=180)
            assert (await mysql.primary(), (await mysql.status()).term) == (primary, term)

            # The process ends with no room left: it waits for some, and is neither started again and again nor built again.
            filler = fill(disks[int(primary.rpartition("-")[2])], left=2 << 20)
            mysql.kill(primary)
            await mysql.led_by_another(primary, within=120)
            await mysql.writes(ledger, 100, within=120)
            filler.unlink()
            await mysql.whole(240)
        report = await ledger.check()
        assert report.lost_acknowledged == 0, report.text()
        assert not list(disks[int(primary.rpartition("-")[2])].glob("data.old*"))
        events = (await bed.client.list(Event, namespace="default")).items
        assert any(one.reason == "VolumeFull" for one in events)
        await mysql.delete(claims=True)


@pytest.mark.nightly
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
