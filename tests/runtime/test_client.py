"""The cached client: reads its own writes, in every order answers and events can come."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.cache.fake_api import FakeApi

from mooring.cache import InformerSet, NotCached, Transition
from mooring.kube import AlreadyExists, Client, Conflict, Key, MergePatch, NotFound, encode, metadata_of
from mooring.kube.objects.core import ConfigMap, Pod, Secret
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.runtime import CachedClient
from mooring.testing.clock import VirtualClock

MAPS = "configmaps"


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(api: FakeApi, clock: VirtualClock) -> AsyncIterator[CachedClient]:
    informers = InformerSet(Client(api), clock)
    informers.of(ConfigMap)
    async with informers:
        await informers.wait_synced(5)
        await clock.settle()
        yield CachedClient(Client(api), informers)


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


def find(client: CachedClient, name: str = "a") -> ConfigMap | None:
    return client.find(ConfigMap, name, namespace="default")


async def test_writes_are_read_back_before_their_events(client: CachedClient, api: FakeApi) -> None:
    api.hold()
    await client.create(config_map("a", x="1"))
    found = find(client)
    assert found is not None
    assert found.data == {"x": "1"}
    await client.patch(ConfigMap, "a", MergePatch({"data": {"x": "2"}}), namespace="default")
    found = find(client)
    assert found is not None
    assert found.data == {"x": "2"}
    await client.apply(config_map("b", y="1"))
    assert [o.metadata.name for o in client.list(ConfigMap, namespace="default")] == ["a", "b"]
    await client.delete(ConfigMap, "a", namespace="default")
    assert find(client) is None


async def test_late_events_of_our_writes_change_nothing(
    client: CachedClient, api: FakeApi, clock: VirtualClock
) -> None:
    told: list[Transition[ConfigMap]] = []
    client.informers.of(ConfigMap).add_handler(told.append)
    api.hold()
    await client.create(config_map("a", x="1"))
    await client.patch(ConfigMap, "a", MergePatch({"data": {"x": "2"}}), namespace="default")
    await client.delete(ConfigMap, "a", namespace="default")
    api.release()
    await clock.settle()
    assert [(c.origin, c.new is not None) for c in told] == [
        ("write", True),
        ("write", True),
        ("write", False),
    ]
    assert find(client) is None


async def test_an_object_with_a_finalizer_is_shown_as_going(client: CachedClient, api: FakeApi) -> None:
    api.put(MAPS, "a", metadata={"finalizers": ["x/y"]})
    await client.refresh(ConfigMap, "a", namespace="default")
    left = await client.delete(ConfigMap, "a", namespace="default")
    assert left is not None
    found = find(client)
    assert found is not None
    assert found.metadata.deletion_timestamp
    patch = MergePatch({"metadata": {"finalizers": None}})
    await client.patch(ConfigMap, "a", patch, namespace="default")
    assert find(client) is None, "the answer to the last finalizer's removal shows an object that is gone"


async def test_a_pod_that_is_to_end_at_once_is_there_until_its_event(
    client: CachedClient, api: FakeApi, clock: VirtualClock
) -> None:
    pods = client.informers.of(Pod)
    pods.start()
    api.put(
        "pods", "a", metadata={"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    )
    await pods.synced.wait()
    noted = MergePatch({"metadata": {"labels": {"seen": "yes"}}})
    await client.patch(Pod, "a", noted, namespace="default")
    found = client.find(Pod, "a", namespace="default")
    assert found is not None
    assert found.metadata.labels == {"seen": "yes"}
    assert await client.refresh(Pod, "a", namespace="default") is not None
    assert client.find(Pod, "a", namespace="default") is not None
    api.remove("pods", "a")
    await clock.settle()
    assert client.find(Pod, "a", namespace="default") is None


async def test_only_the_object_we_saw_is_deleted(
    client: CachedClient, api: FakeApi, clock: VirtualClock
) -> None:
    api.put(MAPS, "a")
    await clock.settle()
    with api.losing_events():
        api.remove(MAPS, "a")
        version = api.put(MAPS, "a", data={"other": "1"})["metadata"]["resourceVersion"]
    for given in (None, version):
        with pytest.raises(Conflict, match="precondition"):
            await client.delete(ConfigMap, "a", namespace="default", resource_version=given)
    assert api.get(MAPS, "a")["data"] == {"other": "1"}


async def test_what_has_changed_since_it_was_seen_is_not_deleted(
    client: CachedClient, api: FakeApi, clock: VirtualClock
) -> None:
    api.put(MAPS, "a")
    await clock.settle()
    with api.losing_events():
        changed = api.put(MAPS, "a", data={"precious": "1"})
    with pytest.raises(Conflict, match="resourceVersion"):
        await client.delete(ConfigMap, "a", namespace="default")
    assert api.get(MAPS, "a")["data"] == {"precious": "1"}
    await client.delete(ConfigMap, "a", namespace="default", uid=changed["metadata"]["uid"])
    assert not api.collection(MAPS).objects, "whoever names a UID alone does not mind the version"


async def test_a_404_teaches_the_cache(client: CachedClient, api: FakeApi, clock: VirtualClock) -> None:
    for name in ("a", "b", "c"):
        api.put(MAPS, name)
    await clock.settle()
    with api.losing_events():
        for name in ("a", "b", "c"):
            api.remove(MAPS, name)
    assert find(client, "a") is not None
    with pytest.raises(NotFound):
        await client.patch(ConfigMap, "a", MergePatch({"data": {}}), namespace="default")
    await client.delete(ConfigMap, "b", namespace="default")
    assert await client.refresh(ConfigMap, "c", namespace="default") is None
    assert [find(client, name) for name in ("a", "b", "c")] == [None, None, None]
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, "b", namespace="default", missing_ok=False)


async def test_a_dry_run_is_not_taken_for_the_truth(client: CachedClient) -> None:
    await client.create(config_map("a"), dry_run=True)
    assert find(client) is None


async def test_lists_by_selector_owner_and_predicate(
    client: CachedClient, api: FakeApi, clock: VirtualClock
) -> None:
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u9", "controller": True}
    api.put(MAPS, "a", metadata={"labels": {"app": "x"}, "ownerReferences": [owner]})
    api.put(MAPS, "b", metadata={"labels": {"app": "y"}})
    await clock.settle()

    def found(**query: object) -> list[str | None]:
        return [o.metadata.name for o in client.list(ConfigMap, namespace="default", **query)]  # type: ignore[arg-type]

    assert found(label_selector="app in (x)") == ["a"]
    assert found(where=lambda o: o.metadata.name == "b") == ["b"]
    parent = ConfigMap(metadata=ObjectMeta(name="x", namespace="default", uid="u9"))
    assert [o.metadata.name for o in client.owned_by(ConfigMap, parent)] == ["a"]
    assert client.informers.of(ConfigMap).get(Key("default", "a")) is not None


async def test_metadata_alone_is_asked_for_and_follows_whole_writes(
    api: FakeApi, clock: VirtualClock
) -> None:
    secret = Secret(
        metadata=ObjectMeta(name="a", namespace="default", labels={"app": "x"}), data={"k": "dg=="}
    )
    async with InformerSet(Client(api), clock) as informers:
        informer = informers.of(metadata_of(Secret))
        assert informers.of(metadata_of(Secret)) is informer
        await informers.wait_synced(5)
        await clock.settle()
        accepted = [request.accept for request in api.requests]
        assert accepted == [
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        ]
        client = CachedClient(Client(api), informers)
        api.hold()
        await client.create(secret)
        found = client.find(metadata_of(Secret), "a", namespace="default")
        assert found is not None
        assert found.metadata.labels == {"app": "x"}
        assert b"dg==" not in encode(found)
        with pytest.raises(NotCached):
            client.find(Secret, "a", namespace="default")
        await client.delete(Secret, "a", namespace="default")
        seen = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
        assert api.writes("secrets")[-1].body["preconditions"] == seen
        assert client.find(metadata_of(Secret), "a", namespace="default") is None
        with pytest.raises(TypeError, match="metadata alone"):
            await client.create(found)


def child(owner_uid: str) -> ConfigMap:
    owner = OwnerReference(api_version="v1", kind="Pod", name="p", uid=owner_uid, controller=True)
    return ConfigMap(metadata=ObjectMeta(name="a", namespace="default", owner_references=[owner]))


async def test_a_name_that_is_taken_is_ours_only_by_its_owners_uid(
    client: CachedClient, api: FakeApi
) -> None:
    with api.losing_events():
        made = await client.live.create(child("u1"))
    assert find(client) is None, "the cache is behind"
    found: ConfigMap | None = None
    with contextlib.suppress(AlreadyExists):
        found = await client.ensure(child("u1"))
    assert found is not None, "a live look shows that it is ours"
    assert found.metadata.uid == made.metadata.uid
    assert find(client) is not None
    with pytest.raises(AlreadyExists, match=r"belongs to Pod p \(uid u1\)"):
        await client.ensure(child("u2"))
    api.put(MAPS, "a", metadata={"ownerReferences": None})
    with pytest.raises(AlreadyExists, match="nobody we know"):
        await client.ensure(child("u1"))


async def test_where_no_generation_is_counted_any_change_is_one(
    client: CachedClient, api: FakeApi, clock: VirtualClock
) -> None:
    api.put(MAPS, "a", data={"size": "3"})
    api.get(MAPS, "a")["metadata"].pop("generation")
    seen = await client.refresh(ConfigMap, "a", namespace="default")
    assert seen is not None
    assert seen.metadata.generation is None
    assert await client.confirm(seen) == seen
    api.put(MAPS, "a", data={"size": "5"})
    api.get(MAPS, "a")["metadata"].pop("generation")
    with pytest.raises(Conflict, match="has changed"):
        await client.confirm(seen)


async def test_nothing_irreversible_is_done_for_an_object_that_changed(
    client: CachedClient, api: FakeApi, clock: VirtualClock
) -> None:
    api.put(MAPS, "a", spec={"size": 3})
    await clock.settle()
    seen = find(client)
    assert seen is not None
    assert await client.confirm(seen) == seen
    with api.losing_events():
        api.put(MAPS, "a", spec={"size": 3}, metadata={"labels": {"x": "1"}})
        assert (await client.confirm(seen)).metadata.labels == {"x": "1"}, "labels are no reason"
        api.put(MAPS, "a", spec={"size": 5})
        with pytest.raises(Conflict, match="has changed"):
            await client.confirm(seen)
        api.remove(MAPS, "a")
        with pytest.raises(NotFound, match="is gone"):
            await client.confirm(seen)
        api.put(MAPS, "a", spec={"size": 3})
        with pytest.raises(Conflict):
            await client.confirm(seen)
