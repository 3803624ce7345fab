"""Keeps a store in step with the API server: list once, watch for ever, list again only when it must.

The life of a reflector is a loop of two steps, `_list` and `_watch`, and a table of what each failure means:

- 410, as status or as ERROR event: our version is too old, list again (not older than what we know).
- "Too large resource version": this server lags behind what we know, or was restored from a backup. Ask for
  a consistent list; only that may take us back in time, and it is said loudly.
- the stream ended in order: open it again where it stopped, at once unless it lasted less than a second.
- silence for 70 s (bookmarks come about every 60): open it again where it stopped.
- a stream that has lasted a second is reset: the same at once.
- no connection, a reset before that, 429, 5xx, 401, 403: the same after a jittered delay of 0.8 to 30 s, or what
  Retry-After says.
- an object that does not fit its type: reported alone; the stream goes on.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import structlog

from mooring.cache.backoff import StreamBackoff
from mooring.cache.clock import Clock, Watchdog
from mooring.kube.client import Client, Page, Undecodable, WatchEvent
from mooring.kube.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    TransportError,
)
from mooring.kube.object import Object

__all__ = ["SILENCE", "Reflector", "Sink", "gc_suspended"]

T = TypeVar("T", bound=Object)

log = structlog.get_logger("mooring.cache")

PAGE_SIZE = 500
WATCH_SECONDS = 290
WATCH_JITTER = 30
SILENCE = 70.0
#: After so many events without a pause others get their turn on the loop.
BURST = 200
#: A stream shorter than this that brought nothing is a failing one, whatever it says.
SHORT = 1.0


class Sink(Protocol[T]):
    """Where a reflector puts what it learns."""

    @property
    def last_version(self) -> int:
        """The newest version known to be complete; 0 before the first list."""
        ...

    def on_list(
        self, items: Sequence[T], undecodable: Sequence[Undecodable], *, version: int, reset: bool
    ) -> None:
        """A complete list; ``reset``: it may be older than what is known, and is the truth nevertheless."""
        ...

    def on_event(self, event: WatchEvent[T]) -> None:
        """ADDED, MODIFIED or DELETED, perhaps undecodable."""
        ...

    def on_bookmark(self, version: int) -> None:
        """Everything up to this version was delivered."""
        ...


_suspensions = 0
_was_enabled = False


@contextmanager
def gc_suspended() -> Iterator[None]:
    """No garbage collection while many objects are made at once; it costs 2-7 times the decoding itself."""
    global _suspensions, _was_enabled
    if _suspensions == 0:
        _was_enabled = gc.isenabled()
        gc.disable()
    _suspensions += 1
    try:
        yield
    finally:
        _suspensions -= 1
        if _suspensions == 0 and _was_enabled:
            gc.enable()


class _Relist(Exception):
    """The watch cannot go on from its version."""


class Reflector(Generic[T]):
    """Follows one kind, in one namespace or all, under one selector.

    ``watch_list`` asks for the initial state as a stream (less memory on the server, needs Kubernetes 1.32);
    where the server refuses it, pages are read instead.
    """

    def __init__(
        self,
        client: Client,
        kind: type[T],
        sink: Sink[T],
        *,
        clock: Clock,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        watch_list: bool = False,
        page_size: int = PAGE_SIZE,
        silence: float = SILENCE,
    ) -> None:
        self._client = client
        self._kind = kind
        self._sink = sink
        self._clock = clock
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._watch_list = watch_list
        self._page_size = page_size
        self._silence = silence
        self._backoff = StreamBackoff(clock)
        self._random = random.Random()
        self._log = log.bind(kind=kind.resource.kind, namespace=namespace)
        self._consistent = True
        self._need_list = True
        #: Set while a stream is open: what happens now arrives.
        self.following = asyncio.Event()
        self.relists = 0
        self.last_activity = clock.monotonic()
        self.last_error = ""

    async def run(self) -> None:
        """Follow until cancelled, nothing else ends it; run again, it goes on where it stopped."""
        while True:
            delay = 0.0
            began = self._clock.monotonic()
            try:
                if self._need_list:
                    await self._list()
                    self._need_list = False
                delay = await self._watch()
            except (_Relist, Gone) as error:
                self._log.info("listing again", reason=str(error))
                # The first try is immediate; a server that keeps answering 410 meets the backoff.
                delay = self._backoff.next() if self._need_list else 0.0
                self._need_list = True
            except TimeoutError:
                # A stalled connection, or a kind nobody has touched since the server began: it sends no
                # bookmarks then. Opening the stream again where it stopped is right for both.
                silent = self._clock.monotonic() - began
                self._log.info("nothing heard, opening the stream again", seconds=round(silent))
                delay = 0.0 if silent > SHORT else self._failed("no answer in time")
            except ApiError as error:
                if _too_large(error):
                    self._consistent = self._need_list = True
                delay = max(self._failed(str(error)), error.retry_after or 0.0)
            except KubeError as error:
                delay = self._failed(str(error))
            except Exception as error:
                self._log.exception("unexpected error while following a kind; trying again")
                delay = self._failed(repr(error))
            await self._clock.sleep(delay)

    def _failed(self, reason: str) -> float:
        self.last_error = reason
        delay = self._backoff.next()
        self._log.warning("watch interrupted", reason=reason, retry_in=round(delay, 1))
        return delay

    # --- list

    async def _list(self) -> None:
        reset = self._consistent
        known = self._sink.last_version
        with gc_suspended():
            if self._watch_list and known == 0:
                done = await self._stream_list()
            else:
                done = False
            if not done:
                await self._paged_list(reset=reset, known=known)
        self._consistent = False
        self.last_error = ""
        self.last_activity = self._clock.monotonic()

    async def _paged_list(self, *, reset: bool, known: int) -> None:
        self.relists += 1
        try:
            pages = await self._pages(limit=self._page_size, version="" if reset else str(known))
        except Gone:
            # The continue token has expired on the way: one whole list instead.
            pages = await self._pages(limit=0, version="" if reset else str(known))
        items = [item for page in pages for item in page.items]
        bad = [entry for page in pages for entry in page.undecodable]
        version = int(pages[-1].resource_version or 0)
        if reset and version < known:
            self._log.warning("the server went back in time; its state is taken", known=known, now=version)
        if not reset and version < known:
            self._consistent = True
            raise _Relist(f"the list is at {version}, older than {known}, already seen")
        self._sink.on_list(items, bad, version=version, reset=reset and version < known)

    async def _pages(self, *, limit: int, version: str) -> list[Page[T]]:
        pages: list[Page[T]] = []
        token = ""
        while True:
            page = await self._client.list(
                self._kind,
                namespace=self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                limit=limit,
                continue_=token,
                resource_version=version if version and not token else None,
                resource_version_match="NotOlderThan" if version and not token else None,
            )
            pages.append(page)
            self.last_activity = self._clock.monotonic()
            token = page.continue_
            if not token:
                return pages

    async def _stream_list(self) -> bool:
        items: list[T] = []
        bad: list[Undecodable] = []
        try:
            async with (
                Watchdog(self._clock, self._silence) as watchdog,
                self._client.watch(
                    self._kind,
                    namespace=self._namespace,
                    label_selector=self._label_selector,
                    field_selector=self._field_selector,
                    resource_version="",
                    timeout_seconds=WATCH_SECONDS,
                    send_initial_events=True,
                ) as events,
            ):
                async for event in events:
                    watchdog.feed()
                    if event.error is not None:
                        raise event.error
                    if event.object is not None:
                        items.append(event.object)
                    elif event.undecodable is not None:
                        bad.append(event.undecodable)
                    elif event.initial_events_end:
                        self.relists += 1
                        version = int(event.resource_version)
                        self._sink.on_list(items, bad, version=version, reset=False)
                        return True
        except (BadRequest, Forbidden, Invalid, NotFound, TimeoutError) as error:
            self._log.info("no streaming lists on this server, reading pages", reason=str(error))
        self._watch_list = False
        return False

    # --- watch

    async def _watch(self) -> float:
        """Follow events until the stream ends; returns the delay before the next one, raises on trouble."""
        started = self._clock.monotonic()
        count = 0
        async with (
            Watchdog(self._clock, self._silence) as watchdog,
            self._client.watch(
                self._kind,
                namespace=self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                resource_version=str(self._sink.last_version),
                timeout_seconds=WATCH_SECONDS + self._random.randrange(WATCH_JITTER),
            ) as events,
        ):
            opened = self.last_activity = self._clock.monotonic()
            self.last_error = ""
            self.following.set()
            try:
                async for event in events:
                    watchdog.feed()
                    self.last_activity = self._clock.monotonic()
                    self._take(event)
                    count += 1
                    if count % BURST == 0:
                        await asyncio.sleep(0)
            except TransportError as error:
                if self._clock.monotonic() - opened < SHORT:
                    raise
                # It worked until now, so the next one most likely does; if not, that one meets the backoff.
                self._log.info("the stream broke, opening it again", reason=str(error))
                return 0.0
            finally:
                self.following.clear()
        if count == 0 and self._clock.monotonic() - started < SHORT:
            return self._failed("the stream ended as soon as it began")
        return 0.0

    def _take(self, event: WatchEvent[T]) -> None:
        if event.type == "BOOKMARK":
            self._sink.on_bookmark(int(event.resource_version or 0))
        elif event.type == "ERROR":
            raise event.error or _Relist("the watch reported an error without a status")
        else:
            self._sink.on_event(event)


def _too_large(error: ApiError) -> bool:
    """Whether the server says it has not reached the version we ask for."""
    if any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes):
        return True
    return "Too large resource version" in error.message
