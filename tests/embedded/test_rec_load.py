"""A cluster of real servers whose number follows the memory of its masters, under a writer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.embedded.conftest import Make
from tests.operators.redis.cluster.stage import OPERATOR, Stage

from mooring.kube.objects.events import Event
from mooring.operators.redis.cluster.slots import count
from mooring.operators.registry import Operator

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]

POLICY: dict[str, Any] = {
    "minReplicas": 6,
    "maxReplicas": 8,
    "metrics": [{"type": "MemoryPercent", "target": 60}],
    "scaleUp": {"stabilizationSeconds": 1},
    "scaleDown": {"stabilizationSeconds": 1},
    "cooldownSeconds": 0,
}
LIMIT = "32mb"
LOAD = 1150
"""Keys of 64 KiB each with what Redis adds: about 24 MiB of each of three masters, and 18 MiB of each of four."""


@pytest.fixture(scope="module")
def operator() -> Operator:
    """One that looks often."""
    return replace(OPERATOR, register=partial(OPERATOR.register, look_again=0.5))


async def called(stage: Stage, nodes: int) -> None:
    """Wait until the load called for so many nodes, and all of them serve."""

    async def chosen() -> bool:
        found = (await stage.status()).autoscale
        return found is not None and found.replicas == nodes

    await stage.bed.until(chosen, f"the load calls for {nodes} nodes", within=240)
    await stage.exact(nodes, within=240)


async def test_three_masters_become_four_under_load_and_three_again_without_losing_a_write(
    make: Make,
) -> None:
    pod = {"env": [{"name": "MAXMEMORY", "value": LIMIT}]}
    stage = await make(exact=False, autoscale=POLICY, pod=pod, updateStrategy={"pipeline": "100"})
    await stage.exact(6, within=240)
    async with stage.writing() as report:
        async with stage.client() as client:
            for at in range(LOAD):
                await client.call(f"load:{at}", "SET", "x" * 60_000)
        await called(stage, 8)
        assert sorted(count(slots) for slots in (await stage.owned()).values()) == [4096] * 4
        async with stage.client() as client:
            for at in range(LOAD):
                assert await client.call(f"load:{at}", "DEL") == 1
        await called(stage, 6)
    assert await stage.lost(report) == []
    assert report.errors == {}
    events = (await stage.bed.client.list(Event, namespace=stage.namespace)).items
    told = [one for one in events if one.reason == "Autoscaled"]
    texts = sorted(one.note or "" for one in told if one.regarding and one.regarding.name == stage.name)
    assert [text.partition(":")[0] for text in texts] == ["ScaleIn", "ScaleOut"]
    assert "from 8 to 6 nodes (4 to 3 masters): MemoryPercent" in texts[0]
    assert "from 6 to 8 nodes (3 to 4 masters): MemoryPercent" in texts[1]
    status = (await stage.status()).autoscale
    assert status is not None
    assert "from 8 to 6 nodes" in (status.message or "")
