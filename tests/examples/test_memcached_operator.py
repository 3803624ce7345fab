"""The memcached example, on simulated pods in virtual time: what its users can do, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from bench.memcached_model import InMemory, Servers, by_hand, newest

from memcached_operator import OPERATOR, Memcached, register
from memcached_operator.inputs import PAUSE
from mooring.cli.why import explained
from mooring.kube import Client, MergePatch
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Pod
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane

NAMESPACE = "default"
PATH = Memcached.resource.path(namespace=NAMESPACE, name="shop")


class Bed:
    """A control plane with the operator, and one object on it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.client = plane.client

    async def create(self, **spec: Any) -> None:
        body = {
            "apiVersion": Memcached.resource.api_version,
            "kind": "Memcached",
            "metadata": {"name": "shop", "namespace": NAMESPACE},
            "spec": {"replicas": 3, **spec},
        }
        await self.client.request("POST", PATH.rpartition("/")[0], body=msgspec.json.encode(body))
        await self.plane.settle()

    async def edit(self, **spec: Any) -> None:
        await self.client.patch(Memcached, "shop", MergePatch({"spec": spec}), namespace=NAMESPACE)
        await self.plane.settle()

    async def annotate(self, value: str | None) -> None:
        body = MergePatch({"metadata": {"annotations": {PAUSE: value}}})
        await self.client.patch(Memcached, "shop", body, namespace=NAMESPACE)
        await self.plane.settle()

    async def raw(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode((await self.client.request("GET", PATH)).body)
        return found

    async def condition(self, kind: str) -> dict[str, Any]:
        conditions = (await self.raw())["status"]["conditions"]
        found: dict[str, Any] = next(one for one in conditions if one["type"] == kind)
        return found

    async def pods(self) -> dict[str, Pod]:
        items = (await self.client.list(Pod, namespace=NAMESPACE)).items
        return {pod.metadata.name or "": pod for pod in items}

    async def uids(self) -> dict[str, str | None]:
        return {name: pod.metadata.uid for name, pod in (await self.pods()).items()}

    async def images(self) -> set[str | None]:
        return {
            one.image
            for pod in (await self.pods()).values()
            for one in (pod.spec.containers if pod.spec else None) or ()
        }

    async def declared(self) -> str | None:
        """The image of the template in place."""
        found = await self.client.get(StatefulSet, "shop", namespace=NAMESPACE)
        template = found.spec.template if found.spec else None
        containers = (template.spec.containers if template and template.spec else None) or []
        return containers[0].image

    async def why(self) -> str:
        raw = await self.raw()
        assert OPERATOR.explain is not None
        return "\n".join(explained(raw, (), await OPERATOR.explain(self.client, raw)))


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    async with ControlPlane(endpoints=False, model=Servers) as plane:
        await plane.define(Memcached)
        manager = Manager(Client(plane.transport("operator")), name="memcached", clock=plane.clock)
        register(manager, dial=InMemory())
        running = asyncio.create_task(manager.run())
        try:
            yield Bed(plane)
        finally:
            manager.stop()
            await running


async def test_declared_servers_serve_and_the_status_names_them(bed: Bed) -> None:
    await bed.create(memoryMegabytes=32, verbosity=2)

    status = (await bed.raw())["status"]
    assert [one["state"] for one in status["members"]] == ["Serving"] * 3
    assert (status["replicas"], status["readyReplicas"]) == (3, 3)
    assert (await bed.condition("Ready"))["message"] == "3 of 3 servers serve"
    assert (await bed.condition("Progressing"))["reason"] == "InSync"
    assert {(one.memory_megabytes, one.verbosity) for one in newest().running.values()} == {(32, 2)}


async def test_resizing_touches_no_server_that_stays(bed: Bed) -> None:
    await bed.create()
    before = await bed.uids()

    await bed.edit(replicas=5)
    assert (await bed.uids()).items() >= before.items()
    assert (await bed.condition("Ready"))["message"] == "5 of 5 servers serve"

    await bed.edit(replicas=2)
    assert await bed.uids() == {name: before[name] for name in ("shop-0", "shop-1")}


async def test_live_settings_change_on_running_servers_and_hold_for_new_ones(bed: Bed) -> None:
    await bed.create()
    before = await bed.uids()

    await bed.edit(memoryMegabytes=128, verbosity=1)

    assert await bed.uids() == before
    assert newest().of("shop-0").commands == ["cache_memlimit 128", "verbosity 1"]
    await bed.edit(replicas=4)
    assert newest().of("shop-3").memory_megabytes == 128
    assert newest().of("shop-3").commands == []


async def test_a_setting_that_somebody_changed_on_a_server_is_put_back(bed: Bed) -> None:
    await bed.create()
    newest().of("shop-1").memory_megabytes = 512

    await bed.plane.settle(quiet=60)

    assert newest().of("shop-1").memory_megabytes == 64


async def test_a_refused_setting_is_retried_at_growing_distances_and_reported(bed: Bed) -> None:
    await bed.create()
    newest().of("shop-0").refuses = "SERVER_ERROR out of memory"
    await bed.client.patch(
        Memcached, "shop", MergePatch({"spec": {"memoryMegabytes": 256}}), namespace=NAMESPACE
    )
    await asyncio.sleep(300)

    assert 5 <= len(newest().of("shop-0").commands) <= 12
    assert (await bed.raw())["status"]["failure"]["message"].endswith("out of memory")
    assert "failed" in await bed.why()

    newest().of("shop-0").refuses = ""
    await bed.plane.settle(quiet=120)
    assert "failure" not in (await bed.raw())["status"]
    assert newest().of("shop-0").memory_megabytes == 256


def serves(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


async def test_settings_that_need_a_restart_roll_one_server_at_a_time(bed: Bed) -> None:
    await bed.create()
    before = await bed.uids()
    fewest = [3]

    def watch(*_: object) -> None:
        pods = [entry.obj for entry in bed.plane.server.cluster.store.collection("pods")]
        fewest.append(sum(serves(pod) for pod in pods))

    bed.plane.observe(watch)
    await bed.edit(threads=8)

    after = await bed.uids()
    assert all(after[name] != before[name] for name in before)
    assert min(fewest) == 2
    command = [
        " ".join(one.command or ())
        for pod in (await bed.pods()).values()
        for one in (pod.spec.containers if pod.spec else None) or ()
    ]
    assert all("-t 8" in text for text in command)
    assert "rolls" not in (await bed.raw())["status"] or not (await bed.raw())["status"]["rolls"]


async def test_an_image_that_does_not_come_up_halts_the_roll_out_and_is_taken_back(bed: Bed) -> None:
    await bed.create()
    before = await bed.uids()
    await bed.client.patch(
        Memcached, "shop", MergePatch({"spec": {"image": "memcached:bad"}}), namespace=NAMESPACE
    )
    await asyncio.sleep(1500)

    stalled = await bed.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "RollHalted")
    assert "shop-2" in stalled["message"]
    assert (await bed.uids()).items() >= {name: before[name] for name in ("shop-0", "shop-1")}.items()
    assert await bed.declared() == "memcached:1.6", "the last good template is back"
    assert await bed.images() == {"memcached:1.6"}
    assert (await bed.condition("Ready"))["message"] == "3 of 3 servers serve"
    assert "RollHalted" in await bed.why()

    await bed.edit(image="memcached:1.6.18")
    assert await bed.images() == {"memcached:1.6.18"}
    assert (await bed.condition("Stalled"))["status"] == "False"


async def test_nothing_is_changed_while_paused(bed: Bed) -> None:
    await bed.create()
    await bed.annotate("")
    before = await bed.uids()

    await bed.edit(replicas=5, threads=8, memoryMegabytes=128)

    assert await bed.uids() == before
    assert newest().of("shop-0").commands == []
    waits = await bed.condition("Progressing")
    assert (waits["reason"], "Configure" in waits["message"]) == ("Paused", True)
    assert "Paused" in await bed.why()

    await bed.annotate(None)
    assert (await bed.condition("Ready"))["message"] == "5 of 5 servers serve"
    assert newest().of("shop-0").memory_megabytes == 128


async def test_a_set_made_by_hand_is_adopted_and_rolled_one_by_one(bed: Bed) -> None:
    await by_hand(bed.client)
    await bed.plane.settle()
    before = await bed.uids()

    await bed.create()

    found = await bed.client.get(StatefulSet, "shop", namespace=NAMESPACE)
    assert [ref.kind for ref in found.metadata.owner_references or ()] == ["Memcached"]
    assert found.spec is not None
    assert found.spec.update_strategy is not None
    assert found.spec.update_strategy.type == "OnDelete"
    pods = await bed.pods()
    assert set(pods) == {"shop-0", "shop-1", "shop-2"}
    assert all(pods[name].metadata.uid != uid for name, uid in before.items())
    assert await bed.images() == {"memcached:1.6"}
    assert (await bed.condition("Ready"))["message"] == "3 of 3 servers serve"


async def test_a_set_of_somebody_else_is_left_alone_until_it_is_labelled(bed: Bed) -> None:
    await by_hand(bed.client)
    unlabelled = MergePatch({"metadata": {"labels": None}})
    await bed.client.patch(StatefulSet, "shop", unlabelled, namespace=NAMESPACE)
    await bed.plane.settle()
    before = await bed.uids()

    await bed.create()

    stalled = await bed.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "NameTaken")
    assert "app.kubernetes.io/managed-by=memcached-operator" in stalled["message"]
    assert len(before) == 2
    assert await bed.uids() == before
    assert "NameTaken" in await bed.why()


async def test_what_is_deleted_goes_with_all_its_objects(bed: Bed) -> None:
    await bed.create()
    await bed.client.delete(Memcached, "shop", namespace=NAMESPACE)
    await bed.plane.settle()
    assert await bed.pods() == {}
