"""The file system of a container that runs a loaded image: the image below, a writable layer of its own above.

Where the kernel lets us, that is an overlay, mounted in a mount namespace that only the container's processes and a
descriptor refer to: it is gone with them, nothing is left behind by a plane that was killed. Elsewhere the
image is copied (by reflink where the file system can).

The shell and the tools by which a container is started are the machine's, with their own loader and libraries, seen
inside at `TOOLS`: an image need not have any.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from mooring.local.node import namespaces as ns
from mooring.local.node.trees import TreeError, inside
from mooring.local.removal import remove_tree

__all__ = [
    "TOOLS",
    "Account",
    "AccountError",
    "RootFs",
    "Tools",
    "account_of",
    "copy_tree",
    "find_program",
    "make_root",
]

TOOLS = "/.mooring"
_NEEDED = ("sh", "bash", "setpriv", "setsid")
_READ_LIMIT = 1 << 20
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


class AccountError(ValueError):
    """The user an image names does not exist in it."""


@dataclass(slots=True)
class RootFs:
    """A container's root: a directory, inside the mount namespace of ``mounts`` if that is not ``None``."""

    path: Path
    work: Path
    image_lock: int
    mounts: int | None = None

    def entered(self) -> None:
        """The container's processes refer to the namespace now: let go of it."""
        if self.mounts is not None:
            os.close(self.mounts)
            self.mounts = None

    def remove(self) -> None:
        """Remove the writable layer; no process of the container is left (blocking)."""
        self.entered()
        if self.image_lock >= 0:
            os.close(self.image_lock)
            self.image_lock = -1
        with suppress(OSError):
            remove_tree(self.work)


def make_root(image: Path, work: Path, *, image_lock: int) -> RootFs:
    """A fresh root over an image's file system (blocking); raises OSError."""
    remove_tree(work)
    for name in ("upper", "work", "root"):
        (work / name).mkdir(parents=True)
    with suppress(OSError):
        shutil.copystat(image, work / "upper")
        (work / "upper").chmod(0o755)
    root = RootFs(work / "root", work, image_lock)
    try:
        future: Future[int] = ns.in_fresh_thread(lambda: _overlay(image, work))
        root.mounts = future.result()
    except OSError:
        copy_tree(image, root.path)
    return root


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory with owners, modes and links; an empty one when there is none (blocking)."""
    target.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        command = ["/usr/bin/cp", "-a", "--reflink=auto", f"{source}/.", str(target)]
        subprocess.run(command, check=False, capture_output=True)


def _overlay(lower: Path, work: Path) -> int:
    """Mount in a fresh mount namespace (of this thread) and give its descriptor."""
    ns.unshare(ns.CLONE_FS | ns.CLONE_NEWNS)
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE, "")
    options = f"lowerdir={lower},upperdir={work / 'upper'},workdir={work / 'work'}"
    if any(character in str(path) for path in (lower, work) for character in ":,\\"):
        raise OSError(errno.EINVAL, "the path holds characters that mean something to overlayfs")
    try:
        _mount("overlay", str(work / "root"), "overlay", 0, options)
    except OSError:
        # A user namespace has to keep its marks in user attributes.
        _mount("overlay", str(work / "root"), "overlay", 0, f"{options},userxattr")
    return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {target}: {os.strerror(code)}")


# --- who the program is


@dataclass(frozen=True, slots=True)
class Account:
    """A user as the image's files know it."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"
    named: bool = False
    """Whether the image names its user by a word, whose number nobody can tell beforehand."""


def account_of(root: Path, user: str) -> Account:
    """Look ``USER[:GROUP]`` up, each a name or a number; ``""`` is root. Raises :class:`AccountError`."""
    name, _, group = user.partition(":")
    name = name or "0"
    users = _lines(root, "etc/passwd", 7)
    groups = _lines(root, "etc/group", 4)
    entry = next((line for line in users if line[0] == name), None)
    if entry is None and name.isdigit():
        entry = next((line for line in users if line[2] == name), [name, "", name, "0", "", "/", ""])
    if entry is None:
        raise AccountError(f"unable to find user {name}: no matching entries in passwd file")
    uid, gid = int(entry[2]), int(entry[3])
    if group:
        found = next((line for line in groups if line[0] == group), None)
        if found is None and not group.isdigit():
            raise AccountError(f"unable to find group {group}: no matching entries in group file")
        gid = int(found[2] if found else group)
    more = () if group else tuple(int(line[2]) for line in groups if entry[0] in line[3].split(","))
    return Account(uid, gid, more, entry[5] or "/", named=not name.isdigit())


def _lines(root: Path, name: str, fields: int) -> list[list[str]]:
    """The well-formed lines of a colon-separated file; links are followed inside the image alone."""
    text = ""
    with suppress(OSError, TreeError):
        path = inside(root, name)
        if path.is_file() and path.stat().st_size <= _READ_LIMIT:
            text = path.read_text(errors="replace")
    lines = [line.strip().split(":") for line in text.splitlines()]
    return [
        line
        for line in lines
        if len(line) >= fields and line[2].isdigit() and (fields < 7 or line[3].isdigit())
    ]


def find_program(root: Path, command: str, env: Mapping[str, str], working_dir: str) -> bool:
    """Whether a command can be found in an image, the way ``execvp`` looks for it."""
    places: Iterable[str] = (env.get("PATH") or "/usr/local/bin:/usr/bin:/bin").split(":")
    if "/" in command:
        places = [working_dir]
    for place in places:
        with suppress(TreeError, OSError):
            if inside(root, f"{place}/{command}" if not command.startswith("/") else command).is_file():
                return True
    return False


# --- what containers are started with


@dataclass(slots=True)
class Tools:
    """The machine's shell and tools in a directory that can be mounted anywhere."""

    directory: Path
    _made: bool = False
    _lock: Lock = field(default_factory=Lock)

    def command(self, name: str) -> list[str]:
        """How to call a tool inside."""
        loader = self.directory / "loader"
        call = [f"{TOOLS}/loader", "--library-path", f"{TOOLS}/lib"] if loader.exists() else []
        return [*call, f"{TOOLS}/{name}"]

    def ensure(self) -> None:
        """Copy them, once in a plane's life since the machine may have been upgraded (blocking); raises OSError."""
        with self._lock:
            if not self._made:
                self._make()
                self._made = True

    def _make(self) -> None:
        fresh = self.directory.with_suffix(".new")
        remove_tree(fresh)
        (fresh / "lib").mkdir(parents=True)
        for name in _NEEDED:
            source = Path("/usr/bin", name).resolve()
            shutil.copy(source, fresh / name)
            for library in _libraries(source):
                is_loader = library.name.startswith("ld-")
                shutil.copy(
                    library.resolve(), fresh / "loader" if is_loader else fresh / "lib" / library.name
                )
        for path in (fresh, fresh / "lib"):
            path.chmod(0o755)
        remove_tree(self.directory)
        fresh.rename(self.directory)


def _libraries(program: Path) -> list[Path]:
    """The loader and the libraries of a program; none of a static one."""
    done = subprocess.run(["/usr/bin/ldd", str(program)], capture_output=True, text=True, check=False)
    words = (word for line in done.stdout.splitlines() for word in line.split())
    return [Path(word) for word in words if word.startswith("/") and Path(word).is_file()]
