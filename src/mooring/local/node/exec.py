"""Running a further command in a container, by entering its namespaces.

The command gets the container's environment, user, working directory, capabilities and limits, and dies with it. It
has no other rights from its first instruction on: what it loads is the container's.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from mooring.local.node.cgroups import Cgroup
from mooring.local.node.rootfs import Tools
from mooring.local.node.sandbox import Privileges, Sandbox, deferred, tool
from mooring.local.node.spawner import Child, Spawn, Spawner

__all__ = ["Entrance", "Output", "cancelled", "capture", "interact", "write_all"]

_FIRST_FREE = 64
_CHUNK = 1 << 16

Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """The way into a running container."""

    spawner: Spawner
    sandbox: Sandbox
    namespaces: Sequence[int]
    env: Mapping[str, str]
    working_dir: str
    privileges: Privileges
    tools: Tools | None = None
    cgroup: Cgroup | None = None

    async def spawn(
        self, command: Sequence[str], *, stdin: int, stdout: int, stderr: int, tty: bool = False
    ) -> Child:
        """Start a command; the descriptors stay the caller's. Raises LookupError when the container ended."""
        sandbox = self.sandbox
        if sandbox.mount_fd < 0 or sandbox.child.status is not None:
            raise LookupError("the container is not running")
        copies = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for each in (stdin, stdout, stderr)]
        # The namespaces' descriptors close when the container ends, maybe before the thread gets to them.
        joined = [os.dup(each) for each in (*self.namespaces, sandbox.pid_fd)]
        mount = os.dup(sandbox.mount_fd)
        who = self.privileges
        env, exports = deferred({**self.env, "TERM": "xterm"} if tty else self.env)
        gate, opened = os.pipe2(os.O_CLOEXEC)
        copies.append(fcntl.fcntl(gate, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE))
        try:
            child = await self.spawner.spawn(
                Spawn(
                    argv=self._argv(command, exports, tty=tty),
                    env=env,
                    files=dict(enumerate(copies)),
                    namespaces=joined,
                    mount=mount,
                    capabilities=who.capabilities,
                    user=(who.uid, who.gid, who.groups),
                    session=not tty,
                )
            )
            if self.cgroup is not None:
                self.cgroup.add(child.pid)
            return child
        finally:
            for descriptor in (*copies, *joined, mount, gate, opened):
                os.close(descriptor)

    def _argv(self, command: Sequence[str], exports: str, *, tty: bool) -> list[str]:
        """A shell that waits until its limits are set (when the gate closes), and becomes the command."""
        enter = f'read -r _ <&3; exec 3<&-; cd "$1" && shift && {exports}exec "$@"'
        terminal = [*tool("setsid", self.tools), "--ctty", "--wait"] if tty else []
        return [*tool("sh", self.tools), "-c", enter, "sh", self.working_dir, *terminal, *command]


@dataclass(frozen=True, slots=True)
class Output:
    """What a finished command left."""

    status: int
    text: bytes


async def capture(
    entrance: Entrance, command: Sequence[str], *, timeout: float | None, limit: int = 10 << 10
) -> Output:
    """Run a command and keep the beginning of what it writes; raises TimeoutError after killing it."""
    read, write = os.pipe2(os.O_CLOEXEC)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    kept = bytearray()
    try:
        child = await entrance.spawn(command, stdin=null, stdout=write, stderr=write)
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
        os.close(null)

    async def keep(data: bytes) -> None:
        kept.extend(data[: max(0, limit - len(kept))])

    reading = asyncio.create_task(_pump(read, keep))
    try:
        async with asyncio.timeout(timeout):
            status = await child.wait()
    finally:
        child.signal(signal.SIGKILL)
        # A grandchild may hold the pipe open; what the command itself wrote is there by now. Not wait_for:
        # before Python 3.12 it swallows a cancellation that comes as the pipe closes, which is when the
        # container ends, and then its probes would go on for ever.
        await asyncio.wait([reading], timeout=0.2)
        await cancelled(reading)
    return Output(status, bytes(kept))


async def interact(
    entrance: Entrance,
    command: Sequence[str],
    *,
    stdin: AsyncIterator[bytes] | None,
    stdout: Write,
    stderr: Write | None,
    tty: bool = False,
    resize: AsyncIterator[tuple[int, int]] | None = None,
) -> int:
    """Run a command with its streams connected; returns its exit status. Cancelling kills it."""
    if tty:
        return await _with_terminal(entrance, command, stdin=stdin, stdout=stdout, resize=resize)
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = pipes
    try:
        child = await entrance.spawn(command, stdin=in_read, stdout=out_write, stderr=err_write)
    except BaseException:
        for descriptor in (in_write, out_read, err_read):
            os.close(descriptor)
        raise
    finally:
        for descriptor in (in_read, out_write, err_write):
            os.close(descriptor)
    feeding = asyncio.create_task(_feed(in_write, stdin))
    reading = [
        asyncio.create_task(_pump(out_read, stdout)),
        asyncio.create_task(_pump(err_read, stderr or stdout)),
    ]
    return await _finish(child, feeding, reading)


async def _with_terminal(
    entrance: Entrance,
    command: Sequence[str],
    *,
    stdin: AsyncIterator[bytes] | None,
    stdout: Write,
    resize: AsyncIterator[tuple[int, int]] | None,
) -> int:
    master, slave = os.openpty()
    try:
        child = await entrance.spawn(command, stdin=slave, stdout=slave, stderr=slave, tty=True)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    sizing = asyncio.create_task(_resize(os.dup(master), resize))
    feeding = asyncio.create_task(_feed(os.dup(master), stdin, keep_open=True))
    try:
        return await _finish(child, feeding, [asyncio.create_task(_pump(master, stdout))])
    finally:
        await cancelled(sizing)


async def _finish(child: Child, feeding: asyncio.Task[None], reading: list[asyncio.Task[None]]) -> int:
    try:
        status = await child.wait()
        await asyncio.wait(reading, timeout=1.0)
        return status
    finally:
        child.signal(signal.SIGKILL)
        for task in (feeding, *reading):
            await cancelled(task)


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; raises what it failed with, but for OSError."""
    task.cancel()
    await asyncio.wait([task])  # of itself raises only what cancels us
    if not task.cancelled() and (error := task.exception()) and not isinstance(error, OSError):
        raise error


async def _pump(descriptor: int, write: Write) -> None:
    """Pass on what can be read until the end; closes the descriptor."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    os.set_blocking(descriptor, False)
    loop.add_reader(descriptor, ready.set)
    try:
        while True:
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                ready.clear()
                await ready.wait()
                continue
            except OSError:
                return  # a terminal whose other end was closed
            if not data:
                return
            await write(data)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _feed(descriptor: int, source: AsyncIterator[bytes] | None, *, keep_open: bool = False) -> None:
    """Write what comes, then close (or, for a terminal, wait to be cancelled)."""
    os.set_blocking(descriptor, False)
    try:
        if source is not None:
            async for data in source:
                await write_all(descriptor, data)
        if keep_open:
            await asyncio.Event().wait()
    except BrokenPipeError:
        return
    finally:
        os.close(descriptor)


async def write_all(descriptor: int, data: bytes) -> None:
    """Write to a descriptor that does not block."""
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_writer(descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_writer(descriptor)


async def _resize(descriptor: int, sizes: AsyncIterator[tuple[int, int]] | None) -> None:
    """Follow the sizes (columns, rows) of the user's terminal."""
    try:
        if sizes is not None:
            async for columns, rows in sizes:
                fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    finally:
        os.close(descriptor)
