"""A directory or mounted claim as a target: the same guarantees as a bucket's, by link, rename and fsync.

Files are opened segment by segment without following symbolic links, so that no name leaves the directory. Every
call runs in a thread of the target's own: a hung network file system holds up neither the event loop nor DNS.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import stat
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from mooring.cache.clock import Clock
from mooring.objectstore.backend import ABORT_SECONDS, Limits, ObjectInfo
from mooring.objectstore.errors import (
    AlreadyExists,
    ContainerNotFound,
    NameInvalid,
    NotFound,
    ObjectStoreError,
    OutOfSpace,
    PermissionDenied,
    TimedOut,
    Unreachable,
)
from mooring.objectstore.names import RESERVED, joined
from mooring.objectstore.source import CHUNK

__all__ = ["DirectoryBackend"]

T = TypeVar("T")

_STAGED: Final = f"{RESERVED}upload-"
_THREADS: Final = 4
_PAGE: Final = 1000
#: A parent that another process removes as empty between two calls is made again.
_TRIES: Final = 5
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class DirectoryBackend:
    """Objects as files below ``root``, which must exist."""

    def __init__(self, root: Path, *, where: str, clock: Clock, limits: Limits) -> None:
        self._root = root
        self._where = where
        self._clock = clock
        self._limits = limits
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="objectstore")

    async def put(self, name: str, chunks: AsyncGenerator[bytes, None], *, part_size: int) -> None:
        staged = _Staged(self._root, name)
        try:
            await self._run(f"write {name}", staged.open)
            async for chunk in chunks:
                await self._run(f"write {name}", staged.write, chunk)
            await self._run(f"write {name}", staged.commit, False)
        except BaseException:
            await self._abandon(staged)
            raise

    async def create(self, name: str, data: bytes) -> None:
        staged = _Staged(self._root, name)

        def whole() -> None:
            staged.open()
            staged.write(data)
            staged.commit(True)

        try:
            await self._run(f"create {name}", whole)
        except BaseException:
            await self._abandon(staged)
            raise

    async def get(self, name: str, *, offset: int, length: int | None) -> AsyncGenerator[bytes, None]:
        what = f"read {name}"
        # The descriptor belongs to the reader: it is closed only when no thread reads from it.
        reader = _Reader(self._root, name, offset)
        left = length
        try:
            while left is None or left > 0:
                piece = await self._run(what, reader.read, CHUNK if left is None else min(CHUNK, left))
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece
        finally:
            self._threads.submit(reader.close)

    async def head(self, name: str) -> ObjectInfo:
        return await self._run(f"read {name}", self._head, name)

    async def list(self, prefix: str, *, after: str) -> AsyncGenerator[list[ObjectInfo], None]:
        lock = threading.Lock()
        found = self._walk(prefix)

        def page() -> list[ObjectInfo]:
            with lock:
                return list(islice((info for info in found if info.name > after), _PAGE))

        def close() -> None:
            with lock:
                found.close()

        try:
            while infos := await self._run(f"list {prefix or 'everything'}", page):
                yield infos
        finally:
            self._threads.submit(close)

    async def delete(self, name: str) -> None:
        await self._run(f"delete {name}", self._delete, name)

    async def copy(self, source: str, to: str) -> None:
        await self.put(to, self.get(source, offset=0, length=None), part_size=0)

    async def clean_uploads(self, prefix: str, *, before: datetime) -> int:
        return await self._run("remove unfinished uploads", self._clean, prefix, before.timestamp())

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _run(self, what: str, call: Callable[..., T], *arguments: object) -> T:
        failed: ObjectStoreError

        def attempt() -> T:
            try:
                return call(*arguments)
            except FileNotFoundError:
                if self._root.is_dir():
                    raise
            raise _RootMissing

        try:
            async with self._clock.deadline(self._limits.stall):
                return await asyncio.get_running_loop().run_in_executor(self._threads, attempt)
        except TimeoutError:
            failed = TimedOut(
                f"cannot {what} in {self._where}: the file system did not answer within {self._limits.stall:g} s",
                remedy="check the volume's server",
            )
        except _RootMissing:
            failed = ContainerNotFound(
                f"cannot {what} in {self._where}: the directory {self._root} does not exist",
                reason="DirectoryNotFound",
                remedy="create it, or mount the volume there",
            )
        except FileNotFoundError:
            failed = NotFound(f"cannot {what} in {self._where}: it does not exist")
        except OSError as error:
            failed = _translated(error, f"cannot {what} in {self._where}")
        raise failed

    async def _abandon(self, staged: _Staged) -> None:
        """Remove a staged file, after the thread that may still write to it; a hung one is not waited for."""
        staged.unwanted = True
        with suppress(RuntimeError):  # the store was closed meanwhile
            removal = asyncio.wrap_future(self._threads.submit(staged.abandon))
            await asyncio.wait({removal}, timeout=ABORT_SECONDS)

    def _head(self, name: str) -> ObjectInfo:
        with _parent(self._root, name) as (parent, last):
            found = os.stat(last, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a file")
        return _info(name, found)

    def _walk(self, prefix: str) -> Generator[ObjectInfo, None, None]:
        os.close(os.open(self._root, _DIRECTORY))  # a missing root is an error, a missing prefix is not
        try:
            fd = _descend(self._root, prefix.split("/") if prefix else [])
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from _files(fd, prefix)

    def _delete(self, name: str) -> None:
        segments = name.split("/")
        try:
            with _parent(self._root, name) as (parent, last):
                os.unlink(last, dir_fd=parent)
                os.fsync(parent)
        except FileNotFoundError:
            os.close(os.open(self._root, _DIRECTORY))
            return
        # Directories are no objects: one that has become empty goes, as it would not exist in a bucket.
        for depth in range(len(segments) - 1, 0, -1):
            try:
                with _parent(self._root, "/".join(segments[:depth])) as (parent, last):
                    os.rmdir(last, dir_fd=parent)
            except OSError:
                return

    def _clean(self, prefix: str, before: float) -> int:
        count = 0
        try:
            fd = _descend(self._root, prefix.split("/") if prefix else [])
        except (FileNotFoundError, NotADirectoryError):
            return 0
        for parent, name in _staged(fd):
            with suppress(FileNotFoundError):
                count += _remove_staged(parent, name, before)
        return count


class _RootMissing(Exception):
    """The target's own directory does not exist."""


class _Staged:
    """A file beside its final name, invisible until it is whole. Its methods run in threads, one at a time."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._staged = f"{_STAGED}{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._file = -1
        self._parent = -1
        self._over = False
        #: Set from the event loop: a thread that hangs meanwhile must not give the file its name later.
        self.unwanted = False

    def open(self) -> None:
        with self._lock:
            if self._over:
                return
            for attempt in range(_TRIES):
                self._parent = _descend(self._root, self._name.split("/")[:-1], make=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    self._file = os.open(self._staged, flags, 0o640, dir_fd=self._parent)
                except FileNotFoundError:
                    os.close(self._parent)
                    self._parent = -1
                    if attempt == _TRIES - 1:
                        raise
                else:
                    # Held while the file is written, so that a clean-up does not take it for a leftover.
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return

    def write(self, data: bytes) -> None:
        with self._lock:
            if self._over:
                return
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]

    def commit(self, create: bool) -> None:
        """Give the file its name: at once, whole, and on disk before this returns."""
        with self._lock:
            if self._over:
                return
            last = self._name.rpartition("/")[2]
            os.fsync(self._file)
            if self.unwanted:
                return
            if create:
                os.link(
                    self._staged,
                    last,
                    src_dir_fd=self._parent,
                    dst_dir_fd=self._parent,
                    follow_symlinks=False,
                )
                os.unlink(self._staged, dir_fd=self._parent)
            else:
                os.rename(self._staged, last, src_dir_fd=self._parent, dst_dir_fd=self._parent)
            os.fsync(self._parent)
            self._end()

    def abandon(self) -> None:
        """Remove the file, unless it has its name already."""
        with self._lock:
            if self._over:
                return
            if self._file >= 0:
                with suppress(OSError):
                    os.unlink(self._staged, dir_fd=self._parent)
            self._end()

    def _end(self) -> None:
        self._over = True
        for fd in (self._file, self._parent):
            if fd >= 0:
                os.close(fd)


class _Reader:
    """A file that is opened at its first read; reads and the close exclude one another."""

    def __init__(self, root: Path, name: str, offset: int) -> None:
        self._root = root
        self._name = name
        self._offset = offset
        self._lock = threading.Lock()
        self._fd = -1
        self._closed = False

    def read(self, size: int) -> bytes:
        with self._lock:
            if self._closed:
                return b""
            if self._fd < 0:
                with _parent(self._root, self._name) as (parent, last):
                    # Without waiting for the writer of a FIFO.
                    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                    self._fd = os.open(last, flags, dir_fd=parent)
                if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                    raise FileNotFoundError(errno.ENOENT, "not a file")
            piece = os.pread(self._fd, size, self._offset)
            self._offset += len(piece)
            return piece

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._fd >= 0:
                os.close(self._fd)


def _descend(root: Path, segments: list[str], *, make: bool = False) -> int:
    """A descriptor of a directory below the root, reached without symbolic links; the caller closes it."""
    for attempt in range(_TRIES):
        fd = os.open(root, _DIRECTORY)
        try:
            for segment in segments:
                fd = _entered(fd, segment, make=make)
        except FileNotFoundError:
            os.close(fd)
            if not make or attempt == _TRIES - 1:
                raise
        except BaseException:
            os.close(fd)
            raise
        else:
            return fd
    raise AssertionError("unreachable")


def _entered(fd: int, segment: str, *, make: bool) -> int:
    """The directory of that name in ``fd``, which is closed when this succeeds."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(segment, 0o750, dir_fd=fd)
            os.fsync(fd)
    inner = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
    os.close(fd)
    return inner


@contextmanager
def _parent(root: Path, name: str) -> Iterator[tuple[int, str]]:
    *segments, last = name.split("/")
    fd = _descend(root, segments)
    try:
        yield fd, last
    finally:
        os.close(fd)


def _files(fd: int, prefix: str) -> Iterator[ObjectInfo]:
    """The files below a directory, ordered by their whole names as a bucket lists them; closes ``fd``."""
    try:
        with os.scandir(fd) as entries:
            # A directory's names continue with a slash, which sorts after "-" and before "0".
            found = sorted(
                (entry.name + "/" * entry.is_dir(follow_symlinks=False), entry.name)
                for entry in entries
                if not entry.name.startswith(RESERVED) and not entry.is_symlink()
            )
        for key, name in found:
            with suppress(FileNotFoundError):  # deleted meanwhile
                if key.endswith("/"):
                    inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                    yield from _files(inner, joined(prefix, name))
                else:
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield _info(joined(prefix, name), status)
    finally:
        os.close(fd)


def _staged(fd: int) -> Iterator[tuple[int, str]]:
    """Staged files below a directory, each with a descriptor of its parent; closes ``fd``."""
    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_directory in found:
            if is_directory:
                with suppress(FileNotFoundError):
                    yield from _staged(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd))
            elif name.startswith(_STAGED):
                yield fd, name
    finally:
        os.close(fd)


def _remove_staged(parent: int, name: str, before: float) -> bool:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(fd).st_mtime >= before:
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=parent)
    except BlockingIOError:  # its writer lives
        return False
    finally:
        os.close(fd)
    return True


def _info(name: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        name=name,
        size=status.st_size,
        modified=datetime.fromtimestamp(status.st_mtime, UTC),
        etag=f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
    )


def _translated(error: OSError, what: str) -> ObjectStoreError:
    said = f"{what}: {error.strerror or type(error).__name__}"
    match error.errno:
        case errno.EEXIST:
            return AlreadyExists(said)
        case errno.ENOSPC | errno.EDQUOT:
            return OutOfSpace(said)
        case errno.EROFS:
            return PermissionDenied(said, reason="ReadOnly", remedy="mount the volume writable")
        case errno.EACCES | errno.EPERM:
            return PermissionDenied(said, remedy="give the process's user or fsGroup rights on the directory")
        case errno.ENOTDIR | errno.EISDIR | errno.ELOOP:
            return NameInvalid(
                said, remedy="a part of the name is a file, a directory or a symbolic link already"
            )
        case errno.EIO | errno.ESTALE | errno.ENOTCONN | errno.EHOSTDOWN:
            return Unreachable(said, remedy="check the volume's server")
        case errno.EOPNOTSUPP | errno.EMLINK:
            return ObjectStoreError(said, reason="NoHardLinks", remedy="use a file system with hard links")
        case _:
            return ObjectStoreError(said)
