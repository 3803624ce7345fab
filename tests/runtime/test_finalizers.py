"""Finalizers of a plain controller: ours come and go, others' stay, and a changed object is looked at again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mooring.cache import InformerSet
from mooring.kube import Client, Conflict, MergePatch
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.runtime import CachedClient, add_finalizer, remove_finalizer

OURS = "mooring.dev/ours"


@pytest.fixture
async def client() -> AsyncIterator[CachedClient]:
    async with ApiServer.in_memory() as server:
        plain = Client(server.transport())
        async with InformerSet(plain) as informers:
            informers.of(ConfigMap)
            await informers.wait_synced()
            yield CachedClient(plain, informers)


async def made(client: CachedClient, *finalizers: str) -> ConfigMap:
    meta = ObjectMeta(name="a", namespace="default", finalizers=list(finalizers) or None)
    return await client.create(ConfigMap(metadata=meta))


async def test_it_is_set_once_and_read_back(client: CachedClient) -> None:
    obj = await add_finalizer(client, await made(client), OURS)
    assert obj.metadata.finalizers == [OURS]
    assert client.get(ConfigMap, "a", namespace="default").metadata.finalizers == [OURS]
    again = await add_finalizer(client, obj, OURS)
    assert again.metadata.resource_version == obj.metadata.resource_version, "nothing is written twice"


async def test_those_of_others_stay(client: CachedClient) -> None:
    obj = await add_finalizer(client, await made(client, "other.dev/first", "other.dev/second"), OURS)
    assert obj.metadata.finalizers == ["other.dev/first", "other.dev/second", OURS]
    obj = await client.patch(
        ConfigMap,
        "a",
        MergePatch({"metadata": {"finalizers": [OURS, "other.dev/second"]}}),
        namespace="default",
    )
    obj = await remove_finalizer(client, obj, OURS)
    assert obj.metadata.finalizers == ["other.dev/second"]
    assert await remove_finalizer(client, obj, OURS) is obj


async def test_one_that_somebody_else_removed_does_not_come_back(client: CachedClient) -> None:
    seen = await add_finalizer(client, await made(client, "other.dev/first"), OURS)
    theirs = MergePatch({"metadata": {"finalizers": [OURS, "other.dev/second"]}})
    await client.live.patch(ConfigMap, "a", theirs, namespace="default")
    with pytest.raises(Conflict):
        await remove_finalizer(client, seen, OURS)
    now = await client.live.get(ConfigMap, "a", namespace="default")
    assert now.metadata.finalizers == [OURS, "other.dev/second"], "not by the index that was seen"


async def test_the_last_one_lets_a_deleted_object_go(client: CachedClient) -> None:
    await add_finalizer(client, await made(client), OURS)
    going = await client.delete(ConfigMap, "a", namespace="default")
    assert going is not None
    await remove_finalizer(client, going, OURS)
    assert client.find(ConfigMap, "a", namespace="default") is None
