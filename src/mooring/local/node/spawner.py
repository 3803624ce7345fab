"""Starts processes, inside namespaces if asked, and learns of their end through pidfds.

Containers are started by one thread that lives as long as the plane, for two reasons. Joining namespaces is a
matter of the thread that forks, so the event loop's thread must not do it. And ``PR_SET_PDEATHSIG``, by
which pods die with the plane, fires when the *thread* that forked ends: a process started from a pool's
thread would be killed when the pool shrinks.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from mooring.local.node import namespaces as ns
from mooring.local.node.seccomp import forbid_keyrings

__all__ = ["Child", "Spawn", "Spawner"]

_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """What to start.

    ``files`` maps descriptors of the child to ours, which must not be among the numbers of the child's
    (take them with ``F_DUPFD_CLOEXEC`` from 64 up, or keep the standard ones as they are). No other
    descriptor is inherited.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    files: Mapping[int, int]
    namespaces: Sequence[int] = ()
    """Descriptors of network, IPC, UTS or pid namespaces that the child is to live in."""
    session: bool = True
    """Make the child leader of a session of its own."""
    mount: int | None = None
    """Descriptor of a running container's mount namespace for the child; ``argv[0]`` is looked up there."""
    capabilities: Sequence[str] = ("ALL",)
    """With ``mount``: all that the child can have. What it loads is the container's from its first instruction."""
    user: tuple[int, int, Sequence[int]] = (0, 0, ())
    """With ``mount``: user, group and further groups of the child, from its first instruction on."""
    mounts: int | None = None
    """Descriptor of a mount namespace of our own making for a child that dies with the plane."""


class Child:
    """A started process; its descriptor is valid until it was waited for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    async def wait(self) -> int:
        """Exit status, or 128 plus the number of the signal that ended it."""
        return await asyncio.shield(self._ended)

    @property
    def status(self) -> int | None:
        """Exit status as :meth:`wait` gives it, ``None`` while it runs."""
        return self._ended.result() if self._ended.done() else None

    def on_exit(self, callback: Callable[[int], None]) -> None:
        """Call ``callback`` with the status as soon as the process ends."""
        self._ended.add_done_callback(lambda future: callback(future.result()))

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _reap(self) -> None:
        result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        if result is None:
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        killed = result.si_code != os.CLD_EXITED
        if not self._ended.done():
            self._ended.set_result(128 + result.si_status if killed else result.si_status)


@dataclass(slots=True)
class Spawner:
    """The thread that forks."""

    _jobs: queue.SimpleQueue[tuple[Spawn, Future[int]] | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    async def spawn(self, what: Spawn) -> Child:
        """Start a process; raises OSError (FileNotFoundError ...) if that fails."""
        if self._thread is None:
            _inherit_nothing()
            self._thread = threading.Thread(target=self._run, name="spawner", daemon=True)
            self._thread.start()
        if (mount := what.mount) is not None:
            future = ns.in_fresh_thread(lambda: _spawn_inside(what, mount))
        else:
            future = Future()
            self._jobs.put((what, future))
        started = asyncio.wrap_future(future)
        try:
            return Child(await asyncio.shield(started))
        except asyncio.CancelledError:
            # The caller is gone, the process comes nevertheless: it must be ended and reaped.
            started.add_done_callback(_kill)
            raise

    def close(self) -> None:
        """End the thread: every child that asked to die with its parent is killed by that."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        ns.unshare(ns.CLONE_FS)  # else this thread could not visit another mount namespace
        home = _Home()
        try:
            while (job := self._jobs.get()) is not None:
                what, future = job
                try:
                    future.set_result(home.spawn(what))
                except BaseException as error:
                    future.set_exception(error)
        finally:
            home.close()


class _Home:
    """The thread's own namespaces, to return to."""

    def __init__(self) -> None:
        kinds = ("net", "ipc", "uts", "mnt")
        *self._own, self._mounts = [os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY) for kind in kinds]

    def spawn(self, what: Spawn) -> int:
        try:
            for descriptor in what.namespaces:
                ns.enter(descriptor)
            if what.mounts is not None:
                ns.enter(what.mounts, ns.CLONE_NEWNS)
            return _spawn(what)
        finally:
            if what.mounts is not None:
                ns.enter(self._mounts, ns.CLONE_NEWNS)
            for descriptor in self._own if what.namespaces else ():
                ns.enter(descriptor)

    def close(self) -> None:
        for descriptor in (*self._own, self._mounts):
            os.close(descriptor)


def _spawn_inside(what: Spawn, mount: int) -> int:
    """Start a process inside a container (call in a fresh thread).

    There is no way back: a plain user's plane may not return to the pid namespace it came from. The process
    needs no parent either, since it dies with the container.
    """
    ns.unshare(ns.CLONE_FS)
    for descriptor in what.namespaces:
        ns.enter(descriptor)
    ns.enter(mount, ns.CLONE_NEWNS)
    ns.give_up(what.capabilities)
    if "ALL" not in what.capabilities:
        forbid_keyrings()
    ns.become(*what.user)
    return _spawn(what)


def _spawn(what: Spawn) -> int:
    return os.posix_spawn(
        what.argv[0],
        list(what.argv),
        dict(what.env),
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in what.files.items()],
        setsid=what.session,
        setsigmask=[],
        setsigdef=list(_DEFAULT_SIGNALS),
    )


def _kill(started: asyncio.Future[int]) -> None:
    if not started.cancelled() and started.exception() is None:
        Child(started.result()).signal(signal.SIGKILL)


def _inherit_nothing() -> None:
    """Descriptors that the plane itself was started with are not for its pods."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)
