"""A cluster of real MariaDB servers whose number follows the connections to its replicas."""

from __future__ import annotations

import msgspec
import pytest
from tests.embedded.conftest import MakeMySQL

from mooring.kube import Invalid, MergePatch
from mooring.kube.objects.core import Event
from mooring.operators.mysql.types import MySQLCluster
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
]

POLICY = {
    "minReplicas": 2,
    "maxReplicas": 3,
    "metrics": [{"type": "Connections", "target": 5}],
    "scaleUp": {"stabilizationSeconds": 1},
    "scaleDown": {"stabilizationSeconds": 1},
}


async def sized(stage: MySQLStage, size: int) -> None:
    """Wait until the load called for so many servers, and all of them are whole."""

    async def called() -> bool:
        chosen = (await stage.status()).autoscale
        return chosen is not None and chosen.replicas == size

    await stage.bed.until(called, f"the load calls for {size} servers", within=60)
    await stage.whole(within=90)


async def test_connections_to_replicas_add_a_server_and_their_end_removes_it(make_mysql: MakeMySQL) -> None:
    stage = await make_mysql(size=2, autoscale=POLICY)
    async with stage.writing() as ledger:
        async with stage.connected(12):
            await sized(stage, 3)
            assert len(await stage.pods()) == 3
        await stage.switch(f"{stage.name}-2")  # what leads is about to go
        await stage.led_by_another(f"{stage.name}-0")
        await sized(stage, 2)
        await stage.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    status = await stage.status()
    assert status.primary in (f"{stage.name}-0", f"{stage.name}-1")
    declared = (await stage.get()).spec
    assert declared is not None
    assert declared.size == 2  # what is declared is nobody's but the user's
    events = (await stage.bed.client.list(Event, namespace=stage.namespace)).items
    told = [one for one in events if one.reason == "Autoscaled"]
    told = [one for one in told if one.involved_object and one.involved_object.name == stage.name]
    texts = [one.message or "" for one in sorted(told, key=lambda one: one.metadata.creation_timestamp or "")]
    assert ["from 2 to 3 servers" in texts[0], "from 3 to 2 servers" in texts[-1]] == [True, True]
    assert "Connections 12 of 5 calls for" in texts[0]


@pytest.mark.nightly
async def test_the_policy_stands_still_once_the_scale_subresource_sets_the_size(
    make_mysql: MakeMySQL,
) -> None:
    stage = await make_mysql(size=2, autoscale=POLICY)
    with pytest.raises(Invalid, match="lower minReplicas or raise maxReplicas"):
        await stage.patch({"autoscale": {"minReplicas": 4}})
    with pytest.raises(Invalid, match="give Connections or"):
        await stage.patch({"autoscale": {"metrics": [{"type": "Love", "target": 5}]}})
    path = MySQLCluster.resource.path(namespace=stage.namespace, name=stage.name, subresource="scale")
    body = msgspec.json.encode({"spec": {"replicas": 1}})
    await stage.bed.client.request(
        "PATCH", path, query={"fieldManager": "an-hpa"}, body=body, content_type=MergePatch.content_type
    )

    async def stands() -> bool:
        return (await stage.condition("Stalled"))[:2] == ("True", "AutoscaleContested")

    await stage.bed.until(stands, "the policy stands still", within=60)
    chosen = (await stage.status()).autoscale
    assert chosen is not None
    assert chosen.replicas is None
    assert "an-hpa" in (chosen.message or "")
    await stage.bed.until(lambda: alone(stage), "the declared size counts", within=60)
    await stage.patch({"size": 2})  # the user takes the size back
    await sized(stage, 2)
    await stage.patch({"autoscale": None})
    await stage.exact(within=60)
    assert (await stage.status()).autoscale is None


async def alone(stage: MySQLStage) -> bool:
    return len(await stage.pods()) == 1
