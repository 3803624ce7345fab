"""The image catalog: which program of this machine stands for which container image.

There is no container engine here. An image that was loaded (`imagestore`) runs as it is; any other reference such as ``redis:7.2`` is looked up in the catalog and the
machine's own ``redis-server`` is run the way the image would run it: same entry point, same default command,
working directory and volumes. What really runs is said, in the container's ``imageID`` and in the event
``Pulled``, since it may be another version than the tag asks for. Database servers, whose versions matter, are made of
Debian's packages instead (`packages`).

Entries of a file come before the built-in ones (:func:`load`), which is how other versions are registered:

    images:
    - match: ["redis:5*", "*/redis:5*"]
      extends: redis
      programs: {redis-server: /opt/redis-5.0/bin/redis-server, redis-cli: /opt/redis-5.0/bin/redis-cli}
      paths: [/opt/redis-5.0]
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mooring.local.node.entrypoints import (
    MARIADB_ENTRYPOINT,
    MYSQL_ENTRYPOINT,
    REDIS_ENTRYPOINT,
    VALKEY_ENTRYPOINT,
)
from mooring.local.node.imagestore import ImageStore, LoadedImage, StoreError
from mooring.local.node.packages import PackageImages, Recipe, version_asked
from mooring.local.node.references import ImageError, normalize

__all__ = ["Catalog", "Image", "ImageError", "Program", "load", "normalize"]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program that an image contains."""

    path: str
    package: str = ""
    """Debian package that brings it, named when it is missing."""
    remedy: str = ""
    """How to get what no package brings, said when it is missing."""
    version: tuple[str, ...] = ()
    """Arguments that make it tell its version."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """What an image brings; the first of ``programs`` is the one it is about."""

    name: str
    match: tuple[str, ...]
    programs: dict[str, Program]
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    """Scripts, by path inside."""
    working_dir: str = "/"
    volumes: tuple[str, ...] = ()
    user: str = ""
    """``USER[:GROUP]``, names or numbers; only of loaded images."""
    stop_signal: str = ""
    paths: tuple[str, ...] = ()
    """Further paths of the machine that its programs need, seen inside at the same place."""
    packaged: str = ""
    """The program whose versions are made of packages; "" where programs of the machine stand for the image."""
    own_first: bool = False
    """Of ``packaged``: the machine's own program stands for the tags that `_stands_for` says."""

    @property
    def main(self) -> tuple[str, Program]:
        """The program the image is about."""
        return next(iter(self.programs.items()))


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    match: list[str]
    name: str = ""
    extends: str = ""
    programs: dict[str, str | Program] = {}
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    env: dict[str, str] | None = None
    files: dict[str, str] | None = None
    working_dir: str | None = None
    volumes: list[str] | None = None
    paths: list[str] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    images: list[_Entry] = []


def _redis() -> dict[str, Program]:
    server = Program(path="/usr/bin/redis-server", package="redis-server", version=("--version",))
    tools = {
        name: Program(path=f"/usr/bin/{name}", package="redis-tools")
        for name in ("redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb")
    }
    # redis-sentinel is redis-server under another name: no further package is needed.
    return {"redis-server": server, "redis-sentinel": server, **tools}


def _valkey() -> dict[str, Program]:
    """As Valkey's own image has them: under the names of Redis too."""
    programs = {
        name.replace("redis-", "valkey-"): msgspec.structs.replace(
            program,
            path=program.path.replace("redis-", "valkey-"),
            package=program.package.replace("redis-", "valkey-"),
        )
        for name, program in _redis().items()
    }
    # Another name of the server, which no package has.
    programs["valkey-sentinel"] = programs["valkey-server"]
    return {**programs, **{name.replace("valkey-", "redis-"): one for name, one in programs.items()}}


def _packaged(name: str, match: tuple[str, ...], server: str, entrypoint: str) -> Image:
    """An image made of packages; with other programs (``extends``) it runs these as the image would."""
    return Image(
        name=name,
        match=match,
        programs={server: Program(path=f"/usr/sbin/{server}", version=("--version",))},
        entrypoint=("docker-entrypoint.sh",),
        cmd=(server,),
        files={"/usr/local/bin/docker-entrypoint.sh": entrypoint},
        volumes=("/var/lib/mysql",),
        packaged=name,
    )


def _matrixone_image() -> Image:
    """MatrixOne from the program that Mooring builds into its cache, laid out as in the official image."""
    # As the launcher: never a place that other users may write to.
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.environ.get("MOORING_CACHE") or os.path.join(base, "mooring")
    place = os.path.join(os.path.abspath(cache), "mo-service", "current")
    server = Program(
        path=f"{place}/mo-service",
        version=("-version",),
        remedy="build it in a checkout of Mooring: ./mooring exec python -m hack.mo_service "
        "(once, up to seven minutes and 3 GB of disk); the pod then starts by itself",
    )
    return Image(
        name="matrixone",
        match=_names("matrixone"),
        programs={"mo-service": server},
        files={"/mo-service": '#!/bin/sh\nexec /usr/local/bin/mo-service "$@"\n'},
        entrypoint=("/mo-service",),
        paths=(place,),
    )


def exporter_image(debian: Path = Path("/usr/bin/prometheus-redis-exporter")) -> Image:
    """Debian's exporter if it is installed, else our own small one (real figures from INFO)."""
    match = (
        "oliver006/redis_exporter",
        "*/redis_exporter",
        "*/redis-exporter",
        "redis_exporter",
        "redis-exporter",
    )
    if debian.exists():
        program = Program(path=str(debian), version=("--version",))
        return Image(
            name="redis-exporter", match=_any_tag(match), programs={"redis_exporter": program},
            entrypoint=("redis_exporter",),
        )  # fmt: skip
    return _own_image("redis-exporter", _any_tag(match), "redis_exporter", "mooring.local.node.exporter")


def _own_image(name: str, match: tuple[str, ...], command: str, module: str) -> Image:
    """An image of this very tree: a module of ours under a command's name."""
    source = Path(__file__).parents[3]
    script = f'#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} -m {module} "$@"\n'
    return Image(
        name=name,
        match=match,
        programs={"python3": Program(path=sys.executable, version=("--version",))},
        files={f"/usr/local/bin/{command}": script},
        entrypoint=(command,),
        paths=tuple(dict.fromkeys(map(str, (*_python_homes(), source)))),
    )


def _python_homes() -> list[Path]:
    """What an interpreter outside /usr needs: its environment and the installation it stems from."""
    homes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
    return sorted(
        home for home in homes if not home.is_relative_to("/usr") or home.is_relative_to("/usr/local")
    )


def _shell(name: str, *match: str) -> Image:
    busybox = Path("/usr/bin/busybox")
    shell = Program(path="/usr/bin/sh", package="dash")
    programs = {"sh": shell, "busybox": Program(path=str(busybox))} if busybox.exists() else {"sh": shell}
    return Image(name=name, match=_any_tag(match), programs=programs, cmd=("sh",))


def _any_tag(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name}:*" for name in names)


def _names(*names: str) -> tuple[str, ...]:
    return _any_tag(pattern for name in names for pattern in (name, f"*/{name}"))


def _redis_image(name: str, programs: dict[str, Program], entrypoint: str) -> Image:
    return Image(
        name=name,
        match=_names(name),
        programs=programs,
        entrypoint=("docker-entrypoint.sh",),
        cmd=(f"{name}-server",),
        files={"/usr/local/bin/docker-entrypoint.sh": entrypoint},
        working_dir="/data",
        volumes=("/data",),
        packaged=name,
        own_first=True,
    )


def built_in() -> list[Image]:
    """The images that are known without a file."""
    pause = Program(path="/usr/bin/sleep", package="coreutils")
    return [
        _redis_image("redis", _redis(), REDIS_ENTRYPOINT),
        _redis_image("valkey", _valkey(), VALKEY_ENTRYPOINT),
        exporter_image(),
        _own_image("mooring", _names("mooring"), "mooring", "mooring"),
        _packaged("mariadb", _names("mariadb"), "mariadbd", MARIADB_ENTRYPOINT),
        _packaged("mysql", _names("mysql"), "mysqld", MYSQL_ENTRYPOINT),
        Image(
            name="mysqld-exporter", match=_names("mysqld-exporter"), programs={}, packaged="mysqld-exporter"
        ),
        Image(
            name="memcached",
            match=_names("memcached"),
            programs={"memcached": Program(path="/usr/bin/memcached", package="memcached", version=("-V",))},
            cmd=("memcached",),
        ),
        _matrixone_image(),
        _shell("busybox", "busybox", "*/busybox"),
        _shell("alpine", "alpine", "*/alpine", "debian", "*/debian", "ubuntu", "*/ubuntu"),
        Image(
            name="pause",
            match=_names("pause"),
            programs={"pause": pause},
            files={"/usr/local/bin/pause.sh": "#!/bin/sh\nexec sleep infinity\n"},
            entrypoint=("pause.sh",),
        ),
    ]


@dataclass(frozen=True, slots=True)
class Resolved:
    """An image that can run here."""

    image: Image
    reference: str
    version: str = ""
    loaded: LoadedImage | None = None
    """The image itself, if it was loaded or made; else programs of the machine stand for it."""
    store: ImageStore | None = None
    """Where ``loaded`` is."""
    made: Recipe | None = None
    """How it was made."""

    @property
    def image_id(self) -> str:
        """For the container's status: the image's digest, or which program really runs."""
        if self.made is not None:
            name, version = self.made.packages[0], self.version.rpartition(":")[2]
            return f"debian://{self.made.suite}/{name}@{version}#{self.loaded.id if self.loaded else ''}"
        if self.loaded is not None:
            return self.loaded.reference(self.reference)
        name, program = self.image.main
        digest = hashlib.sha256(f"{program.path}{self.version}".encode()).hexdigest()
        return f"host://{program.path.lstrip('/')}@{self.version or name}#sha256:{digest[:12]}"

    @property
    def says(self) -> str:
        """For the event: the same in words."""
        if self.made is not None:
            return f"is made of Debian's packages: {self.made.packages[0]} {self.version}"
        if self.loaded is not None:
            return "already present on machine"
        name, program = self.image.main
        version = f" {self.version}" if self.version else ""
        return f"runs this machine's {name}{version} ({program.path})"


@dataclass(slots=True)
class Catalog:
    """Finds the image for a reference; the first entry that matches."""

    images: Sequence[Image] = field(default_factory=built_in)
    store: ImageStore | None = None
    """Images that were loaded; they win over the entries."""
    packages: PackageImages | None = None
    """Images made of Debian's packages."""

    def find(self, reference: str) -> Image:
        """The entry for a reference; raises :class:`ImageError` with what to do."""
        name = normalize(reference)
        for image in self.images:
            if any(fnmatchcase(name, pattern) for pattern in image.match):
                return image
        known = ", ".join(dict.fromkeys(image.name for image in self.images))
        raise ImageError(
            f'image "{reference}" is not in this node\'s catalog (it has: {known}); '
            "load it with mooring image load, add it to the file given by --images, or use one of these"
        )

    def _loaded(self, reference: str) -> LoadedImage | None:
        try:
            return self.store.find(reference) if self.store is not None else None
        except StoreError as error:
            raise ImageError(str(error)) from error

    def to_make(self, reference: str) -> Recipe | None:
        """How to make the image of a reference, ``None`` when it is there or is none of those that are made.

        Raises :class:`ImageError` when no such version can be made.
        """
        if self.packages is None or self._loaded(reference) is not None:
            return None
        recipe = self._recipe(self.find(reference), reference)
        return recipe if recipe is not None and self.packages.find(recipe) is None else None

    def _recipe(self, image: Image, reference: str) -> Recipe | None:
        """How the image of a reference is made, ``None`` where a program of the machine stands for it."""
        if not image.packaged:
            return None
        packages = self.packages or PackageImages()
        if not image.own_first:
            return packages.recipe(image.packaged, reference)
        own = image.main[1]
        there = Path(own.path).exists()
        version, asked = version_of(own) if there else "", version_asked(reference)
        if there and _stands_for(version, asked):
            return None
        try:
            return packages.recipe(image.packaged, reference)
        except ImageError as error:
            if there and _major(asked) <= _major(version):
                return None
            raise ImageError(
                f"{error}. This machine has {own.path} {version}" if there else str(error)
            ) from None

    def resolve(self, reference: str) -> Resolved:
        """The loaded image, or the entry with the version that is installed (blocking: runs the program once)."""
        if (loaded := self._loaded(reference)) is not None:
            return Resolved(_as_image(loaded), reference, loaded=loaded, store=self.store)
        image = self.find(reference)
        if (recipe := self._recipe(image, reference)) is not None:
            return self._made(recipe, reference)
        _name, program = image.main
        if not Path(program.path).exists():
            remedy = program.remedy or (program.package and f"install the Debian package {program.package}")
            lacks = f'image "{reference}" needs {program.path}, which this machine lacks'
            raise ImageError(f"{lacks}: {remedy}" if remedy else lacks)
        return Resolved(image, reference, version_of(program))

    def _made(self, recipe: Recipe, reference: str) -> Resolved:
        packages = self.packages or PackageImages()
        loaded = packages.find(recipe)
        if loaded is None:
            raise ImageError(f'image "{reference}" was not made yet: mooring image make {reference}')
        return Resolved(
            _as_image(loaded), reference, loaded.created, loaded=loaded, store=packages.store, made=recipe
        )


def _as_image(loaded: LoadedImage) -> Image:
    config = loaded.config
    return Image(
        name=loaded.names[0] if loaded.names else loaded.id,
        match=(),
        programs={},
        entrypoint=tuple(config.entrypoint or ()),
        cmd=tuple(config.cmd or ()),
        env=dict(pair.split("=", 1) for pair in config.env or () if "=" in pair),
        working_dir=config.working_dir or "/",
        volumes=tuple(config.volumes or ()),
        user=config.user,
        stop_signal=config.stop_signal,
    )


def _stands_for(version: str, asked: str | None) -> bool:
    """Whether a program of the machine is what a tag asks for: the same series, or any ("", ``None``)."""
    return not asked or version.split(".")[: asked.count(".") + 1][:2] == asked.split(".")[:2]


def _major(version: str | None) -> int:
    return int((version or "0").partition(".")[0])


def version_of(program: Program) -> str:
    """The version a program tells of itself, ``""`` if it does not."""
    if not program.version:
        return ""
    return _version(program.path, program.version, Path(program.path).stat().st_mtime_ns)


@cache
def _version(path: str, arguments: tuple[str, ...], _modified: int) -> str:
    try:
        done = subprocess.run([path, *arguments], capture_output=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+\.\d+(\.\d+)?", (done.stdout + done.stderr).decode(errors="replace"))
    return found.group() if found else ""


def load(path: Path | None = None) -> Catalog:
    """The built-in catalog with the entries of a file before it; raises ValueError naming what is wrong."""
    images = built_in()
    if path is None:
        return Catalog(images)
    try:
        entries = msgspec.convert(yaml.safe_load(path.read_text()) or {}, _File).images
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"image catalog {path}: {error}") from error
    known = {image.name: image for image in images}
    return Catalog([*(_extended(entry, known, path) for entry in entries), *images])


def _extended(entry: _Entry, known: Mapping[str, Image], path: Path) -> Image:
    base = known.get(entry.extends)
    if entry.extends and base is None:
        raise ValueError(
            f"image catalog {path}: extends {entry.extends!r}, which is none of {', '.join(known)}"
        )
    programs = {
        name: program if isinstance(program, Program) else _program(base, name, program)
        for name, program in entry.programs.items()
    }
    if base is None and not programs:
        raise ValueError(f"image catalog {path}: {entry.match} names neither programs nor what it extends")
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in msgspec.structs.asdict(entry).items()
        if value is not None and name not in ("programs", "extends", "match", "name")
    }
    fields |= {"match": tuple(entry.match), "programs": programs | _others(base, programs)}
    if programs:
        fields["packaged"] = ""
    if base is None:
        return Image(name=entry.name or entry.match[0], **fields)
    return msgspec.structs.replace(base, name=entry.name or base.name, **fields)


def _program(base: Image | None, name: str, path: str) -> Program:
    old = base.programs.get(name) if base else None
    return Program(path=path, version=old.version if old else ())


def _others(base: Image | None, programs: Mapping[str, Program]) -> dict[str, Program]:
    if base is None:
        return {}
    others = {name: program for name, program in base.programs.items() if name not in programs}
    # redis-sentinel follows redis-server, of which it is another name.
    if "redis-server" in programs and "redis-sentinel" in others:
        others["redis-sentinel"] = programs["redis-server"]
    return others


def which(command: str) -> str | None:
    """Where a command of the machine lies, on the path that containers have."""
    return shutil.which(command, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
