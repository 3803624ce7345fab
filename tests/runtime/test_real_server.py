"""Controllers, leases, events and CRDs on the embedded and on a real API server; every request counted."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

import pytest
from tests.standstill import Standstill

from mooring.kube import (
    Client,
    Config,
    HttpTransport,
    Key,
    MergePatch,
    NotFound,
    Object,
    Part,
    Resource,
    TooManyRequests,
    owner_reference,
)
from mooring.kube.errors import Invalid
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import ConfigMap, Namespace
from mooring.kube.objects.events import Event
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.transport import Response
from mooring.local.api.server import ApiServer
from mooring.runtime import (
    Controller,
    Done,
    Election,
    F,
    FenceLost,
    Manager,
    PrinterColumn,
    Result,
    Rule,
    Scale,
    crd,
    meaningful_change,
    render_crd,
    rules,
)


class GadgetStatus(Part, frozen=True, kw_only=True):
    seen: int | None = None
    replicas: int | None = None


@rules(Rule("self.teeth >= self.least", "teeth must not be fewer than least"))
class GadgetSpec(Part, frozen=True, kw_only=True):
    teeth: Annotated[int | None, F("How many.", minimum=1, default=5)] = None
    least: Annotated[int | None, F("At least.", minimum=0, default=0)] = None
    colour: Annotated[str | None, F(enum=["red", "blue"], default="red", max_length=8)] = None
    labels: Annotated[dict[str, Annotated[str, F(max_length=63)]] | None, F(max_properties=8)] = None


@crd(
    short_names=("gdg",),
    columns=(PrinterColumn("Teeth", ".spec.teeth", type="integer"),),
    scale=Scale(".spec.teeth", ".status.replicas"),
    rules=(Rule("self.metadata.name.size() <= 48", "a name has at most 48 characters"),),
    preserve_unknown=True,
)
class Gadget(Object, frozen=True, kw_only=True):
    """Something with teeth."""

    resource: ClassVar[Resource] = Resource("runtime.example.com", "v1", "Gadget", "gadgets")
    spec: GadgetSpec | None = None
    status: GadgetStatus | None = None


class Counting:
    """A transport that counts what goes over it."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close
        self.seen: Counter[tuple[str, str]] = Counter()
        self.codes: Counter[int] = Counter()

    async def request(self, method: str, path: str, **options: Any) -> Response:
        parts = path.split("/")
        plural = next((p for p in ("gadgets", "configmaps", "events", "leases") if p in parts), "other")
        name = plural + ("/status" if path.endswith("/status") else "")
        answer = await self._inner.request(method, path, **options)
        self.seen[method, name] += 1
        self.codes[answer.status] += 1
        return answer

    def writes(self) -> dict[tuple[str, str], int]:
        return {key: count for key, count in self.seen.items() if key[0] != "GET"}


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """The embedded API server in this process, and a real kube-apiserver."""
    if request.param == "embedded":
        async with ApiServer.in_memory() as server:
            yield Client(server.transport())
        return
    client = Client(HttpTransport(Config.load(request.getfixturevalue("real_kubernetes"))))
    yield client
    await client.close()


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"runtime-{uuid.uuid4().hex[:8]}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    await client.delete(Namespace, name)


@pytest.fixture
async def gadgets(client: Client) -> None:
    definition = render_crd(Gadget)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    query = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    body = json.dumps(definition).encode()
    await client.request("PATCH", path, query=query, body=body, content_type="application/apply-patch+yaml")
    deadline = time.monotonic() + 20
    while True:
        try:
            await client.list(Gadget)
            return
        except (NotFound, TooManyRequests):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(manager.run())
    try:
        yield task
    finally:
        manager.stop()
        await asyncio.wait_for(task, 20)


def gadget_controller(manager: Manager, namespace: str, passes: Counter[Key]) -> Controller:
    gadgets = manager.informers.of(Gadget, namespace=namespace)
    maps = manager.informers.of(ConfigMap, namespace=namespace)

    async def reconcile(key: Key) -> Result:
        passes[key] += 1
        gadget = manager.client.find(Gadget, key.name, namespace=key.namespace)
        if gadget is None:
            return Done()
        wanted = {"teeth": str(gadget.spec.teeth if gadget.spec else 0)}
        child = manager.client.find(ConfigMap, key.name, namespace=key.namespace)
        if child is None:
            meta = ObjectMeta(
                name=key.name, namespace=key.namespace, owner_references=[owner_reference(gadget)]
            )
            await manager.client.create(ConfigMap(metadata=meta, data=wanted))
        elif child.data != wanted:
            patch = MergePatch({"data": wanted})
            await manager.client.patch(ConfigMap, key.name, patch, namespace=key.namespace)
        generation = gadget.metadata.generation
        if gadget.status is None or gadget.status.seen != generation:
            status = MergePatch({"status": {"seen": generation}})
            await manager.client.patch(
                Gadget, key.name, status, namespace=key.namespace, subresource="status"
            )
        return Done()

    controller = Controller("gadgets", reconcile, workers=16)
    controller.watch(gadgets, predicate=meaningful_change)
    controller.owns(maps, Gadget)
    return manager.add(controller)


async def test_the_server_accepts_our_crd_and_refuses_what_it_forbids(
    client: Client, namespace: str, gadgets: None
) -> None:
    made = await client.create(
        Gadget(metadata=ObjectMeta(name="a", namespace=namespace), spec=GadgetSpec(labels={"x": "y"}))
    )
    assert made.spec == GadgetSpec(teeth=5, least=0, colour="red", labels={"x": "y"})

    async def refused(name: str, spec: GadgetSpec, message: str) -> None:
        with pytest.raises(Invalid, match=message):
            await client.create(Gadget(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec))

    await refused("b", GadgetSpec(teeth=0), "greater than or equal to 1")
    await refused("b", GadgetSpec(colour="pink"), "supported values")
    await refused("b", GadgetSpec(teeth=2, least=3), "must not be fewer than least")
    await refused("x" * 49, GadgetSpec(), "at most 48 characters")


async def test_five_hundred_objects_cost_one_create_and_one_status_write_each(
    client: Client, namespace: str, gadgets: None
) -> None:
    async def make(number: int) -> None:
        meta = ObjectMeta(name=f"g{number}", namespace=namespace)
        await client.create(Gadget(metadata=meta, spec=GadgetSpec(teeth=3)))

    await asyncio.gather(*(make(number) for number in range(500)))
    transport = Counting(client.transport)  # type: ignore[arg-type]
    manager = Manager(Client(transport), name="gadgets")
    passes: Counter[Key] = Counter()
    controller = gadget_controller(manager, namespace, passes)
    async with running(manager):
        await until(lambda: controller.stats.results["success"] >= 500 and manager.idle)
        assert transport.writes() == {("POST", "configmaps"): 500, ("PATCH", "gadgets/status"): 500}
        assert set(transport.codes) == {200, 201}

        # Edits: one child patch and one status patch each, nothing else.
        async def edit(number: int) -> None:
            patch = MergePatch({"spec": {"teeth": 7}})
            await client.patch(Gadget, f"g{number}", patch, namespace=namespace)

        await asyncio.gather(*(edit(number) for number in range(50)))
        await until(lambda: transport.seen["PATCH", "configmaps"] == 50 and manager.idle)
        await until(lambda: transport.seen["PATCH", "gadgets/status"] == 550 and manager.idle)

        # A child that someone deletes is brought back, with one write.
        await client.delete(ConfigMap, "g1", namespace=namespace)
        await until(lambda: transport.seen["POST", "configmaps"] == 501 and manager.idle)
        before = transport.writes()
        assert before == {
            ("POST", "configmaps"): 501,
            ("PATCH", "configmaps"): 50,
            ("PATCH", "gadgets/status"): 550,
        }
        # Touching what we do not own wakes nobody into writing.
        note = MergePatch({"metadata": {"labels": {"theirs": "1"}}})
        await asyncio.gather(
            *(client.patch(ConfigMap, f"g{n}", note, namespace=namespace) for n in range(50))
        )
        total = sum(passes.values())
        await until(lambda: sum(passes.values()) >= total and manager.idle)
        assert transport.writes() == before
        assert transport.codes.keys() == {200, 201}
        assert controller.stats.results["error"] == controller.stats.results["requeue"] == 0
        text = manager.metrics.text().decode()
        assert 'controller_runtime_reconcile_total{controller="gadgets",result="success"}' in text
        assert 'informer_objects{group="runtime.example.com",kind="Gadget"' in text


async def test_restart_writes_nothing(client: Client, namespace: str, gadgets: None) -> None:
    for number in range(20):
        await client.create(Gadget(metadata=ObjectMeta(name=f"g{number}", namespace=namespace)))
    for expected in (40, 0):
        transport = Counting(client.transport)  # type: ignore[arg-type]
        manager = Manager(Client(transport), name="gadgets")
        controller = gadget_controller(manager, namespace, Counter())
        async with running(manager):
            await until(lambda c=controller, m=manager: c.stats.results["success"] >= 20 and m.idle)  # type: ignore[misc]
            assert sum(transport.writes().values()) == expected


async def test_a_lease_changes_hands_within_a_second_of_its_release(
    client: Client, namespace: str, stood: Standstill
) -> None:
    class Contender:
        def __init__(self, name: str) -> None:
            self.transport = Counting(client.transport)  # type: ignore[arg-type]
            election = Election("contest", namespace, identity=name)
            self.manager = Manager(Client(self.transport), name=name, election=election)

    first, second, third = (Contender(name) for name in ("first", "second", "third"))
    async with running(first.manager) as task:
        await until(first.manager.leading.is_set)
        async with running(second.manager), running(third.manager):
            await asyncio.sleep(0.3)
            assert not second.manager.leading.is_set()
            with pytest.raises(FenceLost):
                await second.manager.client.create(
                    ConfigMap(metadata=ObjectMeta(name="x", namespace=namespace))
                )
            await first.manager.client.create(ConfigMap(metadata=ObjectMeta(name="x", namespace=namespace)))
            released = time.monotonic()
            first.manager.stop()
            standbys = (second.manager, third.manager)
            await until(lambda: any(m.leading.is_set() for m in standbys), seconds=10)
            took = time.monotonic() - released
            assert took - stood.within(took) < 1.0, f"hand-over took {took:.2f} s"
            await asyncio.wait_for(task, 10)
            lease = await client.get(Lease, "contest", namespace=namespace)
            assert lease.spec is not None
            assert lease.spec.holder_identity in ("second", "third")
            assert lease.spec.lease_transitions == 1
            with pytest.raises(FenceLost):
                await first.manager.client.delete(ConfigMap, "x", namespace=namespace)
            assert sum(m.leading.is_set() for m in standbys) == 1


async def test_events_become_a_series(client: Client, namespace: str) -> None:
    obj = await client.create(ConfigMap(metadata=ObjectMeta(name="x", namespace=namespace)))
    manager = Manager(client, name="noisy")
    async with running(manager):
        await until(manager.leading.is_set)
        for _ in range(3):
            manager.events.normal(obj, "Tested", "it was tested", action="Test")
        manager.events.warning(obj, "Broken", "it is broken; mend it")
        await manager.events.flush()
        found = {e.reason: e for e in (await client.list(Event, namespace=namespace)).items}
        assert set(found) == {"Tested", "Broken"}
        tested = found["Tested"]
        assert tested.series is not None
        assert tested.series.count == 3
        assert tested.reporting_controller == "mooring.dev/noisy"
        assert tested.regarding is not None
        assert tested.regarding.uid == obj.metadata.uid
        assert found["Broken"].type == "Warning"


async def test_two_replicas_share_the_objects_and_the_last_one_takes_them_all(
    client: Client, namespace: str, stood: Standstill
) -> None:
    names = [f"m{number}" for number in range(30)]
    for name in names:
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace)))

    class Replica:
        def __init__(self, name: str) -> None:
            self.seen: set[str] = set()
            election = Election("shared", namespace, identity=name, retry_period=0.4)
            self.manager = Manager(
                Client(Counting(client.transport)),  # type: ignore[arg-type]
                name=name,
                election=election,
                shards=4,
            )
            maps = self.manager.informers.of(ConfigMap, namespace=namespace)
            self.manager.add(Controller("maps", self.reconcile).watch(maps))

        async def reconcile(self, key: Key) -> Result:
            if key.name in names:
                self.seen.add(key.name)
            return Done()

    one, two = Replica("one"), Replica("two")
    async with running(one.manager):
        await until(lambda: len(one.seen) == len(names))
        async with running(two.manager):
            await until(lambda: bool(two.seen), seconds=10)
            await until(
                lambda: len(leases_held(one.manager)) == len(leases_held(two.manager)) == 2, seconds=10
            )
            one.seen.clear()
            two.seen.clear()
            for name in names:
                patch = MergePatch({"data": {"x": "1"}})
                await client.patch(ConfigMap, name, patch, namespace=namespace)
            await until(lambda: len(one.seen | two.seen) == len(names))
            assert not one.seen & two.seen
            assert one.seen
            assert two.seen
        left = time.monotonic()
        await until(lambda: len(leases_held(one.manager)) == 4, seconds=10)
        took = time.monotonic() - left
        assert took - stood.within(took) < 2.0, (
            f"the shards of the replica that left were taken after {took:.2f} s"
        )


def leases_held(manager: Manager) -> list[str]:
    return [name for name, leads in manager.metrics.leading.items() if leads and "-shard-" in name]
