"""Container logs: CRI-formatted files, written by one thread, read by anyone.

A line of the file is ``2026-01-31T12:00:00.123456789Z stdout F text``; ``P`` instead of ``F`` marks a piece
of a line that goes on. Files are rotated by size; each start of a container has its own file, so the
previous one's is still there.

    <dir>/<restart count>.log      <dir>/<restart count>.log.1  (older part)
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import selectors
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread

__all__ = ["LogFile", "LogLine", "LogPump", "read"]

_MAX_BYTES = 10 << 20
_MAX_LINE = 16 << 10
_POLL = 0.05

Tap = Callable[[str, bytes], None]


@dataclass(slots=True)
class LogFile:
    """A file being written; used by the pump's thread alone."""

    path: Path
    max_bytes: int = _MAX_BYTES
    _size: int = 0
    _file: int = -1

    def write(self, stream: str, pieces: list[tuple[str, bytes]]) -> None:
        """Append pieces of lines: (``F`` or ``P``, text)."""
        if self._file < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            self._size = os.fstat(self._file).st_size
        head = f"{_stamp()} {stream} ".encode()
        data = b"".join(head + mark.encode() + b" " + text + b"\n" for mark, text in pieces)
        os.write(self._file, data)
        self._size += len(data)
        if self._size > self.max_bytes:
            self._rotate()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _rotate(self) -> None:
        self.close()
        self.path.replace(f"{self.path}.1")


@dataclass(slots=True)
class _Source:
    file: LogFile
    stream: str
    tap: Tap | None = None
    rest: bytes = b""


class LogPump:
    """Moves what containers write from their pipes to files, in a thread of its own.

    A container that writes fast then slows down itself, not the plane's event loop.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._new: deque[tuple[int, _Source]] = deque()
        self._lock = Lock()
        self._closing = False
        self._thread: Thread | None = None

    def open(self, file: LogFile, tap: Tap | None = None) -> tuple[int, int]:
        """Descriptors for a container's stdout and stderr; close them once the container has them.

        ``tap`` is called in the pump's thread with all that is written, and with nothing at a stream's end.
        """
        ends = []
        for stream in ("stdout", "stderr"):
            read, write = os.pipe2(os.O_CLOEXEC)
            self._add(read, _Source(file, stream, tap))
            ends.append(write)
        return ends[0], ends[1]

    def open_terminal(self, file: LogFile, tap: Tap | None = None) -> tuple[int, int]:
        """Both sides of a terminal for a container: ours, to write to, and its; close both."""
        ours, theirs = os.openpty()
        self._add(fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 0), _Source(file, "stdout", tap))
        return ours, theirs

    def _add(self, descriptor: int, source: _Source) -> None:
        os.set_blocking(descriptor, False)
        with self._lock:
            self._new.append((descriptor, source))
        self._wake()

    def close(self) -> None:
        """Write what there is and stop."""
        self._closing = True
        if self._thread is not None:
            self._wake()
            self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._selector.close()

    def _wake(self) -> None:
        if self._thread is None and not self._closing:
            self._thread = Thread(target=self._run, name="logs", daemon=True)
            self._thread.start()
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if key.fd == self._wake_read:
                    os.read(self._wake_read, 4096)
                    self._take_new()
                else:
                    self._drain(key.fd, key.data)
        self._finish()

    def _finish(self) -> None:
        self._take_new()
        for key in list(self._selector.get_map().values()):
            if key.fd != self._wake_read and self._drain(key.fd, key.data):
                self._end(key.fd, key.data)

    def _take_new(self) -> None:
        with self._lock:
            taken = list(self._new)
            self._new.clear()
        for descriptor, source in taken:
            self._selector.register(descriptor, selectors.EVENT_READ, source)

    def _drain(self, descriptor: int, source: _Source) -> bool:
        """Move what is there; false when the writers are gone."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            data = b""  # a terminal whose other side was closed
        if not data:
            self._end(descriptor, source)
            return False
        if source.tap is not None:
            source.tap(source.stream, data)
        pieces, source.rest = split_lines(source.rest + data)
        if pieces:
            with suppress(OSError):
                source.file.write(source.stream, pieces)
        return True

    def _end(self, descriptor: int, source: _Source) -> None:
        if source.rest:
            with suppress(OSError):
                source.file.write(source.stream, [("P", source.rest)])
        if source.tap is not None:
            source.tap(source.stream, b"")
        self._selector.unregister(descriptor)
        os.close(descriptor)
        still = (key.data for key in self._selector.get_map().values() if key.data is not None)
        if not any(other.file is source.file for other in still):
            source.file.close()


def split_lines(data: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    """Whole lines, over-long ones in pieces, and what is left without an end."""
    *lines, rest = data.split(b"\n")
    pieces: list[tuple[str, bytes]] = []
    for line in lines:
        while len(line) > _MAX_LINE:
            pieces.append(("P", line[:_MAX_LINE]))
            line = line[_MAX_LINE:]
        pieces.append(("F", line))
    while len(rest) > _MAX_LINE:
        pieces.append(("P", rest[:_MAX_LINE]))
        rest = rest[_MAX_LINE:]
    return pieces, rest


@dataclass(frozen=True, slots=True)
class LogLine:
    """A piece of a log."""

    time: str
    text: bytes
    whole: bool

    def encode(self, *, timestamps: bool) -> bytes:
        """As ``kubectl logs`` shows it."""
        end = b"\n" if self.whole else b""
        return (f"{self.time} ".encode() if timestamps else b"") + self.text + end


@dataclass(slots=True)
class _Tail:
    """Reads a growing file, over its rotation."""

    path: Path
    _file: int = -1
    _rest: bytes = b""
    _older: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._older = [path for path in (Path(f"{self.path}.1"),) if path.exists()]

    def take(self) -> list[LogLine]:
        """All lines since the last call."""
        found: list[LogLine] = []
        while self._older:
            found += _parse(self._older.pop().read_bytes())[0]
        if self._file < 0:
            with suppress(FileNotFoundError):
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if self._file < 0:
            return found
        found += self._read_on()
        if self._rotated():
            found += self._read_on()  # written after the read and before the rotation
            os.close(self._file)
            self._file = -1
            found += self.take()
        return found

    def _read_on(self) -> list[LogLine]:
        found: list[LogLine] = []
        while data := os.read(self._file, 1 << 20):
            lines, self._rest = _parse(self._rest + data)
            found += lines
        return found

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _rotated(self) -> bool:
        try:
            return os.stat(self.path).st_ino != os.fstat(self._file).st_ino
        except FileNotFoundError:
            return False


async def read(
    path: Path,
    *,
    follow: Callable[[], bool] | None = None,
    tail_lines: int | None = None,
    since: datetime | None = None,
    limit_bytes: int | None = None,
    timestamps: bool = False,
) -> AsyncIterator[bytes]:
    """The log in pieces of any size; ``follow`` tells whether the container may still write."""
    tail = _Tail(path)
    left = limit_bytes
    start = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") if since else ""
    try:
        alive = follow is not None and follow()
        lines = [line for line in await asyncio.to_thread(tail.take) if line.time >= start]
        if tail_lines is not None:
            lines = _last(lines, tail_lines)
        while True:
            data = b"".join(line.encode(timestamps=timestamps) for line in lines)
            if left is not None:
                data, left = data[:left], left - len(data)
            if data:
                yield data
            if not alive or (left is not None and left <= 0):
                return
            alive = follow is not None and follow()
            await asyncio.sleep(_POLL if not lines else 0)
            lines = await asyncio.to_thread(tail.take)
    finally:
        tail.close()


def _last(lines: list[LogLine], count: int) -> list[LogLine]:
    """The pieces of the last ``count`` lines."""
    start = len(lines)
    while count > 0 and start > 0:
        start -= 1
        while start > 0 and not lines[start - 1].whole:
            start -= 1
        count -= 1
    return lines[start:]


def _parse(data: bytes) -> tuple[list[LogLine], bytes]:
    *lines, rest = data.split(b"\n")
    return list(_lines(lines)), rest


def _lines(lines: list[bytes]) -> Iterator[LogLine]:
    for line in lines:
        when, _, after = line.partition(b" ")
        _stream, _, after = after.partition(b" ")
        mark, _, text = after.partition(b" ")
        yield LogLine(when.decode(errors="replace"), text, mark == b"F")


def _stamp() -> str:
    now = time.time_ns()
    seconds, nanos = divmod(now, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanos:09d}Z"
