"""A plane of a plain user: the command starts again in namespaces of its own, where it is root.

Everything else is then the same code. The listening sockets are made before, on the machine's network, and
inherited. There is no way out of the new network: pods reach each other, Services and DNS, nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from mooring.local.node import namespaces as ns
from mooring.local.node.netlink import Netlink

__all__ = ["RootlessError", "inside", "needed", "reexec", "trouble"]

_MARK = "MOORING_ROOTLESS_UID"


class RootlessError(RuntimeError):
    """User namespaces cannot be used here; the message names the remedy."""


def needed() -> bool:
    """Whether this process is a plain user's and has to be started again."""
    return os.geteuid() != 0


def inside() -> bool:
    """Whether this process runs in namespaces made by :func:`reexec`."""
    return _MARK in os.environ


def outer_uid() -> int:
    """The user outside that root stands for in here."""
    return int(os.environ.get(_MARK, os.getuid()))


def reexec(
    argv: Sequence[str], *, keep: Sequence[int] = (), env: Mapping[str, str] | None = None
) -> NoReturn:
    """Enter fresh user, network and mount namespaces and become ``argv``, with the same pid.

    ``keep`` are descriptors (listening sockets) that stay open under the same numbers. Must be called before
    any thread is started; raises :class:`RootlessError`, before anything changed, when it is not allowed.
    """
    if (why := trouble()) is not None:
        raise RootlessError(why)
    uid, gid = os.geteuid(), os.getegid()
    _enter(uid, gid)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    os.execve(argv[0], list(argv), {**(env or os.environ), _MARK: str(uid)})  # noqa: S606


def trouble() -> str | None:
    """Why namespaces cannot be made here, ``None`` if they can (tried in a child)."""
    pid = os.fork()
    if pid == 0:
        try:
            _enter(os.geteuid(), os.getegid())
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return None if status == 0 else _explain()


def command() -> list[str]:
    """The running command, for starting it again."""
    return [sys.executable, *sys.orig_argv[1:]]


def _enter(uid: int, gid: int) -> None:
    # IPC and host name too: a thread that visits a pod's may only return to ones that are ours.
    ns.unshare(ns.CLONE_NEWUSER | ns.CLONE_NEWNET | ns.CLONE_NEWNS | ns.CLONE_NEWIPC | ns.CLONE_NEWUTS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    with Netlink() as netlink:
        netlink.set_up(1)


def _explain() -> str:
    remedies = []
    for path, bad, remedy in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ):
        if Path(path).exists() and Path(path).read_text().strip() == bad:
            remedies.append(remedy)
    how = (
        f"as root: {'; '.join(remedies)}"
        if remedies
        else "or run as root (Docker's default profile forbids them)"
    )
    return f"user namespaces are not allowed for this user here, and pods need them. Allow them {how}"
