"""Applies the layers of an image to a directory, whatever is written in them.

A layer is a tar of what it adds, with whiteouts for what it takes away. It comes from anywhere, so nothing in it
is believed: a name with ``..`` is refused, directories on the way are looked up inside the tree alone (a link that
leads out of it leads to the same place within), and what is replaced is unlinked first, never written through.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from mooring.local.node.trees import TreeError, inside
from mooring.local.removal import remove_tree

__all__ = ["LayerError", "apply_layer"]

_WHITEOUT, _OPAQUE, _AUFS = ".wh.", ".wh..wh..opq", ".wh..wh."
_CHUNK = 1 << 20
#: Directories in each other; images have a few dozen.
_DEEPEST = 255
#: Bytes that an entry takes on a disk at least.
_ENTRY = 4096


class LayerError(ValueError):
    """A layer that must not or cannot be unpacked; the message names the entry."""


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def apply_layer(root: Path, stream: _Readable) -> None:
    """Unpack a layer (an uncompressed tar) over what the tree holds; raises :class:`LayerError`.

    It may take nine tenths of what is free on the disk.
    """
    work = _Unpacking(root)
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar:
            for member in tar:
                work.take(tar, member)
        while stream.read(_CHUNK):
            pass  # the padding counts for the digest
        work.finish()
    except (tarfile.TarError, EOFError) as error:
        raise LayerError(f"not a tar of a layer: {error}") from error
    except TreeError as error:
        raise LayerError(str(error)) from error


class _Unpacking:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._added: set[Path] = {root}
        self._directories: list[tuple[Path, tarfile.TarInfo]] = []
        self._owners = os.geteuid() == 0
        self._room = shutil.disk_usage(root).free * 9 // 10

    def take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Add one entry, or remove what it whites out."""
        name = PurePosixPath(member.name.lstrip("/"))
        if ".." in name.parts or "\0" in member.name:
            raise LayerError(f"refused: {member.name!r} leads out of the image")
        if not name.parts:
            self._directories.append((self._root, member))
            return
        if (member.issym() or member.islnk()) and (not member.linkname or "\0" in member.linkname):
            raise LayerError(f"refused: {member.name!r} is a link to nothing")
        self._room -= max(member.size, _ENTRY)
        if self._room < 0:
            raise LayerError("it does not fit on the disk")
        if len(name.parts) > _DEEPEST:
            raise LayerError(f"refused: {member.name[:80]!r}... nests too deep")
        parent = inside(self._root, str(name.parent), make=True)
        if len(parent.parts) - len(self._root.parts) >= _DEEPEST:
            raise LayerError(f"refused: {member.name[:80]!r} nests too deep")
        if name.name.startswith(_WHITEOUT):
            self._white_out(parent, name.name, member.name)
            return
        path = parent / name.name
        self._make(tar, member, path)
        self._note(path)

    def finish(self) -> None:
        """Give directories their modes and times: now nothing is made in them any more."""
        for path, member in reversed(self._directories):
            # A later entry may have put a link there, or on the way: nothing is done to where it leads.
            if inside(self._root, str(path.relative_to(self._root))) == path and path.is_dir():
                self._adorn(path, member)

    def _note(self, path: Path) -> None:
        """Remember what comes from this layer, with the directories it stands in."""
        while path not in self._added:
            self._added.add(path)
            path = path.parent

    def _white_out(self, parent: Path, name: str, full: str) -> None:
        if name == _OPAQUE:
            self._empty(parent)
            return
        if name.startswith(_AUFS):
            return  # bookkeeping of another file system
        hidden = name.removeprefix(_WHITEOUT)
        if hidden in ("", ".", ".."):
            raise LayerError(f"refused: {full!r} leads out of the image")
        if (path := parent / hidden) not in self._added:
            _remove(path)

    def _empty(self, directory: Path) -> None:
        """Remove what lower layers have put into a directory."""
        for entry in list(directory.iterdir()):
            if entry not in self._added:
                _remove(entry)
            elif entry.is_dir() and not entry.is_symlink():
                self._empty(entry)

    def _make(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        if member.isdir():
            if path.is_symlink() or not path.is_dir():
                _remove(path)
                path.mkdir(0o755)
            self._directories.append((path, member))
            return
        if member.islnk():
            self._link(member, path)
            return
        if member.isdev():
            # /dev is made anew for every container; elsewhere a device is of no use without its right.
            return
        _remove(path)
        if member.issym():
            path.symlink_to(member.linkname)
        elif member.isfifo():
            os.mkfifo(path)
        elif member.isreg():
            self._write(tar, member, path)
        else:
            raise LayerError(f"{member.name!r}: entries of type {member.type!r} are not known")
        self._adorn(path, member)

    def _link(self, member: tarfile.TarInfo, path: Path) -> None:
        target = PurePosixPath(member.linkname.lstrip("/"))
        if ".." in target.parts or not target.parts:
            raise LayerError(f"refused: {member.name!r} is a link that leads out of the image")
        source = inside(self._root, str(target.parent)) / target.name
        if source == path:
            return
        try:
            if stat.S_ISDIR(source.lstat().st_mode):
                raise LayerError(f"refused: {member.name!r} is a hard link to a directory")
            _remove(path)
            os.link(source, path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            raise LayerError(
                f"{member.name!r} is a link to {member.linkname!r}, which is not there"
            ) from None

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        source = tar.extractfile(member)
        assert source is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)

    def _adorn(self, path: Path, member: tarfile.TarInfo) -> None:
        """Owner, mode, time; a plain user's plane has one user only, to whom everything belongs."""
        if self._owners:
            with suppress(OSError, OverflowError):
                os.chown(path, member.uid, member.gid, follow_symlinks=False)
        if not member.issym():
            path.chmod(member.mode & 0o7777)
        with suppress(OSError, OverflowError, ValueError):
            os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
