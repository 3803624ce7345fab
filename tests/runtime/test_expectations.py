"""A create of a generated name whose answer is lost is never repeated before its outcome is known."""

from __future__ import annotations

import asyncio

import pytest
from tests.cache.fake_api import FakeApi, status

from mooring.kube import Client, Key, TransportError, owner_reference
from mooring.kube.errors import Forbidden
from mooring.kube.objects.core import ConfigMap, Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import Controller, Done, Election, Manager, Result
from mooring.testing.clock import VirtualClock

MAPS = "configmaps"


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put("pods", "a")
    return api


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class OneChild:
    """A controller that wants exactly one child with a generated name for each pod."""

    def __init__(self, api: FakeApi, clock: VirtualClock, election: Election | None = None) -> None:
        self.manager = Manager(Client(api), clock=clock, election=election)
        self.passes = 0
        self.controller = Controller("pods", self.reconcile).watch(self.manager.informers.of(Pod))
        self.controller.owns(self.manager.informers.of(ConfigMap), Pod)
        self.manager.add(self.controller)

    async def reconcile(self, key: Key) -> Result:
        self.passes += 1
        client = self.manager.client
        owner = client.get(Pod, key.name, namespace=key.namespace)
        if not client.owned_by(ConfigMap, owner):
            meta = ObjectMeta(
                generate_name="child-", namespace=key.namespace, owner_references=[owner_reference(owner)]
            )
            await client.create(ConfigMap(metadata=meta))
        return Done()


async def run(controller: OneChild, clock: VirtualClock, seconds: float) -> None:
    task = asyncio.create_task(controller.manager.run())
    await clock.advance(seconds)
    controller.manager.stop()
    await clock.settle(100)
    await task


async def test_a_lost_answer_makes_no_second_child_though_the_cache_is_behind(
    api: FakeApi, clock: VirtualClock
) -> None:
    controller = OneChild(api, clock)
    api.lose_answer("POST")
    with api.losing_events():
        await run(controller, clock, 30)
    assert api.count("POST", MAPS) == 1
    assert len(api.collection(MAPS).objects) == 1
    assert controller.controller.stats.stale_skips >= 1
    assert b'\nstale_sync_skips_total{controller="pods"}' in controller.manager.metrics.text()


async def test_a_create_that_was_never_carried_out_is_made_after_looking(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.fail("POST", TransportError("connection refused"))
    controller = OneChild(api, clock)
    await run(controller, clock, 30)
    assert api.count("POST", MAPS) == 2
    assert len(api.collection(MAPS).objects) == 1


async def test_nothing_is_created_while_the_server_cannot_be_asked(api: FakeApi, clock: VirtualClock) -> None:
    controller = OneChild(api, clock)
    api.lose_answer("POST")
    api.faults.append(
        lambda r: status(500, "InternalError") if r.query.get("limit") == "500" and posted(api) else None
    )
    with api.losing_events():
        await run(controller, clock, 60)
    assert api.count("POST", MAPS) == 1
    assert controller.passes == 1


def posted(api: FakeApi) -> bool:
    return api.count("POST", MAPS) > 0


async def test_a_refusal_leaves_no_doubt(api: FakeApi, clock: VirtualClock) -> None:
    api.fail("POST", status(403, "Forbidden", "quota"))
    controller = OneChild(api, clock)
    await run(controller, clock, 0.5)
    assert controller.controller.stats.stale_skips == 0
    assert len(api.collection(MAPS).objects) == 1


async def test_outside_of_a_pass_a_lost_answer_is_only_raised(api: FakeApi, clock: VirtualClock) -> None:
    manager = Manager(Client(api), clock=clock)
    api.fail("POST", TransportError("reset"))
    with pytest.raises(TransportError):
        await manager.client.create(ConfigMap(metadata=ObjectMeta(generate_name="x-", namespace="default")))
    api.fail("POST", status(403, "Forbidden"))
    with pytest.raises(Forbidden):
        await manager.client.create(ConfigMap(metadata=ObjectMeta(generate_name="x-", namespace="default")))


async def test_what_a_former_leader_has_just_made_is_not_made_again(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put("leases", "l", "ns", spec={"holderIdentity": "former", "leaseDurationSeconds": 15})
    controller = OneChild(api, clock, election=Election("l", "ns", identity="me"))
    task = asyncio.create_task(controller.manager.run())
    await clock.advance(1)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": api.get("pods", "a")["metadata"]["uid"]}
    with api.losing_events():
        api.put(MAPS, "child-1", metadata={"ownerReferences": [{**owner, "controller": True}]})
    api.put("leases", "l", "ns", spec={"holderIdentity": ""})
    await clock.advance(2)
    assert controller.manager.leading.is_set()
    assert controller.passes == 2, "the first one would have made a second child, the next one saw the first"
    assert len(api.collection(MAPS).objects) == 1
    assert controller.controller.stats.results["error"] == 0
    controller.manager.stop()
    await clock.settle(100)
    await task


async def test_the_live_list_after_taking_over_is_read_once(api: FakeApi, clock: VirtualClock) -> None:
    for name in ("b", "c", "d"):
        api.put("pods", name)
    controller = OneChild(api, clock)
    before = api.count("GET", MAPS)
    await run(controller, clock, 1)
    assert len(api.collection(MAPS).objects) == 4
    assert api.count("GET", MAPS) - before == 2, "the informer's, and one to be sure"
    late = OneChild(api, clock)
    task = asyncio.create_task(late.manager.run())
    await clock.advance(20)
    lists = api.count("GET", MAPS)
    api.put("pods", "later")
    await clock.settle(100)
    assert len(api.collection(MAPS).objects) == 5
    assert api.count("GET", MAPS) == lists, "caches are trusted again"
    late.manager.stop()
    await clock.settle(100)
    await task
