"""Trees of files that came from images: looked up and cloned without leaving them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

__all__ = ["TreeError", "clone_tree", "inside"]

_LINKS = 40


class TreeError(ValueError):
    """A path that cannot be followed inside of its tree; the message names it."""


def inside(root: Path, name: str, *, make: bool = False) -> Path:
    """Where the directory ``name`` of a tree is, with links followed as the container itself would follow them.

    With ``make`` missing directories are made, else the path may not exist. Raises :class:`TreeError` for a
    loop of links, or something on the way that is no directory.
    """
    done: list[str] = []
    todo, links = list(reversed(PurePosixPath(name).parts)), 0
    while todo:
        part = todo.pop()
        if part in ("/", "."):
            done = [] if part == "/" else done
            continue
        if part == "..":
            done = done[:-1]
            continue
        path = root.joinpath(*done, part)
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            if make:
                path.mkdir(0o755)
            mode = stat.S_IFDIR
        except NotADirectoryError:
            raise TreeError(f"{name!r}: a file is in the way") from None
        if stat.S_ISLNK(mode):
            links += 1
            if links > _LINKS:
                raise TreeError(f"{name!r}: too many links")
            todo.extend(reversed(PurePosixPath(path.readlink()).parts))
            continue
        if make and not stat.S_ISDIR(mode):
            raise TreeError(f"{name!r}: {'/'.join([*done, part])} is no directory")
        done.append(part)
    return root.joinpath(*done)


def clone_tree(source: Path, target: Path) -> None:
    """Make a twin of a tree: directories anew, all else by hard links, so that it costs hardly any space."""
    root = os.geteuid() == 0
    for found, child in _walk(source, target):
        mode = found.lstat()
        if stat.S_ISDIR(mode.st_mode):
            child.mkdir(0o755, exist_ok=True)
        else:
            os.link(found, child, follow_symlinks=False)
    for found, child in reversed(list(_walk(source, target))):
        mode = found.lstat()
        if stat.S_ISDIR(mode.st_mode):
            if root:
                with suppress(OSError):
                    os.chown(child, mode.st_uid, mode.st_gid)
            child.chmod(stat.S_IMODE(mode.st_mode))
            os.utime(child, ns=(mode.st_atime_ns, mode.st_mtime_ns))


def _walk(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    yield source, target
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(source / entry.name, target / entry.name)
        else:
            yield source / entry.name, target / entry.name
