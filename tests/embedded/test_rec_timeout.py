"""A change that takes longer than `--cluster-timeout`: said, harmless, and ended by itself."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from tests.embedded.test_rec_life import Make, make
from tests.operators.redis.cluster.stage import OPERATOR

from mooring.testing.bed import Bed

__all__ = ["make", "plane"]

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

SECONDS = 6.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[Bed]:
    """A bed whose operator has little patience."""
    impatient = replace(OPERATOR, register=partial(OPERATOR.register, timeout=SECONDS))
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(path, operators=[impatient]) as running:
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


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

            async def failed() -> bool:
                return (await stage.status()).phase == "Failed"

            await stage.bed.until(failed, "it takes too long", within=60)
            status = await stage.status()
            assert status.reason_type == "UpgradeFailed"
            assert (status.reason or "").startswith("still ")
            assert "7 of 8 nodes answer" in (status.reason or "")
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
