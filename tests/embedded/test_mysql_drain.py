"""A node is drained of the primary on real MariaDB servers under writers, as `kubectl drain` does it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.operators.drains import cordon, evict, node_of
from tests.standstill import Standstill

from mooring.kube import NotFound, TooManyRequests
from mooring.kube.objects.core import Pod
from mooring.operators.mysql import OPERATOR
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage, manifest

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

NODES = ("node-1", "node-2", "node-3")


async def test_a_primary_is_evicted_from_a_drained_node_after_another_leads(
    directory: Path, stood: Standstill
) -> None:
    async with Bed(directory, nodes=NODES, operators=[OPERATOR]) as bed:
        stage = MySQLStage(bed, "demo")
        await bed.apply(manifest("demo"))
        await stage.exact(120)
        old = await stage.primary()
        pods = {pod.metadata.name or "": pod for pod in await stage.pods()}
        node = node_of(pods[old])

        async def gone() -> bool:
            """Evict until the pod is gone."""
            try:
                if (await bed.get(Pod, old, "default")).metadata.uid != pods[old].metadata.uid:
                    return True
                await evict(bed.client, old)
            except NotFound:
                return True
            except TooManyRequests:
                return False
            return False

        async with stage.writing() as ledger:
            await stage.writes(ledger, 50)
            ledger.reset_gap()
            await cordon(bed.client, node)
            await evict(bed.client, old)
            for name in set(pods) - {old}:  # one is away, so the budget keeps the others
                with pytest.raises(TooManyRequests):
                    await evict(bed.client, name)
            await stage.led_by_another(old, within=30)
            await bed.until(gone, f"{old} is evicted", within=60)
            await stage.writes(ledger, 100)
        report = await ledger.check()
        assert report.lost_acknowledged == 0, report.text()
        assert ledger.longest_gap - stood.within(ledger.longest_gap) < 1.0, report.text()
        assert next(one.cause for one in (await stage.status()).promotions or ()) == "Planned"

        await cordon(bed.client, node, away=False)
        await stage.exact(120)
        assert node_of(await bed.get(Pod, old, "default")) == node
