"""What an actor has at hand while it looks at one object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

import structlog

from mooring.actor.children import Children, Memory
from mooring.actor.conditions import ConditionState
from mooring.actor.dependencies import Dependency, unmet
from mooring.actor.guard import Guard
from mooring.actor.outcome import Act, InSync, Terminal, Wait
from mooring.kube.object import Key, Object, key_of
from mooring.kube.part import Part
from mooring.runtime import CachedClient, Clock, EventRecorder

__all__ = ["Context"]

T = TypeVar("T", bound=Object)


class Context(Generic[T]):
    """One pass over one object.

    ``obj`` is the object as cached. ``client`` reads from the caches and, in an action only, writes.
    ``children`` are the objects it owns. ``status`` is what will be written at the end of the pass if it
    differs from what is there. ``fence`` raises when this process may no longer write: call it right before
    every effect outside the API.
    """

    def __init__(
        self,
        obj: T,
        *,
        began: dict[str, Any],
        guard: Guard,
        owns: Iterable[type[Object]],
        owns_by_metadata: Iterable[type[Object]] = (),
        memory: Memory | None = None,
        dependencies: Iterable[Dependency[Any]],
        events: EventRecorder,
        clock: Clock,
        fence: Callable[[], None],
        flush: Callable[[Context[T]], Awaitable[None]],
    ) -> None:
        self.obj = obj
        self.key: Key = key_of(obj)
        self.guard = guard
        self.client = cast(CachedClient, guard)
        self.children = Children(
            obj, self.client, tuple(owns), by_metadata=tuple(owns_by_metadata), memory=memory
        )
        self.events = events
        self.clock = clock
        self.fence = fence
        self.log = structlog.get_logger("mooring.actor").bind(
            kind=obj.resource.kind, namespace=self.key.namespace, name=self.key.name
        )
        self.status: Part | None = getattr(obj, "status", None)
        self.began = began
        """The status as this pass found it, or wrote it last."""
        self.readiness: ConditionState | None = None
        self._dependencies = tuple(dependencies)
        self._flush = flush

    def now(self) -> datetime:
        """The time, from the clock that tests can move."""
        return self.clock.now()

    def show(self, status: Part) -> None:
        """Make this the status; written once, at the end of the pass, if it differs."""
        self.status = status

    def ready(self, status: bool, reason: str, message: str) -> None:
        """Say whether the service works, where that is not simply "all is as declared"."""
        self.readiness = ConditionState(status, reason, message)

    def unmet(self) -> Wait | None:
        """What to wait for among the actor's dependencies; ``None`` when all of them are ready.

        Where in `observe` this is asked is the actor's choice: a service that runs may be looked after while
        what it depends on is away.
        """
        return unmet(self.obj, self._dependencies, self.client)

    async def did(self, what: str) -> None:
        """Note an effect outside the API that an action has had; a point at which a test may crash it."""
        await self.guard.did(what)

    async def record(self) -> None:
        """Write the status now, from within an action: progress of something long, an intent."""
        await self._flush(self)

    def act(
        self,
        name: str,
        run: Callable[..., Awaitable[object]],
        *args: object,
        message: str = "",
        record: bool = False,
        state: str = "",
    ) -> Act:
        """Take one step; see :class:`~mooring.actor.outcome.Act`."""
        return Act(name, lambda: run(*args), message, record, state)

    def wait(self, reason: str, message: str, *, after: float = 30.0, stalled: bool = False) -> Wait:
        """Wait for something outside; see :class:`~mooring.actor.outcome.Wait`."""
        return Wait(reason, message, after, stalled)

    def in_sync(self, message: str = "everything is as declared", *, again: float | None = None) -> InSync:
        """Nothing to do."""
        return InSync(message, again)

    def terminal(self, reason: str, message: str) -> Terminal:
        """The declaration is wrong; ``message`` names the field and the remedy."""
        return Terminal(reason, message)
