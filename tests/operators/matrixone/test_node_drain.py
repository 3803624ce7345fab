"""A node with compute nodes is drained: evictions are refused until clients have left, and others serve elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from bench.matrixone_model import InMemory, World, newest
from bench.matrixone_workloads import CLUSTER, create
from tests.operators.drains import cordon, evict, node_of

from mooring.kube import Client, TooManyRequests
from mooring.kube.errors import NotFound
from mooring.kube.objects.core import Pod
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.actor import register
from mooring.operators.matrixone.names import CN_UUID
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane

NODES = ("node-1", "node-2")
WHOLE = {**CLUSTER, "cnGroups": [{"name": "main", "replicas": 2}], "proxy": {"replicas": 1}}


async def compute_nodes(client: Client) -> list[Pod]:
    """The pods of the group."""
    found = await client.list(Pod, namespace="default", label_selector="matrixorigin.io/component=CNSet")
    return list(found.items)


async def test_a_compute_node_is_evicted_only_once_clients_have_left_and_another_serves_elsewhere() -> None:
    async with ControlPlane(model=World, nodes=NODES, endpoints=False, budgets=True) as plane:
        await plane.define(*OPERATOR.kinds)
        manager = Manager(Client(plane.transport("operator")), name="matrixone", clock=plane.clock, grace=0.0)
        register(manager, dial=InMemory())
        work = asyncio.create_task(manager.run())
        await create("MatrixOneCluster", "mo", WHOLE)(plane.client)
        await plane.settle()
        world = newest()
        before = await compute_nodes(plane.client)
        left = before[0]
        uuid = (left.metadata.labels or {})[CN_UUID]
        assert world.session(uuid) is not None

        # As kubectl drain: again and again, until the pod is gone.
        await cordon(plane.client, node_of(left))
        sessions, serving = [], []
        with suppress(NotFound):
            while True:
                with pytest.raises(TooManyRequests):
                    await evict(plane.client, left.metadata.name or "")
                sessions.append(world.session(uuid) is not None)
                serving.append(sum(map(serves, await compute_nodes(plane.client))))
                await asyncio.sleep(1)
        assert sessions[0]  # with a session, and after the next node served
        assert not sessions[-1]  # it goes once its sessions have left
        assert world.wrong == []
        assert min(serving) >= len(before)
        await plane.settle()
        after = await compute_nodes(plane.client)
        assert len(after) == len(before)
        assert node_of(left) not in {node_of(one) for one in after}
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def serves(pod: Pod) -> bool:
    """Whether Services send clients to it."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    return any(one.type == "Ready" and one.status == "True" for one in conditions)
