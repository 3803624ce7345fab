"""The manager: the order of starting and stopping, and what happens when a part fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs
from tests.cache.fake_api import FakeApi, status

from mooring.cache import InformerPool, InformerSet
from mooring.kube import Client, Key
from mooring.kube.errors import TransportError
from mooring.kube.objects.core import ConfigMap, Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import Controller, Done, Election, Health, LeaseLost, Manager, Metrics, Result
from mooring.runtime.http import ProbeServer
from mooring.testing.clock import VirtualClock


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(autouse=True)
async def no_task_leaks() -> AsyncIterator[None]:
    yield
    left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    assert not left, f"tasks leaked: {left}"


class Operator:
    """A manager with one controller on pods whose passes can be held."""

    def __init__(
        self, api: FakeApi, clock: VirtualClock, *, name: str = "op", controller: str = "pods", **options: Any
    ) -> None:
        self.manager = Manager(Client(api), clock=clock, name=name, **options)
        self.seen: list[Key] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.controller = Controller(controller, self.reconcile)
        self.controller.watch(self.manager.informers.of(Pod))
        self.manager.add(self.controller)

    async def reconcile(self, key: Key) -> Result:
        self.seen.append(key)
        await self.gate.wait()
        return Done()

    def run(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.manager.run())


async def test_workers_start_after_the_caches_are_full(api: FakeApi, clock: VirtualClock) -> None:
    api.put("pods", "a")
    api.fail("GET", status(500, "InternalError"), times=2)
    operator = Operator(api, clock)
    task = operator.run()
    await clock.settle()
    assert not operator.manager.leading.is_set()
    await clock.advance(10)
    assert operator.manager.leading.is_set()
    assert operator.seen == [Key("default", "a")]
    assert operator.manager.idle
    operator.manager.stop()
    await clock.settle()
    await task
    assert not operator.manager.leading.is_set()


async def test_a_late_loop_is_reported_with_the_processor_time_it_had(clock: VirtualClock) -> None:
    health = Health(clock, Metrics())
    health.start()
    await clock.settle()
    with capture_logs() as lines:
        clock.suspend(5)
        await clock.advance(1)
    await health.stop()
    (line,) = (one for one in lines if one["event"] == "the event loop was blocked")
    assert line["seconds"] >= 4
    assert 0 <= line["processor_seconds"] < 4


async def test_operators_of_one_process_tell_of_themselves_together(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put("pods", "a")
    metrics = Metrics()
    health = Health(clock, metrics)
    one = Operator(api, clock, name="one", metrics=metrics, health=health, election=Election("l1", "ns"))
    two = Operator(
        api,
        clock,
        name="two",
        controller="other",
        metrics=metrics,
        health=health,
        election=Election("l2", "ns"),
    )
    assert set(health.trouble(live=False)) == {"one informers", "two informers"}
    tasks = [one.run(), two.run()]
    await clock.settle()
    assert health.trouble(live=False) == {}
    two.gate.clear()
    api.put("pods", "a", spec={"nodeName": "n"})
    await clock.settle()
    text = metrics.text().decode()
    for name in ("one", "two"):
        assert (
            f'informer_objects{{group="",kind="Pod",namespace="",operator="{name}",selector=""}} 1.0' in text
        )
    for controller in ("pods", "other"):
        assert f'controller_runtime_active_workers{{controller="{controller}"}}' in text
    for lease in ("l1", "l2"):
        assert f'leader_election_master_status{{name="{lease}"}} 1.0' in text
    samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples)), "a sample told twice makes the whole page unreadable"
    assert "other default/a" in health.tasks()
    two.gate.set()
    # One that stands for election anew takes the place of the one it was.
    again = Operator(api, clock, name="two", controller="other", metrics=metrics, health=health)
    text = metrics.text().decode()
    samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    assert set(health.trouble(live=False)) == {"two informers"}
    assert not again.seen
    for operator in (one, two):
        operator.manager.stop()
    await clock.settle(100)
    await asyncio.gather(*tasks)
    await health.stop()


async def test_nobody_stands_for_election_before_its_caches_are_full(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.fail("GET", status(500, "InternalError"), times=2, path="pods")
    operator = Operator(api, clock, election=Election("l", "ns"))
    task = operator.run()
    await clock.settle()
    assert not api.collection("leases").objects, "another may be ready to act"
    await clock.advance(10)
    assert operator.manager.leading.is_set()
    operator.manager.stop()
    await clock.settle(100)
    await task


async def test_caches_that_never_fill_end_the_start_with_the_reason(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.fail("GET", status(403, "Forbidden", "pods is forbidden"), times=1000)
    task = Operator(api, clock).run()
    await clock.advance(121)
    with pytest.raises(TimeoutError, match="forbidden"):
        await task


async def test_a_standby_is_warm_and_takes_over_in_order(api: FakeApi, clock: VirtualClock) -> None:
    api.put("pods", "a")
    first = Operator(api, clock, election=Election("l", "ns", identity="first"))
    second = Operator(api, clock, election=Election("l", "ns", identity="second"))
    one = first.run()
    await clock.settle()
    two = second.run()
    await clock.settle()
    assert first.seen
    assert second.controller.informers[0].synced.is_set()
    assert not second.seen
    assert b'leader_election_master_status{name="l"} 0.0' in second.manager.metrics.text()
    # The old leader's pass still runs: the Lease must not be given away under it.
    first.gate.clear()
    api.put("pods", "a", spec={"nodeName": "n"})
    await clock.settle()
    first.manager.stop()
    await clock.settle()
    assert first.manager.fence.open
    assert not second.seen
    first.gate.set()
    await clock.settle(100)
    assert one.done()
    assert second.seen == [Key("default", "a")]
    assert b'leader_election_master_status{name="l"} 1.0' in second.manager.metrics.text()
    assert b'leader_election_master_status{name="l"} 0.0' in first.manager.metrics.text()
    second.manager.stop()
    await clock.settle(100)
    await asyncio.gather(one, two)


async def test_stopping_takes_no_longer_than_the_grace_period(api: FakeApi, clock: VirtualClock) -> None:
    api.put("pods", "a")
    operator = Operator(api, clock, election=Election("l", "ns"))
    task = operator.run()
    await clock.settle()
    operator.gate.clear()
    api.put("pods", "a", spec={"nodeName": "n"})
    await clock.settle()
    operator.manager.stop()
    await clock.advance(23)
    assert not task.done()
    await clock.advance(7)
    assert task.done()
    await task
    assert api.get("leases", "l", "ns")["spec"]["holderIdentity"] == ""


async def test_a_lost_lease_cancels_passes_and_ends_the_process(api: FakeApi, clock: VirtualClock) -> None:
    api.put("pods", "a")
    operator = Operator(api, clock, election=Election("l", "ns"))
    operator.gate.clear()
    task = operator.run()
    await clock.settle()
    assert operator.controller.passes
    api.fail("PATCH", TransportError("no route"), times=1000)
    await clock.advance(13)
    assert task.done(), "a pass that hangs holds nothing up"
    with pytest.raises(LeaseLost):
        await task
    assert not operator.controller.running


async def test_an_orderly_stop_waits_for_no_pass_once_the_lease_is_lost(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put("pods", "a")
    operator = Operator(api, clock, election=Election("l", "ns"))
    operator.gate.clear()
    task = operator.run()
    await clock.settle()
    assert operator.controller.passes
    # As one that was frozen past its Lease, and was told to stop meanwhile, when it wakes.
    spec = {**api.get("leases", "l", "ns")["spec"], "holderIdentity": "another"}
    api.put("leases", "l", "ns", spec=spec)
    clock.suspend(60)
    task.cancel()
    await clock.advance(5)
    assert task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not operator.controller.running


async def test_cancelling_run_is_an_orderly_stop_too(api: FakeApi, clock: VirtualClock) -> None:
    operator = Operator(api, clock, election=Election("l", "ns"))
    task = operator.run()
    await clock.settle()
    task.cancel()
    await clock.settle(200)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert api.get("leases", "l", "ns")["spec"]["holderIdentity"] == ""


async def test_stop_before_leading_ends_the_wait(api: FakeApi, clock: VirtualClock) -> None:
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15}
    api.put("leases", "l", "ns", spec=spec)
    operator = Operator(api, clock, election=Election("l", "ns"))
    task = operator.run()
    await clock.advance(1)
    operator.manager.stop()
    await clock.settle(100)
    await task
    assert api.get("leases", "l", "ns")["spec"]["holderIdentity"] == "other"


async def test_a_service_that_fails_ends_run_with_its_error(api: FakeApi, clock: VirtualClock) -> None:
    operator = Operator(api, clock)

    async def broken() -> None:
        await clock.sleep(5)
        raise RuntimeError("service died")

    async def forever() -> None:
        await asyncio.Event().wait()

    operator.manager.serve("broken", broken)
    operator.manager.serve("forever", forever)
    task = operator.run()
    await clock.advance(6)
    with pytest.raises(RuntimeError, match="service died"):
        await task


async def test_two_managers_share_informers_and_metrics(api: FakeApi, clock: VirtualClock) -> None:
    api.put("pods", "a")
    metrics = Metrics()
    informers = InformerSet(Client(api), clock)
    managers = [
        Manager(Client(api), clock=clock, name=name, informers=informers, metrics=metrics)
        for name in ("one", "two")
    ]
    seen: list[str] = []
    for manager in managers:

        async def reconcile(key: Key, name: str = manager.name) -> Result:
            seen.append(name)
            return Done()

        manager.add(Controller(manager.name, reconcile).watch(manager.informers.of(Pod)))
    tasks = [asyncio.create_task(manager.run()) for manager in managers]
    await clock.settle()
    assert sorted(seen) == ["one", "two"]
    assert api.count("WATCH", "pods") == 1
    managers[0].stop()
    await clock.settle()
    api.put("pods", "a", spec={"nodeName": "n"})
    await clock.settle()
    assert sorted(seen) == ["one", "two", "two"], "the shared informers go on"
    managers[1].stop()
    await asyncio.gather(*tasks)
    await informers.stop()


async def test_a_manager_that_loses_its_lease_leaves_shared_caches_to_the_other(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put("pods", "a")
    pool, metrics = InformerPool(), Metrics()
    one, two = (
        Operator(
            api,
            clock,
            name=name,
            controller=name,
            pool=pool,
            metrics=metrics,
            election=Election(name, "ns", identity="me"),
        )
        for name in ("one", "two")
    )
    two.manager.informers.of(ConfigMap)
    tasks = [one.run(), two.run()]
    await clock.settle()
    assert api.count("WATCH", "pods") == 1
    assert len(one.seen) == len(two.seen) == 1
    objects = [line for line in metrics.text().decode().splitlines() if line.startswith("informer_objects{")]
    assert sorted(objects) == [
        'informer_objects{group="",kind="ConfigMap",namespace="",operator="two",selector=""} 0.0',
        'informer_objects{group="",kind="Pod",namespace="",operator="one,two",selector=""} 1.0',
    ]

    api.put("leases", "one", "ns", spec={"holderIdentity": "other", "leaseDurationSeconds": 15})
    await clock.advance(6)
    with pytest.raises(LeaseLost):
        await tasks[0]
    assert two.manager.leading.is_set()
    api.put("pods", "b")
    await clock.settle()
    assert two.seen[-1].name == "b"
    assert len(one.seen) == 1

    again = Operator(api, clock, name="one", controller="one", pool=pool, metrics=metrics)
    tasks[0] = again.run()
    await clock.settle()
    assert {key.name for key in again.seen} == {"a", "b"}, "a cache that is full already is looked at as well"
    assert api.count("WATCH", "pods") == 1
    again.manager.stop()
    two.manager.stop()
    await clock.settle(100)
    await asyncio.gather(*tasks)


async def test_a_name_is_given_once(api: FakeApi, clock: VirtualClock) -> None:
    operator = Operator(api, clock)
    with pytest.raises(ValueError, match="added already"):
        operator.manager.add(Controller("pods", operator.reconcile))


async def test_metrics_probes_and_tasks_are_served(api: FakeApi) -> None:
    api.put("pods", "a")
    clock = VirtualClock()
    operator = Operator(api, clock, metrics_port=0, probe_port=0)
    task = operator.run()
    manager = operator.manager
    async with asyncio.timeout(20):
        await manager.leading.wait()

    async def get(port: int | None, path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()

    try:
        code, text = await get(manager.metrics_port, "/metrics")
        assert code == 200
        for name in (
            'controller_runtime_reconcile_total{controller="pods",result="success"} 1.0',
            'controller_runtime_max_concurrent_reconciles{controller="pods"} 8.0',
            'controller_runtime_reconcile_time_seconds_bucket{controller="pods",le="0.005"}',
            'workqueue_adds_total{controller="pods",name="pods"} 1.0',
            'workqueue_depth{controller="pods",name="pods"} 0.0',
            'workqueue_queue_duration_seconds_count{controller="pods",name="pods"} 1.0',
            'informer_objects{group="",kind="Pod",namespace="",operator="op",selector=""} 1.0',
            'informer_relists_total{group="",kind="Pod",namespace="",operator="op",selector=""} 1.0',
            'rest_client_requests_total{code="200",host="",method="GET"} 1.0',
            "loop_lag_seconds 0.0",
        ):
            assert name in text, name
        assert (await get(manager.probe_port, "/healthz"))[0] == 200
        assert (await get(manager.probe_port, "/readyz"))[0] == 200
        tasks = (await get(manager.metrics_port, "/debug/tasks"))[1]
        assert "\n--- pods worker 0\n" in tasks
        clock.suspend(200)
        code, text = await get(manager.probe_port, "/readyz")
        assert code == 503
        assert "Pod" in text
        code, text = await get(manager.probe_port, "/healthz")
        assert code == 503
        assert "event loop is" in text
    finally:
        manager.stop()
        await task


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        ("127.0.0.1", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.1.2.3", 403),
        ("::ffff:10.1.2.3", 403),
    ],
)
async def test_what_the_process_does_is_shown_on_loopback_alone(peer: str, status: int) -> None:
    metrics = Metrics()
    health = Health(VirtualClock(), metrics)
    server = ProbeServer(metrics, health, host="127.0.0.1", metrics_port=0, probe_port=None)
    transport = Mock()
    transport.get_extra_info.side_effect = {"peername": (peer, 12345)}.get
    request = make_mocked_request("GET", "/debug/tasks", transport=transport)
    answer = await server._serve_tasks(request)
    assert answer.status == status
    assert ("port-forward" in (answer.text or "")) == (status == 403)


async def test_a_fenced_write_of_a_standby_never_leaves_the_process(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put("leases", "l", "ns", spec={"holderIdentity": "other", "leaseDurationSeconds": 15})
    operator = Operator(api, clock, election=Election("l", "ns"))
    task = operator.run()
    await clock.settle()
    operator.manager.events.normal(Pod(metadata=ObjectMeta(name="a", namespace="ns")), "X", "x")
    with pytest.raises(Exception, match="not held"):
        await operator.manager.client.create(ConfigMap(metadata=ObjectMeta(name="x", namespace="ns")))
    assert not api.writes()
    operator.manager.stop()
    await clock.settle(100)
    await task


async def test_requests_are_counted_under_the_servers_name(api: FakeApi, clock: VirtualClock) -> None:
    class Named(FakeApi):
        host = "api.example:6443"

    manager = Operator(Named(), clock).manager
    task = asyncio.create_task(manager.run())
    await clock.settle()
    text = manager.metrics.text().decode()
    for sample in (
        'rest_client_requests_total{code="200",host="api.example:6443",method="GET"} 1.0',
        'rest_client_requests_total{code="200",host="api.example:6443",method="WATCH"} 1.0',
        'rest_client_request_duration_seconds_count{host="api.example:6443",verb="GET"} 1.0',
    ):
        assert sample in text
    manager.stop()
    await task


def standby(api: FakeApi, clock: VirtualClock, **options: Any) -> Operator:
    """An operator that waits for a Lease whose holder is silent."""
    api.put("leases", "l", "ns", spec={"holderIdentity": "other", "leaseDurationSeconds": 15})
    return Operator(api, clock, election=Election("l", "ns", identity="me"), **options)


async def test_a_standby_that_takes_over_works_only_when_it_follows_again(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put("pods", "a")
    operator = standby(api, clock)
    task = operator.run()
    await clock.advance(1)
    api.fail("WATCH", TransportError("no route"), times=1000, path="pods")
    api.cut()
    await clock.settle()
    api.remove("pods", "a")
    api.put("pods", "b")
    await clock.advance(60)
    assert api.get("leases", "l", "ns")["spec"]["holderIdentity"] == "me", "won, and kept"
    assert operator.manager.fence.open
    assert not operator.manager.leading.is_set()
    assert operator.seen == [], "what it knows is old"
    api.faults.clear()
    await clock.advance(31)
    assert operator.seen == [Key("default", "b")]
    operator.manager.stop()
    await clock.settle(100)
    await task


async def test_a_stream_that_died_in_silence_is_noticed_at_the_hand_over(
    api: FakeApi, clock: VirtualClock
) -> None:
    operator = standby(api, clock)
    task = operator.run()
    await clock.advance(1)
    with api.losing_events():
        api.put("pods", "b")
    await clock.advance(20)
    assert operator.seen == [Key("default", "b")]
    assert api.count("WATCH", "pods") == 2
    operator.manager.stop()
    await clock.settle(100)
    await task


async def test_caches_that_never_follow_again_end_the_process_with_the_reason(
    api: FakeApi, clock: VirtualClock
) -> None:
    operator = standby(api, clock)
    task = operator.run()
    await clock.advance(1)
    api.fail("WATCH", TransportError("no route"), times=1000, path="pods")
    api.cut()
    await clock.advance(140)
    assert task.done()
    with pytest.raises(TimeoutError, match=r"caches not current after 120 s: .*Pod.*no route"):
        await task
    assert api.get("leases", "l", "ns")["spec"]["holderIdentity"] == "", "given back for another to try"


async def test_a_lease_lost_while_the_caches_catch_up_ends_the_process(
    api: FakeApi, clock: VirtualClock
) -> None:
    operator = standby(api, clock)
    task = operator.run()
    await clock.advance(1)
    api.fail("WATCH", TransportError("no route"), times=1000, path="pods")
    api.cut()
    await clock.advance(25)
    assert operator.manager.fence.open
    api.fail("PATCH", TransportError("no route"), times=1000)
    await clock.advance(13)
    assert task.done()
    with pytest.raises(LeaseLost):
        await task
    assert operator.seen == []


async def test_a_service_that_ignores_being_cancelled_holds_no_stop_up(
    api: FakeApi, clock: VirtualClock
) -> None:
    operator, free = Operator(api, clock), asyncio.Event()

    async def stubborn() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    operator.manager.serve("stubborn", stubborn)
    task = operator.run()
    await clock.settle()
    operator.manager.stop()
    done, _ = await asyncio.wait([task], timeout=5)
    free.set()
    assert done
    await clock.settle()


async def test_a_lease_that_cannot_be_given_back_keeps_nothing_else_from_ending(
    api: FakeApi, clock: VirtualClock
) -> None:
    operator = Operator(api, clock, election=Election("l", "ns"), metrics_port=0)
    task = operator.run()
    async with asyncio.timeout(20):
        await operator.manager.leading.wait()
    api.fail("PATCH", RuntimeError("a bug in the transport"), times=1000)
    operator.manager.stop()
    with pytest.raises(RuntimeError, match="a bug"):
        await asyncio.wait_for(task, 20)
    assert not api.streams, "no stream is left open"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"http://127.0.0.1:{operator.manager.metrics_port}/metrics")
