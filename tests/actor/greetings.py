"""A small operator on a whole API server (in memory), for the tests of actors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

import msgspec

from mooring.actor import Actor, Context, OnEffect, Outcome, ReadOnlyWhileObserving, run_actor
from mooring.kube import Client, Object, Part, Resource
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import Condition, ObjectMeta
from mooring.kube.transport import Response, Transport
from mooring.local.api.server import ApiServer
from mooring.runtime import Manager
from mooring.runtime.crd import F, crd, render_crd

__all__ = [
    "Finalizing",
    "Greeter",
    "Greeting",
    "GreetingSpec",
    "GreetingStatus",
    "Noting",
    "condition",
    "define",
    "eventually",
    "greeting",
    "names",
    "operated",
    "ready",
    "running",
]


class GreetingSpec(Part, frozen=True, kw_only=True):
    text: Annotated[str | None, F("What to say.", max_length=100)] = None
    copies: Annotated[int | None, F("How often.", minimum=0)] = None


class Health(Part, frozen=True, kw_only=True):
    conditions: Annotated[list[Condition] | None, F("Conditions.")] = None


class GreetingStatus(Part, frozen=True, kw_only=True):
    said: Annotated[str | None, F("What was said.")] = None
    observed_generation: Annotated[int | None, F("Generation.")] = None
    conditions: Annotated[list[Condition] | None, F("Conditions.")] = None
    health: Annotated[Health | None, F("Conditions of another operator's kind live elsewhere.")] = None


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


class Finalizing(Greeter):
    finalizer: ClassVar[str] = "test.mooring.dev/greeter"

    async def finalize(self, ctx: Context[Greeting]) -> Outcome:
        self.cleaned.append(ctx.key.name)
        return ctx.in_sync("cleaned up")


async def eventually(check: Callable[[], Awaitable[bool]], *, within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not await check():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)


class Noting:
    """A transport that notes every write: method, path without its collection's prefix, and body."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close
        self.writes: list[tuple[str, str, bytes]] = []

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method not in ("GET", "HEAD"):
            self.writes.append((method, path, options.get("body") or b""))
        return await self._inner.request(method, path, **options)

    def of(self, word: str) -> list[str]:
        """The methods of the writes whose path holds a word."""
        return [method for method, path, _ in self.writes if word in path]


async def define(client: Client, *kinds: type[Object]) -> None:
    """Have the server serve kinds."""
    for kind in kinds:
        body = msgspec.json.encode(render_crd(kind))
        await client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)


@asynccontextmanager
async def operated(
    transport: Transport, actor: Actor[Any], *, on_effect: OnEffect | None = None, grace: float = 5.0
) -> AsyncIterator[Manager]:
    """An actor at work on a server; nothing may be written while it observes."""
    manager = Manager(Client(ReadOnlyWhileObserving(transport)), name=actor.name, grace=grace)
    run_actor(actor, manager, on_effect=on_effect)
    task = asyncio.create_task(manager.run())
    try:
        yield manager
    finally:
        manager.stop()
        await asyncio.wait_for(task, 10)


@asynccontextmanager
async def running(actor: Actor[Any], kinds: Sequence[type[Object]] = ()) -> AsyncIterator[Client]:
    """A server with the kinds of these tests, an actor on it, and a user's client."""
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await define(client, Greeting, *kinds)
        async with operated(server.transport(), actor):
            yield client


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
