"""A MySQLCluster with the operator as the chart installs it, on a real kubelet with an image like the official one."""

from __future__ import annotations

import pytest
from hack.released import NAMESPACE, operators
from tests.charts.helm import Provided

from mooring.kube.objects.core import Pod
from mooring.testing.mysql_stage import MySQLStage, manifest

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.real_node,
]


async def test_a_life_under_writers_loses_nothing(provided: Provided) -> None:
    await provided.helm.install("sql", "--set", "operators=mysql")
    bed = provided.bed
    await bed.apply(manifest("demo"))
    stage = MySQLStage(bed, "demo")
    await stage.exact(180)
    async with stage.writing() as ledger:
        first = await stage.primary()
        stage.kill(first)
        second = await stage.led_by_another(first, within=60)
        await stage.whole(120)

        await stage.switch(first)
        assert await stage.led_by_another(second, within=60) == first
        await stage.whole(120)

        # The primary, and with it the operator.
        for name in await operators(bed):
            await bed.client.delete(Pod, name, namespace=NAMESPACE)
        await stage.delete_pod(first)
        await stage.led_by_another(first, within=90)
        await stage.whole(180)

        await stage.patch({"config": {"max_connections": "171"}})
        await stage.settled(60)
        assert {
            row["v"] for row in await stage.query(await stage.primary(), "SELECT @@max_connections AS v")
        } == {171}
        await stage.writes(ledger, 100)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report
    await stage.exact(120)
    await stage.delete(claims=True)
