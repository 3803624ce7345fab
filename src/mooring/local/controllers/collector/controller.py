"""Watches every kind, keeps the graph, and carries out its verdicts.

An owner that the graph does not hold is asked for live before anything is deleted, by the name, kind and
namespace that the reference says: absent is what the server says is absent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog

from mooring.cache.informer import Informer
from mooring.cache.store import Transition
from mooring.kube.errors import Conflict, NotFound
from mooring.kube.object import Key, Object, Resource
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.local.controllers.collector.graph import (
    FOREGROUND,
    ORPHAN,
    Delete,
    Graph,
    Item,
    Keep,
    OwnerState,
    Release,
    judge,
)
from mooring.local.controllers.context import Context
from mooring.local.controllers.kinds import Kinds, Served, metadata_kind
from mooring.local.controllers.patching import metadata_patch
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["GarbageCollector"]

log = structlog.get_logger("mooring.local.collector")

#: Kinds that own nothing and are owned by nobody, of which there are many.
IGNORED = {("", "events"), ("events.k8s.io", "events")}


class GarbageCollector:
    """Deletes what lost its owners."""

    def __init__(self, context: Context, kinds: Kinds) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("garbage-collector-controller")
        self._kinds = kinds
        self._graph = Graph()
        self._watched: dict[tuple[str, str], tuple[type[Object], Informer[Any], bool]] = {}
        self._changed = asyncio.Event()
        self._synced = False
        self._unknown: set[str] = set()
        self._listeners: list[Callable[[str], object]] = []
        self._controller = Controller("garbage-collector", self.reconcile, workers=16)
        kinds.listen(self._on_kinds)

    def controller(self) -> Controller:
        """The controller; `run` feeds it."""
        return self._controller

    def on_gone(self, listener: Callable[[str], object]) -> None:
        """Be told the namespace of every object that is gone."""
        self._listeners.append(listener)

    # --- watching everything

    def _on_kinds(self, served: Iterable[Served]) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Follow every kind as kinds come and go; runs until cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._follow(self._kinds.served)
                for _, informer, _ in list(self._watched.values()):
                    await informer.synced.wait()
                if not self._synced:
                    self._synced = True
                    self._suspect(self._graph.suspects())
                self._suspect(self._unknown)
        finally:
            for _, informer, own in self._watched.values():
                informer.remove_handler(self._on_change)
                if own:
                    await informer.stop()
            self._watched.clear()

    async def _follow(self, served: Iterable[Served]) -> None:
        wanted = {
            (each.resource.group, each.resource.plural): each.resource
            for each in served
            if each.can("list", "watch", "delete")
            and (each.resource.group, each.resource.plural) not in IGNORED
        }
        for name in self._watched.keys() - wanted.keys():
            await self._leave(name)
        for name, resource in wanted.items():
            if name not in self._watched:
                self._join(name, resource)

    def _join(self, name: tuple[str, str], resource: Resource) -> None:
        for informer in self._context.informers:
            whole = not (informer.namespace or informer.label_selector or informer.field_selector)
            if whole and informer.kind.resource == resource:
                self._watched[name] = (informer.kind, informer, False)
                informer.add_handler(self._on_change)
                return
        kind = metadata_kind(resource)
        own: Informer[Any] = self._context.informers.apart(kind)
        self._watched[name] = (kind, own, True)
        own.add_handler(self._on_change)
        own.start()

    async def _leave(self, name: tuple[str, str]) -> None:
        _, informer, own = self._watched.pop(name)
        informer.remove_handler(self._on_change)
        if own:
            await informer.stop()
        for obj in informer.list():
            self._suspect(self._graph.drop(obj.metadata.uid or ""))

    def _on_change(self, change: Transition[Any]) -> None:
        old, new = change.old, change.new
        suspects: set[str] = set()
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            suspects |= self._graph.drop(old.metadata.uid or "")
            for listener in self._listeners:
                listener(change.key.namespace)
        if new is not None:
            suspects |= self._graph.put(Item.of(new))
        self._suspect(suspects)

    def _suspect(self, uids: Iterable[str]) -> None:
        if self._synced:
            for uid in uids:
                self._controller.enqueue(Key("", uid))

    # --- one object

    async def reconcile(self, key: Key) -> Result:
        """Look at the object of one UID."""
        item = self._graph.items.get(key.name)
        if item is None or (item.deleting and not item.finalizers):
            return Done()
        latest = await self._latest(item)
        if latest is None:
            self._suspect(self._graph.drop(item.uid))
            return Done()
        now = Item.of(latest)
        try:
            if now.orphans:
                await self._orphan(latest, now)
            elif now.waits_for_dependents:
                await self._wait_for_dependents(latest, now)
            elif not now.deleting:
                await self._collect(latest, now)
        except NotFound:
            pass  # gone meanwhile; its event is on the way
        return Done()

    def _kind(self, item: Item) -> type[Object]:
        known = self._watched.get((item.resource.group, item.resource.plural))
        return known[0] if known is not None else metadata_kind(item.resource)

    async def _latest(self, item: Item) -> Object | None:
        try:
            found = await self._client.live.get(
                metadata_kind(item.resource), item.key.name, namespace=item.key.namespace
            )
        except NotFound:
            return None
        return found if found.metadata.uid == item.uid else None

    async def _collect(self, latest: Object, item: Item) -> None:
        states: dict[str, OwnerState] = {}
        for reference in item.owners:
            state = await self._state_of(item, reference)
            if state is None:
                self._unknown.add(item.uid)  # looked at again when the list of kinds changes
                return
            states[reference.uid or ""] = state
        self._unknown.discard(item.uid)
        below = self._graph.dependents(item.uid)
        match judge(item, states, below):
            case Keep():
                return
            case Release(uids=uids):
                await self._release(latest, uids)
            case Delete(propagation=propagation, unblock=unblock):
                if unblock:
                    latest = await self._unblock(latest)
                await self._delete(item, latest, propagation)

    async def _state_of(self, item: Item, reference: OwnerReference) -> OwnerState | None:
        """What is known of an owner; ``None`` when the API does not know its kind."""
        known = self._graph.items.get(reference.uid or "")
        if known is not None and known.named_by(reference, item.key.namespace):
            return "waiting" if known.waits_for_dependents else "solid"
        resource = self._kinds.find(reference.api_version or "", reference.kind or "")
        if resource is None:
            return None
        if resource.namespaced and not item.resource.namespaced:
            self._tell_invalid(item, reference)
            return "invalid"
        namespace = item.key.namespace if resource.namespaced else ""
        try:
            owner = await self._client.live.get(
                metadata_kind(resource), reference.name or "", namespace=namespace
            )
        except NotFound:
            return "absent"
        if owner.metadata.uid != reference.uid:
            return "absent"
        return "waiting" if Item.of(owner).waits_for_dependents else "solid"

    def _tell_invalid(self, item: Item, reference: OwnerReference) -> None:
        obj = metadata_kind(item.resource)(metadata=ObjectMeta(name=item.key.name, uid=item.uid))
        message = (
            f"ownerRef [{reference.api_version}/{reference.kind}, namespace: , name: {reference.name}, "
            f"uid: {reference.uid}] cannot own a cluster-scoped object: it lives in a namespace"
        )
        self._events.warning(obj, "OwnerRefInvalidNamespace", message)

    async def _wait_for_dependents(self, latest: Object, item: Item) -> None:
        blocking = self._graph.blocking(item.uid)
        if not blocking:
            await self._drop_finalizer(latest, FOREGROUND)
            return
        self._suspect(d.uid for d in blocking if not d.waits_for_dependents)

    async def _orphan(self, latest: Object, item: Item) -> None:
        for dependent in self._graph.dependents(item.uid):
            try:
                fresh = await self._latest(dependent)
                if fresh is not None:
                    await self._release(fresh, {item.uid})
            except NotFound:
                continue
        await self._drop_finalizer(latest, ORPHAN)

    # --- effects

    async def _delete(self, item: Item, latest: Object, propagation: str) -> None:
        log.info(
            "collecting", kind=item.resource.kind, name=str(item.key), propagation=propagation, uid=item.uid
        )
        try:
            await self._client.delete(
                self._kind(item),
                item.key.name,
                namespace=item.key.namespace,
                uid=item.uid,
                resource_version=latest.metadata.resource_version,
                propagation=propagation,
            )
        except Conflict:
            fresh = await self._latest(item)
            if fresh is not None:
                self._suspect({item.uid})  # it changed: judge it again

    async def _release(self, latest: Object, uids: Iterable[str]) -> Object:
        gone = set(uids)
        left = [o for o in latest.metadata.owner_references or () if o.uid not in gone]
        return await self._patch(latest, ownerReferences=[msgspec.to_builtins(o) for o in left] or None)

    async def _unblock(self, latest: Object) -> Object:
        references = [
            {**msgspec.to_builtins(o), "blockOwnerDeletion": False}
            for o in latest.metadata.owner_references or ()
        ]
        return await self._patch(latest, ownerReferences=references)

    async def _drop_finalizer(self, latest: Object, finalizer: str) -> None:
        left = [f for f in latest.metadata.finalizers or () if f != finalizer]
        if len(left) != len(latest.metadata.finalizers or ()):
            await self._patch(latest, finalizers=left or None)

    async def _patch(self, latest: Object, **changes: Any) -> Object:
        kind = self._kind(Item.of(latest))
        return await self._client.patch(
            kind,
            latest.metadata.name or "",
            metadata_patch(latest, **changes),
            namespace=latest.metadata.namespace or "",
        )
