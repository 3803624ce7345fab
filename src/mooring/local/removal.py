"""Removing what pods and images have left, whatever they made of it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["remove_tree"]


def remove_tree(path: Path) -> None:
    """Remove a tree of any depth, also directories that not even their owner may write; raises OSError.

    Nobody may change it meanwhile.
    """
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    pending, number, near = [path], 0, secrets.token_hex(8)
    while pending:
        directory = pending.pop()
        for entry in list(os.scandir(directory)):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            child = Path(entry.path)
            if directory != path:
                # Nearer to the top: a path has 4,096 bytes at most.
                number += 1
                child = child.rename(path / f"{near}-{number}")
            pending.append(child)
        if directory != path:
            directory.rmdir()
    path.rmdir()
