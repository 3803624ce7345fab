"""What a pass may do: no write while observing, and every effect is reported to a hook.

`Guard` is the client an actor is given. While it observes, anything but reading raises `ObserveWrote`. Each
write of an action is told to the effect hook once the server has answered: the points at which a crash
leaves half-done work, so a test can stop the process after each of them (`run_actor(..., on_effect=...)`).

`ReadOnlyWhileObserving` is the debug client's transport: it catches what goes past the guard, such as a
write by a client that the actor keeps for itself. Tests put it below the manager's client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from mooring.kube.object import Key, Object
from mooring.kube.transport import Response, StreamResponse, Transport
from mooring.runtime import CachedClient

__all__ = ["Effect", "Guard", "ObserveWrote", "OnEffect", "ReadOnlyWhileObserving", "observing"]

_READS: Final = frozenset({"find", "get", "list", "owned_by", "by_index", "informers", "refresh"})
_WRITES: Final = frozenset({"create", "ensure", "apply", "patch", "delete", "evict"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: The object that is being observed in this task, empty when none is.
_observed: ContextVar[str] = ContextVar("observed", default="")


class ObserveWrote(RuntimeError):
    """An actor tried to write while observing; writes belong into an action."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that was done for an object: by which step (empty: the framework itself), and what."""

    key: Key
    step: str
    what: str


OnEffect = Callable[[Effect], Awaitable[None]]


class Guard:
    """The client of one pass; a write needs a ``step``."""

    def __init__(self, client: CachedClient, key: Key, on_effect: OnEffect | None = None) -> None:
        self._client = client
        self._key = key
        self._on_effect = on_effect
        self.step = ""

    def __getattr__(self, name: str) -> Any:
        if name in _READS:
            return getattr(self._client, name)
        if not self.step:
            raise ObserveWrote(f"{self._key}: client.{name} while observing; put it into an action")
        found = getattr(self._client, name)
        return found if self._on_effect is None or name not in _WRITES else self._told(name, found)

    def _told(self, verb: str, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def told(*arguments: Any, **options: Any) -> Any:
            answer = await write(*arguments, **options)
            await self.did(f"{verb} {_named(arguments, options)}")
            return answer

        return told

    async def did(self, what: str) -> None:
        """Tell the hook of an effect; where it does not return, a process has died."""
        if self._on_effect is not None:
            await self._on_effect(Effect(self._key, self.step, what))


def _named(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    """The object a write was about: ``apply(obj)`` or ``patch(kind, name, ...)``."""
    first = arguments[0] if arguments else ""
    if isinstance(first, Object):
        return f"{first.resource.kind} {first.metadata.name}"
    if isinstance(first, type) and issubclass(first, Object):
        subresource = options.get("subresource")
        name = arguments[1] if len(arguments) > 1 else options.get("name", "")
        return f"{first.resource.kind} {name}" + (f"/{subresource}" if subresource else "")
    return str(first)


@contextmanager
def observing(key: Key) -> Iterator[None]:
    """Mark this task as observing an object, for `ReadOnlyWhileObserving`."""
    token = _observed.set(str(key))
    try:
        yield
    finally:
        _observed.reset(token)


class ReadOnlyWhileObserving:
    """A transport over which nothing is written while an actor observes; for tests of actors."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

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
        """See `Transport.request`; a write while observing raises `ObserveWrote` and is not sent."""
        if method not in _SAFE and (key := _observed.get()):
            raise ObserveWrote(f"{key}: {method} {path} while observing; put it into an action")
        return await self._inner.request(
            method, path, query=query, body=body, headers=headers, timeout=timeout
        )

    def stream(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[StreamResponse]:
        """See `Transport.stream`; streams only read."""
        return self._inner.stream(method, path, **options)

    async def close(self) -> None:
        """See `Transport.close`."""
        await self._inner.close()
