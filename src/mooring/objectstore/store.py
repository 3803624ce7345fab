"""A target, opened: streams up and down with bounded memory, lists, create-only writes, a check.

Names are relative to the target's prefix. Every call may be cancelled, has a deadline and raises the errors of
`mooring.objectstore.errors` alone, besides what a caller's own source raises.
"""

from __future__ import annotations

import secrets as random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from mooring.cache.clock import Clock, SystemClock
from mooring.objectstore import encryption
from mooring.objectstore.backend import MOST_PARTS, Backend, Limits, ObjectInfo
from mooring.objectstore.directory import DirectoryBackend
from mooring.objectstore.encryption import KeyRing
from mooring.objectstore.errors import (
    AlreadyExists,
    Corrupt,
    ExtraMissing,
    ObjectStoreError,
    TargetInvalid,
    TimedOut,
    TooLarge,
    Unreachable,
)
from mooring.objectstore.names import RESERVED, check_name, check_prefix, joined
from mooring.objectstore.secrets import Secrets, keys_of
from mooring.objectstore.source import Meter, Progress, Source, chunks
from mooring.objectstore.target import Claim, Directory, Target, container_of, location, prefix_of, validate
from mooring.objectstore.throttle import Throttle

__all__ = ["LARGEST_BODY", "Check", "Store", "Uploaded", "open_store"]

#: The most that is read or created at once, in bytes: manifests, not data.
LARGEST_BODY: Final = 8 << 20
#: What S3 copies in one request; larger objects are read and written again.
_LARGEST_COPY: Final = 5 << 30


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """What an upload wrote."""

    name: str
    #: Bytes of the source.
    size: int
    #: Of the source's bytes, in hex.
    sha256: str
    #: Bytes in the store: more than ``size`` where the target encrypts.
    stored: int


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether a target can be used: ``reason`` is Ready, or that of the error, with its message and remedy."""

    ok: bool
    reason: str
    message: str
    remedy: str = ""


class Store:
    """One target. Make it with `open_store`; several calls may run at the same time."""

    def __init__(
        self,
        target: Target,
        backend: Backend,
        *,
        keys: Callable[[], KeyRing] | None,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._where = location(target)
        self._prefix = prefix_of(target)
        self._backend = backend
        self._keys = keys
        self._clock = clock
        self._limits = limits

    def __repr__(self) -> str:
        return f"Store({self._where})"

    @property
    def where(self) -> str:
        """The target for people; see `location`."""
        return self._where

    async def upload(
        self,
        name: str,
        source: Source,
        *,
        expected_size: int = 0,
        throttle: Throttle | None = None,
        progress: Progress | None = None,
        deadline: float | None = None,
        plain: bool = False,
    ) -> Uploaded:
        """Write an object from an async iterator or a file descriptor, as a whole or not at all.

        An object of that name is replaced. Memory is bounded by `Limits`: ``part_size * (concurrency + 1)``. Give
        ``expected_size`` (bytes, a rough guess) where it may exceed 10,000 parts (78 GiB by default): parts are
        made larger then. ``throttle`` and ``progress`` see bytes of the source as they are read from it, up to that
        memory ahead of what the store has. ``deadline`` bounds the whole call in seconds; without one it ends when
        nothing moves for ``Limits.stall`` and the retries are used up, or waits as long as its source does.
        ``plain`` leaves out the encryption of the target.

        An exception of the source is raised as it is, and no object is written. Cancelling removes what was sent,
        for up to 5 seconds; `clean_uploads` removes what is left when that fails, or a part that was on its way.
        """
        full = self._full(name)
        meter = Meter(throttle=throttle, progress=progress)
        stored = Meter()
        data: AsyncGenerator[bytes, None] = meter.passing(chunks(source))
        if ring := self._ring(plain):
            data = encryption.encrypt(data, ring)
        part = self._part_size(expected_size)
        async with self._within(deadline, f"write {name}"), aclosing(stored.passing(data)) as passing:
            await self._backend.put(full, passing, part_size=part)
            found = await self._backend.head(full)
        if found.size != stored.size:
            raise Corrupt(
                f"{name} in {self._where} has {found.size} bytes, {stored.size} were written",
                remedy="two writers used the same name, or the store lost data: write it again",
            )
        return Uploaded(name=name, size=meter.size, sha256=meter.sha256, stored=stored.size)

    async def create(self, name: str, data: bytes, *, plain: bool = False) -> None:
        """Write a small object (up to `LARGEST_BODY`) if the name is free; raises `AlreadyExists` if it is not.

        Of several writers exactly one succeeds. After an answer was lost, the object that is there is compared: the
        call succeeds only if it holds these bytes. Without encryption, put something of the writer's own into the
        data where two writers could write the same.
        """
        full = self._full(name)
        if len(data) > LARGEST_BODY:
            raise TooLarge(f"{name} has {len(data)} bytes; create takes {LARGEST_BODY}", remedy="use upload")
        if ring := self._ring(plain):
            data = b"".join([piece async for piece in encryption.encrypt(chunks(_once(data)), ring)])
        began = self._clock.monotonic()
        doubt = False
        while True:
            try:
                await self._backend.create(full, data)
            except (Unreachable, TimedOut):
                # The write may have happened; the next attempt finds out.
                doubt = True
                if self._clock.monotonic() - began > self._limits.call:
                    raise
                await self._clock.sleep(min(1.0, self._limits.call / 10))
            except AlreadyExists:
                if not doubt or await self._differs(full, data):
                    raise
                return
            else:
                return

    async def download(
        self,
        name: str,
        *,
        offset: int = 0,
        length: int | None = None,
        throttle: Throttle | None = None,
        progress: Progress | None = None,
        plain: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of an object from ``offset`` on, at most ``length``; both count plaintext.

        A range that begins behind the end is empty. Raises `NotFound`, and of an encrypted object `KeyMissing`,
        `KeyWrong` or `Corrupt`: what was yielded before is genuine, but only a stream that ended without an error is
        complete. Close it (``contextlib.aclosing``) where it is left early.
        """
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset and length are bytes from 0 on")
        full = self._full(name)
        if ring := self._ring(plain):
            data = self._decrypted(full, ring, offset=offset, length=length)
        else:
            data = self._backend.get(full, offset=offset, length=length)
        async with aclosing(Meter(throttle=throttle, progress=progress).passing(data)) as passing:
            async for piece in passing:
                yield piece

    async def read(self, name: str, *, plain: bool = False) -> bytes:
        """A small object as a whole; raises `TooLarge` above `LARGEST_BODY`, and what `download` raises."""
        body = bytearray()
        download = self.download(name, plain=plain)
        async with self._within(self._limits.call, f"read {name}"), aclosing(download) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > LARGEST_BODY:
                    raise TooLarge(
                        f"{name} in {self._where} is too large to read at once", remedy="use download"
                    )
        return bytes(body)

    async def list(self, prefix: str = "", *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
        """The objects below a prefix of whole segments, ordered by name, those after the name ``after``.

        ``a/b`` lists ``a/b/c``, not ``a/bc``. Pages are fetched as they are needed.
        """
        below = joined(self._prefix, check_prefix(prefix))
        start = self._full(after) if after else ""
        async with aclosing(self._backend.list(below, after=start)) as pages:
            async for page in pages:
                for info in page:
                    name = info.name.removeprefix(self._prefix).removeprefix("/")
                    if not any(segment.startswith(RESERVED) for segment in name.split("/")):
                        yield ObjectInfo(name=name, size=info.size, modified=info.modified, etag=info.etag)

    async def head(self, name: str) -> ObjectInfo:
        """Size in the store, time and tag of an object; raises `NotFound`."""
        info = await self._backend.head(self._full(name))
        return ObjectInfo(name=name, size=info.size, modified=info.modified, etag=info.etag)

    async def delete(self, name: str) -> None:
        """Delete an object; one that does not exist is no error."""
        await self._backend.delete(self._full(name))

    async def copy(self, source: str, to: str) -> None:
        """Copy an object as it is stored, over what is there; raises `NotFound`.

        Up to 5 GiB a bucket copies by itself; a larger object is read and written again.
        """
        begin, end = self._full(source), self._full(to)
        size = (await self._backend.head(begin)).size
        if size <= _LARGEST_COPY:
            await self._backend.copy(begin, end)
            return
        async with aclosing(self._backend.get(begin, offset=0, length=None)) as data:
            await self._backend.put(end, data, part_size=self._part_size(size))

    async def clean_uploads(self, prefix: str = "", *, older_than: float = 86400.0) -> int:
        """Remove what uploads left below a prefix that began over that many seconds ago; returns how many.

        Uploaders that were killed or lost their connection leave parts that no list shows. Choose more seconds than
        the longest upload takes: on S3 a running one is not told apart. Azure drops them after a week, GCS needs a
        lifecycle rule of the bucket: nothing is done there.
        """
        before = self._clock.now() - timedelta(seconds=older_than)
        return await self._backend.clean_uploads(joined(self._prefix, check_prefix(prefix)), before=before)

    async def check(self, *, write: bool = True) -> Check:
        """Find out whether the target can be used, and if not, why and what to do.

        Reads the keys of the encryption and lists the prefix; with ``write`` also writes, reads and deletes a small
        object. Raises nothing but cancellation.
        """
        probe = joined(self._prefix, f"{RESERVED}check-{random.token_hex(8)}")
        try:
            self._ring(plain=False)
            async with aclosing(self._backend.list(self._prefix, after="")) as pages:
                async for _ in pages:
                    break
            if write:
                await self._backend.create(probe, b"mooring")
                if await _collected(self._backend.get(probe, offset=0, length=None)) != b"mooring":
                    raise Corrupt(f"{self._where} returned other bytes than were written")
                await self._backend.delete(probe)
        except ObjectStoreError as error:
            return Check(ok=False, reason=error.reason, message=error.message, remedy=error.remedy)
        return Check(ok=True, reason="Ready", message=f"{self._where} can be used")

    async def _differs(self, full: str, data: bytes) -> bool:
        return await _collected(self._backend.get(full, offset=0, length=len(data) + 1)) != data

    def _full(self, name: str) -> str:
        return joined(self._prefix, check_name(name))

    def _ring(self, plain: bool) -> KeyRing | None:
        return None if plain or self._keys is None else self._keys()

    def _part_size(self, expected_size: int) -> int:
        # A tenth of the parts is kept for what a guess is wrong by.
        least = -(-expected_size // (MOST_PARTS * 9 // 10))
        return max(self._limits.part_size, -(-least // (1 << 20)) << 20)

    async def _decrypted(
        self, full: str, ring: KeyRing, *, offset: int, length: int | None
    ) -> AsyncGenerator[bytes, None]:
        if offset == 0 and length is None:
            async with aclosing(self._backend.get(full, offset=0, length=None)) as data:
                async for piece in encryption.decrypt(data, ring):
                    yield piece
            return
        head = await _collected(self._backend.get(full, offset=0, length=encryption.LONGEST_HEADER))
        header = encryption.Header.parse(head)
        if header is None:
            raise Corrupt("the encrypted object is truncated in its header")
        frames = encryption.Frames(header, ring)
        size = encryption.plain_size((await self._backend.head(full)).size, header)
        end = size if length is None else min(size, offset + length)
        if offset >= end:
            return
        whole = header.frame + encryption.TAG
        first, stop = offset // header.frame, -(-end // header.frame)
        data = self._backend.get(full, offset=header.size + first * whole, length=(stop - first) * whole)
        final = max(0, -(-size // header.frame) - 1)
        position = first * header.frame
        async with aclosing(data):
            async for piece in encryption.decrypt_range(data, frames, header, first=first, last=final):
                begin = max(0, offset - position)
                if part := piece[begin : end - position]:
                    yield part
                position += len(piece)
        if position < end:
            raise Corrupt("the encrypted object is truncated")

    @asynccontextmanager
    async def _within(self, seconds: float | None, what: str) -> AsyncIterator[None]:
        try:
            async with self._clock.deadline(seconds) as deadline:
                yield
        except TimeoutError:
            if not deadline.expired:
                raise
            late = TimedOut(f"cannot {what} in {self._where}: not done within {seconds:g} s")
        else:
            return
        raise late


@asynccontextmanager
async def open_store(
    target: Target,
    *,
    secrets: Secrets,
    mounted: Path | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[Store]:
    """Open a target for the length of a block; connects only when it is used.

    ``secrets`` gives the data of a Secret by its name and is asked at every use. ``mounted`` is where a claim is
    mounted. Raises `TargetInvalid` for a declaration that `validate` refuses, and `ExtraMissing` where a bucket is
    declared and obstore is not installed.
    """
    if problems := validate(target):
        raise TargetInvalid("; ".join(str(problem) for problem in problems), remedy="correct the target")
    clock, limits = clock or SystemClock(), limits or Limits()
    backend = _backend(target, secrets=secrets, mounted=mounted, clock=clock, limits=limits)
    declared = target.encryption
    keys = None if declared is None else lambda: keys_of(declared, secrets)
    try:
        yield Store(target, backend, keys=keys, clock=clock, limits=limits)
    finally:
        await backend.close()


def _backend(
    target: Target, *, secrets: Secrets, mounted: Path | None, clock: Clock, limits: Limits
) -> Backend:
    kind = container_of(target)
    if isinstance(kind, Directory):
        return DirectoryBackend(Path(kind.path or ""), where=location(target), clock=clock, limits=limits)
    if isinstance(kind, Claim):
        if mounted is None:
            raise TargetInvalid(
                f"target.claim: the claim {kind.name} is not mounted here",
                remedy="mount it and give its path",
            )
        return DirectoryBackend(mounted, where=location(target), clock=clock, limits=limits)
    try:
        from mooring.objectstore import bucket
    except ImportError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "obstore":
            raise
        raise ExtraMissing("S3, GCS and Azure need the Python package obstore") from missing
    if target.s3 is not None:
        return bucket.S3Backend(target, secrets=secrets, clock=clock, limits=limits)
    if target.gcs is not None:
        return bucket.GcsBackend(target, secrets=secrets, clock=clock, limits=limits)
    return bucket.AzureBackend(target, secrets=secrets, clock=clock, limits=limits)


async def _once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


async def _collected(pieces: AsyncGenerator[bytes, None]) -> bytes:
    async with aclosing(pieces):
        return b"".join([piece async for piece in pieces])
