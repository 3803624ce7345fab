"""What an upgrade of the operator would roll: nothing of what it made itself, and what it renders differently by its field."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from bench.matrixone_model import InMemory, World
from bench.matrixone_workloads import CLUSTER, create

from mooring.kube import Client, Object
from mooring.kube.object import to_dict
from mooring.kube.objects.apps import Deployment, StatefulSet
from mooring.kube.objects.core import Pod
from mooring.kube.patches import StrategicMergePatch
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.actor import register
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, MatrixOneCluster, ProxySet
from mooring.operators.matrixone.upgrade import plan_upgrade
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane

EARLIER = ["-an-argument-of-an-earlier-version"]


@asynccontextmanager
async def running() -> AsyncIterator[Client]:
    """A cluster of one pod of each component, whose operator is at rest; a client of it."""
    async with ControlPlane(model=World, endpoints=False) as plane:
        await plane.define(*OPERATOR.kinds)
        manager = Manager(Client(plane.transport("operator")), name="matrixone", clock=plane.clock, grace=0.0)
        register(manager, dial=InMemory())
        work = asyncio.create_task(manager.run())
        group = {"name": "main", "replicas": 1}
        whole = {**CLUSTER, "cnGroups": [group], "proxy": {"replicas": 1}}
        await create("MatrixOneCluster", "mo", whole)(plane.client)
        await plane.settle()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        yield plane.client


async def as_an_earlier_version(client: Client, kind: type[Object], name: str) -> None:
    """Give the main container other arguments than this version does."""
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "main", "args": EARLIER}]}}
    if kind is not Pod:
        patch = StrategicMergePatch({"spec": {"template": pod}})
        await client.patch(kind, name, patch, namespace="default")
        return
    # A pod's arguments cannot be changed: the same pod is made again.
    made = to_dict(await client.get(Pod, name, namespace="default"))
    await client.delete(Pod, name, namespace="default", grace_period=0)
    made["metadata"] = {key: made["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    made["spec"]["containers"][0]["args"] = EARLIER
    await client.request("POST", "/api/v1/namespaces/default/pods", body=msgspec.json.encode(made))


SETS = (
    pytest.param(LogSet, "mo", "log", StatefulSet, "mo-log", id="LogSet"),
    pytest.param(DNSet, "mo", "dn", StatefulSet, "mo-dn", id="DNSet"),
    pytest.param(CNSet, "mo-main", "cn", Pod, "mo-main-cn-0", id="CNSet"),
    pytest.param(ProxySet, "mo", "proxy", Deployment, "mo-proxy", id="ProxySet"),
)


@pytest.mark.parametrize(("kind", "name", "component", "workload", "rendered"), SETS)
async def test_only_what_this_version_renders_differently_would_roll(
    kind: type[Object], name: str, component: str, workload: type[Object], rendered: str
) -> None:
    async with running() as client:
        one = await client.get(kind, name, namespace="default")
        [planned] = await plan_upgrade(client, one)
        assert (planned.component, planned.fields, planned.waiting, planned.trouble) == (
            component,
            (),
            False,
            "",
        )
        await as_an_earlier_version(client, workload, rendered)
        [planned] = await plan_upgrade(client, one)
        assert planned.fields == ("spec.containers[main].args",)
        assert await plan_upgrade(client, MatrixOneCluster()) == []
