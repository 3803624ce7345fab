"""One life of each kind of RedisCluster on every version of Redis and Valkey that can be had: real servers of it.

The newest of each kind are in the tier ``full``, the others in ``nightly``. What cannot be fetched or built is an error
that says what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.conftest import QUICK_SENTINELS, make_bed
from tests.embedded.test_redis_backup import Backups, checksum, filled
from tests.embedded.test_redis_tls import both, pair, put
from tests.embedded.test_redis_users import APP, all_let_in, give, user
from tests.operators.redis.cluster import stage as rec
from tests.operators.redis.programs import ALL, IMAGES, programs

from mooring.local.node.images import load
from mooring.operators.redis.versions import capabilities
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(1800)]

ENDS = 400.0
"""Seconds after which a wait is given up: nothing here is about how fast it is."""
WITH_TLS = ("redis:7.2", "redis:7.4", *IMAGES)
"""What was built with TLS; older ones, and the wheel of 8.2, were not."""
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

    await backups.bed.until(done, "the backup was verified", within=ENDS)
    known = (await backups.status(name)).verified
    assert known is not None
    assert known.passed, known.message


async def test_a_life_with_sentinels(old_bed: Bed, image: str) -> None:
    stage = RedisStage(old_bed, "life")
    document: dict[str, Any] = manifest("life", image=image, sentinel_settings=QUICK_SENTINELS)
    document["spec"]["sentinel"]["image"] = image
    await old_bed.apply(document)
    await stage.exact(ENDS)
    shown = await versions(stage)
    assert len(shown) == 3
    assert all(runs(one, image) for one in shown), shown
    await stage.fill(1000)

    # A password, then a crash of the master, a planned switch with every pod new, and one replica more.
    await stage.patch({"password": SECOND})
    async with stage.writing(password=(SECOND, "")) as ledger:
        stage.password = SECOND
        await stage.exact(ENDS)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    master = await stage.master()
    await stage.restarted({master: stage.kill(master)})
    await stage.exact(ENDS)
    assert await stage.master() != master
    async with stage.writing() as ledger:
        await stage.patch({"annotations": {"team": "a"}})
        await stage.exact(ENDS)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    last = (await stage.status()).last_failover
    assert last is not None
    assert last.cause == "Planned"
    await stage.patch({"size": 4})
    await stage.exact(ENDS)
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", 1000) == 1000

    if capabilities(shown[0] or "").acl:
        await give(stage, APP[0], APP[1])
        await stage.patch({"users": [user(stage, APP[0], "~app:*", "+@all")]})

        async def let_in() -> bool:
            return await all_let_in(stage, *APP) == [True] * 4

        await old_bed.until(let_in, "every server knows the user", within=ENDS)
        await stage.exact(ENDS)
    await expiring_fields(stage)
    await old_bed.until(partial(leads, stage), "the cluster has a master", within=ENDS)
    before = await filled(stage, 1000)
    backups = Backups(old_bed, "life")
    await backups.make("kept", await backups.claim(), verify=True)
    await backups.over("kept")
    await verified(backups, "kept")
    document["metadata"]["name"] = "new"
    document["spec"] |= {"password": "another", "restoreFrom": {"backup": "kept"}}
    trusted = None
    if image in WITH_TLS:
        made = pair()
        await put(old_bed, "own-tls", made)
        document["spec"]["tls"] = {"enabled": True, "secretName": "own-tls"}
        trusted = both(made)
    copy = RedisStage(old_bed, "new", password="another", tls=trusted)
    await old_bed.apply(document)
    await copy.exact(ENDS)
    await old_bed.until(partial(leads, copy), "the new cluster has a master", within=ENDS)
    assert await checksum(copy) == before
    for one in (copy, stage):
        await one.delete(claims=True)


async def leads(stage: RedisStage) -> bool:
    """Whether the status names a master: on a busy machine it may be without one for a moment."""
    return bool((await stage.status()).master)


async def expiring_fields(stage: RedisStage) -> None:
    """A hash with a field that ends, where the version has such; the value that RDB formats differ in most."""
    master = await stage.master()
    if await stage.call(master, "COMMAND", "INFO", "HPEXPIREAT") == [None]:
        return
    await stage.call(master, "HSET", "expiring", "a", "1", "b", "2")
    await stage.call(master, "HPEXPIREAT", "expiring", "4102444800000", "FIELDS", "1", "a")


@pytest.mark.nightly
async def test_a_life_with_slots(old_bed: Bed, image: str) -> None:
    stage = rec.Stage(old_bed, "life")
    document = rec.manifest("life", pod={"middlewareImage": image})
    await old_bed.apply(document)
    await stage.exact(6, within=ENDS)
    first = next(iter(await stage.owned()))
    info = await stage.call(first, "INFO", "server")
    assert f"{'valkey' if image.startswith('valkey') else 'redis'}_version:{image.partition(':')[2]}" in info
    await stage.fill(2000)

    document["spec"]["pod"][0]["requirepass"] = SECOND
    await old_bed.apply(document)
    stage.password = SECOND
    await stage.exact(6, within=ENDS)
    old_bed.kill("default", first, "redis")
    await stage.exact(6, within=ENDS)
    uids = {pod.metadata.uid for pod in await stage.pods()}
    async with stage.writing() as report:
        document["spec"]["pod"][0]["annotations"] = {"team": "a"}
        await old_bed.apply(document)
        await old_bed.until(lambda: renewed(stage, uids), "every pod is a new one", within=ENDS)
        await stage.exact(6, within=ENDS)
        document["spec"]["replicas"] = 8
        await old_bed.apply(document)
        await stage.exact(8, within=ENDS)
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
    await copy.exact(6, within=ENDS)
    assert await copy.kept(2000) == 2000
    for one in (copy, stage):
        await one.delete(within=ENDS)


async def renewed(stage: rec.Stage, uids: set[str | None]) -> bool:
    """Whether none of these pods is there any more."""
    return not uids & {pod.metadata.uid for pod in await stage.pods()}


# --- from one to another ---------------------------------------------------------------------------------


@pytest.fixture
async def bed_of_changes(
    directory: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Bed | KubernetesBed]:
    """A control plane with Redis 8.0 and Valkey, and an image whose name does not say that it is Valkey."""
    file = tmp_path / "catalog.yaml"
    file.write_text('images:\n- {name: own, extends: valkey, match: ["team/own:*"]}\n')
    async with make_bed(request, directory, catalog=load(file)) as running:
        yield running


async def stalled(stage: RedisStage, reason: str) -> str:
    """Wait for the reason in the condition Stalled; its message."""

    async def said() -> bool:
        return (await stage.condition("Stalled"))[:2] == ("True", reason)

    await stage.bed.until(said, f"Stalled says {reason}", within=ENDS)
    return (await stage.condition("Stalled"))[2]


async def by_uid(stage: RedisStage) -> dict[str, str | None]:
    return {pod.metadata.name or "": pod.metadata.uid for pod in await stage.pods("redis")}


@pytest.mark.full
async def test_redis_7_becomes_valkey_and_redis_8_does_not(bed_of_changes: Bed) -> None:
    stage = RedisStage(bed_of_changes, "over")
    await bed_of_changes.apply(manifest("over", sentinel_settings=QUICK_SENTINELS))
    await stage.exact(ENDS)
    await stage.fill(1000)
    async with stage.writing() as ledger:
        await stage.patch({"image": "valkey:8.1", "sentinel": {"image": "valkey:8.1"}})
        await stage.exact(ENDS)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert all(runs(one, "valkey:8.1") for one in await versions(stage))
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", 1000) == 1000

    # What Redis 8 reads of it it never gives back: first by the tag, then by the first replica that fails.
    await stage.patch({"image": "redis:8.0"})
    await stage.exact(ENDS)
    assert all(runs(one, "redis:8.0") for one in await versions(stage))
    before = await by_uid(stage)
    await stage.patch({"image": "valkey:8.1"})
    message = await stalled(stage, "VersionRefused")
    assert "valkey:8.1 cannot read the files of Redis 8.0" in message
    assert await by_uid(stage) == before
    await stage.patch({"image": "team/own:8.1"})
    message = await stalled(stage, "RollHalted")
    assert stage.names.pod("redis", 2) in message or stage.names.pod("redis", 1) in message
    assert "cannot read" in message
    await stage.patch({"image": "redis:8.0"})
    await stage.exact(ENDS)
    now = await by_uid(stage)
    assert len([name for name in before if now[name] != before[name]]) == 1
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", 1000) == 1000
    await stage.delete(claims=True)


@pytest.mark.nightly
async def test_slots_move_from_redis_7_to_valkey_and_not_from_redis_8(bed_of_changes: Bed) -> None:
    stage = rec.Stage(bed_of_changes, "over")
    document = rec.manifest("over")

    async def become(image: str) -> None:
        document["spec"]["pod"][0]["middlewareImage"] = image
        await bed_of_changes.apply(document)

    async def fails(reason: str) -> str:
        async def said() -> bool:
            return (await stage.status()).reason_type == reason

        await bed_of_changes.until(said, f"the status says {reason}", within=ENDS)
        return (await stage.status()).reason or ""

    await bed_of_changes.apply(document)
    await stage.exact(6, within=ENDS)
    await stage.fill(1000)
    for image in ("valkey:8.1", "redis:8.0"):
        uids = {pod.metadata.uid for pod in await stage.pods()}
        async with stage.writing() as report:
            await become(image)
            await bed_of_changes.until(partial(renewed, stage, uids), "every pod is a new one", within=ENDS)
            await stage.exact(6, within=ENDS)
        assert await stage.lost(report) == []
        assert await stage.kept(1000) == 1000
    uids = {pod.metadata.uid for pod in await stage.pods()}
    await become("valkey:8.1")
    assert "valkey:8.1 cannot read the files of Redis 8.0" in await fails("UpgradeFailed")
    assert {pod.metadata.uid for pod in await stage.pods()} == uids
    await become("team/own:8.1")
    assert "cannot read" in await fails("UpgradeFailed")
    await become("redis:8.0")
    await stage.exact(6, within=ENDS)
    assert len(uids - {pod.metadata.uid for pod in await stage.pods()}) == 1
    assert await stage.kept(1000) == 1000
    await stage.delete(within=ENDS)
