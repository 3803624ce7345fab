"""What one pass over the children leaves to the next, and when it does not hold any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.actor.greetings import Greeting, Noting, define, eventually, greeting

from mooring.actor import Children, Drift
from mooring.actor.children import Foreign, Memory
from mooring.kube import Client, Conflict, Key, MergePatch, metadata_of
from mooring.kube.objects.core import ConfigMap, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.transport import Response, Transport
from mooring.local.api.server import ApiServer
from mooring.runtime import CachedClient, Manager


class Reading(Noting):
    """Notes reads too."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.reads: list[str] = []

    async def request(self, method: str, path: str, **options: object) -> Response:
        if method == "GET":
            self.reads.append(path)
        return await super().request(method, path, **options)


class Family:
    """The children of one owner, looked at again and again with one memory, as a controller does."""

    def __init__(self, client: CachedClient, owner: Greeting, server: Reading) -> None:
        self.client, self.owner, self.server = client, owner, server
        self.memory = Memory()
        self.text = "hi"
        self.built = 0

    def children(self) -> Children:
        return Children(self.owner, self.client, [ConfigMap], by_metadata=[Secret], memory=self.memory)

    def build(self) -> list[ConfigMap]:
        self.built += 1
        meta = ObjectMeta(name="a-0", namespace="default", labels={"g": "a"})
        return [ConfigMap(metadata=meta, data={"t": self.text})]

    async def settled(self) -> None:
        """Apply what differs, until nothing does; then count from nothing."""
        while drift := self.children().settle(self.build, given=self.text):
            await self.children().apply(drift)
        self.built = 0


@pytest.fixture
async def family() -> AsyncIterator[Family]:
    async with ApiServer.in_memory() as server:
        transport = Reading(server.transport())
        client = Client(transport)
        await define(client, Greeting)
        manager = Manager(client, name="children")
        for kind in (Greeting, ConfigMap, metadata_of(Secret)):
            manager.informers.of(kind)
        manager.informers.start()
        await manager.informers.wait_synced(10)
        yield Family(manager.client, await manager.client.create(greeting()), transport)
        await manager.informers.stop()


async def test_nothing_is_built_again_while_nothing_changed(family: Family) -> None:
    await family.settled()

    drifts = [family.children().settle(family.build, given=family.text) for _ in range(3)]

    assert not any(drifts)
    assert family.built == 0


async def test_a_child_that_somebody_edits_is_repaired(family: Family) -> None:
    await family.settled()
    await family.client.patch(ConfigMap, "a-0", MergePatch({"data": {"t": "spoilt"}}), namespace="default")

    drift = family.children().settle(family.build, given=family.text)

    assert drift.why == {"ConfigMap/a-0": "data[t]"}
    await family.children().apply(drift)
    assert family.client.get(ConfigMap, "a-0", namespace="default").data == {"t": "hi"}


async def test_a_child_that_somebody_deletes_is_made_again(family: Family) -> None:
    await family.settled()
    await family.client.delete(ConfigMap, "a-0", namespace="default")

    assert family.children().settle(family.build, given=family.text).why == {"ConfigMap/a-0": "absent"}


async def test_other_inputs_or_another_version_of_the_owner_are_compared(family: Family) -> None:
    await family.settled()
    family.text = "ho"
    assert list(family.children().settle(family.build, given=family.text).why) == ["ConfigMap/a-0"]

    await family.settled()
    patch = MergePatch({"metadata": {"labels": {"x": "y"}}})
    family.owner = await family.client.patch(Greeting, "a", patch, namespace="default")
    assert not family.children().settle(family.build, given=family.text)
    assert family.built == 1


async def test_a_child_that_is_wanted_no_more_is_found_although_nothing_else_changed(family: Family) -> None:
    await family.settled()
    kept = [(ConfigMap, "a-0")]
    assert not family.children().settle(list, given="none", keep=kept)

    assert str(family.children().settle(list, given="none")) == "delete ConfigMap a-0"


async def test_a_new_process_always_compares(family: Family) -> None:
    await family.settled()

    family.memory = Memory()
    assert not family.children().settle(family.build, given=family.text)

    assert family.built == 1


async def test_a_drift_that_was_not_mended_is_found_again(family: Family) -> None:
    found = [family.children().settle(family.build, given=family.text) for _ in range(2)]

    assert all(found)


# --- kinds of which the metadata alone is cached


def secret(text: str) -> Secret:
    meta = ObjectMeta(name="s", namespace="default", labels={"g": "a"})
    return Secret(metadata=meta, type="Opaque", data={"word": text})


def reads(family: Family) -> Callable[[], int]:
    return lambda: sum(1 for path in family.server.reads if path.endswith("/secrets/s"))


async def test_a_secret_is_read_once_per_version_and_the_cache_never_holds_what_is_in_it(
    family: Family,
) -> None:
    asked = reads(family)
    await family.client.live.create(secret("b25l"))

    async def cached() -> bool:
        return await family.children().read(Secret, "s") is not None

    await eventually(cached)
    for _ in range(3):
        read = await family.children().read(Secret, "s")
        assert read is not None
        assert read.data == {"word": "b25l"}
    assert asked() == 1
    assert [type(one) for informer in family.client.informers.every(Secret) for one in informer.list()] == [
        metadata_of(Secret)
    ]

    await family.client.patch(Secret, "s", MergePatch({"data": {"word": "dHdv"}}), namespace="default")
    read = await family.children().read(Secret, "s")

    assert read is not None
    assert read.data == {"word": "dHdv"}
    assert asked() == 2


async def test_a_secret_of_ours_that_somebody_edits_is_repaired(family: Family) -> None:
    async def drift() -> tuple[Children, Drift]:
        ours = family.children()
        await ours.read(Secret, "s")
        return ours, ours.settle(lambda: [secret("b25l")], given="")

    ours, found = await drift()
    await ours.apply(found)
    assert not (await drift())[1]

    await family.client.patch(Secret, "s", MergePatch({"data": {"word": "dHdv"}}), namespace="default")

    assert (await drift())[1].why == {"Secret/s": "data[word]"}


async def test_what_was_not_read_is_an_error_and_not_an_absence(family: Family) -> None:
    with pytest.raises(LookupError, match="read s first"):
        family.children().find(Secret, "s")
    assert await family.children().read(Secret, "s") is None


async def test_what_was_made_from_the_live_object_is_applied_to_that_version_alone(family: Family) -> None:
    await family.settled()
    found = await family.client.live.get(ConfigMap, "a-0", namespace="default")
    patch = MergePatch({"data": {"t": "newer"}})

    def kept_and_labelled() -> ConfigMap:
        """Says again what the live one says, and one thing more."""
        meta = ObjectMeta(
            name="a-0",
            namespace="default",
            labels={"g": "a", "more": "yes"},
            resource_version=found.metadata.resource_version,
        )
        return ConfigMap(metadata=meta, data=found.data)

    stale = family.children().diff([kept_and_labelled()])
    await family.client.live.patch(ConfigMap, "a-0", patch, namespace="default")
    with pytest.raises(Conflict):
        await family.children().apply(stale)

    live = await family.client.live.get(ConfigMap, "a-0", namespace="default")
    assert live.data == {"t": "newer"}


async def test_what_was_made_from_the_live_object_is_not_made_anew_when_that_has_gone(family: Family) -> None:
    await family.settled()
    found = await family.client.live.get(ConfigMap, "a-0", namespace="default")
    meta = ObjectMeta(
        name="a-0", namespace="default", labels={"g": "b"}, resource_version=found.metadata.resource_version
    )
    stale = family.children().diff([ConfigMap(metadata=meta, data=found.data)])
    await family.client.live.delete(ConfigMap, "a-0", namespace="default")
    with pytest.raises(Conflict):
        await family.children().apply(stale)


async def test_a_version_alone_is_no_difference(family: Family) -> None:
    await family.settled()
    found = await family.client.live.get(ConfigMap, "a-0", namespace="default")
    meta = ObjectMeta(
        name="a-0",
        namespace="default",
        labels={"g": "a"},
        resource_version=found.metadata.resource_version,
    )

    assert not family.children().diff([ConfigMap(metadata=meta, data={"t": "hi"})])


def test_of_many_names_that_others_have_the_first_is_said_and_how_many_more() -> None:
    def other(name: str) -> Foreign:
        return Foreign(kind="Service", key=Key("default", name), owner="Shop b")

    assert Drift().taken == ""
    assert Drift(foreign=(other("a"),)).taken == "Service default/a belongs to Shop b"
    assert Drift(foreign=(other("a"), other("b"), other("c"))).taken == (
        "Service default/a belongs to Shop b (and 2 more)"
    )
