"""Get, list and watch."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import msgspec

from mooring.kube.errors import ApiError
from mooring.local.api import codec, failures, fields
from mooring.local.api.access.authorization import MASTERS
from mooring.local.api.call import Call, as_read, view
from mooring.local.api.codec import Format
from mooring.local.api.errors import invalid_object
from mooring.local.api.http import Answer, Query
from mooring.local.api.published import table
from mooring.local.api.registry import Served
from mooring.local.api.selectors import Filter
from mooring.local.api.storage import CompactedError, Entry, Event, encode_tail, stamp

__all__ = ["BOOKMARK_SECONDS", "answer_list", "answer_object", "get", "list_objects", "raw", "watch"]

JsonObject = dict[str, Any]

#: Seconds between bookmarks; client libraries count on about a minute.
BOOKMARK_SECONDS = 60.0
#: Seconds a watch lasts at least when the client does not say.
_WATCH_SECONDS = 1800
#: Watches open at once; more are told to come back, but for those of system:masters.
WATCH_LIMIT = 4096
_CHUNK = 64 << 10
#: Bytes of a list that are written at once; a longer one goes out in pieces, and others get their turn between.
_PIECE = 256 << 10
#: Seconds after which a watch notices that nobody listens any more.
_ALIVE_SECONDS = 5.0


# --- one object -----------------------------------------------------------------------------------------


def raw(entry: Entry, served: Served) -> bytes:
    """Return the JSON of an object in a served version."""
    if served.converts:
        return msgspec.json.encode(view(entry, served))
    return served.header + entry.tail


async def get(call: Call) -> Answer:
    """Answer with one object."""
    version = _version(call.request.query, "resourceVersion")
    _not_in_the_future(call, version)
    form = call.form()
    entry = call.collection.get((call.target.namespace, call.target.name))
    if entry is None:
        raise call.not_found()
    entry = await call.cluster.conversions.shown(entry, call.served)
    if not call.target.subresource:
        entry = as_read(entry, call.served)
    if form.plain:
        return Answer(200, raw(entry, call.served) + b"\n")
    return answer_object(call, 200, view(entry, call.served), form)


def answer_object(call: Call, status: int, obj: JsonObject, form: Format) -> Answer:
    """Answer with an object in the shape the client asked for."""
    if obj.get("kind") != "Status" or obj.get("apiVersion") != "v1":
        if form.shape == "table":
            obj = table.of_objects(
                [obj], call.served, call.request.query, call.cluster.now(), form.api_version
            )
        elif form.shape == "metadata":
            obj = table.partial(obj, form.api_version)
    body, content_type = codec.encode(obj, form)
    return Answer(status, body, content_type)


# --- versions -------------------------------------------------------------------------------------------


def _version(query: Query, name: str, *, listing: bool = False) -> int | None:
    """Return a resource version, None when none is given; raises 400 (500 for what is no list)."""
    text = query.text(name)
    if not text:
        return None
    if not text.isdigit():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        if listing:
            raise failures.bad_request(f"invalid resource version: {why}")
        raise failures.without_reason(why)
    return int(text)


def _not_in_the_future(call: Call, version: int | None) -> None:
    store = call.cluster.store
    if version is not None and version > store.published:
        raise failures.too_large_version(version, store.published)


def _check_match(query: Query, *, watch: bool) -> str:
    """Return resourceVersionMatch after the checks of ValidateListOptions; raises 422."""
    match, version = query.text("resourceVersionMatch"), query.text("resourceVersion")
    initial = "sendInitialEvents" in query
    errors = []
    if watch and initial:
        if match != "NotOlderThan":
            text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            errors.append(fields.forbidden("resourceVersionMatch", text))
        if match not in ("", "NotOlderThan"):
            errors.append(fields.not_supported("resourceVersionMatch", match, ("NotOlderThan",)))
    elif initial:
        errors.append(fields.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    elif match:
        if watch:
            errors.append(
                fields.forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            )
        elif not version:
            errors.append(
                fields.forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                )
            )
        elif query.text("continue"):
            errors.append(
                fields.forbidden(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
                )
            )
        elif match not in ("Exact", "NotOlderThan"):
            errors.append(fields.not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
        elif match == "Exact" and version == "0":
            errors.append(
                fields.forbidden(
                    "resourceVersionMatch",
                    'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                )
            )
    if errors:
        raise invalid_object(errors, group="meta.k8s.io", kind="ListOptions", name="")
    return match


# --- lists ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Page:
    """A part of a list: the state at one version, from after one object on."""

    entries: Sequence[Entry]
    version: int
    rest: int | None = None
    token: str = ""


async def list_objects(call: Call) -> Answer:
    """Answer with the objects of a namespace or of all."""
    query, served = call.request.query, call.served
    form = call.form(listing=True)
    wanted = Filter.parse(query, served, namespace=call.namespace, name=call.target.name)
    page = await _page(call, wanted)
    if served.storage == "services":
        page = replace(page, entries=[as_read(entry, served) for entry in page.entries])
    meta: JsonObject = {"resourceVersion": str(page.version)}
    if served.custom is not None and form.shape == "object":
        meta["continue"] = ""
    if page.token:
        meta["continue"] = page.token
        if page.rest is not None:
            meta["remainingItemCount"] = page.rest
    if form.plain:
        pieces = _plain_list(page.entries, served, meta)
        first = next(pieces)
        return Answer(200, first) if len(first) < _PIECE else Answer(200, pieces=chain((first,), pieces))
    return answer_list(call, [view(entry, served) for entry in page.entries], meta, form)


def answer_list(call: Call, objects: Sequence[JsonObject], meta: JsonObject, form: Format) -> Answer:
    """Answer with a list in the shape the client asked for."""
    query, served = call.request.query, call.served
    if form.shape == "table":
        body = table.of_objects(objects, served, query, call.cluster.now(), form.api_version, meta=meta)
    elif form.shape == "metadata":
        items = [table.partial(obj, form.api_version) for obj in objects]
        body = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": form.api_version,
            "metadata": meta,
            "items": items or None,
        }
    else:
        body = {
            "kind": served.list_kind,
            "apiVersion": served.api_version,
            "metadata": meta,
            "items": [_item(obj, served) for obj in objects],
        }
    encoded, content_type = codec.encode(body, form)
    return Answer(200, encoded, content_type)


def _item(obj: JsonObject, served: Served) -> JsonObject:
    """Return an object as it stands in a list: built-in ones without kind and apiVersion."""
    if served.custom is not None:
        return obj
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _plain_list(entries: Iterable[Entry], served: Served, meta: JsonObject) -> Iterator[bytes]:
    """Yield the list in pieces; all but the last are at least as long as a piece should be."""
    head = msgspec.json.encode({"kind": served.list_kind, "apiVersion": served.api_version, "metadata": meta})
    if served.custom is not None:
        prefix = served.header
    else:
        prefix = b"{"
    piece, size = [head[:-1] + b',"items":['], 0
    between = prefix
    for entry in entries:
        if served.converts:
            piece += (between[: -len(prefix)], msgspec.json.encode(_item(view(entry, served), served)))
        else:
            piece += (between, entry.tail)
        size += len(entry.tail)
        between = b"," + prefix
        if size > _PIECE:
            yield b"".join(piece)
            piece, size = [], 0
    yield b"".join((*piece, b"]}\n"))


async def _page(call: Call, wanted: Filter) -> _Page:
    query, store = call.request.query, call.cluster.store
    match = _check_match(query, watch=False)
    limit = max(query.number("limit") or 0, 0)
    token = query.text("continue")
    version = _version(query, "resourceVersion", listing=True)
    after: tuple[str, str] | None = None
    if token:
        if version:
            raise failures.bad_request("specifying resource version is not allowed when using continue")
        version, after = _read_token(token)
        match = "Exact" if version > 0 else ""
    else:
        _not_in_the_future(call, version)
        if version == 0:
            limit = 0  # any version will do: the real server answers from its cache, which does not page
    single = bool(wanted.name and wanted.namespace)  # is read like one object, from any newer version
    if match == "Exact" or (limit and version and match != "NotOlderThan" and not single):
        entries: Sequence[Entry] = _at(call, version or 0, token=token, after=after)
    else:
        entries, version = call.collection.entries(call.namespace), store.published
    if after is not None:
        entries = [entry for entry in entries if entry.place > after]
    entries = await call.cluster.conversions.show(entries, call.served)
    return _cut(entries, _matching(entries, wanted, call), version or 0, limit=limit, wanted=wanted)


def _at(call: Call, version: int, *, token: str, after: tuple[str, str] | None) -> list[Entry]:
    try:
        return call.collection.at(version, call.namespace)
    except CompactedError:
        pass
    if not token:
        raise failures.expired("The resourceVersion for the provided list is too old.")
    error = failures.expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new"
        " list without the continue parameter, or use the continue token in this response to retrieve the"
        " remainder of the results. Continuing with the provided token results in an inconsistent list -"
        " objects that were created, modified, or deleted between the time the first chunk was returned and"
        " now may show up in the list."
    )
    error.meta = {"continue": _token(-1, after or ("", ""))}  # type: ignore[attr-defined]
    raise error


def _matching(entries: Sequence[Entry], wanted: Filter, call: Call) -> Sequence[Entry]:
    if wanted.everything:
        return entries
    if wanted.name and wanted.namespace and not wanted.labels.requirements and not wanted.fields:
        return [entry for entry in entries if entry.name == wanted.name]
    return [entry for entry in entries if wanted.matches(entry)]


def _cut(
    entries: Sequence[Entry], matching: Sequence[Entry], version: int, *, limit: int, wanted: Filter
) -> _Page:
    """Return the first of the matching entries; with a selector anything that is left may match."""
    more = bool(limit and len(matching) >= limit and entries[-1].place > matching[limit - 1].place)
    if not more or (wanted.name and wanted.namespace):
        return _Page(matching[: limit or None], version)
    shown = matching[:limit]
    # With a selector the rest is not counted, as on a server that would have to read it all.
    rest = len(entries) - limit if wanted.everything else None
    return _Page(shown, version, rest, _token(version, shown[-1].place))


def _token(version: int, place: tuple[str, str]) -> str:
    encoded = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(place) + "\0"})
    return base64.urlsafe_b64encode(encoded).rstrip(b"=").decode()


def _read_token(text: str) -> tuple[int, tuple[str, str]]:
    try:
        padded = text + "=" * (-len(text) % 4)
        token = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        if token["v"] != "meta.k8s.io/v1":
            raise ValueError("continue key is not valid: server does not recognize this encoded version")
        namespace, _, name = str(token["start"]).rstrip("\0").partition("/")
        return int(token["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        raise failures.bad_request("invalid continue token: continue key is not valid") from None


# --- watches --------------------------------------------------------------------------------------------


class _Encoder:
    """Writes events in the shape the client asked for."""

    def __init__(self, call: Call, form: Format) -> None:
        self._call = call
        self._form = form
        self._first = True

    def event(self, kind: str, entry: Entry) -> bytes:
        """One line."""
        entry = as_read(entry, self._call.served)
        if self._form.shape == "object":
            return b'{"type":"' + kind.encode() + b'","object":' + raw(entry, self._call.served) + b"}\n"
        return self._shaped(kind, view(entry, self._call.served))

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """A bookmark: only kind and version, and the mark that ends the initial events."""
        served = self._call.served
        meta: JsonObject = {"resourceVersion": str(version)}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": served.kind, "apiVersion": served.api_version, "metadata": meta}
        if self._form.shape == "object":
            return self._line("BOOKMARK", obj)
        return self._shaped("BOOKMARK", obj)

    def error(self, error: ApiError) -> bytes:
        """The last line of a watch that cannot go on."""
        return self._line("ERROR", failures.status_of(error))

    def _shaped(self, kind: str, obj: JsonObject) -> bytes:
        call, form = self._call, self._form
        if form.shape == "metadata":
            return self._line(kind, table.partial(obj, form.api_version))
        shown = table.of_objects([obj], call.served, call.request.query, call.cluster.now(), form.api_version)
        if not self._first:
            shown["columnDefinitions"] = None
        self._first = False
        return self._line(kind, shown)

    def _line(self, kind: str, obj: JsonObject) -> bytes:
        return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def watch(call: Call) -> Answer:
    """Answer with a stream of changes."""
    query = call.request.query
    form = call.form(listing=True)
    _check_match(query, watch=True)
    version = _version(query, "resourceVersion")
    if call.cluster.watchers >= WATCH_LIMIT and MASTERS not in call.user.groups:
        raise failures.too_many_requests("too many watches are open, please try again later")
    seconds = query.number("timeoutSeconds") or _WATCH_SECONDS * (1 + random.random())
    wanted = Filter.parse(query, call.served, namespace=call.namespace, name=call.target.name)
    initial = query.flag("sendInitialEvents") if "sendInitialEvents" in query else version in (None, 0)
    stream = _Watch(
        call,
        wanted,
        _Encoder(call, Format(form.shape, api_version=form.api_version)),
        version=version or 0,
        initial=initial,
        deadline=_now() + seconds,
        bookmarks=query.flag("allowWatchBookmarks"),
        marks_end="sendInitialEvents" in query and initial,
    )
    return Answer(200, stream=stream.run(), ends_itself=True)


def _now() -> float:
    """Seconds on the event loop's own clock: a test that moves it moves the watches with it."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Watch:
    """One watch: a position in the log of a collection."""

    call: Call
    wanted: Filter
    encoder: _Encoder
    version: int
    initial: bool
    deadline: float
    bookmarks: bool
    marks_end: bool

    async def run(self) -> AsyncGenerator[bytes]:
        """Yield chunks of whole lines until the deadline or until the log has moved on."""
        self.call.cluster.watchers += 1
        try:
            if self.initial:
                async for chunk in self._initial_events():
                    yield chunk
            async for chunk in self._changes():
                yield chunk
        except ApiError as error:
            yield self.encoder.error(error)
        except CompactedError:
            old = f"too old resource version: {self.version} ({self.call.collection.floor})"
            yield self.encoder.error(failures.expired(old))
        finally:
            self.call.cluster.watchers -= 1

    async def _initial_events(self) -> AsyncGenerator[bytes]:
        collection, store = self.call.collection, self.call.cluster.store
        stored, self.version = collection.entries(self.call.namespace), store.published
        entries = await self.call.cluster.conversions.show(stored, self.call.served)
        chunk: list[bytes] = []
        size = 0
        for entry in entries:
            if not self.wanted.matches(entry):
                continue
            line = self.encoder.event("ADDED", entry)
            chunk.append(line)
            size += len(line)
            if size > _CHUNK:
                yield b"".join(chunk)
                chunk, size = [], 0
        if self.marks_end and self.bookmarks:
            chunk.append(self.encoder.bookmark(self.version, initial_end=True))
        if chunk:
            yield b"".join(chunk)

    async def _changes(self) -> AsyncGenerator[bytes]:
        collection, store = self.call.collection, self.call.cluster.store
        next_bookmark = _now() + BOOKMARK_SECONDS * random.uniform(0.8, 1.0)
        closing, connected = self.call.cluster.closing, self.call.request.connected
        # Who asks within this process closes its stream; one at the far end of a socket may just be gone.
        longest = self.deadline if connected is None else _ALIVE_SECONDS
        begun = False  # what is there already is told, however late this begins
        while (
            (not begun or _now() < self.deadline) and not closing.is_set() and (not connected or connected())
        ):
            begun, now = True, _now()
            events = collection.since(self.version)
            if events:
                if self.call.served.custom is not None:
                    events = [await self._shown(event) for event in events]
                lines = [line for event in events if (line := self._line(event))]
                self.version = events[-1].rv
                if lines:
                    yield b"".join(lines)
                continue
            if self.call.served.custom is not None and self._undefined():
                return
            if self.bookmarks and now >= next_bookmark:
                next_bookmark = now + BOOKMARK_SECONDS
                self.version = max(self.version, store.published)
                yield self.encoder.bookmark(self.version)
                continue
            wait = min(self.deadline, next_bookmark if self.bookmarks else self.deadline) - now
            await collection.changed(timeout=min(max(wait, 0.01), longest))

    async def _shown(self, event: Event) -> Event:
        """Return an event with its objects in the version of this watch."""
        conversions, served = self.call.cluster.conversions, self.call.served
        entry = await conversions.shown(event.entry, served)
        previous = await conversions.shown(event.previous, served) if event.previous is not None else None
        return Event(event.type, event.rv, entry, previous)

    def _undefined(self) -> bool:
        """Whether the definition of a custom resource is gone."""
        served = self.call.served
        return self.call.cluster.registry.find(served.group, served.version, served.plural) is None

    def _line(self, event: Event) -> bytes:
        """Return the event as this watch sees it: an object can also come into or leave its selection."""
        if event.type == "DELETED":
            if event.previous is not None and not self.wanted.matches(event.previous):
                return b""
            return self.encoder.event("DELETED", event.entry)
        is_in = self.wanted.matches(event.entry)
        was_in = event.previous is not None and self.wanted.matches(event.previous)
        if is_in:
            return self.encoder.event("MODIFIED" if was_in else "ADDED", event.entry)
        if was_in and event.previous is not None:
            gone = _at_version(event.previous, event.rv)
            return self.encoder.event("DELETED", gone)
        return b""


def _at_version(entry: Entry, rv: int) -> Entry:
    """Return an object that left a selection: its last selected state, at the version of the change."""
    obj = stamp(entry.obj, rv)
    return Entry(entry.place, rv, encode_tail(obj), written=entry.written, obj=obj)
