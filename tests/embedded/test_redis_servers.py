"""One life of each kind of RedisCluster on every version of Redis and Valkey that can be had: real servers of it.

The newest of each kind are in the tier ``full``, the others in ``nightly``. What cannot be fetched or built is an error
that says what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.conftest import QUICK_SENTINELS, make_bed
from tests.embedded.test_redis_backup import Backups, checksum, filled
from tests.operators.redis.cluster import stage as rec
from tests.operators.redis.programs import ALL, IMAGES, programs

from mooring.local.node.images import load
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(600)]

SECOND = "second \\ two"
#: Tests of their own run on them: test_redis_versions.py, test_rec_versions.py, and all others on 7.0.
ELSEWHERE = ("redis:3.2", "redis:5.0", "redis:7.0")


@pytest.fixture(params=[one for one in ALL if one.values[0] not in ELSEWHERE])
def image(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def old_bed(
    image: str, directory: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Bed | KubernetesBed]:
    """A control plane whose image of that version is a real server of it."""
    catalog = None
    if image not in IMAGES:
        place = await asyncio.to_thread(programs, image)
        file = tmp_path / "catalog.yaml"
        file.write_text(
            f"""images:
- name: redis-{image.partition(":")[2]}
  extends: redis
  match: ["{image}*"]
  programs: {{redis-server: {place}/redis-server, redis-cli: {place}/redis-cli}}
  paths: [{place}]
"""
        )
        catalog = load(file)
    async with make_bed(request, directory, catalog=catalog) as running:
        yield running


def runs(version: str | None, image: str) -> bool:
    """Whether a version that status shows is of the series that an image's tag names."""
    kind, _, series = image.partition(":")
    shown = version or ""
    return shown.startswith("Valkey ") == (kind == "valkey") and shown.removeprefix("Valkey ").startswith(
        f"{series}."
    )


async def versions(stage: RedisStage) -> list[str | None]:
    return [node.version for node in (await stage.status()).nodes or ()]


async def verified(backups: Backups, name: str) -> None:
    """Wait until a test restore of the backup ended, and see that it passed."""

    async def done() -> bool:
        known = (await backups.status(name)).verified
        return known is not None and known.at is not None

    await backups.bed.until(done, "the backup was verified", within=120)
    known = (await backups.status(name)).verified
    assert known is not None
    assert known.passed, known.message


async def test_a_life_with_sentinels(old_bed: Bed, image: str) -> None:
    stage = RedisStage(old_bed, "life")
    document: dict[str, Any] = manifest("life", image=image, sentinel_settings=QUICK_SENTINELS)
    document["spec"]["sentinel"]["image"] = image
    await old_bed.apply(document)
    await stage.exact(120)
    shown = await versions(stage)
    assert len(shown) == 3
    assert all(runs(one, image) for one in shown), shown
    await stage.fill(1000)

    # A password, then a crash of the master, a planned switch with every pod new, and one replica more.
    await stage.patch({"password": SECOND})
    async with stage.writing(password=(SECOND, "")) as ledger:
        stage.password = SECOND
        await stage.exact(90)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    master = await stage.master()
    await stage.restarted({master: stage.kill(master)})
    await stage.exact(90)
    assert await stage.master() != master
    async with stage.writing() as ledger:
        await stage.patch({"annotations": {"team": "a"}})
        await stage.exact(180)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    last = (await stage.status()).last_failover
    assert last is not None
    assert last.cause == "Planned"
    await stage.patch({"size": 4})
    await stage.exact(90)
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", 1000) == 1000

    await expiring_fields(stage)
    before = await filled(stage, 1000)
    backups = Backups(old_bed, "life")
    await backups.make("kept", await backups.claim(), verify=True)
    await backups.over("kept")
    await verified(backups, "kept")
    document["metadata"]["name"] = "new"
    document["spec"] |= {"password": "another", "restoreFrom": {"backup": "kept"}}
    copy = RedisStage(old_bed, "new", password="another")
    await old_bed.apply(document)
    await copy.exact(120)
    assert await checksum(copy) == before
    for one in (copy, stage):
        await one.delete(claims=True)


async def expiring_fields(stage: RedisStage) -> None:
    """A hash with a field that ends, where the version has such; the value that RDB formats differ in most."""
    master = await stage.master()
    if await stage.call(master, "COMMAND", "INFO", "HPEXPIREAT") == [None]:
        return
    await stage.call(master, "HSET", "expiring", "a", "1", "b", "2")
    await stage.call(master, "HPEXPIREAT", "expiring", "4102444800000", "FIELDS", "1", "a")


async def test_a_life_with_slots(old_bed: Bed, image: str) -> None:
    stage = rec.Stage(old_bed, "life")
    document = rec.manifest("life", pod={"middlewareImage": image})
    await old_bed.apply(document)
    await stage.exact(6, within=150)
    first = next(iter(await stage.owned()))
    info = await stage.call(first, "INFO", "server")
    assert f"{'valkey' if image.startswith('valkey') else 'redis'}_version:{image.partition(':')[2]}" in info
    await stage.fill(2000)

    document["spec"]["pod"][0]["requirepass"] = SECOND
    await old_bed.apply(document)
    stage.password = SECOND
    await stage.exact(6, within=150)
    old_bed.kill("default", first, "redis")
    await stage.exact(6, within=150)
    uids = {pod.metadata.uid for pod in await stage.pods()}
    async with stage.writing() as report:
        document["spec"]["pod"][0]["annotations"] = {"team": "a"}
        await old_bed.apply(document)
        await rec.renewed(stage, uids)
        await stage.exact(6, within=150)
        document["spec"]["replicas"] = 8
        await old_bed.apply(document)
        await stage.exact(8, within=150)
    assert await stage.kept(2000) == 2000
    assert await stage.lost(report) == []

    backups = Backups(old_bed, "life", "redis.middleware.hc.cn")
    await backups.make("shards", await backups.claim(), verify=True)
    await backups.over("shards")
    await verified(backups, "shards")
    document["metadata"]["name"] = "new"
    document["spec"] |= {"replicas": 6, "restoreFrom": {"backup": "shards"}}
    copy = rec.Stage(old_bed, "new", password=SECOND)
    await old_bed.apply(document)
    await copy.exact(6, within=180)
    assert await copy.kept(2000) == 2000
    for one in (copy, stage):
        await one.delete()
