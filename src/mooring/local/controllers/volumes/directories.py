"""Volumes as directories below one data directory: made for claims, removed when reclaimed.

A directory is removed only if its name says that it belongs to the very volume, and only while nobody holds
the volume's lock (an ``flock`` that the node's programs keep as long as one of them lives).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim
from mooring.local.removal import remove_tree

__all__ = ["Directories", "VolumeBusy"]


class VolumeBusy(Exception):
    """A process still uses the volume; its data stays until that one is gone."""


@dataclass(frozen=True, slots=True)
class Directories:
    """Where volumes live; ``locks`` is the directory of the node's lock files. The methods block."""

    root: Path
    locks: Path

    def path_of(self, claim: PersistentVolumeClaim, volume: str) -> Path:
        """The directory of a claim's volume: readable names, unique by the volume's."""
        return self.root / f"{volume}_{claim.metadata.namespace}_{claim.metadata.name}"[:255]

    def make(self, path: Path) -> None:
        """Create a directory that every user of the pod may write to; present ones stay as they are."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.is_dir():
            path.mkdir()
            path.chmod(0o777)

    def owned_path(self, volume: PersistentVolume) -> Path | None:
        """The directory of a volume that was made here; ``None`` for any other."""
        spec = volume.spec
        text = (
            (spec.local.path if spec.local else spec.host_path.path if spec.host_path else "") if spec else ""
        )
        path = Path(text or "/")
        mine = path.parent == self.root and path.name.startswith(f"{volume.metadata.name}_")
        return path if mine else None

    def remove(self, volume: PersistentVolume) -> None:
        """Remove a volume's directory; raises `VolumeBusy` while it is in use, OSError if it cannot."""
        path = self.owned_path(volume)
        if path is None:
            raise ValueError(f"{volume.metadata.name} was not made in {self.root}; its data is not touched")
        with self._locked(volume):
            # Out of sight first: a crash in between leaves no half-removed volume under its name.
            if path.is_dir():
                doomed = path.with_name(f".deleted-{path.name}"[:255])
                path.rename(doomed)
                remove_tree(doomed)
        (self.locks / f"{volume.metadata.name}.lock").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Finish removals that a crash interrupted."""
        for path in self.root.glob(".deleted-*") if self.root.is_dir() else ():
            with suppress(OSError):
                remove_tree(path)

    @contextmanager
    def _locked(self, volume: PersistentVolume) -> Iterator[None]:
        self.locks.mkdir(parents=True, exist_ok=True)
        path = self.locks / f"{volume.metadata.name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise VolumeBusy(f"volume {volume.metadata.name} is still in use by a process") from None
        finally:
            os.close(descriptor)
