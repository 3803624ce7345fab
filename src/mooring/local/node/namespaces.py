"""Linux namespaces held by file descriptors.

A pod's network, IPC and host-name namespaces live as long as a descriptor or a process refers to them. The
plane holds the descriptors, so a pod needs no pause process and no ``/run/netns`` mount, and a killed plane
leaves nothing: its descriptors close, its pods' processes die with it, the kernel removes the rest.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

__all__ = ["PodNamespaces", "become", "enter", "give_up", "in_fresh_thread", "unshare"]

T = TypeVar("T")

CLONE_FS = 0x200
CLONE_NEWNS = 0x20000
CLONE_NEWUTS = 0x4000000
CLONE_NEWIPC = 0x8000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
#: Capabilities by number, as in linux/capability.h.
_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *(
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
        "IPC_LOCK",
        "IPC_OWNER",
    ),
    *(
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
    ),
    *(
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "MKNOD",
        "LEASE",
        "AUDIT_WRITE",
        "AUDIT_CONTROL",
        "SETFCAP",
    ),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)

#: setgroups, setresgid, setresuid, capget and capset. The C library's own change every thread of the process.
_GENERIC = (159, 149, 147, 90, 91)
_CALLS = {
    "x86_64": (116, 119, 117, 125, 126),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "ppc64le": (81, 169, 164, 183, 184),
    "s390x": (206, 210, 208, 184, 185),
}
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Give the calling thread (for user and mount namespaces: the process) fresh namespaces."""
    _checked(_libc.unshare(flags), "unshare")


def enter(descriptor: int, kind: int = 0) -> None:
    """Move the calling thread into the namespace of that descriptor."""
    _checked(_libc.setns(descriptor, kind), "setns")


def give_up(kept: Collection[str]) -> None:
    """Let no program that the calling thread starts have other capabilities than these (``CHOWN``, ...; ``ALL``)."""
    if "ALL" in kept:
        return
    number = 0
    while _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0:  # to the last one that the kernel knows
        if number >= len(_CAPABILITIES) or _CAPABILITIES[number] not in kept:
            _checked(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), "prctl")
        number += 1


def become(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Make the calling thread that user, for good; no program that it starts inherits capabilities."""
    if (numbers := _CALLS.get(platform.machine())) is None:
        raise OSError(errno.ENOSYS, f"how to become a user is not known on {platform.machine()}")
    setgroups, setresgid, setresuid, capget, capset = numbers
    header, sets = struct.pack("=Ii", _CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    _call(capget, header, sets)
    effective, permitted, _, more_effective, more_permitted, _ = struct.unpack("=6I", sets.raw)
    _call(capset, header, struct.pack("=6I", effective, permitted, 0, more_effective, more_permitted, 0))
    if uid or gid or groups:
        _call(setgroups, len(groups), struct.pack(f"={len(groups)}I", *groups))
        _call(setresgid, gid, gid, gid)
        _call(setresuid, uid, uid, uid)


def _call(number: int, *words: object) -> None:
    numbers = (ctypes.c_long(word) if isinstance(word, int) else word for word in words)
    _checked(_libc.syscall(ctypes.c_long(number), *numbers), "system call")


def in_fresh_thread(work: Callable[[], T]) -> Future[T]:
    """Run ``work`` in a thread of its own, which may change its namespaces since it ends afterwards.

    It cannot be cancelled: who no longer waits for the result has to see what becomes of it.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, name="namespaces", daemon=True).start()
    return future


@dataclass(slots=True)
class PodNamespaces:
    """Descriptors of the namespaces that the containers of one pod share."""

    net: int
    ipc: int
    uts: int

    @classmethod
    def make(cls, *, hostname: str, setup: Callable[[int], None]) -> PodNamespaces:
        """New namespaces (call in a fresh thread); ``setup`` runs inside, with the network's descriptor."""
        unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
        socket.sethostname(hostname)
        opened: list[int] = []
        try:
            for kind in ("net", "ipc", "uts"):
                opened.append(os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401
            setup(opened[0])
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return cls(*opened)

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """Network, IPC, host name."""
        return (self.net, self.ipc, self.uts)

    def close(self) -> None:
        """Let go; the kernel removes the namespaces when no process is left in them."""
        for descriptor in self.descriptors:
            if descriptor >= 0:
                os.close(descriptor)
        self.net = self.ipc = self.uts = -1


def _checked(result: int, call: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
