"""Controllers: which transitions cause passes, and what becomes of every way a pass can end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from tests.cache.fake_api import FakeApi, status

from mooring.cache import InformerSet
from mooring.kube import Client, Key, MergePatch, NotFound, Object, Resource
from mooring.kube.errors import Conflict, TooManyRequests
from mooring.kube.object import owner_reference
from mooring.kube.objects.core import ConfigMap, Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import (
    After,
    CachedClient,
    Controller,
    Done,
    FenceLost,
    Metrics,
    Result,
    Terminal,
    current_pass,
    generation_changed,
    meaningful_change,
    owner_key,
    span,
)
from mooring.testing.clock import VirtualClock

A = Key("default", "a")
B = Key("default", "b")


class Bench:
    """A controller on pods in a running set of informers."""

    def __init__(self, api: FakeApi, clock: VirtualClock) -> None:
        self.api = api
        self.clock = clock
        self.informers = InformerSet(Client(api), clock)
        self.client = CachedClient(Client(api), self.informers)
        self.metrics = Metrics()
        self.seen: list[Key] = []
        self.controllers: list[Controller] = []
        self.act: Callable[[Key], Awaitable[Result]] = self.nothing
        self.informers.of(Pod)
        self.informers.of(ConfigMap)

    async def nothing(self, key: Key) -> Result:
        return Done()

    async def reconcile(self, key: Key) -> Result:
        self.seen.append(key)
        return await self.act(key)

    def controller(self, **options: object) -> Controller:
        controller = Controller("pods", self.reconcile, **options)  # type: ignore[arg-type]
        controller.bind(self.clock, self.metrics)
        self.controllers.append(controller)
        return controller

    async def start(self) -> None:
        self.informers.start()
        await self.clock.settle()
        for controller in self.controllers:
            controller.start()
        await self.clock.settle()

    async def on_pods(self, **options: object) -> Controller:
        controller = self.controller(**options).watch(self.informers.of(Pod))
        await self.start()
        return controller


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench(FakeApi(), VirtualClock())
    yield bench
    await asyncio.gather(*(controller.stop() for controller in bench.controllers))
    await bench.informers.stop()
    left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    assert not left, f"tasks leaked: {left}"


async def test_every_object_is_seen_once_at_start_and_again_when_it_changes(bench: Bench) -> None:
    bench.api.put("pods", "a")
    bench.api.put("pods", "b")
    await bench.on_pods()
    assert sorted(bench.seen) == [A, B]
    bench.seen.clear()
    bench.api.put("pods", "b", spec={"nodeName": "n"})
    bench.api.remove("pods", "a")
    await bench.clock.settle()
    assert sorted(bench.seen) == [A, B]


async def test_one_pass_per_key_at_a_time_and_changes_meanwhile_are_not_lost(bench: Bench) -> None:
    running = 0
    gate = asyncio.Event()

    async def act(key: Key) -> Result:
        nonlocal running
        running += 1
        assert running == 1
        await gate.wait()
        running -= 1
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    await bench.on_pods()
    for number in range(5):
        bench.api.put("pods", "a", spec={"nodeName": str(number)})
        await bench.clock.settle()
    assert bench.seen == [A]
    gate.set()
    await bench.clock.settle()
    assert bench.seen == [A, A], "five changes during the pass are one pass after it"


async def test_changes_are_served_before_the_initial_list(bench: Bench) -> None:
    for number in range(20):
        bench.api.put("pods", f"old{number}")
    gate = asyncio.Event()

    async def act(key: Key) -> Result:
        await gate.wait()
        return Done()

    bench.act = act
    await bench.on_pods(workers=1)
    bench.api.put("pods", "fresh")
    await bench.clock.settle()
    gate.set()
    await bench.clock.settle(200)
    assert bench.seen.index(Key("default", "fresh")) == 1


async def test_failures_back_off_from_five_milliseconds_and_are_forgotten(bench: Bench) -> None:
    fails = True

    async def act(key: Key) -> Result:
        if fails:
            raise RuntimeError("no luck")
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    await bench.on_pods()
    times = [0.0]
    for _ in range(6):
        before = len(bench.seen)
        while len(bench.seen) == before:
            await bench.clock.advance_to_next()
        times.append(bench.clock.monotonic())
    gaps = [round(b - a, 3) for a, b in itertools.pairwise(times)]
    assert gaps == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16]
    fails = False
    await bench.clock.advance(1)
    assert len(bench.controllers[0]._backoff) == 0


async def test_a_failing_key_does_not_hold_back_others(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        if key == A:
            raise RuntimeError("no luck")
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    await bench.on_pods(workers=1)
    await bench.clock.advance(100)
    bench.api.put("pods", "b")
    await bench.clock.settle()
    assert bench.seen[-1] == B


async def test_a_conflict_is_no_error(bench: Bench) -> None:
    attempts = 0

    async def act(key: Key) -> Result:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise Conflict("the object has been modified", status=409, reason="Conflict")
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    await bench.clock.advance(0.05)
    assert attempts == 3
    assert controller.stats.results == {"success": 1, "error": 0, "requeue": 2, "requeue_after": 0}


async def test_conflicts_in_a_row_are_no_reason_to_wait_for_long(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        if len(bench.seen) <= 30:
            raise Conflict("the object has been modified", status=409, reason="Conflict")
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    await bench.clock.advance(31)
    assert controller.stats.results["success"] == 1
    assert controller.stats.results["error"] == 0
    assert len(bench.seen) == 31


async def test_what_the_lost_lease_forbids_is_no_failure_and_looked_at_again(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        if len(bench.seen) == 1:
            raise FenceLost("the Lease is not held by this process; nothing was sent")
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    with capture_logs() as lines:
        controller = await bench.on_pods()
        await bench.clock.advance(1.1)
    assert controller.stats.results == {"success": 1, "error": 0, "requeue": 0, "requeue_after": 1}
    assert [line["log_level"] for line in lines if line["event"] == "a pass was given up"] == ["info"]
    assert not [line for line in lines if line["log_level"] in ("warning", "error")]


async def test_retry_after_is_honoured(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        raise TooManyRequests("slow down", status=429, retry_after=7)

    bench.act = act
    bench.api.put("pods", "a")
    await bench.on_pods()
    await bench.clock.advance(6.9)
    assert len(bench.seen) == 1
    await bench.clock.advance(0.2)
    assert len(bench.seen) == 2


async def test_a_terminal_error_is_not_tried_again_until_the_object_changes(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        raise Terminal("size 2 is not possible")

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    await bench.clock.advance(5000)
    assert len(bench.seen) == 1
    assert controller.stats.terminal == 1
    bench.api.put("pods", "a", spec={"nodeName": "n"})
    await bench.clock.settle()
    assert len(bench.seen) == 2


async def test_after_looks_again_and_an_event_comes_first(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        return After(30)

    bench.act = act
    bench.api.put("pods", "a")
    await bench.on_pods()
    await bench.clock.advance(29)
    assert len(bench.seen) == 1
    bench.api.put("pods", "a", spec={"nodeName": "n"})
    await bench.clock.settle()
    assert len(bench.seen) == 2
    await bench.clock.advance(29)
    assert len(bench.seen) == 2, "the new result counts from the newer pass"
    await bench.clock.advance(2)
    assert len(bench.seen) == 3


async def test_a_pass_that_hangs_is_cancelled_and_tried_again(bench: Bench) -> None:
    hang = True

    async def act(key: Key) -> Result:
        if hang:
            await asyncio.Event().wait()
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods(timeout=10.0)
    await bench.clock.advance(9)
    assert controller.stats.active == 1
    hang = False
    await bench.clock.advance(2)
    assert controller.stats.timeouts == 1
    assert controller.stats.results["success"] == 1


async def test_a_cancellation_from_within_is_an_error_not_a_dead_worker(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        inner = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods(workers=1)
    await bench.clock.advance(0.02)
    assert controller.stats.results["error"] >= 2
    assert controller.running


async def test_a_programming_error_is_counted_as_a_panic(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        raise AttributeError("oops")

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    assert controller.stats.panics == 1


async def test_owned_objects_wake_their_owner_also_the_one_they_leave(bench: Bench) -> None:
    bench.api.put("pods", "a")
    bench.api.put("pods", "b")
    controller = bench.controller()
    controller.owns(bench.informers.of(ConfigMap), Pod)
    await bench.start()

    def owned_by(name: str) -> dict[str, Any]:
        return {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": True}
                ]
            }
        }

    bench.api.put("configmaps", "child", **owned_by("a"))
    await bench.clock.settle()
    assert bench.seen == [A]
    bench.api.put("configmaps", "child", **owned_by("b"))
    await bench.clock.settle()
    assert sorted(bench.seen) == [A, A, B]


def test_the_owner_of_another_group_is_not_taken_for_ours() -> None:
    owner = Pod(metadata=ObjectMeta(name="a", namespace="default", uid="u"))
    child = ConfigMap(
        metadata=ObjectMeta(name="c", namespace="default", owner_references=[owner_reference(owner)])
    )
    assert list(owner_key(Pod)(child)) == [A]
    assert list(owner_key(ConfigMap)(child)) == []

    class OtherPod(Object, frozen=True, kw_only=True):
        resource = Resource("other.example", "v1", "Pod", "pods")

    assert list(owner_key(OtherPod)(child)) == []


async def test_a_map_function_that_fails_on_one_side_keeps_the_other(bench: Bench) -> None:
    bench.api.put("configmaps", "child", data={"for": "a"})

    def keys(obj: ConfigMap) -> list[Key]:
        return [Key("default", (obj.data or {})["for"])]

    controller = bench.controller()
    controller.watch(bench.informers.of(ConfigMap), map=keys)
    await bench.start()
    bench.seen.clear()
    with capture_logs() as logs:
        bench.api.put("configmaps", "child", data={})
        await bench.clock.settle()
    assert bench.seen == [A]
    assert "a map function failed" in [line["event"] for line in logs]


async def test_status_writes_do_not_wake_their_own_controller(bench: Bench) -> None:
    bench.api.put("pods", "a", spec={}, status={})
    controller = bench.controller()
    controller.watch(bench.informers.of(Pod), predicate=generation_changed)

    async def act(key: Key) -> Result:
        await bench.client.patch(
            Pod, key.name, MergePatch({"status": {"phase": "Running"}}), namespace=key.namespace
        )
        return Done()

    bench.act = act
    await bench.start()
    await bench.clock.settle()
    assert bench.seen == [A]
    assert len(bench.api.writes()) == 1


async def test_a_third_partys_edit_inside_our_answer_causes_a_pass(bench: Bench) -> None:
    bench.api.put("pods", "a", spec={}, status={})
    controller = bench.controller()
    controller.watch(bench.informers.of(Pod), predicate=meaningful_change)
    first = True

    async def act(key: Key) -> Result:
        nonlocal first
        if first:
            first = False
            # Their edit and our write meet on the server; its own event is never delivered as news.
            with bench.api.losing_events():
                bench.api.put("pods", "a", metadata={"labels": {"theirs": "1"}}, spec={}, status={})
            await bench.client.patch(
                Pod, key.name, MergePatch({"status": {"phase": "Running"}}), namespace=key.namespace
            )
        return Done()

    bench.act = act
    await bench.start()
    await bench.clock.settle()
    assert bench.seen == [A, A]


@pytest.mark.parametrize(("own_writes", "passes"), [(True, 2), (False, 1)])
async def test_writes_of_ours_wake_us_unless_declined(bench: Bench, *, own_writes: bool, passes: int) -> None:
    bench.api.put("pods", "a")
    controller = bench.controller()
    controller.watch(bench.informers.of(Pod), predicate=generation_changed)
    controller.owns(bench.informers.of(ConfigMap), Pod, own_writes=own_writes)

    async def act(key: Key) -> Result:
        owner = bench.client.get(Pod, key.name, namespace=key.namespace)
        if bench.client.find(ConfigMap, key.name, namespace=key.namespace) is None:
            child = ConfigMap(
                metadata=ObjectMeta(
                    name=key.name, namespace=key.namespace, owner_references=[owner_reference(owner)]
                )
            )
            await bench.client.create(child)
            patch = MergePatch({"data": {"a": "b"}})
            await bench.client.patch(ConfigMap, key.name, patch, namespace=key.namespace)
        return Done()

    bench.act = act
    await bench.start()
    await bench.clock.settle()
    assert len(bench.seen) == passes
    assert len(bench.api.writes("configmaps")) == 2, "read your writes: never created twice"
    bench.api.remove("configmaps", "a")
    await bench.clock.settle()
    assert len(bench.api.writes("configmaps")) == 4, "brought back"


async def test_a_key_that_wakes_itself_is_slowed_and_counted(bench: Bench) -> None:
    bench.api.put("pods", "a", spec={}, status={})
    controller = bench.controller(hot_loop=50)
    controller.watch(bench.informers.of(Pod))
    number = 0

    async def act(key: Key) -> Result:
        nonlocal number
        number += 1
        patch = MergePatch({"status": {"phase": str(number)}})
        await bench.client.patch(Pod, key.name, patch, namespace=key.namespace)
        return Done()

    bench.act = act
    await bench.start()
    await bench.clock.settle(3000)
    assert 50 <= len(bench.seen) <= 55
    assert controller.stats.hot_loops > 0
    await bench.clock.advance(60)
    assert len(bench.seen) < 70
    bench.act = bench.nothing
    bench.seen.clear()
    bench.api.put("pods", "a", spec={"nodeName": "n"}, status={})
    await bench.clock.settle()
    assert bench.seen == [A], "what others change is still seen at once"


async def test_resync_looks_at_everything_without_listing(bench: Bench) -> None:
    bench.api.put("pods", "a")
    await bench.on_pods(resync=600)
    await bench.clock.settle()
    bench.seen.clear()
    requests = len(bench.api.requests)
    for _ in range(15):
        await bench.clock.advance(60)
        bench.api.bookmark()
    assert bench.seen == [A]
    lists = [r for r in bench.api.requests[requests:] if r.method == "GET"]
    assert not lists


async def test_an_object_that_cannot_be_read_is_one_failing_key(bench: Bench) -> None:
    bench.api.put("pods", "a", spec=7)
    bench.api.put("pods", "b")

    async def act(key: Key) -> Result:
        bench.client.get(Pod, key.name, namespace=key.namespace)
        return Done()

    bench.act = act
    controller = await bench.on_pods()
    assert sorted(bench.seen) == [A, B]
    assert controller.stats.results["error"] == 1
    assert controller.stats.results["success"] == 1


async def test_stop_lets_a_pass_finish_within_the_grace_period(bench: Bench) -> None:
    gate = asyncio.Event()
    finished = []

    async def act(key: Key) -> Result:
        await gate.wait()
        finished.append(key)
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    bench.api.put("pods", "b")
    controller = await bench.on_pods(workers=1)
    stopping = asyncio.create_task(controller.stop(10))
    await bench.clock.settle()
    assert not stopping.done()
    gate.set()
    await bench.clock.settle()
    assert stopping.done()
    assert len(finished) == 1, "no new pass is begun"


async def test_stop_cancels_what_takes_longer(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        await asyncio.Event().wait()
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    stopping = asyncio.create_task(controller.stop(10))
    await bench.clock.advance(10.1)
    await stopping
    assert not controller.running


async def test_it_can_start_again(bench: Bench) -> None:
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    await controller.stop()
    bench.seen.clear()
    bench.api.put("pods", "a", spec={"nodeName": "n"})
    await bench.clock.settle()
    assert bench.seen == []
    controller.start()
    await bench.clock.settle()
    assert bench.seen == [A]


async def test_keys_enqueued_before_the_start_are_kept(bench: Bench) -> None:
    controller = bench.controller()
    controller.enqueue(A)
    controller.enqueue(B, after=5)
    await bench.start()
    assert bench.seen == [A]
    await bench.clock.advance(5)
    assert bench.seen == [A, B]


async def test_log_lines_of_a_pass_name_it(bench: Bench) -> None:
    ids = []

    async def act(key: Key) -> Result:
        current = current_pass()
        assert current is not None
        ids.append((current.controller, current.key, current.id))
        structlog.get_logger().info("working")
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    bench.api.put("pods", "b")
    await bench.on_pods()
    assert current_pass() is None
    assert sorted((c, k) for c, k, _ in ids if k) == [("pods", A), ("pods", B)]
    assert len({i for _, _, i in ids}) == 2


async def test_random_faults_never_lose_the_last_state(bench: Bench) -> None:
    """Conflicts, 500s, lost answers and cut streams, while 20 objects change: all children follow in the end."""
    import random

    rng = random.Random(7)
    api = bench.api

    def fault(request: object) -> object:
        roll = rng.random()
        if getattr(request, "method", "") in ("GET", "WATCH"):
            return status(500, "InternalError") if roll < 0.05 else None
        if roll < 0.1:
            return status(409, "Conflict")
        if roll < 0.2:
            return status(500, "InternalError")
        return status(429, "TooManyRequests", retryAfterSeconds=1) if roll < 0.25 else None

    api.faults.append(fault)  # type: ignore[arg-type]
    controller = bench.controller()
    controller.watch(bench.informers.of(Pod))
    controller.owns(bench.informers.of(ConfigMap), Pod)

    async def act(key: Key) -> Result:
        pod = bench.client.find(Pod, key.name, namespace=key.namespace)
        child = bench.client.find(ConfigMap, key.name, namespace=key.namespace)
        if pod is None:
            if child is not None:
                await bench.client.delete(ConfigMap, key.name, namespace=key.namespace)
            return Done()
        node = (pod.spec.node_name if pod.spec else "") or ""
        wanted = {"node": node}
        if child is None:
            meta = ObjectMeta(name=key.name, namespace=key.namespace, owner_references=[owner_reference(pod)])
            await bench.client.create(ConfigMap(metadata=meta, data=wanted))
        elif child.data != wanted:
            await bench.client.patch(
                ConfigMap, key.name, MergePatch({"data": wanted}), namespace=key.namespace
            )
        return Done()

    bench.act = act
    with capture_logs():
        bench.informers.start()
        await bench.clock.advance(30)
        await bench.start()
        for step in range(300):
            name = f"p{rng.randrange(20)}"
            exists = Key("default", name) in api.collection("pods").objects
            if exists and rng.random() < 0.2:
                api.remove("pods", name)
            else:
                api.put("pods", name, spec={"nodeName": str(step)})
            if rng.random() < 0.1:
                api.lose_answer("POST")
                api.lose_answer("PATCH")
            if rng.random() < 0.1:
                api.cut()
            if rng.random() < 0.05:
                api.compact("pods")
            await bench.clock.advance(rng.choice([0, 0.01, 1]))
    api.faults.clear()
    api.after.clear()
    for _ in range(40):
        await bench.clock.advance(60)
    pods = {k.name: v["spec"]["nodeName"] for k, v in api.collection("pods").objects.items()}
    children = {k.name: v["data"]["node"] for k, v in api.collection("configmaps").objects.items()}
    assert children == pods
    writes = len(api.writes())
    await bench.clock.advance(3000)
    assert len(api.writes()) == writes, "and nothing is written once it is right"


async def test_reading_what_is_not_there_raises_not_found(bench: Bench) -> None:
    await bench.start()
    with pytest.raises(NotFound, match="default/zz"):
        bench.client.get(Pod, "zz", namespace="default")


async def test_a_slow_pass_says_what_it_did(bench: Bench) -> None:
    running: list[str] = []

    async def act(key: Key) -> Result:
        with span("ask the database"):
            await bench.clock.sleep(8)
            current = current_pass()
            assert current is not None
            running.extend(map(str, current.spans))
        with span("write"):
            await bench.clock.sleep(3 if key == A else 1)
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    bench.api.put("pods", "b")
    with capture_logs() as lines:
        await bench.on_pods()
        await bench.clock.advance(12)
    assert running == ["ask the database at 0.000 s: running"] * 2
    slow = [line for line in lines if line["event"] == "slow reconcile"]
    spans = ["ask the database at 0.000 s: 8.000 s", "write at 8.000 s: 3.000 s"]
    assert [(line["seconds"], line["spans"]) for line in slow] == [(11, spans)]


async def test_what_a_relist_shows_is_as_urgent_as_any_change(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.api.put("pods", name)
    gate = asyncio.Event()

    async def act(key: Key) -> Result:
        await gate.wait()
        return Done()

    controller = await bench.on_pods(workers=1, resync=100)
    bench.seen.clear()
    bench.act = act
    bench.api.put("pods", "b", spec={"nodeName": "n"})  # keeps the only worker busy
    await bench.clock.settle()
    await bench.clock.advance(112)  # the resync: a and c at low priority
    with bench.api.losing_events():
        bench.api.put("pods", "z")
    bench.api.compact("pods")
    bench.api.cut()
    await bench.clock.advance(5)
    gate.set()
    await bench.clock.settle(100)
    assert controller.idle
    assert bench.seen[0] == B
    assert bench.seen[1] == Key("default", "z"), "before what the resync has put there"


async def test_a_terminal_error_may_ask_for_another_look(bench: Bench) -> None:
    async def act(key: Key) -> Result:
        raise Terminal("spec.size: must be odd", again=300.0)

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    await bench.clock.advance(299)
    assert bench.seen == [A]
    await bench.clock.advance(2)
    assert bench.seen == [A, A]
    assert (controller.stats.terminal, controller.stats.results["error"]) == (2, 2)


async def test_a_pass_that_ignores_being_cancelled_holds_no_stop_up(bench: Bench) -> None:
    stubborn, free = asyncio.Event(), asyncio.Event()

    async def act(key: Key) -> Result:
        stubborn.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        return Done()

    bench.act = act
    bench.api.put("pods", "a")
    controller = await bench.on_pods()
    await stubborn.wait()
    stopping = asyncio.create_task(controller.stop())
    done, _ = await asyncio.wait([stopping], timeout=5)
    free.set()
    assert done, "the stop waited for a pass that never ends"
    await bench.clock.settle()
