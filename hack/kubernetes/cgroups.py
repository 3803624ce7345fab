"""The cgroups of a node's pods: below one of its own, in every hierarchy, versions 1 and 2."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["make", "name_of", "remove"]


def name_of(directory: Path) -> str:
    """The cgroup of a run directory."""
    return f"mooring-kubernetes-{hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:10]}"


def make(name: str) -> None:
    """Make the cgroup everywhere; the kubelet wants to find it."""
    for root, kind in _hierarchies():
        (root / name).mkdir(exist_ok=True)
        if kind == "cgroup2":
            for place in (root, root / name):
                _hand_down(place)


def _hand_down(place: Path) -> None:
    """Let the cgroups below use every controller that is at hand here, each by itself: one may be refused.

    On a hybrid machine they are in version 1, and there are none here.
    """
    for controller in (place / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (place / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(name: str, *, deadline: float = 10.0) -> None:
    """Remove the cgroup and those below it; processes that just died hold them for a moment."""
    until = time.monotonic() + deadline
    while not all(_removed(root / name) for root, _ in _hierarchies()) and time.monotonic() < until:
        time.sleep(0.05)


def _removed(top: Path) -> bool:
    if top.is_dir():
        for place, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(place)
    return not top.exists()


def _hierarchies() -> Iterator[tuple[Path, str]]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        kind, place = line.split()[2], line.split()[1]
        if kind in ("cgroup", "cgroup2") and place.startswith("/sys/fs/cgroup"):
            yield Path(place), kind
