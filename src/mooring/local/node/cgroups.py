"""Limits of CPU, memory and processes by control groups, where the machine lets us.

Version 1 and 2 are supported. Without write access (a plain user without delegation, many containers)
:func:`detect` gives none, containers run without limits, and the node says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mooring.kube.quantity import parse_quantity

__all__ = ["Cgroup", "Cgroups", "detect"]

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000
#: Processes and threads of one container, so that none takes all that the machine can have.
_PIDS = 4096
_MEMORY_FILES = (("memory.current", "inactive_file"), ("memory.usage_in_bytes", "total_inactive_file"))


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The group of one container."""

    paths: tuple[Path, ...]

    def add(self, *pids: int) -> None:
        """Move processes into the group; what they start afterwards is in it too."""
        for path in self.paths:
            for pid in pids:
                with suppress(ProcessLookupError):
                    (path / "cgroup.procs").write_text(str(pid))

    def was_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the group for its memory limit."""
        for path in self.paths:
            for name in ("memory.events", "memory.oom_control"):
                with suppress(OSError):
                    for line in (path / name).read_text().splitlines():
                        key, _, value = line.partition(" ")
                        if key == "oom_kill" and int(value) > 0:
                            return True
        return False

    def memory(self) -> int | None:
        """Bytes in use without file pages that can be dropped; ``None`` if memory is not accounted here."""
        for path in self.paths:
            for used, cache in _MEMORY_FILES:
                with suppress(OSError, ValueError):
                    total = int((path / used).read_text())
                    lines = (path / "memory.stat").read_text().splitlines()
                    dropped = next(
                        (int(line.split()[1]) for line in lines if line.startswith(f"{cache} ")), 0
                    )
                    return max(0, total - dropped)
        return None

    def remove(self) -> None:
        """Remove the empty group."""
        for path in self.paths:
            with suppress(OSError):
                path.rmdir()


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The plane's part of the control group tree; ``version`` 0 when there is none."""

    version: int
    plane: str
    root: Path = _ROOT

    @property
    def says(self) -> str:
        """What the node tells about limits."""
        if self.version:
            return f"limits of cpu and memory are enforced (control groups v{self.version})"
        return "limits are not enforced: no control group of this machine is writable for this user"

    def make(self, name: str, limits: Mapping[str, int | float | str]) -> Cgroup | None:
        """A group with those limits and one of processes; ``None`` if there is no way to limit anything (blocking)."""
        if not self.version:
            return None
        memory, cpu = limits.get("memory"), limits.get("cpu")
        size = None if memory is None else int(parse_quantity(memory))
        quota = None if cpu is None else max(1000, int(parse_quantity(cpu) * _PERIOD))
        return self._make_v2(name, size, quota) if self.version == 2 else self._make_v1(name, size, quota)

    def remove_all(self) -> list[str]:
        """Remove the plane's groups, whose processes must be gone; returns what was there."""
        gone = []
        for base in self._bases():
            if not base.is_dir():
                continue
            for child in base.iterdir():
                if child.is_dir():
                    with suppress(OSError):
                        child.rmdir()
            with suppress(OSError):
                base.rmdir()
                gone.append(f"control group {base}")
        return gone

    def pids(self) -> list[int]:
        """Processes in the plane's groups."""
        found: set[int] = set()
        for base in self._bases():
            for file in base.glob("*/cgroup.procs"):
                with suppress(OSError):
                    found.update(map(int, file.read_text().split()))
        return sorted(found)

    def _bases(self) -> list[Path]:
        name = f"mooring-{self.plane}"
        if self.version == 1:
            return [self.root / controller / name for controller in ("memory", "cpu", "pids")]
        return [self.root / name] if self.version == 2 else []

    def _make_v1(self, name: str, memory: int | None, quota: int | None) -> Cgroup | None:
        paths = []
        if os.access(self.root / "pids", os.W_OK):
            path = self._v1("pids", name)
            (path / "pids.max").write_text(str(_PIDS))
            paths.append(path)
        if memory is not None:
            path = self._v1("memory", name)
            (path / "memory.limit_in_bytes").write_text(str(memory))
            paths.append(path)
        if quota is not None:
            path = self._v1("cpu", name)
            (path / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (path / "cpu.cfs_quota_us").write_text(str(quota))
            paths.append(path)
        return Cgroup(tuple(paths)) if paths else None

    def _v1(self, controller: str, name: str) -> Path:
        path = self.root / controller / f"mooring-{self.plane}" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _make_v2(self, name: str, memory: int | None, quota: int | None) -> Cgroup:
        base = self.root / f"mooring-{self.plane}"
        base.mkdir(exist_ok=True)
        for directory in (self.root, base):
            with suppress(OSError):
                (directory / "cgroup.subtree_control").write_text("+cpu +memory +pids")
        path = base / name
        path.mkdir(exist_ok=True)
        with suppress(OSError):  # not every delegation has it
            (path / "pids.max").write_text(str(_PIDS))
        if memory is not None:
            (path / "memory.max").write_text(str(memory))
            with suppress(OSError):
                # As the kubelet does: a container that is out of memory ends whole, not by a process here or there.
                (path / "memory.oom.group").write_text("1")
        if quota is not None:
            (path / "cpu.max").write_text(f"{quota} {_PERIOD}")
        return Cgroup((path,))


def detect(plane: str, root: Path = _ROOT) -> Cgroups:
    """Which control groups can be used here, found out by trying."""
    for version, base in ((2, root), (1, root / "memory")):
        if version == 2 and not (root / "cgroup.controllers").is_file():
            continue
        probe = base / f"mooring-{plane}"
        if not os.access(base, os.W_OK):
            continue
        try:
            probe.mkdir(exist_ok=True)
            with suppress(OSError):
                probe.rmdir()
        except OSError:
            continue
        return Cgroups(version, plane, root)
    return Cgroups(0, plane, root)
