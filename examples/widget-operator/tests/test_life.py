"""The life of a Widget on a control plane in memory, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from mooring.kube import Client
from mooring.kube.objects.core import Pod
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane

from widget_operator import Widget, register

from tests.steps import Servers, create, delete, edit


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(endpoints=False, model=Servers) as plane:
        await plane.define(Widget)
        manager = Manager(Client(plane.transport("operator")), name="widget", clock=plane.clock)
        register(manager)
        running = asyncio.create_task(manager.run())
        try:
            yield plane
        finally:
            manager.stop()
            await running


async def status(plane: ControlPlane) -> dict[str, Any]:
    path = Widget.resource.path(namespace="default", name="shop")
    found: dict[str, Any] = msgspec.json.decode((await plane.client.request("GET", path)).body)
    said: dict[str, Any] = found["status"]
    return said


async def condition(plane: ControlPlane, kind: str) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = (await status(plane))["conditions"]
    return next(one for one in conditions if one["type"] == kind)


async def images(plane: ControlPlane) -> dict[str, str | None]:
    pods = (await plane.client.list(Pod, namespace="default")).items
    return {
        pod.metadata.name or "": pod.spec.containers[0].image
        for pod in pods
        if pod.spec and pod.spec.containers
    }


async def test_declared_servers_serve(plane: ControlPlane) -> None:
    await create(plane.client)
    await plane.settle()

    assert (await status(plane))["readyReplicas"] == 3
    assert (await condition(plane, "Ready"))["message"] == "3 of 3 servers serve"
    assert (await condition(plane, "Progressing"))["reason"] == "InSync"


async def test_a_new_image_reaches_every_server(plane: ControlPlane) -> None:
    await create(plane.client)
    await plane.settle()
    await edit(image="busybox:1.37", replicas=4)(plane.client)
    await plane.settle()

    assert await images(plane) == {f"shop-{number}": "busybox:1.37" for number in range(4)}


async def test_an_image_that_does_not_come_up_stops_at_the_first_server_and_is_taken_back(
    plane: ControlPlane,
) -> None:
    await create(plane.client)
    await plane.settle()
    await edit(image="busybox:bad")(plane.client)
    await asyncio.sleep(1500)  # virtual seconds

    assert (await condition(plane, "Stalled"))["reason"] == "RollHalted"
    assert set((await images(plane)).values()) == {"busybox:1"}
    assert (await condition(plane, "Ready"))["message"] == "3 of 3 servers serve"


async def test_what_is_deleted_goes_with_all_its_pods(plane: ControlPlane) -> None:
    await create(plane.client)
    await plane.settle()
    await delete(plane.client)
    await plane.settle()

    assert await images(plane) == {}
