"""Caches against API servers: the embedded one and a real kube-apiserver, with its own versions and 410s."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest

from mooring.cache import Informer, InformerSet, Transition
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
    TransportError,
)
from mooring.kube.objects.core import ConfigMap, Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.runtime import CachedClient, F, crd, render_crd


async def until(condition: Callable[[], bool], *, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        await asyncio.sleep(0.01)


@dataclass
class Server:
    client: Client
    forget_history: Callable[[], None]


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """The embedded API server in this process, and a real kube-apiserver."""
    if request.param == "embedded":
        async with ApiServer.in_memory() as embedded:
            cogs = embedded.cluster.store.collection("cogs.cache.example.com")
            yield Server(Client(embedded.transport()), cogs.compact)
        return
    client = Client(HttpTransport(Config.load(request.getfixturevalue("real_kubernetes"))))
    # The real server has no history of a kind from before the kind was installed.
    yield Server(client, lambda: None)
    await client.close()


@pytest.fixture
def client(server: Server) -> Client:
    return server.client


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"cache-{uuid.uuid4().hex[:8]}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    await client.delete(Namespace, name)


def config_map(name: str, namespace: str, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), data=data)


async def truth(client: Client, namespace: str) -> dict[str, dict[str, str] | None]:
    page = await client.list(ConfigMap, namespace=namespace)
    return {obj.metadata.name or "": obj.data for obj in page.items}


def shown(informer: Informer[ConfigMap], namespace: str) -> dict[str, dict[str, str] | None]:
    return {obj.metadata.name or "": obj.data for obj in informer.list(namespace)}


@pytest.mark.parametrize("watch_list", [False, True], ids=["pages", "watch-list"])
async def test_an_informer_converges_to_the_truth(
    client: Client, namespace: str, *, watch_list: bool
) -> None:
    await asyncio.gather(*(client.create(config_map(f"m{i}", namespace)) for i in range(700)))
    async with InformerSet(client, watch_list=watch_list) as informers:
        informer = informers.of(ConfigMap, namespace=namespace)
        await informers.wait_synced(20)
        assert len(informer) >= 700

        async def change(number: int) -> None:
            name = f"m{number}"
            if number % 3:
                patch = MergePatch({"data": {"n": str(number)}})
                await client.patch(ConfigMap, name, patch, namespace=namespace)
            else:
                await client.delete(ConfigMap, name, namespace=namespace)

        await asyncio.gather(*(change(number) for number in range(300)))
        expected = await truth(client, namespace)
        await until(lambda: shown(informer, namespace) == expected)
        assert informer.relists == 1


async def test_selected_objects_come_and_go(client: Client, namespace: str) -> None:
    await client.create(config_map("a", namespace, {"in": "1"}))
    async with InformerSet(client) as informers:
        informer = informers.of(ConfigMap, namespace=namespace, label_selector="in=1")
        told: list[Transition[ConfigMap]] = []
        await informers.wait_synced(20)
        informer.add_handler(told.append)
        out = MergePatch({"metadata": {"labels": {"in": "0"}}})
        back = MergePatch({"metadata": {"labels": {"in": "1"}}})
        await client.patch(ConfigMap, "a", out, namespace=namespace)
        await until(lambda: len(informer) == 0)
        cached = CachedClient(client, informers)
        await cached.patch(ConfigMap, "a", back, namespace=namespace)
        assert len(informer) == 1
        await cached.patch(ConfigMap, "a", out, namespace=namespace)
        assert len(informer) == 0, "the answer showed that it has left"
        await client.create(config_map("b", namespace, {"in": "1"}))
        await until(lambda: [o.metadata.name for o in informer.list()] == ["b"])
        assert [c.new is not None for c in told] == [True, False, True, False, True]


class CogSpec(Part, frozen=True, kw_only=True):
    teeth: Annotated[int | None, F(minimum=1)] = None


@crd()
class Cog(Object, frozen=True, kw_only=True):
    """A kind that is installed late: the server keeps no history of it from before."""

    resource: ClassVar[Resource] = Resource("cache.example.com", "v1", "Cog", "cogs")
    spec: CogSpec | None = None


async def install(client: Client) -> None:
    definition = render_crd(Cog)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    query = {"fieldManager": "test", "force": "true"}
    body = json.dumps(definition).encode()
    await client.request("PATCH", path, query=query, body=body, content_type="application/apply-patch+yaml")
    deadline = time.monotonic() + 20
    while True:
        try:
            await client.list(Cog)
            return
        except (NotFound, TooManyRequests):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_a_version_that_is_too_old_lists_again_and_finds_what_was_deleted(
    server: Server, namespace: str
) -> None:
    client = server.client
    await install(client)
    for name in ("stays", "goes"):
        await client.create(Cog(metadata=ObjectMeta(name=name, namespace=namespace), spec=CogSpec(teeth=3)))
    informer = Informer(client, Cog, namespace=namespace)
    informer.start()
    try:
        await until(informer.synced.is_set)
        await informer.stop()
        await client.delete(Cog, "goes", namespace=namespace)
        await client.create(Cog(metadata=ObjectMeta(name="comes", namespace=namespace)))
        # As if nothing had been heard since long ago: this version is older than the server's history.
        server.forget_history()
        informer._store.last_version = 1
        told: list[Transition[Cog]] = []
        informer.add_handler(told.append)
        told.clear()
        await asyncio.wait_for(_relist_reason(informer), 20)
        informer.start()
        await until(lambda: informer.get(Key(namespace, "comes")) is not None)
        await until(lambda: informer.get(Key(namespace, "goes")) is None)
        assert informer.get(Key(namespace, "stays")) is not None
        gone = next(change for change in told if change.key.name == "goes")
        assert gone.final_state_unknown
    finally:
        await informer.stop()


async def _relist_reason(informer: Informer[Cog]) -> None:
    with pytest.raises(Exception, match="too old resource version"):
        await informer._reflector._watch()


async def test_reads_follow_our_writes_while_others_edit(client: Client, namespace: str) -> None:
    """Ten writers of ours, each reading back what it wrote, beside strangers who edit, delete and cut watches."""
    names = [f"m{i}" for i in range(10)]
    stop = asyncio.Event()
    rng = random.Random(3)
    reads = 0
    async with InformerSet(client) as informers:
        informer = informers.of(ConfigMap, namespace=namespace)
        await informers.wait_synced(20)
        cached = CachedClient(client, informers)
        newest: dict[str, int] = {}

        def seen(change: Transition[ConfigMap]) -> None:
            if change.old is not None and change.new is not None:
                before = int(change.old.metadata.resource_version or 0)
                assert int(change.new.metadata.resource_version or 0) > before

        informer.add_handler(seen)

        async def ours(name: str) -> None:
            nonlocal reads
            for number in range(60):
                patch = config_map(name, namespace, ours=str(number))
                made = await cached.apply(patch, field_manager="ours")
                found = cached.find(ConfigMap, name, namespace=namespace)
                version = int(made.metadata.resource_version or 0)
                if found is not None:  # a stranger may have deleted it
                    assert int(found.metadata.resource_version or 0) >= version
                    if found.metadata.uid == made.metadata.uid:
                        assert (found.data or {})["ours"] == str(number)
                    reads += 1
                if number % 20 == 19:
                    # Whatever version: a stranger may have edited it at this very moment.
                    uid = (found or made).metadata.uid
                    await cached.delete(ConfigMap, name, namespace=namespace, uid=uid)
                    again = cached.find(ConfigMap, name, namespace=namespace)
                    assert again is None or again.metadata.uid != made.metadata.uid

        async def strangers() -> None:
            while not stop.is_set():
                name = rng.choice(names)
                theirs = config_map(name, namespace, {"theirs": str(rng.random())})
                if rng.random() < 0.1:
                    await asyncio.gather(
                        client.delete(ConfigMap, name, namespace=namespace), return_exceptions=True
                    )
                else:
                    await client.apply(theirs, field_manager="theirs")
                newest[name] = 1

        other = asyncio.create_task(strangers())
        try:
            await asyncio.gather(*(ours(name) for name in names))
        finally:
            stop.set()
            await other
        expected = await truth(client, namespace)
        await until(lambda: shown(informer, namespace) == expected)
        assert reads > 300
        assert informer.handler_errors == 0
        assert informer.get(Key(namespace, "no-such")) is None


async def test_cut_connections_lose_no_event(client: Client, namespace: str) -> None:
    """Streams that break after every few events, at any byte."""
    transport = client.transport

    class Cutting:
        """Breaks every stream after a few lines."""

        request = transport.request
        close = transport.close

        def stream(self, *args: object, **options: object) -> object:
            from contextlib import asynccontextmanager

            @asynccontextmanager
            async def cut() -> AsyncIterator[object]:
                async with transport.stream(*args, **options) as answer:  # type: ignore[arg-type]

                    class Answer:
                        status = answer.status
                        headers = answer.headers
                        read = answer.read

                        async def __aiter__(self) -> AsyncIterator[bytes]:
                            left = random.randrange(1, 6)
                            async for line in answer:
                                yield line if left > 1 else line[: len(line) // 2]
                                left -= 1
                                if left == 0:
                                    raise TransportError("cut")

                    yield Answer()

            return cut()

    informer = Informer(Client(Cutting()), ConfigMap, namespace=namespace)  # type: ignore[arg-type]
    informer._reflector._backoff._most = 0.02
    informer._reflector._backoff._first = informer._reflector._backoff._step = 0.01
    informer.start()
    try:
        for number in range(60):
            await client.create(config_map(f"m{number}", namespace))
            if number % 4 == 3:
                await client.delete(ConfigMap, f"m{number - 2}", namespace=namespace)
        expected = await truth(client, namespace)
        await until(lambda: shown(informer, namespace) == expected, seconds=20)
    finally:
        await informer.stop()
