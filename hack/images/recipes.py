"""The images of the real cluster: Mooring's own, and Redis and its exporter made of Debian's packages.

    python hack/images/recipes.py [NAME ...] [--print]

Each is built once into the cache, named by everything that decides its bytes; the paths are printed. Mooring's
is what the Dockerfile at the root of the tree makes: Debian's Python, the locked wheels, the package.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(ROOT))

from hack.images.archive import Config, add_directory, add_file, add_link, add_tree, write  # noqa: E402
from hack.images.debian import DebianError, fetch, resolve, unpack  # noqa: E402
from hack.kubernetes.binaries import BuildError, build_module, cache_root  # noqa: E402

from hack import mo_service  # noqa: E402

__all__ = ["ASKED", "IMAGES", "Recipe", "build", "make", "mooring_version"]

#: Packages that others need to be installed, and nothing here to run.
_INSTALLERS = (
    *("adduser", "passwd", "dpkg", "tar", "debconf", "lsb-base", "sysvinit-utils", "init-system-helpers"),
    *("perl", "perl-base", "perl-modules-5.36", "libperl5.36", "usrmerge", "libgdbm6", "libgdbm-compat4"),
    *("libnumber-compare-perl", "libtext-glob-perl", "libfile-find-rule-perl", "libdb5.3", "gcc-12-base"),
    *("libsemanage2", "libsemanage-common", "libsepol2", "libpam-modules", "libpam-modules-bin"),
    *("libaudit-common", "util-linux-extra", "media-types", "readline-common", "libnsl2", "libtirpc3"),
    *("libtirpc-common", "libkrb5-3", "libkrb5support0", "libk5crypto3", "libgssapi-krb5-2", "libkeyutils1"),
)
_SHELL = ("dash", "coreutils", "sed", "grep", "mawk", "util-linux", "procps")
#: What the scripts of backups need beside Python.
_TOOLS = ("sh", "cat", "grep", "head", "mv", "sed", "sleep", "tail")
#: The embedded control plane does not run in a pod.
_LEFT_OUT = ROOT / "src" / "mooring" / "local"
#: Uid and gid of the operator; no name is needed for it.
OPERATOR = 65532
#: The version that docs/operations.md upgrades to.
NEXT = "0.2.0"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an image is made: `base`, another's archive, or Debian packages, then what `fill` adds.

    `without` are packages that are needed to install others, and not to run them; `inputs` is what else decides
    its bytes.
    """

    config: Callable[[], Config]
    base: Callable[[], Path] | None = None
    packages: Sequence[str] = ()
    without: Sequence[str] = _INSTALLERS
    fill: Callable[[tarfile.TarFile], None] = lambda layer: None
    inputs: Callable[[], bytes] = bytes


def mooring_version() -> str:
    """The version of this tree, as the chart's appVersion has it."""
    lines = (ROOT / "charts" / "mooring" / "Chart.yaml").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith("appVersion:"))


def build(name: str) -> Path:
    """The archive of an image of the real cluster; built on first use."""
    return make(name, IMAGES[name] if name in IMAGES else ASKED[name])


def make(name: str, recipe: Recipe) -> Path:
    """The archive that a recipe makes; built on first use (seconds, with the packages and wheels at hand)."""
    base = recipe.base() if recipe.base else None
    packages = resolve(recipe.packages, without=recipe.without) if recipe.packages else []
    parts = [
        *(Path(__file__).with_name(one).read_bytes() for one in ("recipes.py", "archive.py", "debian.py")),
        "\n".join(package.file for package in packages).encode(),
        repr(recipe.config()).encode(),
        recipe.inputs(),
        base.name.encode() if base else b"",
    ]
    key = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]
    target = cache_root() / "images" / f"{name}-{key}.tar"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}.") as place:
            layer = Path(place) / "layer.tar"
            with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as files:
                if base is None:
                    unpack(fetch(recipe.packages, packages) if packages else [], files)
                    _add_base(files)
                recipe.fill(files)
            write(recipe.config(), layer, Path(place) / "image.tar", base=base)
            (Path(place) / "image.tar").rename(target)
    return target


def _add_base(layer: tarfile.TarFile) -> None:
    """What Debian's scripts would have made: accounts, a place for temporary files, mount points."""
    for name in ("proc", "sys", "dev", "run", "data"):
        add_directory(layer, name)
    add_directory(layer, "tmp", mode=0o1777)
    accounts = {"root": 0, "redis": 999, "mysql": 999, "nonroot": OPERATOR, "nobody": 65534}
    passwd = "".join(f"{name}:x:{uid}:{uid}::/tmp:/usr/sbin/nologin\n" for name, uid in accounts.items())
    add_file(layer, "etc/passwd", passwd.encode())
    add_file(layer, "etc/group", "".join(f"{name}:x:{gid}:\n" for name, gid in accounts.items()).encode())
    add_file(layer, "etc/nsswitch.conf", b"hosts: files dns\n")


# --- Mooring itself --------------------------------------------------------------------------------------------


def _mooring_config() -> Config:
    return Config(
        name=f"docker.io/library/mooring:{mooring_version()}",
        entrypoint=("/usr/bin/python3", "-m", "mooring"),
        command=("run",),
        user=f"{OPERATOR}:{OPERATOR}",
        environment={"PYTHONPATH": "/opt/mooring", "PYTHONUNBUFFERED": "1", "HOME": "/tmp"},
        labels={
            "org.opencontainers.image.title": "mooring",
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    )


def _sources() -> list[Path]:
    source = ROOT / "src" / "mooring"
    files = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in files if not path.is_relative_to(_LEFT_OUT))


def _mooring_inputs() -> bytes:
    return b"\0".join(
        [
            _locked().encode(),
            *(str(path.relative_to(ROOT)).encode() + path.read_bytes() for path in _sources()),
        ]
    )


def _fill_mooring(layer: tarfile.TarFile) -> None:
    with tempfile.TemporaryDirectory(prefix="mooring-image-") as place:
        tree = Path(place) / "opt"
        shutil.copytree(_wheels(), tree)
        # CEL's extensions are of use to the embedded control plane alone.
        shutil.rmtree(tree / "cel_expr_python" / "ext")
        for path in _sources():
            copy = tree / path.relative_to(ROOT / "src")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        if sys.version_info[:2] == (
            3,
            11,
        ):  # byte code of the image's own Python: a start takes half the time
            compiling = [sys.executable, "-m", "compileall", "-q", "-s", str(tree), "-p", "/opt/mooring"]
            # The launcher keeps byte code elsewhere; the image's belongs beside its sources.
            beside = {key: value for key, value in os.environ.items() if key != "PYTHONPYCACHEPREFIX"}
            compiling += ["--invalidation-mode=unchecked-hash", str(tree)]
            subprocess.run(compiling, env=beside, check=False)
        add_directory(layer, "opt")
        add_tree(layer, tree, "opt/mooring")
    for name in _TOOLS:
        add_link(layer, f"usr/bin/{name}", "busybox")


def _locked() -> str:
    """The locked requirements of the image: every condition in them holds for Debian 12's Python 3.11.2."""
    return re.sub(r" ; [^\\\n]*", " ", (ROOT / "requirements" / "operators.txt").read_text())


def _wheels() -> Path:
    """The locked wheels for the image's Python, unpacked into the cache."""
    lock = _locked()
    target = cache_root() / "wheels" / hashlib.sha256(lock.encode()).hexdigest()[:16]
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=".wheels."))
        platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 26, 24, 17)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        fixed = [
            "--require-hashes",
            "--no-deps",
            "--no-compile",
            "--only-binary=:all:",
            "--python-version=3.11",
        ]
        platforms.append("--platform=manylinux2014_x86_64")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(lock)
            file.flush()
            done = subprocess.run(
                [*pip, *fixed, *platforms, "--target", staging, "-r", file.name],
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            shutil.rmtree(staging)
            raise BuildError(f"pip could not fetch the locked wheels:\n{done.stderr[-1500:]}")
        for needless in (*staging.rglob("*.pyi"), *staging.rglob("*.pxd"), *staging.rglob("*.pyx")):
            needless.unlink()
        for needless in [*staging.rglob("tests"), *staging.rglob("test"), staging / "bin"]:
            shutil.rmtree(needless, ignore_errors=True)
        staging.chmod(0o755)
        staging.rename(target)
    return target


# --- what pods run -------------------------------------------------------------------------------------------


def _fill_pause(layer: tarfile.TarFile) -> None:
    add_file(layer, "pause", _pause().read_bytes(), mode=0o755)


def _pause() -> Path:
    return build_module(ROOT / "hack" / "kubernetes" / "pause", "pause")


IMAGES: dict[str, Recipe] = {
    "pause": Recipe(
        config=lambda: Config(name="localhost/pause:1", entrypoint=("/pause",), user="65535:65535"),
        fill=_fill_pause,
        inputs=lambda: _pause().read_bytes(),
    ),
    "redis": Recipe(
        config=lambda: Config(name="docker.io/library/redis:7.0", command=("redis-server",)),
        packages=("redis-server", "redis-tools", *_SHELL),
    ),
    # As the official image: it starts as root, and its servers run as mysql.
    "mariadb": Recipe(
        config=lambda: Config(name="docker.io/library/mariadb:10.11", command=("mariadbd",)),
        packages=(
            *("mariadb-server-core", "mariadb-client", "mariadb-client-core", "mariadb-backup"),
            *("mariadb-plugin-provider-lz4", "gzip", "zstd", *_SHELL),
        ),
    ),
    "exporter": Recipe(
        config=lambda: Config(
            name="docker.io/oliver006/redis_exporter:latest",
            entrypoint=("/usr/bin/prometheus-redis-exporter",),
        ),
        packages=("prometheus-redis-exporter",),
    ),
    "mooring": Recipe(
        config=_mooring_config,
        packages=("python3-minimal", "libpython3.11-stdlib", "busybox"),
        fill=_fill_mooring,
        inputs=_mooring_inputs,
    ),
    # The same again under another version, for upgrades on a bed.
    "mooring-next": Recipe(
        config=lambda: replace(_mooring_config(), name=f"docker.io/library/mooring:{NEXT}"),
        base=lambda: build("mooring"),
    ),
}

#: Images whose programs take minutes to build: only for tests that ask for them.
ASKED: dict[str, Recipe] = {
    # As the official image: the server is /mo-service.
    "matrixone": Recipe(
        config=lambda: Config(
            name=f"docker.io/matrixorigin/matrixone:{mo_service.VERSION}", entrypoint=("/mo-service",)
        ),
        packages=("libc-bin", *_SHELL),
        fill=lambda layer: add_file(layer, "mo-service", mo_service.build().read_bytes(), mode=0o755),
        inputs=lambda: mo_service.build().parent.name.encode(),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Build images and print where they are, how large they are and how they are called."""
    parser = argparse.ArgumentParser(prog="recipes.py", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", default=["mooring"], metavar="NAME", help=", ".join([*IMAGES, *ASKED])
    )
    parser.add_argument("--output", type=Path, help="copy the archive of the one image there")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            path = build(name)
            print(f"{(IMAGES | ASKED)[name].config().name}: {path.stat().st_size / 2**20:.1f} MiB, {path}")
            if options.output is not None:
                shutil.copyfile(path, options.output)
    except (BuildError, DebianError, KeyError) as failed:
        print(f"images: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
