"""The server's own upkeep: Events expire, definitions that go take their objects with them."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from mooring.kube.errors import ApiError
from mooring.local.api import deletes
from mooring.local.api.call import Call, Cluster
from mooring.local.api.http import Query, Request, User
from mooring.local.api.objectmeta import finalizers, is_deleting, with_metadata
from mooring.local.api.options import DeleteOptions
from mooring.local.api.registry import Served
from mooring.local.api.request import Target
from mooring.local.api.storage import Entry, StaleError, StorageError
from mooring.local.api.strategies import CRD

__all__ = ["EVENT_SECONDS", "Maintenance"]

_log = logging.getLogger(__name__)

#: Seconds an Event is kept after its last change.
EVENT_SECONDS = 3600.0
_SWEEP_SECONDS = 60.0
_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_USER = User("system:apiserver", groups=("system:masters",))


class Maintenance:
    """Background tasks of one server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tasks: set[asyncio.Task[None]] = set()
        self._cleaning: set[str] = set()

    def start(self) -> None:
        """Begin; resumes the removal of definitions that a restart interrupted."""
        self._spawn(self._sweep())
        for entry in self._cluster.store.collection(CRD):
            self.definition_changed(entry, deleted=False)

    async def stop(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def definition_changed(self, entry: Entry, *, deleted: bool) -> None:
        """Follow a definition: one that is being deleted loses its objects, then itself."""
        going = is_deleting(entry.obj) and _CLEANUP in finalizers(entry.obj)
        if going and not deleted and entry.name not in self._cleaning:
            self._cleaning.add(entry.name)
            self._spawn(self._clean(entry.name))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.expire_events(time.time() - EVENT_SECONDS)

    def expire_events(self, before: float) -> int:
        """Delete Events last written before a time (seconds since 1970); return how many."""
        events = self._cluster.store.collection("events")
        old = [entry for entry in events if entry.written < before and events.head(entry.place) is entry]
        for entry in old:
            self._cluster.store.delete(events, entry)
        return len(old)

    async def _clean(self, name: str) -> None:
        """Delete every object of a definition; when none is left take the finalizer off."""
        try:
            while True:
                entry = self._cluster.store.collection(CRD).head(("", name))
                if entry is None:
                    return
                if await self._emptied(entry):
                    await self._release(entry)
                    return
        finally:
            self._cleaning.discard(name)

    async def _emptied(self, entry: Entry) -> bool:
        group, plural = entry.obj["spec"]["group"], entry.obj["spec"]["names"]["plural"]
        # By the version they are stored in where it is served: no webhook need be asked.
        named = [s for s in self._cluster.registry if (s.group, s.plural) == (group, plural)]
        named.sort(key=lambda served: served.version != served.stored_version)
        served = named[0] if named else None
        objects = self._cluster.store.collection(f"{plural}.{group}")
        if not objects.count:
            return True
        for obj in objects.entries():
            if served is not None and not is_deleting(obj.obj):
                await self._delete(served, obj)
        if not objects.count:
            return True
        await objects.changed(timeout=5.0)
        return False

    async def _delete(self, served: Served, entry: Entry) -> None:
        async def no_body() -> bytes:
            return b""

        target = Target(served.group, served.version, served.plural, entry.namespace, entry.name)
        request = Request("DELETE", "", Query({}), {}, no_body, user=_USER)
        call = Call(self._cluster, request, target, served, "delete", _USER)
        try:
            await deletes.delete_entry(call, entry, DeleteOptions())
        except (ApiError, StaleError, StorageError) as error:
            _log.info(
                "object of a removed definition stays for now: %s %s: %s", served.qualified, entry.name, error
            )

    async def _release(self, entry: Entry) -> None:
        store = self._cluster.store
        definitions = store.collection(CRD)
        left = [name for name in finalizers(entry.obj) if name != _CLEANUP]
        try:
            if left:
                changed = with_metadata(entry.obj, finalizers=left)
                await store.put(definitions, entry.place, changed, base=entry).committed()
            else:
                await store.delete(definitions, entry).committed()
        except StaleError:
            self._spawn(self._clean(entry.name))
