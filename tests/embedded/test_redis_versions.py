"""Old servers, built from source: what depends on the version holds on 5.0 and 3.2 as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hack.old_redis import VERSIONS, build
from tests.embedded.conftest import QUICK_SENTINELS, make_bed
from tests.embedded.test_redis_backup import Backups, checksum, filled
from tests.embedded.test_redis_password import all_take, incarnations

from mooring.kube.objects.core import Pod
from mooring.local.node.images import load
from mooring.operators.redis.dial import Unreachable
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.full, pytest.mark.timeout(400)]

FIRST, SECOND = 'fir"st one', "second \\ two"


@pytest.fixture(
    params=[pytest.param(one, marks=[pytest.mark.nightly] if one == "3.2" else []) for one in VERSIONS]
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def old_bed(
    version: str, directory: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Bed | KubernetesBed]:
    """A control plane whose image of that version is a real server of it."""
    programs = await asyncio.to_thread(build, version)
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(
        f"""images:
- name: redis-{version}
  extends: redis
  match: ["redis:{version}*"]
  programs: {{redis-server: {programs}/redis-server, redis-cli: {programs}/redis-cli}}
  paths: [{programs}]
"""
    )
    async with make_bed(request, directory, catalog=load(catalog)) as running:
        yield running


async def test_passwords_change_and_a_dead_master_is_replaced(old_bed: Bed, version: str) -> None:
    document = manifest("old", sentinel_settings=QUICK_SENTINELS)
    document["spec"]["image"] = document["spec"]["sentinel"]["image"] = f"redis:{version}"
    stage = RedisStage(old_bed, "old")
    await old_bed.apply(document)
    await stage.exact(60)
    before = await incarnations(stage)

    for password in (FIRST, SECOND):
        await stage.patch({"password": password})
        async with stage.writing(password=tuple(filter(None, (password, stage.password)))) as ledger:
            stage.password = password
            await stage.exact(60)
            await stage.writes(ledger, 50)
        report = await ledger.check()
        assert report.lost_acknowledged == 0, report.text()
        assert await all_take(stage, password) == [True] * 3
        assert await all_take(stage, "") == [False] * 3
    assert await incarnations(stage) == before

    sentinel, master = stage.names.pod("sentinel", 0), await stage.master()
    await stage.restarted({sentinel: stage.kill(sentinel)})
    await stage.exact(60)
    await stage.restarted({master: stage.kill(master)})
    await stage.exact(60)
    assert await stage.master() != master

    await stage.patch({"password": None})
    stage.password = ""
    await stage.exact(60)
    assert await all_take(stage, "") == [True] * 3
    await stage.delete(claims=True)


async def test_a_roll_loses_nothing(old_bed: Bed, version: str) -> None:
    document = manifest("old", sentinel_settings=QUICK_SENTINELS)
    document["spec"]["image"] = document["spec"]["sentinel"]["image"] = f"redis:{version}"
    stage = RedisStage(old_bed, "old")
    await old_bed.apply(document)
    await stage.exact(60)
    async with stage.writing() as ledger:
        await stage.patch({"annotations": {"team": "a"}})
        await stage.exact(150)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    last = (await stage.status()).last_failover
    assert last is not None
    assert last.cause == "Planned"
    await stage.delete(claims=True)


async def everywhere(stage: RedisStage, count: int) -> None:
    """Every server holds every key of the last writing."""
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", count) == count, pod.metadata.name


@pytest.mark.parametrize("persistence", [True, False], ids=["persistent", "in-memory"])
@pytest.mark.nightly
async def test_no_restart_costs_a_key(old_bed: Bed, version: str, persistence: bool) -> None:
    document = manifest("old", persistence=persistence, sentinel_settings=QUICK_SENTINELS)
    document["spec"]["image"] = document["spec"]["sentinel"]["image"] = f"redis:{version}"
    stage = RedisStage(old_bed, "old")
    await old_bed.apply(document)
    await stage.exact(60)
    await stage.fill(2000)

    # The master comes back at once, and empty.
    master = await stage.master()
    pid = stage.pid(master)
    await asyncio.to_thread(stage.kill_empty, master)
    await stage.restarted({master: pid})
    await stage.exact(60)
    await everywhere(stage, 2000)
    if persistence:
        # Everything restarts at once.
        names = [pod.metadata.name or "" for pod in await stage.pods()]
        await stage.restarted({name: stage.kill(name) for name in names})
        await stage.exact(60)
        await everywhere(stage, 2000)
        # Every pod comes back with another address.
        for name in names:
            await old_bed.client.delete(Pod, name, namespace="default", grace_period=0)
        await stage.exact(60)
        await everywhere(stage, 2000)
    await stage.delete(claims=True)


@pytest.mark.nightly
async def test_a_second_master_follows_the_first(old_bed: Bed, version: str) -> None:
    document = manifest("old", sentinel_settings=QUICK_SENTINELS)
    document["spec"]["image"] = document["spec"]["sentinel"]["image"] = f"redis:{version}"
    stage = RedisStage(old_bed, "old")
    await old_bed.apply(document)
    await stage.exact(60)
    await stage.fill(500)
    master = await stage.master()
    replica = next(one for one in (await stage.status()).replicas or () if one != master)

    await stage.call(replica, "SLAVEOF", "NO", "ONE")
    await old_bed.until(lambda: follows(stage, replica), f"{replica} follows again", within=30)

    await stage.exact(60)
    await everywhere(stage, 500)
    await stage.delete(claims=True)


async def follows(stage: RedisStage, pod: str) -> bool:
    try:
        role = await stage.call(pod, "ROLE")
    except Unreachable:
        return False  # a master that is made to follow cuts its clients off
    return bool(role[0] == "slave" and role[3] == "connected")


@pytest.mark.nightly
async def test_a_backup_is_restored_with_every_key(old_bed: Bed, version: str) -> None:
    document = manifest("old", password=FIRST, sentinel_settings=QUICK_SENTINELS)
    document["spec"]["image"] = document["spec"]["sentinel"]["image"] = f"redis:{version}"
    stage = RedisStage(old_bed, "old", password=FIRST)
    await old_bed.apply(document)
    await stage.exact(60)
    before = await filled(stage, 1000)
    backups = Backups(old_bed, "old")
    await backups.make("kept", await backups.claim(), verify=True)
    await backups.over("kept")

    async def verified() -> bool:
        known = (await backups.status("kept")).verified
        return known is not None and known.passed

    await old_bed.until(verified, "the backup was verified", within=90)
    document["metadata"]["name"] = "new"
    document["spec"] |= {"password": SECOND, "restoreFrom": {"backup": "kept"}}
    copy = RedisStage(old_bed, "new", password=SECOND)
    await old_bed.apply(document)
    await copy.exact(90)
    assert await checksum(copy) == before
    for pod in await copy.pods("redis"):
        assert await copy.call(pod.metadata.name or "", "DBSIZE") == 1002
    for one in (copy, stage):
        await one.delete(claims=True)
