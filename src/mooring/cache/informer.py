"""Informers: a store that keeps itself current, shared by everyone in the process who reads that kind.

An `Informer` owns a store and the reflector that feeds it, and tells handlers of every transition, whatever
its source. `InformerSet` makes one informer per (kind, namespace, selectors) and runs them; several sets share them by
an `InformerPool`.

Guarantees: a handler sees every object at least once, and its last state always; states in between may be
merged. ``old`` and ``new`` are exactly what readers saw before and see now. Handlers run on the event loop,
must not block, and one that raises harms nobody else.
Non-guarantees: events of different kinds are not ordered among each other; a deletion may be told by a list
(`Transition.final_state_unknown`), long after the fact.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog

from mooring.cache.clock import Clock, SystemClock
from mooring.cache.errors import BadObject, NotCached, OutsideFilter
from mooring.cache.reflector import SILENCE, Reflector
from mooring.cache.store import Store, Transition
from mooring.kube.client import Client, Undecodable, WatchEvent
from mooring.kube.object import Key, Object, ObjectMetadata, Resource, key_of
from mooring.kube.selectors import FieldRequirement, parse_field_selector, parse_selector

__all__ = ["Handler", "Informer", "InformerPool", "InformerSet", "selects"]

T = TypeVar("T", bound=Object)

Handler = Callable[[Transition[T]], object]
BadHandler = Callable[[Undecodable], object]

log = structlog.get_logger("mooring.cache")

#: Seconds without any sign of life after which an informer no longer counts as healthy.
STALE = 150.0
#: Seconds of silence after which `Informer.current` asks for a sign of life.
FRESH = 5.0


class Informer(Generic[T]):
    """The current objects of one kind, in one namespace or all, under one selector."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        *,
        clock: Clock | None = None,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        watch_list: bool = False,
        silence: float = SILENCE,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.label_selector = label_selector
        self.field_selector = field_selector
        self.synced = asyncio.Event()
        self.decode_errors = 0
        self.handler_errors = 0
        self._clock = clock or SystemClock()
        self._names = _field(field_selector, "metadata.name")
        self._namespaces = _field(field_selector, "metadata.namespace") or ([namespace] if namespace else [])
        self._partial = bool(label_selector) or not _by_key(field_selector)
        self._store: Store[T] = Store(selects=selects(label_selector, field_selector))
        self._handlers: list[Handler[T]] = []
        self._bad_handlers: list[BadHandler] = []
        self._bad: dict[Key, Undecodable] = {}
        self._reflector = Reflector(
            client,
            kind,
            self,
            clock=self._clock,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            watch_list=watch_list,
            silence=silence,
        )
        self._task: asyncio.Task[None] | None = None
        self._reopening: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        scope = self.namespace or "all namespaces"
        selector = ", ".join(filter(None, (self.label_selector, self.field_selector)))
        return f"<Informer {self.kind.resource.kind} in {scope}{' where ' + selector if selector else ''}>"

    def __len__(self) -> int:
        return len(self._store)

    # --- reading

    def get(self, key: Key) -> T | None:
        """The newest known state, ``None`` when there is no such object.

        Raises `OutsideFilter` when a namespace or selector may be what hides the object, `BadObject` when it
        is there but its current version could not be decoded.
        """
        namespaces, names = self._namespaces, self._names
        if (namespaces and key.namespace not in namespaces) or (names and key.name not in names):
            raise OutsideFilter(f"{self.kind.resource.kind} {key} is outside {self!r}; read it live")
        if self._bad and key in self._bad:
            raise BadObject(f"{self.kind.resource.kind} {key} cannot be read: {self._bad[key].error}")
        found = self._store.get(key)
        if found is None and self._partial:
            raise OutsideFilter(
                f"{self.kind.resource.kind} {key} is not in {self!r}; read it live, or `peek`"
            )
        return found

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects an index files under ``value``; see `Store.by_index` for the built-in ones."""
        return self._store.by_index(name, value)

    def owned_by(self, owner: Object) -> list[T]:
        """The objects whose controlling owner is ``owner``, by UID."""
        return self._store.by_index("owner", owner.metadata.uid or "")

    def list(self, namespace: str | None = None) -> list[T]:
        """All objects, or those of one namespace; one that cannot be decoded shows its last sound state."""
        if namespace is None or namespace == "":
            return self._store.values()
        if self._namespaces and namespace not in self._namespaces:
            raise OutsideFilter(f"namespace {namespace} is outside {self!r}")
        if self._namespaces == [namespace]:
            return self._store.values()
        return self._store.by_index("namespace", namespace)

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """Add an index; ``function`` gives the strings under which an object is filed."""
        self._store.add_index(name, function)

    def ensure_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """As `add_index`, unless there is one of that name; all functions given for a name must do the same."""
        if not self._store.has_index(name):
            self._store.add_index(name, function)

    @property
    def undecodable(self) -> dict[Key, Undecodable]:
        """Objects whose current version does not fit the type."""
        return dict(self._bad)

    # --- handlers

    def add_handler(self, handler: Handler[T], *, on_bad: BadHandler | None = None) -> None:
        """Call ``handler`` for every transition from now on, and at once for every object already here.

        ``on_bad`` is told of objects that could not be decoded.
        """
        self._handlers.append(handler)
        if on_bad is not None:
            self._bad_handlers.append(on_bad)
            for bad in self._bad.values():
                on_bad(bad)
        for obj in self._store.values():
            self._call(handler, Transition(key_of(obj), None, obj, "list"))

    def remove_handler(self, handler: Handler[T], *, on_bad: BadHandler | None = None) -> None:
        """Stop calling a handler, and the ``on_bad`` that was given with it."""
        self._handlers.remove(handler)
        if on_bad is not None:
            self._bad_handlers.remove(on_bad)

    def _emit(self, change: Transition[T] | None) -> None:
        if change is not None:
            for handler in self._handlers:
                self._call(handler, change)

    def _call(self, handler: Handler[T], change: Transition[T]) -> None:
        try:
            handler(change)
        except Exception:
            self.handler_errors += 1
            log.exception("an informer's handler failed", kind=self.kind.resource.kind, key=str(change.key))

    # --- what the reflector tells (Sink)

    @property
    def last_version(self) -> int:
        """Everything up to this version is known."""
        return self._store.last_version

    def on_list(
        self, items: Sequence[T], undecodable: Sequence[Undecodable], *, version: int, reset: bool
    ) -> None:
        """See `reflector.Sink`."""
        self._bad.clear()
        changes = self._store.replace(items, version, keep=[bad.key for bad in undecodable], reset=reset)
        for bad in undecodable:
            self._remember_bad(bad)
        for change in changes:
            self._emit(change)
        self.synced.set()

    def on_event(self, event: WatchEvent[T]) -> None:
        """See `reflector.Sink`."""
        obj, bad = event.object, event.undecodable
        if obj is not None:
            if self._bad:
                self._bad.pop(key_of(obj), None)
            self._emit(
                self._store.remove(obj) if event.type == "DELETED" else self._store.apply(obj, "watch")
            )
        elif bad is not None and event.type == "DELETED":
            self._bad.pop(bad.key, None)
            version = int(bad.resource_version or 0)
            self._emit(self._store.remove_key(bad.key, uid="", version=version))
        elif bad is not None:
            self._store.progress(int(bad.resource_version or 0))
            self._remember_bad(bad)

    def on_bookmark(self, version: int) -> None:
        """See `reflector.Sink`."""
        self._store.progress(version)

    def _remember_bad(self, bad: Undecodable) -> None:
        self._bad[bad.key] = bad
        self.decode_errors += 1
        kind = self.kind.resource.kind
        log.error("an object does not fit its type", kind=kind, key=str(bad.key), error=str(bad.error))
        for handler in self._bad_handlers:
            try:
                handler(bad)
            except Exception:
                self.handler_errors += 1
                log.exception("an informer's handler failed", kind=kind, key=str(bad.key))

    # --- read your writes

    def wrote(self, obj: Object) -> None:
        """Take the answer to a write of ours, as if the watch had brought it already."""
        if issubclass(self.kind, ObjectMetadata):
            obj = self.kind(metadata=obj.metadata)
        if isinstance(obj, self.kind) and self._covers(obj.metadata.namespace or ""):
            if self._bad:
                self._bad.pop(key_of(obj), None)
            self._emit(self._store.apply(obj, "write"))

    def gone(self, key: Key, uid: str) -> None:
        """Take the answer that the object of this UID is no more."""
        if self._covers(key.namespace):
            self._emit(self._store.gone(key, uid))

    def peek(self, key: Key) -> T | None:
        """What is here under a key, without `get`'s questions; for comparing, never for deciding to create."""
        return self._store.get(key)

    def _covers(self, namespace: str) -> bool:
        return not self.namespace or namespace == self.namespace

    # --- life

    @property
    def healthy(self) -> bool:
        """Synced, and the server was heard of in the last two and a half minutes."""
        return self.synced.is_set() and self.age < STALE

    @property
    def age(self) -> float:
        """Seconds since the server was last heard of."""
        return self._clock.monotonic() - self._reflector.last_activity

    @property
    def relists(self) -> int:
        """How many complete lists were taken, the first included."""
        return self._reflector.relists

    @property
    def last_error(self) -> str:
        """Why the informer is not following at the moment; empty when it is."""
        return self._reflector.last_error

    async def current(self) -> None:
        """Wait until it follows the server, heard of in the last five seconds.

        A stream that was silent for longer may be dead without anybody knowing: it is opened again where it
        stopped, which costs one request and shows what was missed.
        """
        if self._reopening is None and self._reflector.following.is_set() and self.age > FRESH:
            self._reopening = asyncio.create_task(self._reopen(), name=f"reopen {self!r}")
        if self._reopening is not None:
            # Another reader may wait for it too: one that is cancelled does not leave the informer stopped.
            await asyncio.wait([self._reopening])
        await self.synced.wait()
        await self._reflector.following.wait()

    async def _reopen(self) -> None:
        try:
            await self._end()
            self.start()
        finally:
            self._reopening = None

    def start(self) -> None:
        """Begin to follow; a second call does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(
                self._reflector.run(), name=f"informer {self.kind.resource.plural}"
            )

    async def stop(self) -> None:
        """Stop following; the objects stay readable."""
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait([self._reopening])
        await self._end()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None


Scope = tuple[type[Object], str, str, str]


class InformerPool:
    """The informers of several sets in one process: each kind, namespace and selector is watched once.

    An informer runs from the start of the first set that has it to the stop of the last one. A set that asks for the
    same after that gets a new one, which lists again.
    """

    def __init__(self) -> None:
        self._informers: dict[Scope, Informer[Any]] = {}
        self._by_resource: dict[Resource, list[Informer[Any]]] = {}
        self._users: dict[Informer[Any], set[InformerSet]] = {}

    def take(self, scope: Scope, make: Callable[[], Informer[Any]]) -> Informer[Any]:
        """The informer of a scope, made if there is none."""
        informer = self._informers.get(scope)
        if informer is None:
            informer = make()
            self._add(scope, informer)
        return informer

    def every(self, kind: type[Object]) -> Sequence[Informer[Any]]:
        """The informers of a resource, of all sets."""
        return self._by_resource.get(kind.resource, ())

    def start(self, scope: Scope, informer: Informer[Any], user: InformerSet) -> None:
        """Have an informer run for a set."""
        if informer not in self._users:  # its last user stopped it
            self._add(scope, informer)
        self._users[informer].add(user)
        informer.start()

    async def stop(self, scope: Scope, informer: Informer[Any], user: InformerSet) -> None:
        """A set no longer needs an informer; it ends with its last user."""
        users = self._users.get(informer)
        if users is None:
            return
        users.discard(user)
        if not users:
            del self._users[informer]
            self._by_resource[informer.kind.resource].remove(informer)
            if self._informers.get(scope) is informer:
                del self._informers[scope]
            await informer.stop()
            if self._users.get(informer):  # a set asked for it while it ended
                informer.start()

    def _add(self, scope: Scope, informer: Informer[Any]) -> None:
        self._informers.setdefault(scope, informer)
        self._by_resource.setdefault(informer.kind.resource, []).append(informer)
        self._users[informer] = set()


class InformerSet:
    """The informers of one reader; one per kind, namespace and selectors, started once.

    ``pool`` shares them with other sets of the process (default: a pool of its own). ``watch_list`` and ``silence``
    (70 seconds): see `Reflector`; of a shared informer the set that asks first decides.
    Used as an async context manager it starts and stops them.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock | None = None,
        *,
        watch_list: bool = False,
        silence: float = SILENCE,
        pool: InformerPool | None = None,
    ) -> None:
        self.client = client
        self.clock = clock or SystemClock()
        self._watch_list = watch_list
        self._silence = silence
        self._pool = pool or InformerPool()
        self._informers: dict[Scope, Informer[Any]] = {}
        self._running = False

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(self._informers.values())

    def of(
        self, kind: type[T], *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Informer[T]:
        """The shared informer of that scope; made, and if the set runs started, when first asked for."""
        scope = (kind, namespace, label_selector, field_selector)
        informer = self._informers.get(scope)
        if informer is None:
            informer = self._pool.take(
                scope,
                lambda: self.apart(
                    kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector
                ),
            )
            self._informers[scope] = informer
            if self._running:
                self._pool.start(scope, informer, self)
        return cast("Informer[T]", informer)

    def apart(
        self, kind: type[T], *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Informer[T]:
        """An informer like those of the set that is not in it: whoever asks for it starts and stops it."""
        return Informer(
            self.client,
            kind,
            clock=self.clock,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            watch_list=self._watch_list,
            silence=self._silence,
        )

    def every(self, kind: type[Object]) -> Sequence[Informer[Any]]:
        """All informers of a resource, those included that see a part of it or its metadata alone, or are another set's."""
        return self._pool.every(kind)

    def reading(self, kind: type[T], namespace: str) -> Informer[T]:
        """The informer that answers for every object of the kind in a namespace ("": in all).

        Raises `OutsideFilter` when there are only informers that see a part, `NotCached` when there is none
        or it is not synced yet.
        """
        informers = [informer for informer in self._informers.values() if informer.kind is kind]
        for informer in informers:
            if informer.label_selector or informer.field_selector:
                continue
            if informer.namespace in ("", namespace):
                if not informer.synced.is_set():
                    raise NotCached(
                        f"{informer!r} is not synced yet: {informer.last_error or 'still listing'}"
                    )
                return cast("Informer[T]", informer)
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        if informers:
            seen = ", ".join(map(repr, informers))
            raise OutsideFilter(f"{kind.resource.kind} {where}: only a part is cached ({seen}); read it live")
        raise NotCached(f"{kind.resource.kind}: no informer; watch the kind, or read it through client.live")

    def start(self) -> None:
        """Start every informer, now and later ones."""
        self._running = True
        for scope, informer in self._informers.items():
            self._pool.start(scope, informer, self)

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until every informer holds a complete list; then move them out of the collector's way.

        Raises TimeoutError after ``timeout`` seconds, naming the informers that are missing and why.
        """
        await self._wait_for_all(lambda informer: informer.synced.wait(), "synced", timeout)
        gc.collect()
        gc.freeze()

    async def wait_current(self, timeout: float = 120.0) -> None:
        """Wait until every informer is `Informer.current`: before acting on what was watched for a while.

        Raises TimeoutError after ``timeout`` seconds, naming the informers that are not and why.
        """
        await self._wait_for_all(Informer.current, "current", timeout)

    async def _wait_for_all(
        self, step: Callable[[Informer[Any]], Awaitable[object]], what: str, timeout: float
    ) -> None:
        waits = {i: asyncio.ensure_future(step(i)) for i in self._informers.values()}
        try:
            async with self.clock.deadline(timeout):
                await asyncio.gather(*waits.values())
        except TimeoutError:
            late = [i for i, wait in waits.items() if wait.cancelled() or not wait.done()]
            reasons = "; ".join(f"{i!r}: {i.last_error or 'no answer yet'}" for i in late)
            raise TimeoutError(f"caches not {what} after {timeout:.0f} s: {reasons}") from None
        finally:
            for wait in waits.values():
                wait.cancel()

    @property
    def healthy(self) -> bool:
        """Whether every informer is synced and was fed recently."""
        return all(informer.healthy for informer in self._informers.values())

    async def stop(self) -> None:
        """Stop every informer that no other set needs."""
        self._running = False
        stops = [self._pool.stop(scope, informer, self) for scope, informer in self._informers.items()]
        await asyncio.gather(*stops)

    async def __aenter__(self) -> InformerSet:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def selects(label_selector: str, field_selector: str) -> Callable[[Object], bool] | None:
    """A function telling whether an object is in a selection; ``None`` when everything is."""
    if not label_selector and not field_selector:
        return None
    labels = parse_selector(label_selector)
    fields = parse_field_selector(field_selector)
    return lambda obj: labels.matches(obj.metadata.labels) and all(_matches(obj, f) for f in fields)


def _matches(obj: Object, requirement: FieldRequirement) -> bool:
    value: Any = obj
    for name in requirement.path.split("."):
        value = _attribute(value, name)
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return (text == requirement.value) is not requirement.negated


def _attribute(value: Any, json_name: str) -> Any:
    if not isinstance(value, msgspec.Struct):
        return None
    for attribute, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        if encoded == json_name:
            return getattr(value, attribute)
    return None


def _by_key(field_selector: str) -> bool:
    """Whether an object's key alone tells if the selector takes it."""
    by_key = ("metadata.name", "metadata.namespace")
    return all(f.path in by_key and not f.negated for f in parse_field_selector(field_selector))


def _field(field_selector: str, path: str) -> list[str]:
    return [f.value for f in parse_field_selector(field_selector) if f.path == path and not f.negated]
