"""The catalog as it is now: the packaged entries, and the templates of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.cache import Clock
from mooring.catalog import CatalogError, Entry
from mooring.catalog.templates import CLUSTER_TEMPLATES, TEMPLATES, entry_of
from mooring.console.upstream import Upstream
from mooring.kube import Client, Forbidden, NotFound, TransportError, Unauthorized

__all__ = ["Catalog", "Found"]

#: Seconds that what was read counts; templates of one list.
FRESH, MOST = 5.0, 100
#: Namespaces whose templates are read for one user.
MOST_NAMESPACES: Final = 50


class Found(msgspec.Struct, frozen=True):
    """Entries by name, and a line for each template that is none."""

    entries: Mapping[str, Entry]
    problems: tuple[str, ...] = ()


class Catalog:
    """Packaged entries and those of ClusterServiceTemplates; ``packaged`` ones keep their names."""

    def __init__(self, upstream: Upstream, clock: Clock, *, packaged: Mapping[str, Entry]) -> None:
        self._upstream = upstream
        self._clock = clock
        self._packaged = packaged
        self._known: tuple[float, Found] | None = None
        self._lock = asyncio.Lock()

    async def entries(self) -> Mapping[str, Entry]:
        """The entries that everybody has, by name."""
        return (await self.found()).entries

    async def found(self) -> Found:
        """The entries that everybody has, and what is wrong with the others; raises `ApiError`."""
        async with self._lock:
            if self._known is None or self._clock.monotonic() - self._known[0] > FRESH:
                self._known = (self._clock.monotonic(), await self._read())
            return self._known[1]

    async def _read(self) -> Found:
        try:
            objects = await _list(self._upstream.own, CLUSTER_TEMPLATES.path())
        except (Unauthorized, TransportError):
            # What is known goes on to count; who asks is told by what they ask for.
            return self._known[1] if self._known is not None else Found(self._packaged)
        read = _entries(objects)
        taken = [
            f"{CLUSTER_TEMPLATES.kind} {name}: the name is taken by a packaged entry"
            for name in read.entries
            if name in self._packaged
        ]
        return Found({**read.entries, **self._packaged}, (*read.problems, *taken))

    async def of_namespaces(self, client: Client, namespaces: Iterable[str] | None) -> Found:
        """The entries of ServiceTemplates that a user may list: in these namespaces, None for all."""
        if namespaces is None:
            return _entries(await _list(client, TEMPLATES.path()))
        paths = [TEMPLATES.path(namespace=name) for name in sorted(namespaces)[:MOST_NAMESPACES]]
        lists = await asyncio.gather(*(_list(client, path) for path in paths))
        return _entries([one for objects in lists for one in objects])

    async def of_namespace(self, client: Client, namespace: str, name: str) -> Entry:
        """One ServiceTemplate's entry, read as the user; raises `CatalogError`, `KubeError`."""
        path = TEMPLATES.path(namespace=namespace, name=name)
        return entry_of(msgspec.json.decode((await client.request("GET", path)).body))


def _entries(objects: Iterable[Mapping[str, Any]]) -> Found:
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for obj in objects:
        try:
            entry = entry_of(obj)
        except CatalogError as error:
            problems += error.problems
            continue
        entries[entry.name] = entry
    return Found(entries, tuple(problems))


async def _list(client: Client, path: str) -> list[Mapping[str, Any]]:
    """The templates of a collection; none where the kind is not defined, or may not be listed."""
    try:
        answer = await client.request("GET", path, query={"limit": str(MOST)})
    except (Forbidden, NotFound):
        return []
    return list(msgspec.json.decode(answer.body).get("items") or ())
