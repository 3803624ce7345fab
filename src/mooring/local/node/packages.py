"""Images made of Debian's packages, on their first use: database servers in versions that the machine has not installed.

    <cache>/packages/index.json, layers/...   an image store (`imagestore`) that all planes of a user share
    <cache>/packages/apt/<suite>/             apt's lists and archives for one suite of Debian

apt resolves and checks the packages of a suite against an empty machine, with lists and a cache of its own: nothing is
installed on the machine, no script of a package runs. Their files become the root of an image, which then runs like
one that was loaded. The mirror is the one that the machine's apt uses.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mooring.local.node.entrypoints import (
    MARIADB_ENTRYPOINT,
    MYSQL_ENTRYPOINT,
    REDIS_ENTRYPOINT,
    VALKEY_ENTRYPOINT,
)
from mooring.local.node.imagestore import ImageConfig, ImageStore, LoadedImage, StoreError
from mooring.local.node.references import ImageError, normalize
from mooring.local.removal import remove_tree

__all__ = ["RECIPES", "PackageImages", "Recipe", "cache_directory", "version_asked"]

Say = Callable[[str], None]
"""Takes what is being done, for a person who waits."""

_SOURCES = Path("/etc/apt")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MERGED = ("bin", "sbin", "lib", "lib64")
#: What no program reads.
_NEEDLESS = (
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/info",
    "./usr/share/locale",
    "./usr/share/lintian",
)
_DEADLINE = 900.0
#: Counted up when `_unpack` makes something else of the same packages.
_FORM = 3
_BASE = ("openssl", "dash", "coreutils", "sed", "grep", "mawk", "zstd", "libc-bin")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an image is made, and which tags it stands for."""

    program: str
    """Name of the image, without its tag."""
    series: str
    """The version's first numbers: "10.11"."""
    suite: str
    """Of Debian."""
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Files, below the root, that the image of the same name elsewhere has not."""
    links: tuple[tuple[str, str], ...] = ()
    """Further names of programs: path and what it leads to."""
    entrypoint: str = ""
    """Script that starts the program as the image of the same name elsewhere does."""
    command: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in the store; another recipe has another one."""
        digest = hashlib.sha256(f"{_FORM}{self!r}".encode()).hexdigest()
        return f"packages/{self.program}:{self.series}-{digest[:12]}"

    def serves(self, version: str) -> bool:
        """Whether a version of a tag ("", "10", "10.11", "10.11.6") is one of this series."""
        asked, own = version.split("."), self.series.split(".")
        return not version or asked[: len(own)] == own[: len(asked)]


def _mariadb(series: str, suite: str, *more: str) -> Recipe:
    return Recipe(
        program="mariadb",
        series=series,
        suite=suite,
        packages=(
            *("mariadb-server-core", "mariadb-client", "mariadb-client-core", "mariadb-backup", "socat"),
            *more,
            *_BASE,
        ),
        entrypoint=MARIADB_ENTRYPOINT,
        command=("mariadbd",),
        volumes=("/var/lib/mysql",),
    )


def _redis(program: str, series: str, suite: str, entrypoint: str) -> Recipe:
    """Redis or Valkey, whose packages have the same parts under their own names."""
    return Recipe(
        program=program,
        series=series,
        suite=suite,
        packages=(f"{program}-server", f"{program}-tools", "hostname", "util-linux", *_BASE),
        entrypoint=entrypoint,
        command=(f"{program}-server",),
        volumes=("/data",),
    )


RECIPES: Sequence[Recipe] = (
    _mariadb("11.8", "trixie"),
    _mariadb("10.11", "bookworm", "mariadb-plugin-provider-lz4"),
    Recipe(
        program="mysql",
        series="9.7",
        suite="sid",
        packages=("mysql-server-core", "mysql-client-core", *_BASE),
        # Docker's official image has none of them: what relies on them would fail there.
        without=("usr/bin/mysqlbinlog",),
        entrypoint=MYSQL_ENTRYPOINT,
        command=("mysqld",),
        volumes=("/var/lib/mysql",),
    ),
    Recipe(
        program="mysqld-exporter",
        series="0",
        suite="bookworm",
        packages=("prometheus-mysqld-exporter", *_BASE),
        links=(("usr/local/bin/mysqld_exporter", "/usr/bin/prometheus-mysqld-exporter"),),
        entrypoint='#!/bin/sh\nexec mysqld_exporter "$@"\n',
    ),
    _redis("redis", "8.0", "trixie", REDIS_ENTRYPOINT),
    _redis("valkey", "9.1", "sid", VALKEY_ENTRYPOINT),
    _redis("valkey", "8.1", "trixie", VALKEY_ENTRYPOINT),
)
"""The newest series of a program first: a tag without a version means that one."""


class PackageImages:
    """Finds images that were made, and makes them; one of these per plane, the store is shared."""

    def __init__(self, directory: Path | None = None, *, recipes: Sequence[Recipe] = RECIPES) -> None:
        """``directory``: default `cache_directory`."""
        self.directory = directory or cache_directory()
        self.store = ImageStore(self.directory)
        self._recipes = recipes
        self._making: dict[str, _Making] = {}

    def recipe(self, program: str, reference: str) -> Recipe:
        """The recipe for a reference; raises :class:`ImageError` with the versions that can be made."""
        version = version_asked(reference)
        own = [one for one in self._recipes if one.program == program]
        found = next((one for one in own if version is not None and one.serves(version)), None)
        if found is None:
            known = ", ".join(f"{program}:{one.series}" for one in own)
            raise ImageError(
                f'image "{reference}" cannot be made on this node: of {program}, Debian\'s packages have the '
                f"versions of {known}; use one of these, or load the image with mooring image load"
            )
        return found

    def find(self, recipe: Recipe) -> LoadedImage | None:
        """The image of a recipe, ``None`` before it was made."""
        return self.store.find(recipe.name)

    async def obtain(self, recipe: Recipe, say: Say) -> LoadedImage:
        """Make an image unless it is there; one thread does it however many wait. Raises :class:`ImageError`."""
        if (found := self.find(recipe)) is not None:
            return found
        making = self._making.get(recipe.name)
        if making is None:
            making = self._making[recipe.name] = _Making()
            loop = asyncio.get_running_loop()

            def tell(text: str) -> None:
                loop.call_soon_threadsafe(making.tell, text)

            making.task = asyncio.create_task(asyncio.to_thread(self.make, recipe, tell))
            making.task.add_done_callback(lambda _: self._making.pop(recipe.name, None))
        making.listeners.append(say)
        making.tell(making.said, only=say)
        assert making.task is not None
        try:
            return await asyncio.shield(making.task)
        finally:
            making.listeners.remove(say)

    def make(self, recipe: Recipe, say: Say = lambda text: None) -> LoadedImage:
        """Make an image unless it is there (blocking, 10 to 60 s); raises :class:`ImageError`."""
        try:
            with self.store.locked():
                return self.find(recipe) or self._make(recipe, say)
        except (OSError, StoreError, subprocess.TimeoutExpired) as error:
            raise ImageError(f"image {recipe.program}:{recipe.series} cannot be made: {error}") from error

    def _make(self, recipe: Recipe, say: Say) -> LoadedImage:
        apt = _Apt(self.directory / "apt" / recipe.suite, recipe.suite)
        say(f"reading the lists of Debian {recipe.suite}")
        wanted = apt.resolve(recipe.packages)
        size = sum(one.size for one in wanted)
        say(f"fetching {len(wanted)} packages of Debian {recipe.suite}, {size / 1e6:.0f} MB")
        archives = apt.fetch(recipe.packages, wanted)
        say(f"unpacking {len(wanted)} packages")
        digest = hashlib.sha256("\n".join([recipe.name, *(one.file for one in wanted)]).encode()).hexdigest()
        chain = f"sha256:{digest}"
        target = self.store.layer(chain)
        work = target.with_suffix(".new")
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_tree(work)
        work.mkdir(0o755)
        try:
            _unpack(archives, work, recipe)
            remove_tree(target)
            work.rename(target)
        except BaseException:
            remove_tree(work)
            raise
        apt.clean()
        return self.store.add(
            LoadedImage(
                id=chain,
                names=(recipe.name,),
                chain=(chain,),
                size=_bytes_of(target),
                created=wanted[0].version,
                config=ImageConfig(
                    env=[_PATH],
                    entrypoint=["docker-entrypoint.sh"] if recipe.entrypoint else None,
                    cmd=list(recipe.command) or None,
                    working_dir="/",
                    volumes={volume: {} for volume in recipe.volumes} or None,
                ),
            )
        )


def cache_directory() -> Path:
    """Where images that can be made again are kept: in the launcher's cache."""
    if chosen := os.environ.get("MOORING_CACHE"):
        return Path(chosen).absolute() / "packages"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "mooring" / "packages"


@dataclass(slots=True)
class _Making:
    task: asyncio.Task[LoadedImage] | None = None
    said: str = ""
    listeners: list[Say] = field(default_factory=list)

    def tell(self, text: str, *, only: Say | None = None) -> None:
        self.said = text
        for listener in self.listeners if only is None else [only]:
            if text:
                listener(text)


def version_asked(reference: str) -> str | None:
    """The version that a reference's tag asks for, "" for the newest, ``None`` for a tag that names none."""
    tag = normalize(reference).rpartition(":")[2]
    word = tag.removeprefix("v").partition("-")[0]
    if word in ("latest", "lts", "stable", "innovation"):
        return ""
    return word if re.fullmatch(r"\d+(\.\d+){0,2}", word) else None


# --- apt


@dataclass(frozen=True, slots=True)
class _Package:
    file: str
    """Name in apt's cache: package, version and architecture."""
    size: int

    @property
    def version(self) -> str:
        return self.file.split("_")[1].replace("%3a", ":")


class _Apt:
    """apt-get for one suite, with lists, cache and sources of its own, against an empty machine."""

    def __init__(self, directory: Path, suite: str) -> None:
        self._directory, self._suite = directory, suite
        self._archives = directory / "archives"

    def resolve(self, names: Sequence[str]) -> list[_Package]:
        """The packages and all that they need; the first is the first that was asked for."""
        self._prepare()
        self._run("update")
        said = self._run("--print-uris", "install", *names)
        found = re.findall(r"^'[^']+' (\S+\.deb) (\d+)", said, re.MULTILINE)
        packages = sorted((_Package(file, int(size)) for file, size in found), key=lambda one: one.file)
        return sorted(packages, key=lambda one: not one.file.startswith(f"{names[0]}_"))

    def fetch(self, names: Sequence[str], packages: Sequence[_Package]) -> list[Path]:
        """The archives, checked by apt."""
        self._run("--download-only", "install", *names)
        return [self._archives / package.file for package in packages]

    def clean(self) -> None:
        """Remove the archives; the lists are kept."""
        with suppress(OSError):
            remove_tree(self._archives)

    def _prepare(self) -> None:
        for name in ("state/lists/partial", "archives/partial", "etc"):
            (self._directory / name).mkdir(parents=True, exist_ok=True)
        (self._directory / "state/status").touch()
        mirrors = _mirrors()
        main = mirrors.get("debian")
        if main is None or not _KEYRING.is_file():
            raise ImageError(
                "packages of Debian are not to be had here: apt's sources name no Debian archive, or the package "
                "debian-archive-keyring is missing; load the image with mooring image load"
            )
        signed = f"[signed-by={_KEYRING}]"
        lines = [f"deb {signed} {main} {self._suite} main"]
        security = mirrors.get("debian-security")
        if security is not None and self._suite != "sid":
            lines.append(f"deb {signed} {security} {self._suite}-security main")
        (self._directory / "etc/sources.list").write_text("\n".join(lines) + "\n")

    def _run(self, *words: str) -> str:
        place = self._directory
        options = [
            *(f"Dir::State={place}/state", f"Dir::State::status={place}/state/status", f"Dir::Cache={place}"),
            *(f"Dir::Cache::archives={place}/archives", f"Dir::Etc::sourcelist={place}/etc/sources.list"),
            *("Dir::Etc::sourceparts=/dev/null", "Dir::Etc::preferencesparts=/dev/null"),
            *("Acquire::Languages=none", "APT::Sandbox::User=root", "Debug::NoLocking=1"),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ]
        command = [
            "apt-get",
            "-y",
            "-qq",
            "--no-install-recommends",
            *(f"-o{one}" for one in options),
            *words,
        ]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_DEADLINE, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except FileNotFoundError:
            raise ImageError(
                "this machine has no apt-get: load the image with mooring image load instead"
            ) from None
        if done.returncode:
            last = " ".join(done.stderr.split())[-400:]
            raise ImageError(
                f"packages of Debian {self._suite} cannot be fetched (a plane of a plain user has no way out: run "
                f"mooring image make first): apt-get {words[0]}: {last}"
            )
        return done.stdout


def _mirrors() -> dict[str, str]:
    """The addresses of Debian's archives that the machine's apt uses, by their last part."""
    found: dict[str, str] = {}
    files = [_SOURCES / "sources.list"]
    with suppress(OSError):
        files += sorted((_SOURCES / "sources.list.d").iterdir())
    for file in files:
        with suppress(OSError, UnicodeDecodeError):
            for uri in re.findall(
                r"\b(?:https?|file|copy|mirror\+\w+)://?[^\s\]]+", _uncommented(file.read_text())
            ):
                kind = uri.rstrip("/").rpartition("/")[2]
                if kind in ("debian", "debian-security"):
                    found.setdefault(kind, uri)
    return found


def _uncommented(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


# --- the root


def _unpack(archives: Sequence[Path], root: Path, recipe: Recipe) -> None:
    """The files of packages below a directory, as an installed machine has them."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    exclude = [f"--exclude={path}" for path in _NEEDLESS]
    owner = [] if os.geteuid() == 0 else ["--no-same-owner"]
    for archive in archives:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as reading:
            done = subprocess.run(
                ["tar", "-x", "--keep-directory-symlink", *owner, *exclude, "-C", root],
                stdin=reading.stdout, capture_output=True, text=True, timeout=_DEADLINE, check=False,
            )  # fmt: skip
        if done.returncode or reading.returncode:
            raise StoreError(f"{archive.name} cannot be unpacked: {done.stderr[-300:]}")
    for name in (
        "proc",
        "dev",
        "sys",
        "run",
        "root",
        "home",
        "etc",
        "usr/local/bin",
        "var/log",
        "var/lib/mysql",
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp", "run/mysqld", "var/lib/mysql", "var/lib/mysql-files"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(0o1777)
    if not (root / "var/run").is_symlink() and not (root / "var/run").exists():
        (root / "var/run").symlink_to("../run")
    # What the packages' scripts would have made.
    for path, leads_to in (("usr/bin/awk", "mawk"), ("usr/bin/sh", "dash"), *recipe.links):
        if not os.path.lexists(root / path):
            (root / path).symlink_to(leads_to)
    accounts = {"root": (0, "/root"), "mysql": (999, "/var/lib/mysql"), "nobody": (65534, "/")}
    (root / "etc/passwd").write_text(
        "".join(f"{name}:x:{uid}:{uid}::{home}:/bin/sh\n" for name, (uid, home) in accounts.items())
    )
    (root / "etc/group").write_text("".join(f"{name}:x:{uid}:\n" for name, (uid, _) in accounts.items()))
    (root / "etc/hosts").write_text("127.0.0.1\tlocalhost\n")
    for path in recipe.without:
        (root / path).unlink(missing_ok=True)
    if recipe.entrypoint:
        script = root / "usr/local/bin/docker-entrypoint.sh"
        script.write_text(recipe.entrypoint)
        script.chmod(0o755)


def _bytes_of(root: Path) -> int:
    done = subprocess.run(["du", "-sb", root], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) if done.returncode == 0 else 0
