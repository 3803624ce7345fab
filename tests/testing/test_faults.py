"""Every fault does what the page says, once, at its moment, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from mooring.cache import InformerSet, Transition
from mooring.kube import Client, Conflict, MergePatch, NotFound, TransportError
from mooring.kube.errors import Invalid, KubeError, ServerError, TooManyRequests
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.testing.faults import Fault, FaultKind, Faults, Plan
from mooring.testing.plane import ControlPlane

POST = "POST /api/v1/namespaces/default/configmaps"
ADDED = "ADDED configmaps default/a"
MODIFIED = "MODIFIED configmaps default/a"


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(controllers=False) as plane:
        yield plane


def one(text: str, name: str = "a") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"text": text})


async def there(plane: ControlPlane, name: str = "a") -> bool:
    try:
        await plane.client.get(ConfigMap, name, namespace="default")
    except NotFound:
        return False
    return True


async def edit(plane: ControlPlane, text: str) -> None:
    await plane.client.patch(ConfigMap, "a", MergePatch({"data": {"text": text}}), namespace="default")


class Watcher:
    """An informer of ConfigMaps of one process, and what it was told, in seconds and texts."""

    def __init__(self, plane: ControlPlane, faults: Faults) -> None:
        self._plane = plane
        self.client = Client(faults.transport())
        self.informers = InformerSet(self.client, plane.clock)
        self.informer = self.informers.of(ConfigMap, namespace="default")
        self.told: list[tuple[int, str]] = []
        self.informer.add_handler(self._note)

    def _note(self, change: Transition[ConfigMap]) -> None:
        text = (change.new.data or {}).get("text", "") if change.new else "gone"
        self.told.append((round(self._plane.clock.monotonic()), text))

    async def __aenter__(self) -> Watcher:
        self.informers.start()
        await self.informers.wait_current()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.informers.stop()


def only(kind: FaultKind, at: str, **more: object) -> Plan:
    return Plan(faults=(msgspec.convert({"kind": kind, "at": at, **more}, Fault),))


# --- requests


@pytest.mark.parametrize(("kind", "done"), [("crash-before", False), ("crash-after", True)])
async def test_a_crash_takes_the_process_before_or_after_the_request(
    plane: ControlPlane, kind: FaultKind, done: bool
) -> None:
    faults = Faults(only(kind, POST), plane)
    client = Client(faults.transport())

    request = asyncio.create_task(client.create(one("x")))
    await faults.died.wait()
    await asyncio.sleep(100)

    assert not request.done(), "a dead process hears of nothing"
    request.cancel()
    assert await there(plane) is done
    with pytest.raises(TransportError, match="dead"):
        await client.create(one("x", "b"))
    assert not await there(plane, "b")


async def test_the_process_after_a_crash_is_left_alone(plane: ControlPlane) -> None:
    faults = Faults(only("crash-before", POST), plane)
    request = asyncio.create_task(Client(faults.transport()).create(one("x")))
    await faults.died.wait()
    request.cancel()

    await Client(faults.transport()).create(one("x"))

    assert not faults.died.is_set()
    assert not faults.missed


@pytest.mark.parametrize(("kind", "done"), [("reset", False), ("lost-answer", True)])
async def test_without_an_answer_nobody_knows(plane: ControlPlane, kind: FaultKind, done: bool) -> None:
    client = Client(Faults(only(kind, POST), plane).transport())

    with pytest.raises(TransportError):
        await client.create(one("x"))

    assert await there(plane) is done


@pytest.mark.parametrize(
    ("kind", "error"),
    [("conflict", Conflict), ("invalid", Invalid), ("throttle", TooManyRequests), ("error", ServerError)],
)
async def test_a_refused_request_is_not_carried_out_and_the_next_is(
    plane: ControlPlane, kind: FaultKind, error: type[KubeError]
) -> None:
    client = Client(Faults(only(kind, POST), plane).transport())

    with pytest.raises(error) as raised:
        await client.create(one("x"))
    assert not await there(plane)
    if isinstance(raised.value, TooManyRequests):
        assert raised.value.retry_after == 3

    await client.create(one("x"))
    assert await there(plane)


async def test_the_nth_request_is_counted_over_all_processes(plane: ControlPlane) -> None:
    faults = Faults(only("reset", POST, nth=3), plane)
    await Client(faults.transport()).create(one("x", "a"))
    client = Client(faults.transport())
    await client.create(one("x", "b"))

    with pytest.raises(TransportError):
        await client.create(one("x", "c"))
    assert faults.struck


async def test_the_lease_goes_to_another(plane: ControlPlane) -> None:
    lease = Lease(metadata=ObjectMeta(name="op", namespace="default"), spec=LeaseSpec(holder_identity="we"))
    await plane.client.create(lease)

    await Client(Faults(only("usurp", POST, lease="default/op"), plane).transport()).create(one("x"))

    held = await plane.client.get(Lease, "op", namespace="default")
    assert held.spec is not None
    assert held.spec.holder_identity == "usurper"
    assert await there(plane)


async def test_clocks_jump(plane: ControlPlane) -> None:
    faults = (Fault(kind="suspend", at=POST, seconds=60), Fault(kind="wall", at=ADDED, seconds=-3600))
    wall, passed = plane.clock.now(), plane.clock.monotonic()

    await Client(Faults(Plan(faults=faults), plane).transport()).create(one("x"))

    assert round(plane.clock.monotonic() - passed) == 60
    assert round((plane.clock.now() - wall).total_seconds()) == 60 - 3600


# --- watches


@pytest.mark.parametrize("kind", ["cut", "torn", "gone"])
async def test_a_broken_watch_is_opened_again_and_shows_what_was_missed(
    plane: ControlPlane, kind: FaultKind
) -> None:
    faults = Faults(only(kind, MODIFIED), plane)
    async with Watcher(plane, faults) as watcher:
        await plane.client.create(one("first"))
        await asyncio.sleep(1)
        lists = watcher.informer.relists

        await edit(plane, "second")
        await asyncio.sleep(60)

        assert [text for _, text in watcher.told] == ["first", "second"]
        assert faults.struck
        assert (watcher.informer.relists > lists) is (kind == "gone")


async def test_a_stalled_watch_tells_nothing_until_it_is_given_up(plane: ControlPlane) -> None:
    async with Watcher(plane, Faults(only("stall", ADDED), plane)) as watcher:
        await plane.client.create(one("first"))
        await asyncio.sleep(30)
        assert watcher.told == []

        await asyncio.sleep(120)
        assert [text for _, text in watcher.told] == ["first"]


async def test_delayed_news_arrive_later_in_their_order(plane: ControlPlane) -> None:
    async with Watcher(plane, Faults(only("delay", MODIFIED, seconds=20), plane)) as watcher:
        await plane.client.create(one("first"))
        await asyncio.sleep(1)
        await edit(plane, "second")
        await edit(plane, "third")
        await asyncio.sleep(19)
        assert [text for _, text in watcher.told] == ["first"]

        await asyncio.sleep(5)
        assert [text for _, text in watcher.told] == ["first", "second", "third"]


async def test_what_is_skipped_is_never_told(plane: ControlPlane) -> None:
    plan = only("skip", MODIFIED, until=MODIFIED, until_nth=3)
    async with Watcher(plane, Faults(plan, plane)) as watcher:
        await plane.client.create(one("first"))
        await asyncio.sleep(1)
        for text in ("second", "third", "fourth"):
            await edit(plane, text)
            await asyncio.sleep(1)
        await asyncio.sleep(60)

        assert [text for _, text in watcher.told] == ["first", "fourth"]


async def test_what_is_skipped_until_a_change_that_never_comes_is_told_after_a_minute(
    plane: ControlPlane,
) -> None:
    async with Watcher(plane, Faults(only("skip", MODIFIED, until=MODIFIED, until_nth=9), plane)) as watcher:
        await plane.client.create(one("first"))
        await asyncio.sleep(1)
        await edit(plane, "second")
        await asyncio.sleep(50)
        assert [text for _, text in watcher.told] == ["first"]

        await asyncio.sleep(60)
        assert [text for _, text in watcher.told] == ["first", "second"]


async def test_a_new_process_finds_the_past_and_writes_to_the_present(plane: ControlPlane) -> None:
    faults = Faults(only("stale", MODIFIED, until=MODIFIED, until_nth=2, seconds=20), plane)
    async with Watcher(plane, faults) as watcher:
        await plane.client.create(one("first"))
        await edit(plane, "second")
        await edit(plane, "third")
        await faults.died.wait()
        assert watcher.told[-1][1] == "third", "the old process had seen it"

    async with Watcher(plane, faults) as watcher:
        assert [text for _, text in watcher.told] == ["second"]
        await plane.client.create(one("new", "b"))
        await asyncio.sleep(10)
        assert [text for _, text in watcher.told] == ["second"]
        newest = (await watcher.client.list(ConfigMap, namespace="default")).items
        assert sorted((one.data or {})["text"] for one in newest) == ["new", "third"], (
            "its caches are not asked"
        )

        await asyncio.sleep(15)
        assert sorted(text for _, text in watcher.told) == ["new", "second", "third"]


# --- plans


def test_a_plan_survives_its_file() -> None:
    faults = (
        Fault(kind="usurp", at=POST, lease="a/b"),
        Fault(kind="skip", at=ADDED, until=MODIFIED, until_nth=2),
    )
    plan = Plan(workload="w", faults=faults)

    assert Plan.load(plan.dump()) == plan


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "cut", "at": POST},
        {"kind": "conflict", "at": ADDED},
        {"kind": "skip", "at": ADDED},
        {"kind": "usurp", "at": POST},
        {"kind": "meteor", "at": POST},
    ],
)
def test_a_plan_that_cannot_strike_is_refused(fault: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        Plan.load(msgspec.json.encode({"faults": [fault]}))


async def test_a_moment_that_never_came_is_told(plane: ControlPlane) -> None:
    faults = Faults(only("reset", POST, nth=2), plane)

    await Client(faults.transport()).create(one("x"))

    assert [str(fault) for fault in faults.missed] == [f"reset at {POST} #2"]
