"""What ends a backup of Redis in the middle: it is made again, and never called good before it is."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import MakeCluster
from tests.embedded.test_redis_backup import Backups

from mooring.kube.objects.core import Pod
from mooring.testing.redis import RedisStage

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

KEYS = 50_000
#: Without compression more than sockets and FIFOs hold.
FILL = "for i = ARGV[1], ARGV[1] + 9999 do redis.call('SET', 'key:' .. i, string.rep('x', 400)) end"


async def moving(stage: RedisStage, backups: Backups, name: str) -> Pod:
    """The pod of a backup that moves data."""

    async def pods() -> list[Pod]:
        job = (await backups.status(name)).job
        found = (await stage.bed.client.list(Pod, namespace="default")).items
        return [
            one
            for one in found
            if (one.metadata.labels or {}).get("batch.kubernetes.io/job-name") == job
            and one.status is not None
            and len([it for it in one.status.container_statuses or () if it.state and it.state.running]) == 2
        ]

    async def runs() -> bool:
        return bool(await pods())

    await stage.bed.until(runs, "the backup runs", within=60)
    return (await pods())[0]


@pytest.mark.parametrize("fault", ["pod", pytest.param("replica", marks=[pytest.mark.nightly])])
async def test_a_backup_that_is_cut_off_is_made_again_and_is_whole(cluster: MakeCluster, fault: str) -> None:
    stage = await cluster(password="s3cret", config={"rdbcompression": "no"})
    for first in range(0, KEYS, 10_000):
        await stage.call((await stage.status()).master or "", "EVAL", FILL, 0, first)
    await stage.exact()
    backups = Backups(stage.bed, stage.name)
    await backups.make(f"cut-{fault}", await backups.claim(), verify=True, bandwidth="2Mi")
    pod = await moving(stage, backups, f"cut-{fault}")
    if fault == "pod":
        await stage.bed.client.delete(Pod, pod.metadata.name or "", namespace="default", grace_period=0)
    else:
        source = (await backups.status(f"cut-{fault}")).source or ""

        async def read() -> bool:
            clients = str(await stage.call(source, "CLIENT", "LIST"))
            return any("flags=S" in one for one in clients.splitlines())

        await stage.bed.until(read, "the replica is being read", within=30)
        stage.kill(source)
    status = await backups.over(f"cut-{fault}")
    assert status.tries == 2

    async def verified() -> bool:
        known = (await backups.status(f"cut-{fault}")).verified
        return known is not None and known.at is not None

    await stage.bed.until(verified, "the backup was verified", within=90)
    known = (await backups.status(f"cut-{fault}")).verified
    assert known is not None
    assert known.passed
    assert known.message.startswith(f"restored and checked: {KEYS} keys; "), known.message
