"""New Redis Clusters that begin with a backup, on real servers: of either kind of cluster, into another number of masters."""

from __future__ import annotations

import pytest
import pytest_asyncio
from tests.embedded.conftest import Make, MakeCluster
from tests.embedded.test_redis_backup import Backups, checksum, filled
from tests.embedded.test_redis_tls import both
from tests.operators.redis.cluster.stage import Stage

from mooring.kube.objects.core import Secret, Service
from mooring.testing.bed import Bed, KubernetesBed

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(shared_bed: Bed | KubernetesBed) -> Bed | KubernetesBed:
    """One control plane with both kinds of RedisCluster."""
    return shared_bed


async def services(stage: Stage) -> set[str]:
    found = (await stage.bed.client.list(Service, namespace="default")).items
    return {one.metadata.name or "" for one in found if (one.metadata.name or "").startswith(stage.name)}


@pytest.mark.full
async def test_shards_of_a_backup_are_served_by_another_number_of_masters(make: Make) -> None:
    stage = await make(password="s3cret")
    await stage.fill(2000)
    backups = Backups(stage.bed, stage.name, "redis.middleware.hc.cn")
    await backups.make("shards", await backups.claim())
    await backups.over("shards")
    waiting = await make(restoreFrom={"backup": "missing"}, exact=False)
    copy = await make(replicas=8, password='an other "one', restoreFrom={"backup": "shards"})
    assert await copy.kept(2000) == 2000
    restore = (await copy.status()).restore
    assert restore is not None
    assert (restore.phase, restore.tries, restore.backup) == ("Succeeded", 1, "shards")
    assert await services(copy) == {copy.name, f"{copy.name}-service"}
    status = await waiting.status()
    assert (status.phase, status.reason_type) == ("Failed", "BackupNotFound")
    assert await waiting.pods() == []
    # It happens once: what is written later stays.
    await copy.fill(2500)
    await copy.patch({"restoreFrom": None})
    await copy.exact(8)
    assert await copy.kept(2500) == 2500


@pytest.mark.full
@pytest.mark.nightly
async def test_a_master_that_dies_while_keys_come_costs_a_try_and_no_key(make: Make) -> None:
    stage = await make()
    await stage.fill(100_000)
    backups = Backups(stage.bed, stage.name, "redis.middleware.hc.cn")
    await backups.make("large", await backups.claim())
    await backups.over("large")
    copy = await make(restoreFrom={"backup": "large"}, exact=False)

    async def comes() -> bool:
        restore = (await copy.status()).restore
        if restore is None or restore.phase != "Running":
            return False
        return any([await copy.call(pod, "DBSIZE") for pod in await copy.owned()])

    await stage.bed.until(comes, "keys come", within=120)
    stage.bed.kill("default", next(iter(await copy.owned())), "redis")
    await copy.exact(6, within=180)
    assert await copy.kept(100_000) == 100_000


@pytest.mark.full
@pytest.mark.nightly
async def test_a_backup_goes_from_sentinels_to_a_cluster_that_takes_tls_and_back_and_other_databases_are_refused(
    cluster: MakeCluster, make: Make
) -> None:
    source = await cluster(password="s3cret")
    before = await filled(source, 1000)
    backups = Backups(source.bed, source.name)
    target = await backups.claim()
    await backups.make("one", target)
    await backups.over("one")
    master = (await source.status()).master or ""
    await source.call(master, "EVAL", "redis.call('SELECT', 3) redis.call('SET', 'other', 1)", 0)
    await source.exact()
    await backups.make("two", target)
    await backups.over("two")

    copy = await make(password="another", tls={"enabled": True}, restoreFrom={"backup": "one"}, exact=False)
    wrong = await make(restoreFrom={"backup": "two"}, exact=False)

    async def serves() -> bool:
        return (await copy.status()).phase == "Running"

    await source.bed.until(serves, "the copy serves", within=120)
    secret = await source.bed.get(Secret, f"{copy.name}-tls", "default")
    copy = Stage(source.bed, copy.name, password="another", tls=both(secret.data or {}))
    await copy.exact(6)
    sizes = [await copy.call(pod, "DBSIZE") for pod in await copy.owned()]
    assert sum(sizes) == 1002
    await Backups(source.bed, copy.name, "redis.middleware.hc.cn").make("three", target)
    await backups.over("three")
    back = await cluster(restoreFrom={"backup": "three"})
    assert await checksum(back) == before

    async def failed() -> bool:
        return (await wrong.status()).reason_type == "RestoreFailed"

    await source.bed.until(failed, "the restore failed", within=120)
    status = await wrong.status()
    assert status.phase == "Failed"
    assert "keys in the databases 3, and a Redis Cluster has database 0 alone" in (status.reason or "")
    conditions = {one.type: one.status for one in status.standard_conditions or ()}
    assert (conditions["Ready"], conditions["Stalled"]) == ("False", "True")
    assert await services(wrong) == set()
