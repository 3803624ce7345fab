"""One operator under test: an API server in memory, the operator on it, and what it did.

    def operator(rig: Rig) -> None:
        run_actor(WebsiteActor(), rig.manager, on_effect=rig.did)

    async with Rig(Website, operator=operator) as rig:
        await rig.client.create(website)
        await rig.settle()
        assert rig.wrote("POST", "PATCH") == 2

Everything runs in this process; no root, no sockets, milliseconds. What other controllers would do (pods, a
Deployment's status) the test does itself, through `Rig.client`; nothing but the operator writes on its own.
`Rig.every_crash` kills the operator after each of its effects in turn, the moments at which half-done work shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from mooring.actor import Effect
from mooring.cache.clock import Clock
from mooring.kube import ApplyPatch, Client, Object, Response, StreamResponse, Transport, TransportError
from mooring.local.api.server import ApiServer
from mooring.runtime import Manager, render_crd
from mooring.testing.errors import NotInTime

__all__ = ["Rig", "Write"]

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: Seconds that anything may take by default.
DEADLINE = 10.0


@dataclass(frozen=True, slots=True)
class Write:
    """A request that the operator sent and the server answered."""

    method: str
    path: str
    status: int
    body: bytes


class _Witness:
    """The operator's transport: notes its writes, and can die right after one."""

    def __init__(self, inner: Transport, writes: list[Write], crash_at: int | None) -> None:
        self._inner = inner
        self._writes = writes
        self._left = crash_at
        self._told = 0
        self.dead = False

    def effect(self) -> None:
        """Something was done; the operator may die of it, and whatever it tries then fails."""
        if self._left is not None and not self.dead:
            self._left -= 1
            self.dead = self._left <= 0
        if self.dead:
            raise TransportError("the operator died right after an effect")

    def outside(self) -> None:
        """The operator told of an effect; one that comes with a write is that write, counted already."""
        told, self._told = self._told, len(self._writes)
        if told == len(self._writes):
            self.effect()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """See `Transport.request`."""
        if self.dead:
            raise TransportError("the operator is dead")
        answer = await self._inner.request(
            method, path, query=query, body=body, headers=headers, timeout=timeout
        )
        if method not in _READS and not self.dead:
            self._writes.append(Write(method, path, answer.status, body or b""))
            self.effect()
        return answer

    def stream(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[StreamResponse]:
        """See `Transport.stream`."""
        return self._inner.stream(method, path, **options)

    async def close(self) -> None:
        """See `Transport.close`."""


class Rig:
    """An API server that serves ``kinds`` (their CRDs are applied) and one operator on it.

    ``operator`` puts its controllers on the rig's `manager`, a fresh one for every (re)start. ``clock`` is the
    manager's: a `VirtualClock` lets the test move the operator's time.
    """

    def __init__(
        self, *kinds: type[Object], operator: Callable[[Rig], object], clock: Clock | None = None
    ) -> None:
        self._kinds = kinds
        self._operator = operator
        self._clock = clock
        self._server = ApiServer.in_memory()
        self._task: asyncio.Task[None] | None = None
        self._witness: _Witness | None = None
        self._died = False
        #: What the operator wrote so far, over all its starts.
        self.writes: list[Write] = []
        #: A user's client; what it writes is not counted.
        self.client = Client(self._server.transport(agent="user"), field_manager="user")
        self.manager: Manager

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        try:
            for kind in self._kinds:
                await self._define(render_crd(kind), kind)
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.kill()
        finally:
            await self._server.__aexit__(None, None, None)

    async def _define(self, definition: dict[str, Any], kind: type[Object]) -> None:
        await self.client.request(
            "PATCH",
            f"{_CRDS}/{definition['metadata']['name']}",
            query={"fieldManager": "user", "force": "true"},
            body=ApplyPatch(definition).encode(),
            content_type=ApplyPatch.content_type,
        )
        await self.until(lambda: self._served(kind), f"{kind.resource.kind} served")

    async def _served(self, kind: type[Object]) -> bool:
        answer = await self.client.transport.request("GET", kind.resource.path())
        return answer.status == 200

    # --- the operator's life

    async def start(self, *, crash_after: int | None = None) -> None:
        """Start the operator and wait until it works; ``crash_after``: it dies after so many effects."""
        if self._task is not None:
            raise RuntimeError("the operator runs already; kill() or stop() it first")
        self._witness = _Witness(self._server.transport(agent="operator"), self.writes, crash_after)
        self.manager = Manager(Client(self._witness), name="operator", clock=self._clock)
        self._operator(self)
        self._task = asyncio.create_task(self.manager.run(), name="operator")
        await self.until(self._leading, "the operator started")

    async def _leading(self) -> bool:
        return self.manager.leading.is_set()

    async def stop(self) -> None:
        """Stop the operator in good order."""
        self.manager.stop()
        await self._ended()

    async def kill(self) -> None:
        """End the operator at once, as SIGKILL would; nothing when it does not run."""
        if self._witness is not None:
            self._witness.dead = True
        if self._task is not None:
            self._task.cancel()
            await self._ended()

    async def _ended(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            result = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(result, Exception):
                raise result

    @property
    def crashed(self) -> bool:
        """Whether it died of ``crash_after``."""
        return self._witness is not None and self._witness.dead

    async def every_crash(self) -> AsyncGenerator[int, None]:
        """Kill the operator after its 1st, 2nd, 3rd ... effect from here on, each time starting it again.

            async for number in rig.every_crash():
                await rig.client.patch(...)      # the same change each time
                await rig.settle()               # crashes, is started again, brings it to an end
                ...                              # assert that all is well

        Ends with the first round in which the operator settles before it would have died. The operator must
        be settled at the start of a round: undo in the loop what the round did.
        """
        number = 1
        while True:
            await self.kill()
            await self.start(crash_after=number)
            yield number
            if not self._died:
                return
            self._died = False
            number += 1

    async def did(self, effect: Effect) -> None:
        """The hook for `run_actor(..., on_effect=rig.did)`: effects outside the API are crash points as well."""
        if self._witness is not None:
            self._witness.outside()

    # --- waiting

    async def settle(self, *, within: float = DEADLINE) -> None:
        """Wait until the operator has nothing to do and nothing changes; starts it again if it crashed."""
        before, since = "", 0
        deadline = time.monotonic() + within
        while since < 3:
            if time.monotonic() > deadline:
                raise NotInTime(f"the operator did not settle within {within:.0f} s; it wrote {self._last()}")
            if self.crashed:
                self._died = True
                await self.kill()
                await self.start()
            if self._task is not None and self._task.done():
                self._task.result()
            version = await self._version()
            since = since + 1 if self.manager.idle and version == before else 0
            before = version
            await asyncio.sleep(0.01)

    def _last(self) -> str:
        return "; ".join(f"{write.method} {write.path} -> {write.status}" for write in self.writes[-5:])

    async def _version(self) -> str:
        answer = await self.client.request("GET", "/api/v1/namespaces", query={"limit": "1"})
        version: str = msgspec.json.decode(answer.body)["metadata"]["resourceVersion"]
        return version

    async def until(
        self, check: Callable[[], Awaitable[object]], what: str, *, within: float = DEADLINE
    ) -> None:
        """Wait until ``check`` gives something true; raises `NotInTime`, or what the operator failed with."""
        deadline, last = time.monotonic() + within, None
        while not (last := await check()):
            if self._task is not None and self._task.done():
                self._task.result()
            if time.monotonic() > deadline:
                raise NotInTime(f"waited {within:.0f} s in vain for: {what} (last: {last!r})")
            await asyncio.sleep(0.01)

    def wrote(self, *methods: str) -> int:
        """How many writes of these methods (all) the operator sent so far."""
        return sum(1 for write in self.writes if not methods or write.method in methods)
