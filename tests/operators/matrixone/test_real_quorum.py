"""The topology of a real MatrixOne whose log stores fail: three log stores, one CN."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operators.matrixone.test_real import DIAL, keepers, look, until

from mooring.operators.matrixone.rpc.hakeeper import HAKEEPER_SHARD, Hakeeper
from mooring.operators.matrixone.topology import Topology, Unseen, read_topology
from mooring.testing.matrixone import BareCluster

pytestmark = [pytest.mark.mo_service, pytest.mark.nightly, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def logs(mo_service: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """Three log stores, one TN, one CN and a proxy."""
    shared = BareCluster(mo_service, tmp_path_factory.mktemp("mo"), logs=3, compute=1)
    try:
        shared.start()
        yield shared
    finally:
        shared.close()


async def whole(cluster: BareCluster) -> Topology:
    """The topology once every log store is heard and runs what it should."""
    uuids = [one.uuid for one in cluster.services.values() if one.role == "log"]

    def good(seen: Topology | Unseen) -> bool:
        return (
            isinstance(seen, Topology)
            and seen.led
            and all(seen.settled(uuid) and seen.logs[uuid].heard < 3 for uuid in uuids)
            and all(len(shard.members) == 3 for shard in seen.shards.values())
        )

    seen = await until(lambda: read_topology(DIAL, keepers(cluster)), good, within=60, every=0.2)
    assert isinstance(seen, Topology)
    return seen


async def test_a_dead_leader_is_replaced_and_stays_a_member(logs: BareCluster) -> None:
    await logs.until_sql("cn0")
    before = await whole(logs)
    dead = before.shards[HAKEEPER_SHARD].leader
    name = next(one.name for one in logs.services.values() if one.uuid == dead)
    logs.kill(name)
    await logs.until_gone(name)

    def replaced(seen: Topology | Unseen) -> bool:
        return (
            isinstance(seen, Topology)
            and seen.led
            and all(one.leader != dead for one in seen.shards.values())
        )

    seen = await until(lambda: read_topology(DIAL, keepers(logs)), replaced, within=60, every=0.2)
    assert isinstance(seen, Topology)
    assert dead is not None
    assert seen.shards_of(dead) == {0, 1}
    later = await until(lambda: look(logs), lambda one: one.logs[dead].heard > 5, within=30, every=0.5)
    assert later.tick > seen.tick
    logs.start(name)
    await whole(logs)


async def test_a_state_without_quorum_is_unseen_though_a_store_answers(logs: BareCluster) -> None:
    await logs.until_sql("cn0")
    await whole(logs)
    for name in ("log1", "log2"):
        logs.kill(name, signal.SIGKILL)
        await logs.until_gone(name)
    address = keepers(logs)[0]
    async with DIAL.link(address) as link:
        keeper = Hakeeper(link, address)
        assert await keeper.is_hakeeper()
        assert len((await keeper.shard()).replicas) == 3
    seen = await until(
        lambda: read_topology(DIAL, keepers(logs)), lambda one: isinstance(one, Unseen), within=30, every=0.2
    )
    assert isinstance(seen, Unseen)
    assert "GET_CLUSTER_STATE" in seen.reason
    logs.start("log1", "log2")
    await whole(logs)
    async with asyncio.timeout(60):
        await logs.until_sql("cn0")
