"""Observing writes nothing, and every effect is a point at which a crash does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec
import pytest
from tests.actor.greetings import (
    Finalizing,
    Greeter,
    Greeting,
    Noting,
    define,
    eventually,
    greeting,
    names,
    operated,
    ready,
)

from mooring.actor import Children, Context, Drift, Effect, ObserveWrote, Outcome
from mooring.kube import Client, Conflict, MergePatch, NotFound
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.runtime import CachedClient, Manager


class Reckless(Greeter):
    """Tries to write in every way it knows while it observes."""

    def __init__(self, manager: list[Manager]) -> None:
        super().__init__()
        self.manager = manager
        self.caught: dict[str, str] = {}

    async def observe(self, ctx: Context[Greeting]) -> Outcome:
        wanted = ConfigMap(metadata=ObjectMeta(name="stray", namespace="default"))
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "client": lambda: ctx.client.create(wanted),
            "children": lambda: ctx.children.apply(Drift(apply=(wanted,))),
            "live": lambda: ctx.client.live.create(wanted),
            "own client": lambda: self.manager[0].client.create(wanted),
        }
        for way, write in ways.items():
            try:
                await write()
            except ObserveWrote as error:
                self.caught[way] = str(error)
        return ctx.in_sync()


async def test_no_way_of_writing_works_while_observing() -> None:
    managers: list[Manager] = []
    actor = Reckless(managers)
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await define(client, Greeting)
        noting = Noting(server.transport())
        async with operated(noting, actor) as manager:
            managers.append(manager)
            await client.create(greeting())
            await eventually(ready(client))
        assert set(actor.caught) == {"client", "children", "live", "own client"}
        assert all("default/a" in text and "put it into an action" in text for text in actor.caught.values())
        assert "client.create" in actor.caught["client"], "told by the client itself, in production as well"
        assert "client.apply" in actor.caught["children"]
        assert noting.of("configmaps") == []


class Careful(Finalizing):
    """Has an effect outside the API as well: a bell that must ring once for each text."""

    rung: ClassVar[list[str]] = []

    async def observe(self, ctx: Context[Greeting]) -> Outcome:
        text = (ctx.obj.spec and ctx.obj.spec.text) or ""
        if text not in self.rung:
            return ctx.act("RingBell", self.ring, ctx, text)
        return await super().observe(ctx)

    async def ring(self, ctx: Context[Greeting], text: str) -> None:
        ctx.fence()
        self.rung.append(text)
        await ctx.did(f"ring {text}")


class CrashAt:
    """The effect hook: lets so many effects pass, then the process hangs there until it is killed."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.effects: list[Effect] = []
        self.crashed = asyncio.Event()

    async def __call__(self, effect: Effect) -> None:
        self.effects.append(effect)
        self.left -= 1
        if self.left == 0:
            self.crashed.set()
            await asyncio.Event().wait()


LIFE = [
    ("", "add finalizer"),
    ("RingBell", "ring hi"),
    ("ApplyChildren", "apply ConfigMap a-0"),
    ("ApplyChildren", "apply ConfigMap a-1"),
    ("", "patch status"),
]


async def test_the_effects_of_a_life_are_enumerated_in_order() -> None:
    Careful.rung.clear()
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await define(client, Greeting)
        hook = CrashAt(0)
        async with operated(server.transport(), Careful(), on_effect=hook):
            await client.create(greeting())
            await eventually(ready(client))
            assert [(one.step, one.what) for one in hook.effects] == LIFE
            await client.patch(Greeting, "a", MergePatch({"spec": {"copies": 1}}), namespace="default")

            async def pruned() -> bool:
                return await names(client) == ["a-0"]

            await eventually(pruned)
            await client.delete(Greeting, "a", namespace="default")

            async def removed() -> bool:
                return hook.effects[-1].what == "remove finalizer"

            await eventually(removed)
            whats = [one.what for one in hook.effects]
            assert "delete ConfigMap a-1" in whats


@pytest.mark.parametrize("number", range(1, len(LIFE) + 1))
async def test_after_a_crash_at_any_effect_the_next_process_comes_to_the_same_end(number: int) -> None:
    Careful.rung.clear()
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await define(client, Greeting)
        hook = CrashAt(number)
        async with operated(server.transport(), Careful(), on_effect=hook, grace=0.0):
            await client.create(greeting())
            async with asyncio.timeout(10):
                await hook.crashed.wait()
        assert len(hook.effects) == number

        async with operated(server.transport(), Careful()):
            await eventually(ready(client))

        assert await names(client) == ["a-0", "a-1"]
        assert Careful.rung == ["hi"]
        found = await client.get(Greeting, "a", namespace="default")
        assert found.metadata.finalizers == [Careful.finalizer]


# --- children ----------------------------------------------------------------------------------------------


async def test_only_what_we_declared_is_pruned_and_exactly_the_version_that_was_seen() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await define(client, Greeting)
        noting = Noting(server.transport())
        async with operated(noting, Greeter()):
            owner = await client.create(greeting())
            await eventually(ready(client))
            reference = (await client.get(ConfigMap, "a-0", namespace="default")).metadata.owner_references
            meta = ObjectMeta(name="by-hand", namespace="default", owner_references=reference)
            await client.create(ConfigMap(metadata=meta))
            seen = await client.get(ConfigMap, "a-1", namespace="default")

            await client.patch(Greeting, "a", MergePatch({"spec": {"copies": 1}}), namespace="default")

            async def pruned() -> bool:
                return await names(client) == ["a-0"]

            await eventually(pruned)
            assert owner.metadata.uid
            left = (await client.list(ConfigMap, namespace="default")).items
            assert "by-hand" in {one.metadata.name for one in left}
            (body,) = [body for method, path, body in noting.writes if method == "DELETE" and "a-1" in path]
            assert msgspec.json.decode(body)["preconditions"] == {
                "uid": seen.metadata.uid,
                "resourceVersion": seen.metadata.resource_version,
            }


@pytest.fixture
async def manager() -> Any:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        await define(client, Greeting)
        manager = Manager(client, name="children")
        for kind in (Greeting, ConfigMap):
            manager.informers.of(kind)
        manager.informers.start()
        await manager.informers.wait_synced(10)
        yield manager
        await manager.informers.stop()


def wanted(text: str = "hi") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="a-0", labels={"g": "a"}), data={"t": text})


def children(owner: Greeting, client: CachedClient) -> Children:
    return Children(owner, client, [ConfigMap])


async def test_an_orphan_with_our_labels_is_adopted(manager: Manager) -> None:
    client = manager.client
    owner = await client.create(greeting())
    meta = ObjectMeta(name="a-0", namespace="default", labels={"g": "a"})
    await client.create(ConfigMap(metadata=meta))
    ours = children(owner, client)

    await ours.apply(ours.diff([wanted()]))

    adopted = await client.live.get(ConfigMap, "a-0", namespace="default")
    assert [one.uid for one in adopted.metadata.owner_references or ()] == [owner.metadata.uid]


async def test_an_owner_that_is_gone_adopts_nothing_although_the_cache_still_shows_it(
    manager: Manager,
) -> None:
    client = manager.client
    owner = await client.create(greeting())
    meta = ObjectMeta(name="a-0", namespace="default", labels={"g": "a"})
    await client.create(ConfigMap(metadata=meta))
    ours = children(owner, client)
    drift = ours.diff([wanted()])
    await client.live.delete(Greeting, "a", namespace="default")
    await client.live.create(greeting())

    with pytest.raises(Conflict, match="is deleted or being deleted"):
        await ours.apply(drift)

    assert not (await client.live.get(ConfigMap, "a-0", namespace="default")).metadata.owner_references


async def test_nothing_is_made_for_an_owner_that_is_gone_although_the_cache_still_shows_it(
    manager: Manager,
) -> None:
    client = manager.client
    owner = await client.create(greeting())
    ours = children(owner, client)
    drift = ours.diff([wanted()])
    await client.live.delete(Greeting, "a", namespace="default")

    with pytest.raises(Conflict, match="is deleted or being deleted"):
        await ours.apply(drift)

    with pytest.raises(NotFound):
        await client.live.get(ConfigMap, "a-0", namespace="default")


async def test_a_strangers_object_that_came_up_meanwhile_is_not_taken_over(manager: Manager) -> None:
    client = manager.client
    owner = await client.create(greeting())
    ours = children(owner, client)
    drift = ours.diff([wanted()])
    meta = ObjectMeta(name="a-0", namespace="default")
    await client.live.as_manager("stranger").apply(ConfigMap(metadata=meta, data={"t": "mine"}))

    with pytest.raises(Conflict):
        await ours.apply(drift)

    assert (await client.live.get(ConfigMap, "a-0", namespace="default")).data == {"t": "mine"}


async def test_an_object_gone_before_it_could_be_pruned_is_fine(manager: Manager) -> None:
    client = manager.client
    owner = await client.create(greeting())
    ours = children(owner, client)
    await ours.apply(ours.diff([wanted()]))
    drift = ours.diff([])
    assert drift.prune
    await client.live.delete(ConfigMap, "a-0", namespace="default")

    await ours.apply(drift)

    with pytest.raises(NotFound):
        await client.live.get(ConfigMap, "a-0", namespace="default")
