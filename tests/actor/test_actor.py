"""An actor on a whole API server (in memory): children, status, conditions, finalizer, failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from mooring.actor import Actor, Context, ObserveWrote, Outcome, run_actor
from mooring.kube import Client, Key, MergePatch, NotFound, Object, Part, Resource
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import Condition, ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.runtime import Manager
from mooring.runtime.crd import F, crd, render_crd


class GreetingSpec(Part, frozen=True, kw_only=True):
    text: Annotated[str | None, F("What to say.", max_length=100)] = None
    copies: Annotated[int | None, F("How often.", minimum=0)] = None


class GreetingStatus(Part, frozen=True, kw_only=True):
    said: Annotated[str | None, F("What was said.")] = None
    observed_generation: Annotated[int | None, F("Generation.")] = None
    conditions: Annotated[list[Condition] | None, F("Conditions.")] = None


@crd()
class Greeting(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("test.mooring.dev", "v1", "Greeting", "greetings")
    spec: Annotated[GreetingSpec | None, F("Spec.")] = None
    status: Annotated[GreetingStatus | None, F("Status.")] = None


class Greeter(Actor[Greeting]):
    kind = Greeting
    name: ClassVar[str] = "greeter"
    owns: ClassVar[Any] = (ConfigMap,)

    def __init__(self) -> None:
        self.passes = 0
        self.cleaned: list[str] = []
        self.misbehave: Callable[[Context[Greeting]], Awaitable[object]] | None = None

    async def observe(self, ctx: Context[Greeting]) -> Outcome:
        self.passes += 1
        if self.misbehave:
            await self.misbehave(ctx)
        spec = ctx.obj.spec or GreetingSpec()
        if spec.text == "forbidden":
            return ctx.terminal("BadText", "spec.text: 'forbidden' may not be said; choose another text")
        desired = [
            ConfigMap(
                metadata=ObjectMeta(name=f"{ctx.key.name}-{i}", labels={"g": ctx.key.name}),
                data={"t": spec.text or ""},
            )
            for i in range(spec.copies or 0)
        ]
        if drift := ctx.children.diff(desired):
            return ctx.act("ApplyChildren", ctx.children.apply, drift)
        ctx.show(msgspec.structs.replace(ctx.status or GreetingStatus(), said=spec.text))
        return ctx.in_sync()

    async def finalize(self, ctx: Context[Greeting]) -> Outcome:
        self.cleaned.append(ctx.key.name)
        return ctx.in_sync("cleaned up")


class Finalizing(Greeter):
    finalizer: ClassVar[str] = "test.mooring.dev/greeter"


async def eventually(check: Callable[[], Awaitable[bool]], *, within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not await check():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(actor: Greeter) -> AsyncIterator[Client]:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        body = msgspec.json.encode(render_crd(Greeting))
        await client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)
        manager = Manager(Client(server.transport()), name=actor.name)
        run_actor(actor, manager)
        task = asyncio.create_task(manager.run())
        try:
            yield client
        finally:
            manager.stop()
            await asyncio.wait_for(task, 10)


def greeting(text: str = "hi", copies: int = 2) -> Greeting:
    return Greeting(
        metadata=ObjectMeta(name="a", namespace="default"), spec=GreetingSpec(text=text, copies=copies)
    )


async def condition(client: Client, kind: str) -> Condition | None:
    status = (await client.get(Greeting, "a", namespace="default")).status
    return next((c for c in (status and status.conditions) or [] if c.type == kind), None)


def ready(client: Client, status: str = "True") -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        found = await condition(client, "Ready")
        return found is not None and found.status == status

    return check


async def names(client: Client) -> list[str]:
    page = await client.list(ConfigMap, namespace="default", label_selector="g=a")
    return sorted(str(c.metadata.name) for c in page.items)


async def test_children_are_made_repaired_and_pruned() -> None:
    async with running(Greeter()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        assert await names(client) == ["a-0", "a-1"]

        await client.delete(ConfigMap, "a-0", namespace="default")
        await client.patch(ConfigMap, "a-1", MergePatch({"data": {"t": "spoilt"}}), namespace="default")

        async def repaired() -> bool:
            page = await client.list(ConfigMap, namespace="default", label_selector="g=a")
            return [(c.data or {}).get("t") for c in page.items] == ["hi", "hi"]

        await eventually(repaired)
        await client.patch(Greeting, "a", MergePatch({"spec": {"copies": 1}}), namespace="default")

        async def pruned() -> bool:
            return await names(client) == ["a-0"]

        await eventually(pruned)


async def test_at_rest_nothing_is_written() -> None:
    async with running(Greeter()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        before = await client.get(Greeting, "a", namespace="default")
        await client.patch(
            Greeting, "a", MergePatch({"metadata": {"annotations": {"look": "again"}}}), namespace="default"
        )
        await asyncio.sleep(0.2)
        after = await client.get(Greeting, "a", namespace="default")
        assert after.status == before.status
        # One version for the annotation, none for us.
        assert int(after.metadata.resource_version or 0) == int(before.metadata.resource_version or 0) + 1


async def test_a_wrong_declaration_is_said_and_taken_back_when_corrected() -> None:
    async with running(Greeter()) as client:
        await client.create(greeting("forbidden"))

        async def stalled() -> bool:
            found = await condition(client, "Stalled")
            return found is not None and found.status == "True" and "spec.text" in (found.message or "")

        await eventually(stalled)
        await client.patch(Greeting, "a", MergePatch({"spec": {"text": "fine"}}), namespace="default")
        await eventually(ready(client))


async def test_a_foreign_object_of_a_wanted_name_is_left_alone() -> None:
    async with running(Greeter()) as client:
        await client.create(
            ConfigMap(metadata=ObjectMeta(name="a-0", namespace="default"), data={"mine": "yes"})
        )
        await client.create(greeting())
        await eventually(ready(client))
        assert (await client.get(ConfigMap, "a-0", namespace="default")).data == {"mine": "yes"}


async def test_the_finalizer_waits_for_finalize() -> None:
    actor = Finalizing()
    async with running(actor) as client:
        await client.create(greeting())
        await eventually(ready(client))
        assert (await client.get(Greeting, "a", namespace="default")).metadata.finalizers == [actor.finalizer]
        await client.delete(Greeting, "a", namespace="default")

        async def gone() -> bool:
            try:
                await client.get(Greeting, "a", namespace="default")
            except NotFound:
                return True
            return False

        await eventually(gone)
        assert actor.cleaned == ["a"]


async def test_writing_while_observing_is_refused() -> None:
    actor = Greeter()
    refused: list[str] = []

    async def write(ctx: Context[Greeting]) -> None:
        with pytest.raises(ObserveWrote) as error:
            await ctx.client.delete(ConfigMap, "x", namespace="default")
        refused.append(str(error.value))

    actor.misbehave = write
    async with running(actor) as client:
        await client.create(greeting())
        await eventually(ready(client))
    assert refused
    assert "client.delete" in refused[0]


async def test_what_the_server_refuses_is_shown_and_taken_back_when_corrected() -> None:
    name = ["not/a name"]

    class Misnaming(Greeter):
        async def observe(self, ctx: Context[Greeting]) -> Outcome:
            if name:
                wrong = ConfigMap(metadata=ObjectMeta(name="a-0"), data={name[0]: ""})
                return ctx.act("ApplyChildren", ctx.children.apply, ctx.children.diff([wrong]))
            return await super().observe(ctx)

    async with running(Misnaming()) as client:
        await client.create(greeting())

        async def said() -> bool:
            stalled = await condition(client, "Stalled")
            return (
                stalled is not None and stalled.status == "True" and "not/a name" in (stalled.message or "")
            )

        await eventually(said)
        name.clear()
        await client.patch(Greeting, "a", MergePatch({"spec": {"copies": 1}}), namespace="default")
        await eventually(ready(client))
        stalled = await condition(client, "Stalled")
        assert stalled is not None
        assert stalled.status == "False"


async def test_an_unforeseen_failure_shows_its_type_but_not_its_text() -> None:
    actor = Greeter()

    async def fail(ctx: Context[Greeting]) -> None:
        raise RuntimeError("password is hunter2")

    actor.misbehave = fail
    async with running(actor) as client:
        await client.create(greeting())

        async def shown() -> bool:
            found = await condition(client, "Progressing")
            return found is not None and found.reason == "StepFailed"

        await eventually(shown)
        status = msgspec.json.encode((await client.get(Greeting, "a", namespace="default")).status)
        assert b"RuntimeError" in status
        assert b"hunter2" not in status
        actor.misbehave = None
        await eventually(ready(client))


async def test_an_object_that_cannot_be_read_is_told_so_and_holds_nobody_back() -> None:
    async with running(Greeter()) as client:
        path = "/apis/test.mooring.dev/v1/namespaces/default/greetings"
        # The CRD of another version once allowed it: take the schema away, store it, as an old object would be.
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/greetings.test.mooring.dev"
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        patch = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": loose}]
        await client.request(
            "PATCH", crds, body=msgspec.json.encode(patch), content_type="application/json-patch+json"
        )
        bad = {
            "apiVersion": "test.mooring.dev/v1",
            "kind": "Greeting",
            "metadata": {"name": "bad", "namespace": "default"},
            "spec": {"copies": "many"},
        }
        await client.request("POST", path, body=msgspec.json.encode(bad))
        await client.create(greeting())
        await eventually(ready(client))

        async def told() -> bool:
            raw = msgspec.json.decode((await client.request("GET", f"{path}/bad")).body)
            conditions = raw.get("status", {}).get("conditions", [])
            return any(c["reason"] == "Undecodable" and "spec.copies" in c["message"] for c in conditions)

        await eventually(told)


def test_the_key_of_an_object_reads_as_kubectl_shows_it() -> None:
    assert str(Key("default", "a")) == "default/a"
