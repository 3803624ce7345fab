"""The file system of the directory example, in memory: for campaigns, whose runs part and go on side by side.

A `Disk` stands for the directory that the operator is given as its root; the newest is the one of the present run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mooring.testing.changes import Change
from mooring.testing.plane import ControlPlane
from mooring.testing.pods import AlwaysReady

__all__ = ["Disk", "as_declared", "fill", "newest"]

FILES = 250


class Disk(AlwaysReady):
    """Directories by name; made with each control plane, as the model of its pods, of which there are none."""

    def __init__(self, plane: ControlPlane) -> None:
        self.modes: dict[str, int] = {}
        self.files: dict[str, set[str]] = {}
        _disks[:] = [self]

    def __truediv__(self, name: str) -> _Path:
        return _Path(name, "", self)


_disks: list[Disk] = []


def newest() -> Disk:
    """That of the present run."""
    return _disks[-1]


async def fill(client: object) -> None:
    """A user's step: put files into every directory, more than one step of the operator's removes."""
    for files in newest().files.values():
        files.update(f"file-{number:03}" for number in range(FILES))


def as_declared(change: Change) -> str:
    """A monitor: what an object says of its directory is so, and the directory goes before the object does."""
    if change.resource != "directories.examples.mooring.dev":
        return ""
    meta, spec, disk = change.object["metadata"], change.object["spec"], newest()
    name = meta["uid"]
    if change.type == "DELETED":
        left = spec.get("deletion") == "Delete" and name in disk.modes
        return f"{meta['name']} is gone, and its directory is left behind" if left else ""
    status: dict[str, Any] = change.object.get("status") or {}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    if not ready or status.get("observedGeneration") != meta["generation"] or meta.get("deletionTimestamp"):
        return ""
    found = disk.modes.get(name)
    return "" if found == int(spec["mode"], 8) else f"{meta['name']} is called ready with the mode {found}"


@dataclass(frozen=True, order=True)
class _Path:
    """As much of a path as the example uses: a directory, or with ``file`` a file in it."""

    directory: str
    file: str
    disk: Disk = field(compare=False)

    def __str__(self) -> str:
        return f"/directories/{self.directory}"

    def stat(self) -> os.stat_result:
        if self.directory not in self.disk.modes:
            raise FileNotFoundError(self.directory)
        return os.stat_result((stat.S_IFDIR | self.disk.modes[self.directory], *[0] * 9))

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        self.disk.modes.setdefault(self.directory, 0o755)
        self.disk.files.setdefault(self.directory, set())

    def chmod(self, mode: int) -> None:
        self.disk.modes[self.directory] = mode

    def iterdir(self) -> Iterator[_Path]:
        self.stat()
        return (_Path(self.directory, file, self.disk) for file in self.disk.files[self.directory])

    def unlink(self, *, missing_ok: bool) -> None:
        self.disk.files[self.directory].discard(self.file)

    def rmdir(self) -> None:
        self.stat()
        if self.disk.files[self.directory]:
            raise OSError(f"{self.directory} is not empty")
        del self.disk.modes[self.directory], self.disk.files[self.directory]
