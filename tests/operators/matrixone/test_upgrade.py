"""What an upgrade of the operator would roll: nothing of what it made itself, and what it renders differently by its field."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
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
async def at_rest(*, proxies: int = 1) -> AsyncIterator[ControlPlane]:
    """A cluster of one pod of each component, and so many proxies; no operator runs."""
    async with ControlPlane(model=World, endpoints=False) as plane:
        await plane.define(*OPERATOR.kinds)
        group = {"name": "main", "replicas": 1}
        whole = {**CLUSTER, "cnGroups": [group], "proxy": {"replicas": proxies}}
        await create("MatrixOneCluster", "mo", whole)(plane.client)
        await operate(plane)
        yield plane


async def operate(plane: ControlPlane) -> None:
    """Have an operator of this version work until it is at rest, and end."""
    manager = Manager(Client(plane.transport("operator")), name="matrixone", clock=plane.clock, grace=0.0)
    register(manager, dial=InMemory())
    work = asyncio.create_task(manager.run())
    await plane.settle()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


@asynccontextmanager
async def running() -> AsyncIterator[Client]:
    """A client of such a cluster."""
    async with at_rest() as plane:
        yield plane.client


async def as_an_earlier_version(
    client: Client,
    kind: type[Object],
    name: str,
    given: Mapping[str, Any] = MappingProxyType({"args": EARLIER}),
) -> None:
    """Give the main container other arguments than this version does, or whatever else is ``given``."""
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "main", **given}]}}
    if kind is not Pod:
        patch = StrategicMergePatch({"spec": {"template": pod}})
        await client.patch(kind, name, patch, namespace="default")
        return
    # A pod's arguments cannot be changed: the same pod is made again.
    made = to_dict(await client.get(Pod, name, namespace="default"))
    await client.delete(Pod, name, namespace="default", grace_period=0)
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    made["metadata"] = {key: made["metadata"][key] for key in kept}
    made["spec"]["containers"][0] |= given
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


OLDER = {"terminationMessagePolicy": "File"}


async def test_pods_that_an_earlier_version_made_run_on_under_this_one() -> None:
    """Their templates stay as they are, too: a pod that dies comes up as the others of its revision are."""
    async with at_rest() as plane:
        client = plane.client
        workloads: tuple[tuple[type[Object], str], ...] = (
            *((StatefulSet, name) for name in ("mo-log", "mo-dn")),
            (Pod, "mo-main-cn-0"),
            (Deployment, "mo-proxy"),
        )
        for kind, name in workloads:
            await as_an_earlier_version(client, kind, name, OLDER)
        for name in ("mo-log-0", "mo-dn-0"):
            await client.delete(Pod, name, namespace="default", grace_period=0)
        await plane.settle()
        before = await seen(client)
        assert set(before.values()) == {"File"}
        await operate(plane)
        assert await seen(client) == before


async def seen(client: Client) -> dict[str, str | None]:
    """The policy of each template and pod, by kind, name and, of a pod, its UID."""
    found: dict[str, str | None] = {}
    for kind in (StatefulSet, Deployment, Pod):
        for one in (await client.list(kind, namespace="default")).items:
            plain = to_dict(one)
            spec = plain["spec"] if kind is Pod else plain["spec"]["template"]["spec"]
            uid = plain["metadata"]["uid"] if kind is Pod else ""
            found[f"{kind.__name__} {one.metadata.name} {uid}"] = spec["containers"][0].get(
                "terminationMessagePolicy"
            )
    return found
