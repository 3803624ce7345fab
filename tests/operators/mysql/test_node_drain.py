"""A node with the primary is drained: it hands over first, its pod goes, and the budget keeps the others meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from bench.campaign import WORKLOADS
from tests.operators.drains import cordon, evict, node_of

from bench import mysql_model
from mooring.kube import Client, TooManyRequests
from mooring.kube.objects.core import Pod
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane

NODES = ("node-1", "node-2", "node-3")


async def status(client: Client) -> MySQLClusterStatus:
    found = await client.get(MySQLCluster, "demo", namespace="default")
    return found.status or MySQLClusterStatus()


def lasting(world: mysql_model.World) -> bool:
    """Whether the primary has every transaction that was acknowledged."""
    [primary] = [one for one in world.processes.values() if not one.read_only]
    return all(one in primary.volume.log for one in world.acknowledged)


async def test_a_primary_on_a_drained_node_hands_over_and_is_then_evicted() -> None:
    workload = WORKLOADS["mysql-create"]()
    async with ControlPlane(model=workload.model, nodes=NODES, endpoints=False, budgets=True) as plane:
        await plane.define(*workload.kinds)
        client = plane.client
        manager = Manager(Client(plane.transport("operator")), name="mysql", clock=plane.clock, grace=0.0)
        workload.operator(manager)
        work = asyncio.create_task(manager.run())
        await workload.steps[0](client)
        await plane.settle()
        world, old = mysql_model.newest(), (await status(client)).primary or ""
        pods = {one.metadata.name or "": one for one in (await client.list(Pod, namespace="default")).items}
        node = node_of(pods[old])
        assert node not in {node_of(one) for name, one in pods.items() if name != old}

        await cordon(client, node)
        await plane.settle(5)
        after = await status(client)
        assert after.primary != old
        assert after.promotions
        assert after.promotions[0].cause == "Planned"
        assert lasting(world)

        await evict(client, old)
        for name in set(pods) - {old}:  # one is away, so the budget keeps the others
            with pytest.raises(TooManyRequests):
                await evict(client, name)
        await plane.settle()
        gone = await client.get(Pod, old, namespace="default")
        assert gone.metadata.uid != pods[old].metadata.uid
        assert node_of(gone) == ""  # its volume is on the drained node
        assert (await status(client)).primary == after.primary

        await cordon(client, node, away=False)
        await plane.settle()
        assert node_of(await client.get(Pod, old, namespace="default")) == node
        assert {one.state for one in (await status(client)).instances or ()} == {"Online"}
        assert lasting(world)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
