"""Who did what with instances, and when, as far as a user may see it: from Events and from the objects' metadata.

Three sources. Events that this console records say which user did what. Other Events say what operators did. The
metadata of an object says when it was created, and which program changed its declaration last (``managedFields``).
Events go after about an hour, by the API server's own setting, so older rows come from the metadata alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from mooring.catalog import Entry
from mooring.console.access import Access
from mooring.console.records import DETAIL, USER
from mooring.console.rows import event_row
from mooring.console.session import Session
from mooring.console.upstream import FIELD_MANAGER, Upstream
from mooring.console.watches import Watches
from mooring.kube import Forbidden, NotFound
from mooring.kube.objects.core import Event

__all__ = ["activity_of"]

#: Rows of an answer; objects of a kind whose metadata is read, namespaces that are read one by one.
MOST, LIMIT, NAMESPACES = 500, "500", 50
#: Kinds that are read at once.
AT_ONCE: Final = 4
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
Json = dict[str, Any]
Visible = frozenset[str] | None


class _Reader:
    """Reads for one user."""

    def __init__(
        self, *, session: Session, access: Access, watches: Watches, upstream: Upstream, namespace: str
    ) -> None:
        self.session = session
        self.access = access
        self.watches = watches
        self.client = upstream.client(session)
        self.namespace = namespace
        self.denied: list[str] = []
        self.events_denied = False
        self.truncated = False
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def rows(self, entry: Entry, candidates: Sequence[str], events: Visible) -> list[Json]:
        """What was done with the instances of an entry."""
        if not await self.watches.serves(entry.spec.target):
            return []
        places = (entry.namespace,) if entry.namespace else candidates
        if entry.namespace and self.namespace not in ("", entry.namespace):
            return []
        resource = entry.spec.target.resource
        visible = await self.access.namespaces(self.session, resource, places, "list")
        if visible is not None and not visible:
            self.denied.append(entry.name)
            return []
        found = await self._changes(entry, visible if visible is not None else self._everywhere(entry))
        found += await self._events(entry, visible, events)
        return found

    def _everywhere(self, entry: Entry) -> frozenset[str]:
        return frozenset({entry.namespace or self.namespace})

    async def _changes(self, entry: Entry, namespaces: frozenset[str]) -> list[Json]:
        rows: list[Json] = []
        self.truncated |= len(namespaces) > NAMESPACES
        for namespace in sorted(namespaces)[:NAMESPACES]:
            path = entry.spec.target.resource.path(namespace=namespace)
            try:
                async with self._slots:
                    answer = await self.client.request("GET", path, query={"limit": LIMIT}, accept=_METADATA)
            except (Forbidden, NotFound):
                continue  # a right or a kind that went meanwhile
            page = msgspec.json.decode(answer.body)
            self.truncated |= bool((page.get("metadata") or {}).get("continue"))
            for item in page.get("items") or ():
                rows += _changes_of(entry, item["metadata"])
        return rows

    async def _events(self, entry: Entry, visible: Visible, events: Visible) -> list[Json]:
        def seen(namespace: str) -> bool:
            return all(where is None or namespace in where for where in (visible, events)) and (
                self.namespace in ("", namespace)
            )

        if events is not None and not events:
            return []
        return [
            _event(entry, event)
            for informer in await self.watches.events(entry)
            for event in informer.list()
            if seen(event.metadata.namespace or "") and event.involved_object is not None
        ]


async def activity_of(
    entries: Iterable[Entry],
    *,
    session: Session,
    access: Access,
    watches: Watches,
    upstream: Upstream,
    namespace: str = "",
    name: str = "",
) -> Json:
    """What a user may see of what was done, the newest first.

    ``denied`` are entries whose instances they may not list; ``eventsDenied``: they may read Events nowhere here.
    """
    reader = _Reader(session=session, access=access, watches=watches, upstream=upstream, namespace=namespace)
    candidates = (namespace,) if namespace else tuple(await watches.candidates())
    events = await access.namespaces(session, Event.resource, candidates, "list")
    found = await asyncio.gather(*(reader.rows(entry, candidates, events) for entry in entries))
    rows = [row for some in found for row in some if name in ("", row["name"])]
    rows = _once(rows)
    rows.sort(key=lambda row: (row["time"], row["source"], row["name"]), reverse=True)
    return {
        "rows": rows[:MOST],
        "truncated": reader.truncated or len(rows) > MOST,
        "denied": sorted(reader.denied),
        "eventsDenied": events is not None and not events,
    }


def _once(rows: list[Json]) -> list[Json]:
    """Without the changes that an Event of a user tells of already."""
    told = {
        (row["entry"], row["namespace"], row["name"], row["time"][:19])
        for row in rows
        if row["source"] == "user"
    }
    return [
        row
        for row in rows
        if row["source"] != "change"
        or row["who"] != FIELD_MANAGER
        or (row["entry"], row["namespace"], row["name"], row["time"][:19]) not in told
    ]


def _row(entry: Entry, metadata: Json, **more: Any) -> Json:
    return {
        "type": "Normal",
        "message": "",
        "count": 1,
        "entry": entry.name,
        "namespace": str(metadata.get("namespace") or ""),
        "name": str(metadata.get("name") or ""),
        **more,
    }


def _changes_of(entry: Entry, metadata: Json) -> Iterator[Json]:
    """When an object was created, and who changed its declaration last, program by program."""
    created = str(metadata.get("creationTimestamp") or "")
    writers = [
        (str(field.get("time") or ""), str(field.get("manager") or ""))
        for field in metadata.get("managedFields") or ()
        if field.get("subresource") != "status"
    ]
    maker = next((manager for time, manager in sorted(writers) if time[:19] <= created[:19]), "")
    yield _row(entry, metadata, source="change", reason="Created", time=created, who=maker)
    for time, manager in writers:
        if time[:19] > created[:19]:
            yield _row(entry, metadata, source="change", reason="Changed", time=time, who=manager)
    if deleted := metadata.get("deletionTimestamp"):
        yield _row(entry, metadata, source="change", reason="Deleting", time=str(deleted), who="")


def _event(entry: Entry, event: Event) -> Json:
    shown, about = event_row(event), event.involved_object
    related = event.related
    by_user = related is not None and related.kind == USER and shown["from"] == FIELD_MANAGER
    return {
        "source": "user" if by_user else "event",
        "who": (related.name if related is not None and by_user else shown["from"]) or "",
        "time": shown["last"],
        "entry": entry.name,
        "namespace": event.metadata.namespace or "",
        "name": (about.name if about is not None else "") or "",
        **{key: shown[key] for key in ("type", "reason", "message", "count")},
        **({"message": (event.metadata.annotations or {}).get(DETAIL, "")} if by_user else {}),
    }
