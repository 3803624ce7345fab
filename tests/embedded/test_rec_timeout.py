"""A change that takes longer than `--cluster-timeout`: said, harmless, and ended by itself."""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import partial

import pytest
from tests.embedded.conftest import Make
from tests.operators.redis.cluster.stage import OPERATOR

from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.registry import Operator

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

SECONDS = 6.0


@pytest.fixture(scope="module")
def operator() -> Operator:
    """One with little patience."""
    return replace(OPERATOR, register=partial(OPERATOR.register, timeout=SECONDS))


@pytest.mark.nightly
async def test_a_change_that_takes_too_long_is_failed_harms_nothing_and_ends_well_by_itself(
    make: Make,
) -> None:
    stage = await make()
    await stage.fill(500)
    owned = await stage.owned()
    before = {pod.metadata.uid for pod in await stage.pods()}
    replica = next(name for name in sorted(await stage.addresses()) if name not in owned)

    async with stage.writing() as report:
        stage.bed.kill("default", replica, "redis", signal.SIGSTOP)
        try:
            await stage.patch({"replicas": 8})

            status = await stage.status()

            async def failed() -> bool:
                nonlocal status
                status = await stage.status()
                return status.phase == "Failed" and "7 of 8 nodes answer" in (status.reason or "")

            await stage.bed.until(failed, "it takes too long, and says who does not answer", within=60)
            assert status.reason_type == "UpgradeFailed"
            assert (status.reason or "").startswith("still ")
            assert before <= {pod.metadata.uid for pod in await stage.pods()}
            assert {
                pod: slots for pod, slots in owned.items() if (await stage.me(pod)).slots == slots
            } == owned
        finally:
            stage.bed.kill("default", replica, "redis", signal.SIGCONT)
        await stage.exact(8, within=90)

    assert report.errors == {}
    assert await stage.lost(report) == []
    assert await stage.kept(500) == 500
    assert (await stage.status()).reason_type is None
    await stage.tells("UpgradeClusterStart", "UpgradeClusterFailed", "UpgradeClusterSuccess")


@pytest.mark.full
async def test_slots_that_cannot_move_are_answered_and_move_as_soon_as_they_can(make: Make) -> None:
    stage = await make(pod={"env": [{"name": "MAXMEMORY", "value": "1mb"}]})
    for pod in await stage.addresses():
        await stage.call(pod, "CONFIG", "SET", "maxmemory", 0)
    await stage.fill(500)
    versions: set[str | None] = set()

    await stage.patch({"replicas": 8})

    async def said(phase: str) -> bool:
        found = await stage.bed.get(RedisCluster, stage.name, "default")
        status = await stage.status()
        if status.reason_type == "RebalanceSlotsFailed":
            versions.add(found.metadata.resource_version)
        return (status.phase, status.reason_type) == (phase, "RebalanceSlotsFailed")

    await stage.bed.until(lambda: said("Upgrading"), "the first failure is said", within=60)
    await stage.bed.until(lambda: said("Failed"), "it fails for too long", within=60)
    status = await stage.status()
    assert "OOM command not allowed" in (status.reason or "")
    assert "CONFIG SET maxmemory" in (status.reason or "")
    assert len(versions) <= 3, "what is said is written when it changes, and not per try"
    assert await stage.kept(500) == 500
    # Now: on a slow machine the moves take longer than this operator is patient, and it says so once more.
    await stage.tells("RebalanceSlotsFailed", "UpgradeClusterFailed")

    for pod in await stage.addresses():
        await stage.call(pod, "CONFIG", "SET", "maxmemory", 0)
    await stage.exact(8, within=90)

    assert await stage.kept(500) == 500
    status = await stage.status()
    assert (status.reason, status.reason_type, status.slot_plan) == (None, None, None)
    await stage.tells("UpgradeClusterSuccess")
