"""Volumes of the embedded control plane that can be full: each a file system of its own, in a file.

with small_volumes(megabytes=1024):      # around the Bed
    ...
    with filled(path): ...               # no byte is left on that volume
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from mooring.kube.objects.core import PersistentVolume
from mooring.local.controllers import registration
from mooring.local.controllers.volumes.directories import Directories

__all__ = ["filled", "small_volumes"]

_BALLAST = ".ballast"


@contextmanager
def small_volumes(*, megabytes: int) -> Iterator[None]:
    """Planes that start within the block make volumes of this size; needs root. All of them are unmounted at its end."""
    mounted: set[Path] = set()

    class Small(Directories):
        """A file system for each volume."""

        def make(self, path: Path) -> None:
            """See `Directories`."""
            new = not path.is_dir()
            Directories.make(self, path)
            if new:
                image = path.with_name(f".image-{path.name}"[:255])
                with image.open("wb") as file:
                    file.truncate(megabytes << 20)
                _run("mkfs.ext4", "-q", "-m", "0", str(image))
                _run("mount", "-o", "loop", str(image), str(path))
                image.unlink()
                (path / "lost+found").rmdir()
                path.chmod(0o777)
                mounted.add(path)

        def remove(self, volume: PersistentVolume) -> None:
            """See `Directories`."""
            path = self.owned_path(volume)
            if path in mounted:
                with self._locked(volume):
                    _run("umount", str(path))
                mounted.discard(path)
            Directories.remove(self, volume)

    with patch.object(registration, "Directories", Small):
        try:
            yield
        finally:
            for path in mounted:
                with suppress(OSError):
                    _run("umount", str(path))


@contextmanager
def filled(volume: Path) -> Iterator[None]:
    """Nothing can be written to a volume any more, to the end of the block."""
    ballast = volume / _BALLAST
    try:
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            size = 0
            for step in (1 << 24, 1 << 12):
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), size, step)
                        size += step
        yield
    finally:
        ballast.unlink(missing_ok=True)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
