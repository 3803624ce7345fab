"""Changes as they happen, as server-sent events: a snapshot of what the user may see, then what changed of it.

A client needs no memory: a new connection begins with a snapshot, and so does every change of the user's rights. What
changed is noted by key and read when it is sent, so a slow client costs no more than one mark per object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from mooring.cache import Clock, Informer, Transition
from mooring.catalog import Entry
from mooring.console.access import Access
from mooring.console.rows import conditions_of, event_row, row
from mooring.console.session import Session
from mooring.console.watches import Watches
from mooring.kube import Key, Object
from mooring.kube.objects.core import Event

__all__ = ["EVENT_LIMIT", "LONGEST", "RECHECK", "View", "first", "write"]

#: Rows of a snapshot, events of an instance.
ROW_LIMIT, EVENT_LIMIT = 5000, 100
#: Seconds between two sends, between two signs of life, between two looks at the user's rights; seconds of a stream.
GATHER, HEARTBEAT, RECHECK, LONGEST = 0.25, 15.0, 30.0, 600.0
#: Seconds a client may take to read what was sent.
SEND_SECONDS: Final = 30.0

Visible = frozenset[str] | None


class View:
    """What one user sees: instances of these entries, of one namespace or of all they may see.

    With ``focus`` (entry and key) that instance alone, with its conditions and events.
    """

    def __init__(
        self,
        *,
        session: Session,
        access: Access,
        watches: Watches,
        entries: Sequence[Entry],
        namespace: str = "",
        focus: tuple[Entry, Key] | None = None,
    ) -> None:
        self._session = session
        self._access = access
        self._watches = watches
        self._entries = entries
        self._namespace = namespace
        self._focus = focus
        self._sources: dict[str, list[Informer[Any]]] = {}
        self._events: list[Informer[Event]] = []
        self._visible: dict[str, Visible] = {}
        self._absent: set[str] = set()
        self._events_visible = False

    async def look(self) -> bool:
        """Find out what the user may see now; tells whether that is something else than before."""
        before = (dict(self._visible), self._events_visible)
        candidates = (self._namespace,) if self._namespace else await self._watches.candidates()
        self._sources = {}
        self._visible = {}
        self._absent = set()
        for entry in self._entries:
            if entry.namespace and self._namespace not in ("", entry.namespace):
                continue
            if not await self._watches.serves(entry.spec.target):
                # Nothing to see, and nothing to be denied.
                self._absent.add(entry.name)
                continue
            # The user is asked about first: nobody makes the console watch a kind that they may not see.
            visible = await self._access.namespaces(
                self._session,
                entry.spec.target.resource,
                (entry.namespace,) if entry.namespace else candidates,
                "list",
                "watch",
            )
            if visible is None or visible:
                self._visible[entry.name] = visible
                self._sources[entry.name] = await self._watches.instances(entry)
        self._events_visible = False
        self._events = []
        if self._focus is not None and self._may(self._focus[0], self._focus[1].namespace):
            entry, key = self._focus
            allowed = await self._access.namespaces(
                self._session, Event.resource, (key.namespace,), "list", "watch"
            )
            if allowed is None or allowed:
                self._events_visible = True
                self._events = await self._watches.events(entry)
        return before != (self._visible, self._events_visible)

    def _may(self, entry: Entry, namespace: str) -> bool:
        if entry.name not in self._visible or self._namespace not in ("", namespace):
            return False
        if entry.namespace not in ("", namespace):
            return False
        visible = self._visible[entry.name]
        return visible is None or namespace in visible

    # --- what is there

    def objects(self) -> Iterator[tuple[Entry, Object]]:
        """The instances that the user sees, without their specs."""
        if self._focus is not None:
            entry, key = self._focus
            found = self._object(entry, key) if self._may(entry, key.namespace) else None
            if found is not None:
                yield entry, found
            return
        for entry in self._entries:
            for informer in self._sources.get(entry.name, ()):
                for obj in informer.list(self._namespace if not informer.namespace else None):
                    if self._may(entry, obj.metadata.namespace or ""):
                        yield entry, obj

    def snapshot(self) -> dict[str, Any]:
        """All that the user sees."""
        rows = [row(entry, obj) for entry, obj in self.objects()]
        rows.sort(key=lambda each: (each["namespace"], each["name"], each["entry"]))
        shown: dict[str, Any] = {
            "rows": rows[:ROW_LIMIT],
            "truncated": len(rows) > ROW_LIMIT,
            "live": self._watches.healthy,
            "denied": [
                entry.name
                for entry in self._entries
                if entry.name not in self._visible and entry.name not in self._absent
            ],
        }
        return shown | self._focused()

    def _focused(self) -> dict[str, Any]:
        if self._focus is None:
            return {}
        entry, key = self._focus
        obj = self._object(entry, key) if self._may(entry, key.namespace) else None
        conditions = conditions_of(entry, obj) if obj is not None else []
        return {"instance": row(entry, obj) | {"conditions": conditions} if obj is not None else None} | (
            {"events": self.events(obj)} if self._events_visible else {"events": None}
        )

    def events(self, obj: Object | None) -> list[dict[str, Any]]:
        """The newest events of the instance in focus."""
        if self._focus is None or obj is None or not self._events_visible:
            return []
        key = self._focus[1]
        found = [
            event_row(event)
            for informer in self._events
            for event in informer.list(key.namespace)
            if event.involved_object is not None
            and event.involved_object.name == key.name
            # An event of a former object of the name is not this one's.
            and event.involved_object.uid in (None, "", obj.metadata.uid)
        ]
        found.sort(key=lambda each: str(each["last"]), reverse=True)
        return found[:EVENT_LIMIT]

    def _object(self, entry: Entry, key: Key) -> Object | None:
        for informer in self._sources.get(entry.name, ()):
            obj: Object | None = informer.peek(key)
            if obj is not None:
                return obj
        return None

    def changes(self, marked: set[tuple[str, Key]], *, focus: bool) -> dict[str, Any]:
        """What the user sees of what changed."""
        rows, gone = [], []
        by_name = {entry.name: entry for entry in self._entries}
        for name, key in sorted(marked):
            entry = by_name[name]
            if not self._may(entry, key.namespace):
                continue
            obj = self._object(entry, key)
            if obj is None:
                gone.append([name, key.namespace, key.name])
            else:
                rows.append(row(entry, obj))
        return {"rows": rows, "gone": gone, "live": self._watches.healthy} | (
            self._focused() if focus else {}
        )

    # --- as it happens

    async def send(
        self,
        response: web.StreamResponse,
        clock: Clock,
        *,
        check: Callable[[], None],
        stop: asyncio.Event,
        topic: int | None = None,
    ) -> None:
        """Send a snapshot and every change until ``stop``, the longest time, or ``check`` raises.

        Several views share a response when each has a ``topic``, the number that its messages carry.
        """
        tag = {} if topic is None else {"topic": topic}
        began = looked = clock.monotonic()
        while True:
            await self.look()
            marks = _Marks(self._sources, self._events, self._focus)
            try:
                # Unmarked before the snapshot is taken: what changes while it is sent is marked again.
                marks.take()
                live = self._watches.healthy
                await write(response, "snapshot", tag | self.snapshot())
                while clock.monotonic() - began < LONGEST and not stop.is_set():
                    await first(marks.changed.wait, stop.wait, seconds=HEARTBEAT)
                    check()
                    if clock.monotonic() - looked >= RECHECK:
                        looked = clock.monotonic()
                        if await self.look() or marks.outdated(self._sources, self._events):
                            break
                    marked, focus = marks.take()
                    if marked or focus or live != self._watches.healthy:
                        live = self._watches.healthy
                        await write(response, "change", tag | self.changes(marked, focus=focus))
                        await first(stop.wait, seconds=GATHER)
                    else:
                        await _raw(response, b": alive\n\n")
                else:
                    return
            finally:
                marks.close()


class _Marks:
    """Which objects changed since they were last sent."""

    def __init__(
        self,
        sources: dict[str, list[Informer[Any]]],
        events: list[Informer[Event]],
        focus: tuple[Entry, Key] | None,
    ) -> None:
        self.changed = asyncio.Event()
        self._marked: set[tuple[str, Key]] = set()
        self._focus = focus
        self._focused = False
        self._sources = sources
        self._events = events
        self._handlers: list[tuple[Informer[Any], Callable[[Transition[Any]], object]]] = []
        for name, informers in sources.items():
            for informer in informers:
                self._add(informer, self._marker(name))
        for informer in events:
            self._add(informer, self._on_event)

    def _add(self, informer: Informer[Any], handler: Callable[[Transition[Any]], object]) -> None:
        informer.add_handler(handler)
        self._handlers.append((informer, handler))

    def _marker(self, name: str) -> Callable[[Transition[Any]], object]:
        def mark(change: Transition[Any]) -> None:
            if self._focus is not None:
                if self._focus[1] != change.key:
                    return
                self._focused = True
            self._marked.add((name, change.key))
            self.changed.set()

        return mark

    def _on_event(self, change: Transition[Event]) -> None:
        event = change.new or change.old
        involved = event.involved_object if event is not None else None
        key = self._focus[1] if self._focus is not None else None
        if involved is not None and key == Key(involved.namespace or "", involved.name or ""):
            self._focused = True
            self.changed.set()

    def take(self) -> tuple[set[tuple[str, Key]], bool]:
        """What is marked, and whether the instance in focus is; both are unmarked."""
        taken = self._marked, self._focused
        self._marked, self._focused = set(), False
        self.changed.clear()
        return taken

    def outdated(self, sources: dict[str, list[Informer[Any]]], events: list[Informer[Event]]) -> bool:
        """Whether there are other informers by now."""
        return (sources, events) != (self._sources, self._events)

    def close(self) -> None:
        """Mark nothing any more."""
        for informer, handler in self._handlers:
            informer.remove_handler(handler)


async def first(*waits: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Wait until one of these is there, or the time is over."""
    tasks = [asyncio.ensure_future(wait()) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def write(response: web.StreamResponse, kind: str, data: dict[str, Any]) -> None:
    """Send one message; raises `TimeoutError` where the client does not read."""
    # JSON has no raw newline, so the data is one line.
    await _raw(response, f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n")


async def _raw(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await response.write(data)
