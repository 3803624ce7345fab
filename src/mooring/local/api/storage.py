"""Objects, their resource versions, and what changed since: the database behind the API server.

Every object lives in memory, as the bytes that are sent; SQLite only makes them durable. A write goes
through three states:

* *staged*: it has its resource version, and the next write of the same object builds on it;
* *committed*: one fsynced transaction holds it, with everything else staged meanwhile (group commit);
* *published*: readers and watchers see it, and the writer gets its answer.

So nobody ever sees or is told of a write that a crash could take back. All methods run on the event
loop; only the SQL runs in the one writer thread.

Watchers hold a position in a bounded log instead of a buffer each: a watcher that is too slow finds its
position gone and is closed, and memory does not grow with watchers.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

__all__ = [
    "Backend",
    "Change",
    "Collection",
    "CompactedError",
    "Entry",
    "Event",
    "MemoryBackend",
    "Row",
    "SqliteBackend",
    "StaleError",
    "StorageError",
    "Store",
    "Write",
    "encode_tail",
    "stamp",
]

JsonObject = dict[str, Any]
Place = tuple[str, str]  # namespace ("" for cluster-scoped), name

#: Events kept per resource for watches that resume, and the bytes they may hold together.
LOG_EVENTS = 8192
LOG_BYTES = 24 << 20
#: Objects whose parsed form is kept: what was written a moment ago is likely to be written again.
RECENT = 512


class StorageError(Exception):
    """A write could not be made durable; nothing of it is visible."""


class StaleError(Exception):
    """The object is no longer the one the write was computed from."""


class CompactedError(Exception):
    """The log no longer reaches back to the resource version asked for."""


class Entry:
    """One version of one object.

    `tail` is its JSON after the opening brace and without kind and apiVersion, so that an answer in
    any served version is the header of that version plus the tail. The parsed form is several times as
    large: it is kept for what was written last (see Store) and made anew for everything else. Labels
    are kept, for selectors.

    Of a custom resource, `version` is the version it is stored in ("" when not known), and `forms` are
    the entries that show it by schema (None: itself does): what is stored may be older than its definition.
    `untidy` when even a write that changes nothing has to be one; a restart forgets it.
    """

    __slots__ = (
        "_labels",
        "_obj",
        "forms",
        "name",
        "namespace",
        "rv",
        "tail",
        "untidy",
        "version",
        "written",
    )

    def __init__(
        self,
        place: Place,
        rv: int,
        tail: bytes,
        *,
        written: float,
        obj: JsonObject | None = None,
        version: str = "",
    ) -> None:
        self.namespace, self.name = place
        self.rv = rv
        self.tail = tail
        self.written = written
        self.version = version
        self.untidy = False
        self.forms: dict[object, Entry | None] | None = None
        self._obj = obj
        self._labels: Mapping[str, str] | None = None

    @property
    def place(self) -> Place:
        """Namespace and name."""
        return (self.namespace, self.name)

    @property
    def obj(self) -> JsonObject:
        """The parsed object without kind and apiVersion; never change it."""
        if self._obj is not None:
            return self._obj
        obj: JsonObject = msgspec.json.decode(b"{" + self.tail)
        return obj

    def changed(self, obj: JsonObject) -> Entry:
        """Return an entry that shows another object, of the same version; nothing is stored."""
        return Entry(
            self.place, self.rv, encode_tail(obj), written=self.written, obj=obj, version=self.version
        )

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the object."""
        if self._labels is None:
            if self._obj is not None:
                self._labels = self._obj["metadata"].get("labels") or {}
            else:
                self._labels = _labelled.decode(b"{" + self.tail).metadata.labels or {}
        return self._labels

    def forget(self) -> None:
        """Give the parsed form up."""
        self._obj = None


class _LabelledMeta(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _LabelledMeta


_labelled = msgspec.json.Decoder(_Labelled)

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Event:
    """One published change; `entry` of a DELETED is the last state with the deletion's version."""

    type: EventType
    rv: int
    entry: Entry
    previous: Entry | None


@dataclass(frozen=True, slots=True)
class Change:
    """One staged write; `entry` None deletes."""

    collection: Collection
    event: Event
    done: asyncio.Future[None] | None

    @property
    def deletes(self) -> bool:
        return self.event.type == "DELETED"


class Row(msgspec.Struct, frozen=True):
    """One object as the backend keeps it."""

    resource: str
    namespace: str
    name: str
    rv: int
    written: float
    body: bytes
    version: str = ""


class Backend(Protocol):
    """Where objects survive the process."""

    def load(self) -> tuple[int, Iterable[Row]]:
        """Return the last resource version and every object."""
        ...

    def commit(self, rv: int, puts: Sequence[Row], deletes: Sequence[tuple[str, str, str]]) -> None:
        """Make a batch durable, all or nothing; called from the writer thread."""
        ...

    def close(self) -> None:
        """Release the database."""
        ...


class MemoryBackend:
    """Keeps nothing: for tests and throw-away planes."""

    def load(self) -> tuple[int, Iterable[Row]]:
        """Return an empty database."""
        return 0, ()

    def commit(self, rv: int, puts: Sequence[Row], deletes: Sequence[tuple[str, str, str]]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


_DAMAGED = (
    "it is damaged; nothing was changed. Put back a copy of {path}, or move {path}* away to begin with an empty "
    "API (volumes keep their data)"
)
_REMEDIES = {
    sqlite3.SQLITE_FULL: "nothing was changed; free space on that disk and send it again",
    sqlite3.SQLITE_BUSY: "if another server uses this data, stop it first",
    sqlite3.SQLITE_READONLY: "nothing was changed; the file system must be writable",
    sqlite3.SQLITE_CANTOPEN: "the directory must exist, be writable and have space left",
    sqlite3.SQLITE_IOERR: "nothing was changed; see the kernel's log for errors of that disk",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
"""What to do, by SQLite's primary result code."""


class SqliteBackend:
    """One SQLite file in WAL mode; a commit returns when the log is on disk (synchronous=FULL).

    The file is locked exclusively, so a second server on the same data fails to start. All methods raise
    StorageError, which says what to do.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
        try:
            path.chmod(0o600)
            with self._explained():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it tells where
            remedy = _REMEDIES.get(code, "see the file and its disk").format(path=self._path)
            raise StorageError(f"{self._path}: {error}: {remedy}") from error

    def _prepare(self) -> None:
        for pragma in (
            "locking_mode=EXCLUSIVE",
            "journal_mode=WAL",
            "synchronous=FULL",
            "wal_autocheckpoint=2000",
        ):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS objects (resource TEXT NOT NULL, namespace TEXT NOT NULL,"
            " name TEXT NOT NULL, rv INTEGER NOT NULL, written REAL NOT NULL, body BLOB NOT NULL,"
            " PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID"
        )
        columns = {row[1] for row in self._db.execute("PRAGMA table_info(objects)")}
        if "version" not in columns:
            self._db.execute("ALTER TABLE objects ADD COLUMN version TEXT NOT NULL DEFAULT ''")
        self._db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL)")
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('rv', 0)")
        self._db.execute("COMMIT")

    def load(self) -> tuple[int, Iterable[Row]]:
        """Return the last resource version and every object; all of the file is read, so damage shows now."""
        with self._explained():
            (rv,) = self._db.execute("SELECT value FROM meta WHERE key = 'rv'").fetchone()
            found = self._db.execute(
                "SELECT resource, namespace, name, rv, written, body, version FROM objects"
            )
            rows = [Row(*row) for row in found]
        for row in rows:
            try:
                _labelled.decode(b"{" + row.body)
            except (msgspec.DecodeError, TypeError) as error:
                what = f"{row.resource} {row.namespace}/{row.name}: {error}"
                remedy = _REMEDIES[sqlite3.SQLITE_CORRUPT].format(path=self._path)
                raise StorageError(f"{self._path}: {what}: {remedy}") from error
        return int(rv), rows

    def commit(self, rv: int, puts: Sequence[Row], deletes: Sequence[tuple[str, str, str]]) -> None:
        """Write a batch in one transaction."""
        with self._explained():
            self._write(rv, puts, deletes)

    def _write(self, rv: int, puts: Sequence[Row], deletes: Sequence[tuple[str, str, str]]) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", deletes)
            db.executemany(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(p.resource, p.namespace, p.name, p.rv, p.written, p.body, p.version) for p in puts],
            )
            db.execute("UPDATE meta SET value = ? WHERE key = 'rv'", (rv,))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Fold the log back into the file and close it."""
        self._db.close()


class Collection:
    """All objects of one resource, and the log of their changes."""

    def __init__(self, resource: str, *, floor: int) -> None:
        self.resource = resource
        self._items: dict[str, dict[str, Entry]] = {}
        self._staged: dict[Place, Entry | None] = {}
        self._log: deque[Event] = deque()
        self._log_bytes = 0
        self._floor = floor
        self._waiters: list[asyncio.Future[None]] = []
        self.count = 0
        #: Called with every published event, for what the server itself derives from objects.
        self.observer: Callable[[Event], None] | None = None

    def get(self, place: Place) -> Entry | None:
        """Return the published version of an object."""
        return self._items.get(place[0], {}).get(place[1])

    def head(self, place: Place) -> Entry | None:
        """Return the newest version, staged ones included: what a write must build on."""
        if place in self._staged:
            return self._staged[place]
        return self.get(place)

    def entries(self, namespace: str = "") -> list[Entry]:
        """Return the published objects of a namespace ("" = all), sorted by namespace and name."""
        if namespace:
            items = self._items.get(namespace, {})
            return [items[name] for name in sorted(items)]
        return [self._items[ns][name] for ns in sorted(self._items) for name in sorted(self._items[ns])]

    def __iter__(self) -> Iterator[Entry]:
        for items in self._items.values():
            yield from items.values()

    def newest(self, namespace: str = "") -> Iterator[Entry]:
        """Iterate over the newest versions ("" = of all namespaces), staged ones included, in no order."""
        staged = (entry for entry in self._staged.values() if entry is not None)
        yield from (entry for entry in staged if not namespace or entry.namespace == namespace)
        published = self._items.get(namespace, {}).values() if namespace else self
        yield from (entry for entry in published if entry.place not in self._staged)

    def at(self, rv: int, namespace: str = "") -> list[Entry]:
        """Return the objects as they were at a version; raises CompactedError when it is too old."""
        if rv < self._floor:
            raise CompactedError
        if not self._log or self._log[-1].rv <= rv:
            return self.entries(namespace)
        state = {entry.place: entry for entry in self.entries(namespace)}
        for event in reversed(self._log):
            if event.rv <= rv:
                break
            if namespace and event.entry.namespace != namespace:
                continue
            if event.previous is None:
                state.pop(event.entry.place, None)
            else:
                state[event.entry.place] = event.previous
        return [state[place] for place in sorted(state)]

    @property
    def floor(self) -> int:
        """The log holds every event above this version."""
        return self._floor

    def since(self, rv: int, *, limit: int = 256) -> list[Event]:
        """Return the next events above a version; raises CompactedError when some are gone."""
        if rv < self._floor:
            raise CompactedError
        log = self._log
        if not log or log[-1].rv <= rv:
            return []
        # Watchers are nearly always close to the end: walk back rather than bisect a deque.
        newer = 0
        for event in reversed(log):
            if event.rv <= rv:
                break
            newer += 1
        start = len(log) - newer
        return [log[i] for i in range(start, min(len(log), start + limit))]

    async def changed(self, *, timeout: float) -> None:
        """Wait for the next publication, at most `timeout` seconds."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        handle = loop.call_later(timeout, _release, waiter)
        try:
            await waiter
        finally:
            handle.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def load(self, entry: Entry) -> None:
        """Take an object over from the backend."""
        self._put(entry)

    def stage(self, place: Place, entry: Entry | None) -> None:
        """Let the next write of this object build on a version that is not yet committed."""
        self._staged[place] = entry

    def unstage(self, event: Event) -> None:
        """End the staging of a write unless a later one of the same object follows."""
        place = event.entry.place
        staged = self._staged.get(place, event)
        if staged is event.entry or (staged is None and event.type == "DELETED"):
            self._staged.pop(place, None)

    def drop_staged(self) -> None:
        """Forget every staged write; their batch failed."""
        self._staged.clear()

    def publish(self, event: Event) -> None:
        """Show a committed change to readers and append it to the log."""
        if event.type == "DELETED":
            self._remove(event.entry.place)
        else:
            self._put(event.entry)
        if event.previous is not None:
            event.previous.forget()
        self._log.append(event)
        self._log_bytes += len(event.entry.tail)
        if self.observer is not None:
            self.observer(event)
        while len(self._log) > LOG_EVENTS or (self._log_bytes > LOG_BYTES and len(self._log) > 64):
            gone = self._log.popleft()
            self._log_bytes -= len(gone.entry.tail)
            self._floor = gone.rv

    def compact(self) -> None:
        """Forget the log, as a compaction of the database would."""
        if self._log:
            self._floor = self._log[-1].rv
            self._log.clear()
            self._log_bytes = 0

    def wake(self) -> None:
        """Wake everyone who waits for a change."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _release(waiter)

    def _put(self, entry: Entry) -> None:
        items = self._items.setdefault(entry.namespace, {})
        self.count += entry.name not in items
        items[entry.name] = entry

    def _remove(self, place: Place) -> None:
        items = self._items.get(place[0], {})
        if items.pop(place[1], None) is not None:
            self.count -= 1
        if not items:
            self._items.pop(place[0], None)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Store:
    """Every collection, the one counter of resource versions, and the way of each write."""

    def __init__(self, backend: Backend, *, now: Callable[[], float] = time.time) -> None:
        self._backend = backend
        self._now = now
        self._durable = not isinstance(backend, MemoryBackend)
        self._collections: dict[str, Collection] = {}
        #: Called with every published event of every collection, after its own observer.
        self.observers: list[Callable[[Collection, Event], None]] = []
        self._recent: deque[Entry] = deque()
        self._pending: list[Change] = []
        self._flushing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self._closed = False
        last, rows = backend.load()
        # Versions of a fresh database start above 0: to clients "0" means "any version".
        self._last = self._start = self.published = max(last, 1)
        for row in rows:
            place = (row.namespace, row.name)
            entry = Entry(place, row.rv, row.body, written=row.written, version=row.version)
            self.collection(row.resource).load(entry)

    def collection(self, resource: str) -> Collection:
        """Return the collection of a resource (`pods`, `statefulsets.apps`), made on first use."""
        found = self._collections.get(resource)
        if found is None:
            # Of what changed before the start nothing is known; since then nothing changed here.
            found = self._collections[resource] = Collection(resource, floor=self._start)
        return found

    def collections(self) -> list[Collection]:
        """Return every collection that was used so far."""
        return list(self._collections.values())

    def put(
        self,
        collection: Collection,
        place: Place,
        obj: JsonObject,
        *,
        base: Entry | None,
        version: str | None = None,
    ) -> Write:
        """Stage an object over the version it was computed from (None: it must not exist).

        `version` is the API version it is stored in; None: the one of the base. The result is committed
        and visible once awaited. Raises StaleError when the base is no longer the newest version.
        """
        if collection.head(place) is not base:
            raise StaleError
        self._last += 1
        rv = self._last
        obj = stamp(obj, rv)
        if version is None:
            version = base.version if base is not None else ""
        entry = Entry(place, rv, encode_tail(obj), written=self._now(), obj=obj, version=version)
        self._recent.append(entry)
        if len(self._recent) > RECENT:
            self._recent.popleft().forget()
        return self._stage(collection, Event("MODIFIED" if base else "ADDED", rv, entry, base))

    def delete(self, collection: Collection, base: Entry, *, last: JsonObject | None = None) -> Write:
        """Stage a deletion; `last` is the final state shown to watchers if it differs from the base."""
        if collection.head(base.place) is not base:
            raise StaleError
        self._last += 1
        obj = stamp(last if last is not None else base.obj, self._last)
        entry = Entry(base.place, self._last, encode_tail(obj), written=self._now(), version=base.version)
        return self._stage(collection, Event("DELETED", self._last, entry, base))

    def _stage(self, collection: Collection, event: Event) -> Write:
        if self._closed:
            raise StorageError("the server is stopping")
        if not self._durable:
            self._show(collection, event)
            self.published = event.rv
            collection.wake()
            return Write(event.entry, None)
        deletes = event.type == "DELETED"
        collection.stage(event.entry.place, None if deletes else event.entry)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(Change(collection, event, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return Write(event.entry, done)

    async def settled(self, collection: Collection, entry: Entry) -> None:
        """Wait until a version that may still be staged is visible to every reader."""
        for change in self._pending_of(entry):
            if change.done is not None:
                await asyncio.shield(change.done)

    async def all_settled(self) -> None:
        """Wait until all that is staged now is visible; raises StorageError when it cannot be made durable.

        For answers that say what was found, not what was written: a write builds on what is staged, so it may find
        an object gone that readers still see.
        """
        for change in (self._pending or self._in_flight)[-1:]:
            if change.done is not None:
                await asyncio.shield(change.done)

    def _pending_of(self, entry: Entry) -> list[Change]:
        return [c for c in (*self._in_flight, *self._pending) if c.event.entry is entry]

    _in_flight: Sequence[Change] = ()

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending, []
            self._in_flight = batch
            try:
                await loop.run_in_executor(self._thread, self._commit, batch)
            except Exception as error:
                self._fail([*batch, *self._pending], error)
            else:
                self._publish(batch)
        self._in_flight = ()
        self._flushing = None

    def _commit(self, batch: Sequence[Change]) -> None:
        puts: dict[tuple[str, str, str], Row] = {}
        deletes: set[tuple[str, str, str]] = set()
        for change in batch:
            entry = change.event.entry
            key = (change.collection.resource, entry.namespace, entry.name)
            if change.deletes:
                puts.pop(key, None)
                deletes.add(key)
            else:
                puts[key] = Row(*key, entry.rv, entry.written, entry.tail, entry.version)
        self._backend.commit(batch[-1].event.rv, list(puts.values()), list(deletes))

    def _show(self, collection: Collection, event: Event) -> None:
        collection.publish(event)
        for observer in self.observers:
            observer(collection, event)

    def _publish(self, batch: Sequence[Change]) -> None:
        touched = set()
        for change in batch:
            change.collection.unstage(change.event)
            self._show(change.collection, change.event)
            touched.add(change.collection)
            if change.done is not None:
                _release(change.done)
        self.published = batch[-1].event.rv
        for collection in touched:
            collection.wake()

    def _fail(self, changes: Sequence[Change], error: Exception) -> None:
        """Refuse a batch and everything staged on top of it."""
        self._pending = []
        for collection in self._collections.values():
            collection.drop_staged()
        for change in changes:
            if change.done is not None and not change.done.done():
                change.done.set_exception(StorageError(f"cannot write: {error}"))
                change.done.exception()  # a client that went away must not make asyncio complain

    def wake(self) -> None:
        """Wake everyone who waits for a change of any collection."""
        for collection in self._collections.values():
            collection.wake()

    async def close(self) -> None:
        """Commit what is staged, refuse what comes later, release the database."""
        self._closed = True
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        await asyncio.get_running_loop().run_in_executor(self._thread, self._backend.close)
        self._thread.shutdown(wait=False)


@dataclass(frozen=True, slots=True)
class Write:
    """A staged write: `entry` is the new version, valid to show only after `committed()`."""

    entry: Entry
    done: asyncio.Future[None] | None

    async def committed(self) -> Entry:
        """Wait until the write is durable and visible; raises StorageError when it is refused."""
        if self.done is not None:
            # Shielded: a client that hangs up does not take its write back.
            await asyncio.shield(self.done)
        return self.entry


def stamp(obj: JsonObject, rv: int) -> JsonObject:
    """Return the object with a resource version, without kind and apiVersion; other parts are shared."""
    stamped = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    stamped["metadata"] = {**obj["metadata"], "resourceVersion": str(rv)}
    return stamped


_encoder = msgspec.json.Encoder()


def encode_tail(obj: JsonObject) -> bytes:
    """Encode an object as the part of its JSON after `{"kind":...,"apiVersion":...,`."""
    return _encoder.encode(obj)[1:]
