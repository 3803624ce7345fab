"""The client of a controller: reads from the caches, writes to the server, and reads its own writes.

The answer to every write goes through the informers' transition function before the call returns. So the
next read, and the next pass, see it; nobody sleeps "because the cache lags", and handlers are told of what
the answer shows beside our change (someone else's edit, whose own event will then look old).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from mooring.cache.informer import InformerSet
from mooring.kube.client import Client
from mooring.kube.errors import AlreadyExists, Conflict, NotFound, ServerError, TransportError
from mooring.kube.object import Key, Object, controller_of, key_of
from mooring.kube.patches import Patch
from mooring.kube.selectors import parse_selector
from mooring.runtime.expectations import Expectations

__all__ = ["CachedClient"]

T = TypeVar("T", bound=Object)

#: Sub-resources whose answer is the object itself.
_WHOLE = ("", "status", "ephemeralcontainers", "resize")


class CachedClient:
    """Reads answered from informers (a kind without one is an error), writes that the caches know at once.

    ``live`` is the plain client: for reads that must be current (before something irreversible) and kinds
    that are not cached. Writes sent through it are not seen until their events arrive.
    """

    def __init__(
        self, client: Client, informers: InformerSet, *, expectations: Expectations | None = None
    ) -> None:
        self.live = client
        self.informers = informers
        self.expectations = expectations or Expectations(client, informers)

    def as_manager(self, field_manager: str) -> CachedClient:
        """The same client under another field manager."""
        live = self.live.as_manager(field_manager)
        return CachedClient(live, self.informers, expectations=self.expectations)

    # --- reads

    def find(self, kind: type[T], name: str, *, namespace: str = "") -> T | None:
        """One object from the cache, ``None`` when it does not exist.

        Raises `NotCached` or `OutsideFilter` when the caches cannot know, `BadObject` when it cannot be read.
        """
        return self.informers.reading(kind, namespace).get(Key(namespace, name))

    def get(self, kind: type[T], name: str, *, namespace: str = "") -> T:
        """As `find`, but raises `NotFound` when the object does not exist."""
        found = self.find(kind, name, namespace=namespace)
        if found is None:
            message = f"{kind.resource.plural} {str(Key(namespace, name))!r} not found (in the cache)"
            raise NotFound(message, status=404, reason="NotFound")
        return found

    def owned_by(self, kind: type[T], owner: Object, *, namespace: str | None = None) -> list[T]:
        """The objects of a kind whose controlling owner is ``owner``, by UID; from the cache."""
        where = owner.metadata.namespace or "" if namespace is None else namespace
        return self.informers.reading(kind, where).owned_by(owner)

    def by_index(self, kind: type[T], name: str, value: str, *, namespace: str = "") -> list[T]:
        """The objects of a kind that an index files under ``value``; from the cache."""
        return self.informers.reading(kind, namespace).by_index(name, value)

    def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        where: Callable[[T], bool] | None = None,
    ) -> list[T]:
        """Objects from the cache, of one namespace or all, that match a selector and a predicate."""
        objects = self.informers.reading(kind, namespace).list(namespace)
        if label_selector:
            selector = parse_selector(label_selector)
            objects = [obj for obj in objects if selector.matches(obj.metadata.labels)]
        return objects if where is None else [obj for obj in objects if where(obj)]

    # --- writes

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        """Create an object; raises `AlreadyExists` when its name is taken.

        With a generated name whose answer is lost, the pass's key waits until the caches know what came of it; it
        raises `Conflict` when a former leader has created something that the caches did not show yet.
        """
        generated = not obj.metadata.name and not dry_run
        if generated and await self.expectations.surprised(type(obj), obj.metadata.namespace or ""):
            message = f"{obj.resource.plural}: the caches were behind what was created before; look again"
            raise Conflict(message, status=409, reason="Conflict")
        try:
            made = await self.live.create(obj, dry_run=dry_run)
        except (TransportError, ServerError, asyncio.CancelledError):
            if generated:
                self.expectations.doubt(obj)
            raise
        if not dry_run:
            self._wrote(made)
        return made

    async def ensure(self, obj: T) -> T:
        """Create an object, or return the one of its name if it is ours: the same controlling owner, by UID.

        A name that is taken is read live: the cache may be behind. Raises `AlreadyExists`, saying who owns the
        name, when it belongs to somebody else; a name alone makes nothing ours.
        """
        try:
            return await self.create(obj)
        except AlreadyExists as error:
            found = await self.refresh(type(obj), obj.metadata.name or "", namespace=key_of(obj).namespace)
            owner, wanted = controller_of(found) if found is not None else None, controller_of(obj)
            if found is not None and owner is not None and wanted is not None and owner.uid == wanted.uid:
                return found
            whose = f"{owner.kind} {owner.name} (uid {owner.uid})" if owner is not None else "nobody we know"
            message = f"{error.message}, and belongs to {whose}; remove it or choose another name"
            raise AlreadyExists(message, status=409, reason="AlreadyExists") from error

    async def confirm(self, obj: T) -> T:
        """Read an object live, right before something that cannot be undone is done because of it.

        Raises `NotFound` when it is gone, `Conflict` when it is another object or its spec has changed (anything
        at all, where the server counts no generations: ConfigMaps, Secrets, claims).
        """
        key = key_of(obj)
        found = await self.refresh(type(obj), key.name, namespace=key.namespace)
        if found is None:
            raise NotFound(f"{obj.resource.plural} {str(key)!r} is gone", status=404, reason="NotFound")
        if _as_decided_on(obj) != _as_decided_on(found):
            message = f"{obj.resource.plural} {str(key)!r} has changed since it was looked at; look again"
            raise Conflict(message, status=409, reason="Conflict")
        return found

    async def apply(
        self,
        obj: T,
        *,
        field_manager: str | None = None,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Server-side apply of exactly the fields that ``obj`` sets."""
        uid = self._known_uid(type(obj), key_of(obj))
        try:
            made = await self.live.apply(
                obj, field_manager=field_manager, force=force, subresource=subresource, dry_run=dry_run
            )
        except NotFound:
            self._gone(type(obj), key_of(obj), uid)
            raise
        if not dry_run and subresource in _WHOLE:
            self._wrote(made)
        return made

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Send a patch; with a ``resourceVersion`` in it, a stale one raises `Conflict`."""
        key = Key(namespace, name)
        uid = self._known_uid(kind, key)
        try:
            made = await self.live.patch(
                kind,
                name,
                patch,
                namespace=namespace,
                subresource=subresource,
                field_manager=field_manager,
                dry_run=dry_run,
            )
        except NotFound:
            self._gone(kind, key, uid)
            raise
        if not dry_run and subresource in _WHOLE:
            self._wrote(made)
        return made

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = "Background",
        grace_period: int | None = None,
        missing_ok: bool = True,
    ) -> T | None:
        """Delete the object of that UID; given neither UID nor version, exactly what the cache shows.

        Returns the object when it lives on for a while, else ``None``. Raises `Conflict` when the name
        belongs to another object by now, or ``resource_version`` is no longer current.
        """
        key = Key(namespace, name)
        known = self._known(kind, key)
        if known is not None and uid is None and resource_version is None:
            resource_version = known.metadata.resource_version
        uid = uid or (known.metadata.uid if known is not None else None) or ""
        try:
            left = await self.live.delete(
                kind,
                name,
                namespace=namespace,
                uid=uid or None,
                resource_version=resource_version,
                propagation=propagation,
                grace_period=grace_period,
            )
        except NotFound:
            self._gone(kind, key, uid)
            if missing_ok:
                return None
            raise
        if left is None or not left.metadata.deletion_timestamp or not _lingers(left):
            self._gone(kind, key, (left.metadata.uid if left is not None else uid) or "")
            return None
        self._wrote(left)
        return left

    async def evict(self, name: str, *, namespace: str, uid: str | None = None) -> None:
        """Evict a pod; raises `TooManyRequests` while a PodDisruptionBudget forbids it."""
        await self.live.evict(name, namespace=namespace, uid=uid)

    async def refresh(self, kind: type[T], name: str, *, namespace: str = "") -> T | None:
        """Read one object live and let the cache know what was found."""
        key = Key(namespace, name)
        uid = self._known_uid(kind, key)
        try:
            found = await self.live.get(kind, name, namespace=namespace)
        except NotFound:
            self._gone(kind, key, uid)
            return None
        self._wrote(found)
        return found

    # --- what the caches learn

    def _wrote(self, obj: T) -> None:
        if obj.metadata.deletion_timestamp and not _lingers(obj) and not _is_pod(obj):
            # The write took away the last finalizer: the answer shows an object that is no more. Not so of a
            # Pod, which may have been told to end at once and yet be there until its node agrees.
            self._gone(type(obj), key_of(obj), obj.metadata.uid or "")
            return
        for informer in self.informers.every(type(obj)):
            informer.wrote(obj)

    def _known(self, kind: type[T], key: Key) -> Object | None:
        found: Iterable[Object | None] = (informer.peek(key) for informer in self.informers.every(kind))
        return next((obj for obj in found if obj is not None), None)

    def _known_uid(self, kind: type[T], key: Key) -> str:
        known = self._known(kind, key)
        return (known.metadata.uid if known is not None else None) or ""

    def _gone(self, kind: type[T], key: Key, uid: str) -> None:
        """``uid`` is what the cache showed when the request was made; a newer object keeps its place."""
        if uid:
            for informer in self.informers.every(kind):
                informer.gone(key, uid)


def _as_decided_on(obj: Object) -> tuple[str | None, int | str | None]:
    meta = obj.metadata
    return meta.uid, meta.resource_version if meta.generation is None else meta.generation


def _is_pod(obj: Object) -> bool:
    resource = type(obj).resource
    return (resource.group, resource.kind) == ("", "Pod")


def _lingers(obj: Object) -> bool:
    # A Namespace has its finalizers in the spec.
    spec_finalizers = getattr(getattr(obj, "spec", None), "finalizers", None)
    return bool(obj.metadata.finalizers or spec_finalizers or obj.metadata.deletion_grace_period_seconds)
