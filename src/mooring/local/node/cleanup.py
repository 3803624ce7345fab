"""Removing what a killed plane may have left.

Little is left, by design: the processes die with the plane and the namespaces with them. What remains is
the plane's own interface, routes and packet-filter table, empty control groups, and memory-backed volumes.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from mooring.local.node.cgroups import detect
from mooring.local.node.network import NetworkConfig, abandoned_planes, delete_leftovers
from mooring.local.node.nft import NftError
from mooring.local.node.volumes import memory_directory
from mooring.local.removal import remove_tree

__all__ = ["clean", "end_leftovers", "leftover_processes", "plane_id", "sweep"]

_KILL_DEADLINE = 10.0


def plane_id(data_dir: Path) -> str:
    """The short id in the names of everything a plane makes on the machine: six hex digits."""
    return hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:6]


def clean(data_dir: Path, network: NetworkConfig) -> list[str]:
    """Remove what is left of the plane of that data directory; says what it removed (blocking).

    The plane must not be running. Data, logs and volumes stay.
    """
    gone = [f"process {pid}" for pid in end_leftovers(data_dir)]
    with suppress(PermissionError, NftError):
        gone += delete_leftovers(network)
    gone += detect(network.plane).remove_all()
    memory = memory_directory(network.plane)
    if memory.is_dir():
        with suppress(OSError):
            remove_tree(memory)
        gone.append(str(memory))
    return gone


def sweep() -> list[str]:
    """Remove what other planes left whose data directories may never be used again (blocking).

    A demo that was killed, a test that was interrupted: each leaves an interface, a table, empty control groups.
    """
    gone = []
    for plane in abandoned_planes():
        with suppress(PermissionError, NftError):
            gone += delete_leftovers(NetworkConfig(plane=plane))
        gone += detect(plane).remove_all()
        with suppress(OSError):
            remove_tree(memory_directory(plane))
    return gone


def leftover_processes(data_dir: Path, uid: str = "") -> list[int]:
    """Sandboxes that were started with files of that data directory, or of one pod of it."""
    needle = f"{data_dir.resolve()}/pods/{uid and uid + '/'}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"bwrap") and any(word.startswith(needle) for word in words):
                found.append(int(entry.name))
    return found


def end_leftovers(data_dir: Path, uid: str = "") -> list[int]:
    """Kill the sandboxes of a data directory, or of one pod of it, that should be gone (blocking)."""
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_DEADLINE
    while (pids := leftover_processes(data_dir, uid)) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(pids)
        time.sleep(0.01)
    return sorted(killed)
