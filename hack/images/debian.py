"""A root filesystem out of Debian packages, as one tar stream: no root, no container engine, no scripts run.

apt resolves and checks the packages against an empty machine; their files are copied from the archives straight
into the layer, under merged /usr and with one fixed time, so that the same packages give the same bytes.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hack.kubernetes.binaries import cache_root

__all__ = ["MOMENT", "DebianError", "Package", "fetch", "resolve", "unpack"]

#: Modification time of every file in an image, seconds since 1970.
MOMENT = 1767225600
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_NEEDLESS = re.compile(
    r"usr/share/(doc|man|info|locale|lintian|bug|menu|bash-completion|zsh|debianutils|perl5|pam)/|"
    r"(etc|usr/lib)/(systemd|init\.d|cron|pam|default|logrotate|tmpfiles)|usr/lib/python3/dist-packages/"
)
_DEADLINE = 600.0


class DebianError(RuntimeError):
    """Packages could not be had; the message holds apt's last words."""


@dataclass(frozen=True)
class Package:
    """One archive: its file name in apt's cache names package, version and architecture."""

    file: str

    @property
    def name(self) -> str:
        """The package's name."""
        return self.file.partition("_")[0]


def resolve(names: Sequence[str], *, without: Iterable[str] = ()) -> list[Package]:
    """These packages and all that they need, but for those named in `without` and what only they would run."""
    dropped = set(without)
    with tempfile.TemporaryDirectory(prefix="mooring-apt-") as empty:  # apt names only what it has not got
        said = _apt(Path(empty), "--print-uris", "install", *names)
    found = re.findall(r"^'[^']+' (\S+\.deb) ", said, re.MULTILINE)
    return sorted((Package(file) for file in found if Package(file).name not in dropped), key=_file)


def fetch(names: Sequence[str], packages: Sequence[Package]) -> list[Path]:
    """The archives of resolved packages, from the cache or the mirror, checked by apt."""
    archives = cache_root() / "debian"
    if any(not (archives / package.file).exists() for package in packages):
        _apt(archives, "--download-only", "install", *names)
    return [archives / package.file for package in packages]


def unpack(archives: Iterable[Path], layer: tarfile.TarFile) -> None:
    """Copy the files of these archives into a layer."""
    seen = {*_MERGED}
    for name in _MERGED:
        link = tarfile.TarInfo(name)
        link.type, link.linkname, link.mtime = tarfile.SYMTYPE, f"usr/{name}", MOMENT
        layer.addfile(link)
    for archive in archives:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as unpacking:
            assert unpacking.stdout is not None
            with tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
                for member in files:
                    _copy(member, files, layer, seen)
        if unpacking.returncode:
            raise DebianError(f"dpkg-deb cannot read {archive}: remove it, and it is fetched again")


def _copy(member: tarfile.TarInfo, files: tarfile.TarFile, layer: tarfile.TarFile, seen: set[str]) -> None:
    name = _merged(member.name)
    if not name or name in seen or _NEEDLESS.match(f"{name}/") or member.isdev():
        return
    seen.add(name)
    content: IO[bytes] | None = files.extractfile(member) if member.isreg() else None
    member.name, member.mtime, member.pax_headers = name, MOMENT, {}
    if member.islnk():
        member.linkname = _merged(member.linkname)
    layer.addfile(member, content)


def _merged(name: str) -> str:
    """A path without its leading ./, below usr where Debian has merged it there."""
    clean = posixpath.normpath(name.removeprefix("./")).lstrip("/")
    first, _, rest = clean.partition("/")
    if clean in (".", *_MERGED):
        return f"usr/{clean}" if clean in _MERGED else ""
    return f"usr/{clean}" if first in _MERGED and rest else clean


def _file(package: Package) -> str:
    return package.file


def _apt(archives: Path, *words: str) -> str:
    """apt-get against an empty machine; with fresh lists when those here lead nowhere."""
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    status = archives / "nothing-installed"
    status.touch()
    options = [
        *("Debug::NoLocking=1", "APT::Install-Suggests=0", "APT::Sandbox::User=root"),
        *(f"Dir::State::status={status}", f"Dir::Cache::archives={archives}"),
    ]
    command = ["apt-get", "-y", "-qq", "--no-install-recommends", *(f"-o{one}" for one in options)]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}

    def run(*what: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            what, env=environment, capture_output=True, text=True, timeout=_DEADLINE, check=False
        )

    done = run(*command, *words)
    if done.returncode:
        print("images: apt's lists are of no use: fetching them", file=sys.stderr, flush=True)
        run("apt-get", "update", "-qq")
        done = run(*command, *words)
    if done.returncode:
        raise DebianError(f"apt-get {' '.join(words)} failed:\n{done.stderr[-1500:]}")
    return done.stdout
