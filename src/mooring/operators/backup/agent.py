"""What ``mooring objects`` does in the container ``store``: put, get, check and delete one backup.

The result is one JSON object, the container's termination message: the operator reads it from the pod's status. A backup
is complete only if the script beside ended with 0 and everything it wrote is stored; its manifest is written last.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from mooring.cache.clock import Clock, SystemClock
from mooring.objectstore import (
    AlreadyExists,
    Corrupt,
    NotFound,
    ObjectStoreError,
    Store,
    Throttle,
)
from mooring.operators.backup.layout import MANIFEST
from mooring.operators.backup.manifest import (
    Manifest,
    ManifestError,
    Origin,
    StoredPart,
    decode_manifest,
    encode_manifest,
    facts_of,
    facts_text,
)
from mooring.operators.backup.shell import REFUSED

__all__ = [
    "Draft",
    "Result",
    "check",
    "delete",
    "failure",
    "get",
    "give_up",
    "listed",
    "moved_in",
    "put",
    "read_manifest",
]

POLL: Final = 0.1
"""Seconds between two looks at the container beside."""
CLEAN_UP: Final = 20.0
"""Seconds that a failed backup may take to delete what it wrote."""
BEGINS: Final = 900.0
"""Seconds that the script beside may take to begin: its image may have to be fetched."""
SILENCE: Final = 900.0
"""Seconds for which the script beside may write nothing: the server that it reads may have vanished without a word."""
SHOWS: Final = 15.0
"""Seconds between two lines that say how far a backup is."""
_SO_FAR: Final = "bytes so far: "
CHUNK: Final = 1 << 20
_SHOWN: Final = 1500
"""Characters of a fact that the result repeats: a termination message has 4096 bytes."""
_ALL_SHOWN: Final = 2500


class Draft(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the operator knows of a backup before it is made."""

    id: str
    operator: str
    flavor: str = ""
    method: str = ""
    cluster: Origin = msgspec.field(default_factory=Origin)
    facts: dict[str, str] = msgspec.field(default_factory=dict)


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a run."""

    ok: bool
    reason: str = ""
    """CamelCase; see `mooring.objectstore.errors`, and DataFailed, DataLost, ManifestUnusable."""
    message: str = ""
    remedy: str = ""
    again: bool = False
    """Whether the same run may succeed later without a change of the declaration."""
    size: int = 0
    """Bytes of the parts, as the script wrote them."""
    stored: int = 0
    objects: int = 0
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    """Those of the manifest that fit."""

    def encoded(self) -> bytes:
        """As the termination message."""
        return msgspec.json.encode(self)


class DataFailed(Exception):
    """The script beside did not end well: what it wrote is not a backup."""

    def __init__(self, message: str, *, reason: str = "DataFailed", again: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.again = again


@dataclass(kw_only=True)
class Beside:
    """The container beside, seen through the directory that both share."""

    run: Path
    clock: Clock = field(default_factory=SystemClock)
    _alive: int = field(default=-1, init=False)
    _since: float = field(default=0.0, init=False)
    _held: int = field(default=-1, init=False)
    _started: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)

    def open(self, parts: Sequence[str]) -> None:
        """Make the FIFOs, and let the script begin."""
        for name in (*parts, "alive", "held"):
            os.mkfifo(self.run / name, 0o600)
        # Read and write: the open never waits, and the script notices when this process ends.
        self._held = os.open(self.run / "held", os.O_RDWR)
        self._alive = os.open(self.run / "alive", os.O_RDONLY | os.O_NONBLOCK)

    def begin(self) -> None:
        """Let the script begin."""
        self._since = self.clock.monotonic()
        (self.run / "ready").touch()

    def end(self, status: int) -> None:
        """Tell the script how this container ends."""
        new = self.run / "store.status.new"
        new.write_text(f"{status}\n")
        new.rename(self.run / "store.status")
        for one in (self._held, self._alive):
            if one >= 0:
                os.close(one)

    @property
    def ended(self) -> bool:
        """Whether the script's container ended, however it did."""
        if not self._ended:
            with contextlib.suppress(BlockingIOError):
                read = os.read(self._alive, 64)
                self._ended = self._started and not read
                self._started = self._started or bool(read)
            if not self._started and self.clock.monotonic() - self._since > BEGINS:
                self._ended = True  # its container never came up
        return self._ended

    async def finish(self) -> None:
        """Wait until the script ended; raises `DataFailed` unless it ended with 0."""
        while not self.ended:
            await asyncio.sleep(POLL)
        try:
            code = (self.run / "data.status").read_text().strip()
        except OSError:
            text = "the container data did not begin, or was ended from outside; see its state and the node's events"
            raise DataFailed(text, reason="DataLost") from None
        if code != "0":
            with contextlib.suppress(OSError):
                said = (self.run / "failure").read_text()[:1500].strip()
                raise DataFailed(said, again=code != str(REFUSED))
            raise DataFailed(f"the script ended with status {code}; the log of its container says why")

    def facts(self) -> dict[str, str]:
        """What the script found out."""
        with contextlib.suppress(OSError), (self.run / "facts").open(errors="replace") as lines:
            return facts_of(lines)
        return {}

    async def reading(self, part: str) -> AsyncGenerator[bytes, None]:
        """What the script writes to a part; ends without an error only if all of it is there."""
        fd = os.open(self.run / part, os.O_RDONLY | os.O_NONBLOCK)
        try:
            some = False
            while True:
                ended = self.ended
                try:
                    piece = os.read(fd, CHUNK)
                except BlockingIOError:
                    try:
                        await asyncio.wait_for(_readable(fd), SILENCE)
                    except TimeoutError:
                        text = f"the server that is read has sent nothing for {SILENCE:.0f} s; see whether it is still there"
                        raise DataFailed(text, reason="SourceSilent") from None
                    continue
                if piece:
                    some = True
                    yield piece
                elif some or ended:
                    break
                else:  # nobody has opened it yet
                    await asyncio.sleep(POLL)
        finally:
            os.close(fd)
        await self.finish()

    async def writing(self, part: str) -> int:
        """A descriptor of a part, once the script has opened it; raises `DataFailed` where that ended before."""
        while True:
            try:
                return os.open(self.run / part, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                if self.ended:
                    await self.finish()
                    raise DataFailed(f"the script ended without reading {part}") from None
                await asyncio.sleep(POLL)


async def put(
    store: Store,
    *,
    prefix: str,
    parts: Sequence[str],
    draft: Draft,
    run: Path,
    bandwidth: float = 0.0,
    show: Callable[[str], object] = lambda text: None,
    clock: Clock | None = None,
) -> Result:
    """Store what the script beside writes to each part, then the manifest; on failure nothing is left of it.

    ``show`` is given a line now and then that says how far it is: see `moved_in`.

    Raises `ObjectStoreError` or `DataFailed`.
    """
    clock = clock or SystemClock()
    beside = Beside(run=run, clock=clock)
    beside.open(parts)
    done = False
    try:
        began = clock.now()
        await _unused(store, prefix)
        beside.begin()
        throttle = Throttle(bandwidth, clock=clock) if bandwidth else None
        moved = _Moved(show=show, clock=clock)
        # Names that no other run uses: one that was given up, and still runs, takes back nothing but its own.
        token = secrets.token_hex(4)
        places = {part: f"{part}.{token}" for part in parts}
        try:
            async with asyncio.TaskGroup() as group:
                uploads = [
                    group.create_task(
                        _upload(
                            store, prefix, part, places[part], moved.counted(beside.reading(part)), throttle
                        )
                    )
                    for part in parts
                ]
            made = [one.result() for one in uploads]
            await beside.finish()
            manifest = _manifest(draft, made, beside.facts(), began=began, finished=clock.now())
            await store.create(f"{prefix}/{MANIFEST}", encode_manifest(manifest))
        except BaseException as error:
            await _withdraw(store, prefix, set(places.values()))
            raise _first(error) from None
        done = True
        return _result(manifest)
    finally:
        beside.end(0 if done else 1)


async def get(
    store: Store,
    *,
    prefix: str,
    parts: Sequence[str] = (),
    run: Path,
    bandwidth: float = 0.0,
    clock: Clock | None = None,
) -> Result:
    """Give the script beside each part (default: all of the manifest) through its FIFO, one after the other.

    Size and SHA-256 are compared with the manifest's; the script learns by ``whole`` whether they are right.
    """
    clock = clock or SystemClock()
    beside = Beside(run=run, clock=clock)
    done = False
    try:
        manifest = await read_manifest(store, prefix)
        wanted = [part for part in manifest.parts if not parts or part.name in parts]
        if missing := set(parts) - {part.name for part in wanted}:
            raise NotFound(f"the backup {prefix} has no part {', '.join(sorted(missing))}")
        facts = {**manifest.facts, "id": manifest.id, "method": manifest.method, "flavor": manifest.flavor}
        (run / "manifest.facts").write_text(facts_text(facts))
        (run / MANIFEST).write_bytes(encode_manifest(manifest))
        beside.open([part.name for part in wanted])
        beside.begin()
        throttle = Throttle(bandwidth, clock=clock) if bandwidth else None
        for part in wanted:
            fd = await beside.writing(part.name)
            try:
                async with aclosing(_verified(store, prefix, part, throttle)) as pieces:
                    async for piece in pieces:
                        await _write(fd, piece, beside)
            finally:
                os.close(fd)
        done = True
        return _result(manifest)
    finally:
        beside.end(0 if done else 1)


async def check(store: Store, *, prefix: str, bandwidth: float = 0.0, clock: Clock | None = None) -> Result:
    """Read all of a backup and compare it with its manifest; nothing is restored."""
    throttle = Throttle(bandwidth, clock=clock) if bandwidth else None
    manifest = await read_manifest(store, prefix)
    for part in manifest.parts:
        async with aclosing(_verified(store, prefix, part, throttle)) as pieces:
            async for _ in pieces:
                pass
    return _result(manifest)


async def delete(store: Store, *, prefixes: Iterable[str]) -> Result:
    """Delete all objects of backups, each one's manifest first: what is left half-way is no backup."""
    count = 0
    for prefix in prefixes:
        await store.delete(f"{prefix}/{MANIFEST}")
        names = [one.name async for one in store.list(prefix)]
        for name in names:
            await store.delete(name)
        count += len(names)
        await store.clean_uploads(prefix, older_than=0.0)
    return Result(ok=True, objects=count)


async def listed(store: Store, *, prefix: str, show: Callable[[str], object]) -> Result:
    """Show a line for each complete backup below a prefix."""
    count = 0
    async for one in store.list(prefix):
        if one.name.rpartition("/")[2] == MANIFEST:
            manifest = await read_manifest(store, one.name.rpartition("/")[0])
            position = manifest.position or "(before the first write)"
            show(
                f"{one.name.rpartition('/')[0]} {manifest.finished:%Y-%m-%dT%H:%M:%SZ} {manifest.size} {position}"
            )
            count += 1
    return Result(ok=True, objects=count)


async def read_manifest(store: Store, prefix: str) -> Manifest:
    """The manifest of a backup; raises `NotFound` where there is no backup, and `ManifestError`."""
    try:
        return decode_manifest(await store.read(f"{prefix}/{MANIFEST}"))
    except NotFound:
        missing = NotFound(
            f"there is no complete backup at {prefix} in {store.where}",
            remedy="correct the target or the prefix, or use another backup",
        )
    raise missing


def failure(error: BaseException) -> Result:
    """The result of a run that failed."""
    match error:
        case ObjectStoreError():
            return Result(
                ok=False,
                reason=error.reason,
                message=error.message[:1500],
                remedy=error.remedy[:500],
                again=error.retryable,
            )
        case DataFailed():
            return Result(ok=False, reason=error.reason, message=str(error), again=error.again)
        case ManifestError():
            return Result(ok=False, reason="ManifestUnusable", message=str(error))
    return Result(
        ok=False,
        reason="AgentFailed",
        message=f"{type(error).__name__}; the log of the container says more",
        again=True,
    )


def give_up(run: Path) -> None:
    """Tell the script beside that nothing comes, where it could not be told otherwise."""
    status = run / "store.status"
    if not status.exists():
        with contextlib.suppress(OSError):
            status.write_text("1\n")


def moved_in(log: str) -> int | None:
    """Bytes that a backup had stored by the last line of its log that says so; ``None`` where none does."""
    said = [line.removeprefix(_SO_FAR) for line in log.splitlines() if line.startswith(_SO_FAR)]
    return int(said[-1]) if said and said[-1].isdecimal() else None


@dataclass(kw_only=True)
class _Moved:
    """Counts what passes, and shows the number now and then."""

    show: Callable[[str], object]
    clock: Clock
    _size: int = field(default=0, init=False)
    _due: float = field(default=0.0, init=False)

    async def counted(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async with aclosing(pieces):
            async for piece in pieces:
                self._size += len(piece)
                if (now := self.clock.monotonic()) >= self._due:
                    self._due = now + SHOWS
                    self.show(f"{_SO_FAR}{self._size}")
                yield piece


async def _unused(store: Store, prefix: str) -> None:
    try:
        await store.head(f"{prefix}/{MANIFEST}")
    except NotFound:
        return
    raise AlreadyExists(f"there is a backup at {prefix} already", remedy="choose another name or prefix")


async def _upload(
    store: Store,
    prefix: str,
    part: str,
    place: str,
    source: AsyncGenerator[bytes, None],
    throttle: Throttle | None,
) -> StoredPart:
    done = await store.upload(f"{prefix}/{place}", source, throttle=throttle)
    return StoredPart(name=part, object=place, size=done.size, sha256=done.sha256, stored=done.stored)


async def _verified(
    store: Store, prefix: str, part: StoredPart, throttle: Throttle | None
) -> AsyncGenerator[bytes, None]:
    digest, size = hashlib.sha256(), 0
    async with aclosing(store.download(f"{prefix}/{part.place}", throttle=throttle)) as pieces:
        async for piece in pieces:
            digest.update(piece)
            size += len(piece)
            yield piece
    if size != part.size or digest.hexdigest() != part.sha256:
        raise Corrupt(
            f"{prefix}/{part.place} has {size} bytes that are not those of its manifest ({part.size} bytes)",
            remedy="use another backup; this one was changed in the store",
        )


async def _withdraw(store: Store, prefix: str, places: Set[str]) -> None:
    """Delete what a failed backup stored, its manifest first: the answer to that may have been all that was lost."""
    with contextlib.suppress(ObjectStoreError, ManifestError, TimeoutError):
        async with asyncio.timeout(CLEAN_UP):
            try:
                manifest = decode_manifest(await store.read(f"{prefix}/{MANIFEST}"))
            except NotFound:
                pass
            else:
                if {part.place for part in manifest.parts} == places:
                    await store.delete(f"{prefix}/{MANIFEST}")
            for place in places:
                await store.delete(f"{prefix}/{place}")


async def _write(fd: int, piece: bytes, beside: Beside) -> None:
    view = memoryview(piece)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await _writable(fd)
        except BrokenPipeError:
            await beside.finish()
            raise DataFailed("the script stopped reading before the end") from None


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


def _manifest(
    draft: Draft, parts: list[StoredPart], facts: dict[str, str], *, began: datetime, finished: datetime
) -> Manifest:
    return Manifest(
        id=draft.id,
        operator=draft.operator,
        flavor=draft.flavor,
        method=draft.method,
        cluster=draft.cluster,
        began=began,
        finished=finished,
        parts=parts,
        facts={**draft.facts, **facts},
    )


def _result(manifest: Manifest) -> Result:
    shown: dict[str, str] = {}
    room = _ALL_SHOWN
    for name, value in manifest.facts.items():
        room -= len(name) + min(len(value), _SHOWN) + 6
        if not name.startswith("table.") and room > 0:
            shown[name] = value[:_SHOWN]
    return Result(
        ok=True,
        size=manifest.size,
        stored=sum(part.stored for part in manifest.parts),
        objects=len(manifest.parts) + 1,
        facts=shown,
    )


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
