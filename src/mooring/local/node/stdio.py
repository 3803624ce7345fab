"""A container's own standard streams: to its log, and to and from whoever attaches.

Output goes to the log in any case, in the log pump's thread; what is attached gets a copy, from then on. Input is there
only for containers that ask for it (`stdin`), and stays open from one attachment to the next unless `stdinOnce`
says otherwise. With `tty` all three are one terminal.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from mooring.local.node.exec import cancelled, write_all
from mooring.local.node.logs import LogFile, LogPump

__all__ = ["Stdio"]

Write = Callable[[bytes], Awaitable[None]]

#: Pieces of output that may wait for a client; one that does not read is let go.
_BACKLOG = 1024
#: Seconds that what a program left behind may hold its streams open before its end is told all the same.
_DRAIN = 0.5


class Stdio:
    """The streams of one run of a container; made on the event loop."""

    def __init__(self, pump: LogPump, file: LogFile, *, stdin: bool, once: bool, tty: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._once = once
        self._attached: set[asyncio.Queue[tuple[str, bytes] | None]] = set()
        self._open = {"stdout"} if tty else {"stdout", "stderr"}
        self._written = asyncio.Event()
        self._terminal = self._input = -1
        if tty:
            self._terminal, self.stdout = pump.open_terminal(file, self._tap)
            self.stderr = os.dup(self.stdout)
            self.stdin = os.dup(self.stdout) if stdin else _null()
            self._input = os.dup(self._terminal) if stdin else -1
        else:
            self.stdout, self.stderr = pump.open(file, self._tap)
            self.stdin, self._input = os.pipe2(os.O_CLOEXEC) if stdin else (_null(), -1)
        if self._input >= 0:
            os.set_blocking(self._input, False)

    def given(self) -> None:
        """The container has its ends now: close ours of those."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)

    async def written(self) -> None:
        """Wait, for half a second at most, until all that the container wrote is in its log."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN):
                await self._written.wait()

    def close(self) -> None:
        """The container is gone."""
        self._close_input()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    async def attach(
        self,
        *,
        stdin: AsyncIterator[bytes] | None,
        stdout: Write,
        stderr: Write | None,
        resize: AsyncIterator[tuple[int, int]] | None,
    ) -> None:
        """Carry the streams until the container has closed its own; cancelling detaches."""
        if not self._open:
            return
        queue: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue(_BACKLOG)
        self._attached.add(queue)
        helpers = [asyncio.ensure_future(self._feed(stdin)), asyncio.ensure_future(self._size(resize))]
        try:
            while (piece := await queue.get()) is not None:
                stream, data = piece
                write = stdout if stream == "stdout" else stderr
                if write is not None:
                    await write(data)
        finally:
            self._attached.discard(queue)
            for task in helpers:
                await cancelled(task)
            if self._once and stdin is not None:
                self._close_input()

    def _tap(self, stream: str, data: bytes) -> None:
        """Called by the pump's thread; no data is the end."""
        if self._attached or not data:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._deliver, stream, data)

    def _deliver(self, stream: str, data: bytes) -> None:
        if not data:
            self._open.discard(stream)
            if not self._open:
                self._written.set()
        for queue in list(self._attached):
            try:
                if data:
                    queue.put_nowait((stream, data))
                elif not self._open:
                    queue.put_nowait(None)
            except asyncio.QueueFull:
                self._attached.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)

    async def _feed(self, source: AsyncIterator[bytes] | None) -> None:
        if source is None or self._input < 0:
            return
        with suppress(OSError):
            async for data in source:
                await write_all(self._input, data)
            if self._once and self._terminal < 0:
                self._close_input()

    async def _size(self, sizes: AsyncIterator[tuple[int, int]] | None) -> None:
        if sizes is None or self._terminal < 0:
            return
        with suppress(OSError):
            async for columns, rows in sizes:
                size = struct.pack("HHHH", rows, columns, 0, 0)
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1


def _null() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
