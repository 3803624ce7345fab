"""The shared watch caches: what is there, read once for all who look, with the console's own credential.

They hold no Secret, and no spec but of the catalog's templates. What a user sees of them is decided by `Access`, never here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import structlog

from mooring.cache import Clock, Informer, InformerSet
from mooring.catalog import Entry, Target
from mooring.console.access import EVERYWHERE, Access
from mooring.console.rows import status_of
from mooring.console.session import Session
from mooring.console.upstream import Upstream
from mooring.kube import NotFound, Object, Resource, TransportError, Unauthorized, metadata_of
from mooring.kube.objects.core import Event, Namespace

__all__ = ["Watches"]

log = structlog.get_logger("mooring.console")

#: Seconds between two looks whether a kind is served; kinds watched at most; seconds a first list may take.
LOOK_AGAIN, MOST_KINDS, SYNC_SECONDS = 10.0, 32, 15.0
#: Namespaces the console knows of, at most.
MOST_NAMESPACES: Final = 2000


class Watches:
    """Informers of the catalog's kinds and of their events, in all namespaces or in those that the console may see.

    ``namespaces`` are those to look at where the console may not look everywhere.
    """

    def __init__(
        self,
        upstream: Upstream,
        access: Access,
        clock: Clock,
        *,
        own: Session,
        namespaces: Iterable[str] = (),
    ) -> None:
        self.informers = InformerSet(upstream.own, clock)
        self._upstream = upstream
        self._access = access
        self._clock = clock
        self._own = own
        self._named = tuple(namespaces)
        self._served: dict[tuple[str, str], tuple[float, frozenset[str]]] = {}
        self._following: dict[Resource, tuple[float, tuple[str, ...]]] = {}

    async def start(self) -> None:
        """Begin; what is watched is decided when it is asked for."""
        await self.informers.__aenter__()

    async def stop(self) -> None:
        """Stop all informers."""
        await self.informers.stop()

    @contextmanager
    def _own_credential(self) -> Iterator[None]:
        """What is refused here is the console's credential, not the user's, who stays signed in."""
        try:
            yield
        except Unauthorized as error:
            raise TransportError("the API server does not accept the console's credential") from error

    async def serves(self, target: Target) -> bool:
        """Whether the API server serves the kind now."""
        key = (target.group, target.version)
        known = self._served.get(key)
        if known is None or self._clock.monotonic() - known[0] > LOOK_AGAIN:
            with self._own_credential():
                known = self._served[key] = (self._clock.monotonic(), await self._plurals(*key))
        return target.plural in known[1]

    async def _plurals(self, group: str, version: str) -> frozenset[str]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = msgspec.json.decode((await self._upstream.own.request("GET", path)).body)
        except NotFound:
            return frozenset()
        return frozenset(resource["name"] for resource in answer.get("resources") or ())

    async def candidates(self) -> Sequence[str]:
        """The namespaces that the console knows of; not all of them are for every user."""
        with self._own_credential():
            everywhere = await self._access.allowed(self._own, "list", Namespace.resource, EVERYWHERE)
        if everywhere:
            informer = self.informers.of(metadata_of(Namespace))
            if await self._synced([informer]):
                names = sorted(found.metadata.name or "" for found in informer.list())
                return names[:MOST_NAMESPACES]
        return self._named

    async def instances(self, entry: Entry) -> list[Informer[Any]]:
        """The informers of an entry's kind, synced; none when it is not served or the console may not look."""
        target = entry.spec.target
        if not await self.serves(target):
            return []
        return await self.follow(status_of(target.resource))

    async def events(self, entry: Entry) -> list[Informer[Any]]:
        """The informers of the events of an entry's kind."""
        resource = entry.spec.target.resource
        selector = f"involvedObject.kind={resource.kind},involvedObject.apiVersion={resource.api_version}"
        return await self.follow(Event, field_selector=selector)

    async def scopes(self, resource: Resource) -> tuple[str, ...]:
        """Where the console itself may read a kind: everywhere (""), or in the named namespaces."""
        return await self._scopes(resource)

    @property
    def healthy(self) -> bool:
        """Whether all that is watched follows the server."""
        return all(informer.healthy and not informer.last_error for informer in self.informers)

    async def follow(self, kind: type[Object], *, field_selector: str = "") -> list[Informer[Any]]:
        """The informers of a kind, synced; none where the console may not look."""
        scopes = await self._scopes(kind.resource)
        found = [self.informers.of(kind, namespace=scope, field_selector=field_selector) for scope in scopes]
        return found if await self._synced(found) else []

    async def _scopes(self, resource: Resource) -> tuple[str, ...]:
        """Where the console itself may watch a kind: everywhere, or in the named namespaces."""
        known = self._following.get(resource)
        now = self._clock.monotonic()
        if known is not None and (known[1] or now - known[0] < LOOK_AGAIN):
            return known[1]
        if known is None and len(self._following) >= MOST_KINDS:
            log.warning("too many kinds are watched", limit=MOST_KINDS, kind=resource.kind)
            return ()
        with self._own_credential():
            where = await self._access.namespaces(self._own, resource, self._named, "list", "watch")
        if where is None or (not resource.namespaced and where):
            scopes: tuple[str, ...] = (EVERYWHERE,)
        else:
            scopes = tuple(sorted(where)) if resource.namespaced else ()
        self._following[resource] = (now, scopes)
        return scopes

    async def _synced(self, informers: Sequence[Informer[Any]]) -> bool:
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for informer in informers:
                    await informer.synced.wait()
        except TimeoutError:
            late = [
                f"{informer!r}: {informer.last_error}"
                for informer in informers
                if not informer.synced.is_set()
            ]
            log.warning("not synced in time", late=late)
            return False
        return True
