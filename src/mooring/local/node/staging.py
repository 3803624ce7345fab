"""Mounts whose way leads through directories that a pod may change, put together by descriptor.

Bubblewrap finds sources and targets by path, and follows the links on the way. A pod can swap a directory of its volume
with a link at any moment, so what lies inside of a volume is not left to it: a ``subPath``, and the mounts below
another mount. These are found from the volume's own directory by ``openat2``, which never leaves it, and mounted
on what was found, in a mount namespace that only the container's processes and a descriptor refer to. Bubblewrap
then mounts each finished tree at one place that no pod can change.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mooring.local.node import namespaces as ns

__all__ = ["Mount", "Stage", "StagingError", "stage"]

# Numbers and flags of linux/openat2.h and linux/mount.h, the same on all 64-bit machines.
_OPENAT2, _OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 437, 428, 429, 442
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_AT_EMPTY_PATH, _AT_RECURSIVE, _CLONE = 0x1000, 0x8000, 1
_F_EMPTY_PATH, _T_EMPTY_PATH = 0x04, 0x40
_RDONLY = 0x01
#: A directory on the way is made when it is missing; another program may remove it just then.
_TRIES = 20

_libc = ctypes.CDLL(None, use_errno=True)


class StagingError(RuntimeError):
    """A mount's source or target cannot be had; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the machine, seen inside at ``target``."""

    source: Path
    target: str
    read_only: bool = False
    below: str = ""
    """A relative path inside of ``source`` that is mounted instead (``subPath``)."""
    made: bool = False
    """Make ``below`` where it is missing."""


@dataclass(slots=True)
class Stage:
    """What is left to mount, in the namespace where that is possible."""

    mounts: Sequence[Mount]
    namespace: int | None = None
    """The mount namespace that has them; ``None``: any. Ours to close, if it was not given."""
    working_dir: bool = True
    """Whether the working directory is outside of all mounts, so that it can be made by its path."""

    def close(self) -> None:
        """Let go of the namespace; the container's processes keep it."""
        if self.namespace is not None:
            os.close(self.namespace)
            self.namespace = None


def stage(
    mounts: Sequence[Mount], *, place: Path, working_dir: str = "/", namespace: int | None = None
) -> Stage:
    """Put together what must not be found by path (blocking); raises :class:`StagingError`.

    ``place`` is a directory of our own that no pod sees. Mounts are made in ``namespace``, or else in a new one if
    there is need of one.
    """
    last = {PurePosixPath(f"/{mount.target.strip('/')}"): mount for mount in mounts}
    ordered = sorted(last.items(), key=lambda item: len(item[0].parts))
    groups: list[list[tuple[PurePosixPath, Mount]]] = []
    for target, mount in ordered:
        group = next((one for one in groups if target.is_relative_to(one[0][0])), None)
        groups.append([(target, mount)]) if group is None else group.append((target, mount))
    at = PurePosixPath(working_dir)
    inside = [group for group in groups if at.is_relative_to(group[0][0]) and at != group[0][0]]
    easy = [group[0][1] for group in groups if not _hard(group) and group not in inside]
    hard = [group for group in groups if _hard(group) or group in inside]
    if not hard:
        return Stage(easy)

    def work() -> Stage:
        ns.unshare(ns.CLONE_FS)
        if namespace is not None:
            ns.enter(namespace, ns.CLONE_NEWNS)
        else:
            ns.unshare(ns.CLONE_NEWNS)
            _mount("none", "/", "", 0x4000 | 1 << 18)  # recursive, private
        place.mkdir(parents=True, exist_ok=True)
        _mount("tmpfs", str(place), "tmpfs", 0)
        trees = [
            Mount(_assembled(group, place / str(number), at), str(group[0][0]))
            for number, group in enumerate(hard)
        ]
        made = None
        if namespace is None:
            made = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        return Stage([*easy, *trees], made, working_dir=not inside)

    return ns.in_fresh_thread(work).result()


def _hard(group: Sequence[tuple[PurePosixPath, Mount]]) -> bool:
    return len(group) > 1 or bool(group[0][1].below)


def _assembled(group: Sequence[tuple[PurePosixPath, Mount]], point: Path, working_dir: PurePosixPath) -> Path:
    """Mount a tree at ``point``, and all that belongs below its first one on it."""
    known: dict[PurePosixPath, int] = {}

    def covering(target: PurePosixPath) -> tuple[PurePosixPath, int]:
        found = max((one for one in known if target.is_relative_to(one)), key=lambda one: len(one.parts))
        return target.relative_to(found), known[found]

    try:
        for target, mount in group:
            tree = _cloned(mount)
            try:
                if not known:
                    _make_point(point, tree)
                    _move(tree, point)
                else:
                    rest, root = covering(target)
                    with _named(f"mountPath {target}"), _point_below(root, rest, tree) as on:
                        _move(tree, on)
            except BaseException:
                os.close(tree)
                raise
            known[target] = tree
        if working_dir.is_relative_to(group[0][0]):
            # Where a link is in the way, the container itself finds out where it leads.
            with suppress(OSError):
                rest, root = covering(working_dir)
                os.close(_directory_below(root, rest, mode=0o755))
    finally:
        for tree in known.values():
            os.close(tree)
    return point


def _cloned(mount: Mount) -> int:
    """A detached twin of what is to be mounted, as a descriptor of its root."""
    source = os.open(mount.source, os.O_PATH | os.O_CLOEXEC)
    try:
        if mount.below:
            with _named(f"subPath {mount.below!r}"):
                opened = _opened_below(source, mount)
            os.close(source)
            source = opened
        flags = _CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
        tree = _call(_OPEN_TREE, source, b"", flags)
    finally:
        os.close(source)
    if mount.read_only:
        attributes = struct.pack("=4Q", _RDONLY, 0, 0, 0)
        try:
            _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, len(attributes))
        except BaseException:
            os.close(tree)
            raise
    return tree


def _opened_below(source: int, mount: Mount) -> int:
    try:
        return _openat2(source, mount.below, os.O_PATH)
    except FileNotFoundError:
        if not mount.made:
            raise
    return _directory_below(source, PurePosixPath(mount.below), mode=0o777)


def _directory_below(root: int, path: PurePosixPath, *, mode: int) -> int:
    """A directory inside of ``root``, made with its parents where it is missing; links lead nowhere outside."""
    for _ in range(_TRIES):
        try:
            return _openat2(root, str(path), os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError:
            parent = _directory_below(root, path.parent, mode=mode)
            try:
                with suppress(FileExistsError):
                    os.mkdir(path.name, 0o700, dir_fd=parent)
                    made = os.open(path.name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
                    os.fchmod(made, mode)
                    os.close(made)
            finally:
                os.close(parent)
            if _is_link(root, path):
                break
    raise OSError(errno.ENOENT, "a link that leads to nothing is in the way")


def _is_link(root: int, path: PurePosixPath) -> bool:
    parent = _openat2(root, str(path.parent), os.O_PATH | os.O_DIRECTORY)
    try:
        return stat.S_ISLNK(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
    finally:
        os.close(parent)


@contextmanager
def _point_below(root: int, path: PurePosixPath, tree: int) -> Iterator[int]:
    """A directory or file inside of ``root`` on which ``tree`` can be mounted, made where it is missing."""
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        on = _directory_below(root, path, mode=0o755)
    else:
        on = _file_below(root, path)
    try:
        yield on
    finally:
        os.close(on)


def _file_below(root: int, path: PurePosixPath) -> int:
    try:
        return _openat2(root, str(path), os.O_PATH)
    except FileNotFoundError:
        parent = _directory_below(root, path.parent, mode=0o755)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path.name, flags, 0o644, dir_fd=parent))
        return os.open(path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)


def _make_point(point: Path, tree: int) -> None:
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        point.mkdir()
    else:
        point.touch()


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = {
            errno.EXDEV: "leads out of the volume",
            errno.ELOOP: "leads through a link that is not followed",
            errno.ENOENT: f"does not exist in the volume ({error.strerror})",
        }
        raise StagingError(f"{what} {why.get(error.errno or 0, error.strerror)}") from error


def _openat2(root: int, path: str, flags: int) -> int:
    how = struct.pack("=3Q", flags | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGICLINKS)
    for attempt in range(_TRIES):
        try:
            return _call(_OPENAT2, root, os.fsencode(path), how, len(how))
        except BlockingIOError:  # something was renamed meanwhile: the kernel cannot be sure
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


def _move(tree: int, target: Path | int) -> None:
    if isinstance(target, int):
        _call(_MOVE_MOUNT, tree, b"", target, b"", _F_EMPTY_PATH | _T_EMPTY_PATH)
    else:
        _call(_MOVE_MOUNT, tree, b"", -100, os.fsencode(target), _F_EMPTY_PATH)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {target}: {os.strerror(code)}")


def _call(number: int, *arguments: int | bytes) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
