"""Reads images from files: docker archives (``docker save``) and OCI layouts, as a tar or a directory.

A tar may be compressed as a whole, layers may be compressed by themselves; digests are checked by whoever
unpacks (:class:`Layer` tells the digest of what was read).
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, cast

import msgspec

__all__ = ["ArchiveError", "ArchivedImage", "Layer", "opened"]

_JSON_LIMIT = 8 << 20
_LINKS = 10
_CHUNK = 1 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")

JsonObject = dict[str, Any]


class ArchiveError(ValueError):
    """A file that holds no image that could be loaded; the message says why."""


class _Files(Protocol):
    """The files of an archive or a directory."""

    def open(self, name: str) -> IO[bytes]:
        """A file's content; raises ArchiveError when it is not there."""
        ...

    def has(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: where it is, and the digest of its file if its archive tells one."""

    files: _Files
    name: str
    digest: str = ""

    def open(self) -> AbstractContextManager[Hashing]:
        """The uncompressed tar; at its end the digests of both forms are known."""
        return _decompressed(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedImage:
    """One image of an archive."""

    names: Sequence[str]
    config: bytes
    manifest_digest: str
    layers: Sequence[Layer]


class Hashing(io.RawIOBase):
    """Reads on, and counts and hashes what was read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self._hash = source, hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data

    @property
    def digest(self) -> str:
        """``sha256:...`` of what was read so far."""
        return f"sha256:{self._hash.hexdigest()}"


@contextmanager
def opened(path: Path) -> Iterator[list[ArchivedImage]]:
    """The images of a file or directory, readable while the context lasts; raises :class:`ArchiveError`."""
    with ExitStack() as stack:
        try:
            files: _Files = _Directory(path) if path.is_dir() else stack.enter_context(_tar(path))
            if files.has("manifest.json"):
                images = list(_docker(files))
            elif files.has("index.json"):
                images = list(_layout(files))
            else:
                raise ArchiveError("it has neither manifest.json (docker save) nor index.json (OCI layout)")
        except (
            OSError,
            EOFError,
            tarfile.TarError,
            lzma.LZMAError,
            ArchiveError,
            msgspec.MsgspecError,
        ) as error:
            raise ArchiveError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ArchiveError(f"{path}: its description of the image is broken: {error!r}") from error
        yield images


# --- where the files are


class _Directory:
    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def has(self, name: str) -> bool:
        return (self._path / name).is_file()

    def open(self, name: str) -> IO[bytes]:
        path = (self._path / name).resolve()
        if not path.is_relative_to(self._path) or not path.is_file():
            raise ArchiveError(f"{name} is missing")
        return path.open("rb")


class _Tar:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members = {str(PurePosixPath(member.name)): member for member in tar}

    def has(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        for _ in range(_LINKS):
            member = self._members.get(name)
            if member is None:
                break
            if member.issym():  # how docker save shares a layer between images
                name = _joined(PurePosixPath(name).parent, member.linkname)
            elif member.islnk():
                name = str(PurePosixPath(member.linkname))
            else:
                file = self._tar.extractfile(member)
                if file is None:
                    break
                return file
        raise ArchiveError(f"{name} is missing")


def _joined(base: PurePosixPath, link: str) -> str:
    parts: list[str] = []
    for part in (base / link).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return str(PurePosixPath(*parts))


@contextmanager
def _tar(path: Path) -> Iterator[_Tar]:
    with path.open("rb") as source, ExitStack() as stack:
        file: IO[bytes] = source
        if _form(source) != "":
            # Its files are read in any order, which no compressed stream allows.
            file = stack.enter_context(tempfile.TemporaryFile(dir=path.parent if _writable(path) else None))
            with _reader(source) as reader:
                _copy(reader, file)
            file.seek(0)
        yield _Tar(stack.enter_context(tarfile.open(fileobj=file, mode="r:")))


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy a file that may be longer than the disk: nine tenths of what is free are for it."""
    room = os.fstatvfs(target.fileno())
    left = room.f_bavail * room.f_frsize * 9 // 10
    while data := source.read(_CHUNK):
        left -= len(data)
        if left < 0:
            raise ArchiveError("it does not fit on the disk")
        target.write(data)


def _writable(path: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return True
    except OSError:
        return False


# --- compression


def _form(source: IO[bytes]) -> str:
    head = source.read(6)
    source.seek(0)
    forms = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
    return next((form for magic, form in forms.items() if head.startswith(magic)), "")


@contextmanager
def _reader(source: IO[bytes]) -> Iterator[IO[bytes]]:
    form = _form(source)
    if form == "zstd":
        with _zstd(source) as reader:
            yield reader
        return
    openers: Mapping[str, Any] = {"gzip": gzip.GzipFile, "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}
    if form:
        arguments = {"fileobj": source} if form == "gzip" else {"filename": source}
        with openers[form](**arguments, mode="rb") as reader:
            yield reader
    else:
        yield source


@contextmanager
def _zstd(source: IO[bytes]) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise ArchiveError("it is compressed with zstd: install the Debian package zstd")
    with tempfile.TemporaryFile() as whole:
        shutil.copyfileobj(source, whole, _CHUNK)
        whole.seek(0)
        with subprocess.Popen([program, "-dcq"], stdin=whole, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            yield child.stdout
            child.stdout.close()
        if child.returncode:
            raise ArchiveError(f"zstd ended with {child.returncode}")


@contextmanager
def _decompressed(layer: Layer) -> Iterator[Hashing]:
    with layer.files.open(layer.name) as file:
        if layer.digest:
            whole = Hashing(file)
            while whole.read(_CHUNK):
                pass
            if whole.digest != layer.digest:
                raise ArchiveError(f"{layer.name} has the digest {whole.digest} instead of {layer.digest}")
            file.seek(0)
        with _reader(file) as reader:
            yield Hashing(reader)


# --- what the files say


def _docker(files: _Files) -> Iterator[ArchivedImage]:
    manifests = {digest: manifest for _, digest, manifest in _manifests(files)}
    for entry in _json(files, "manifest.json"):
        config = _read(files, entry["Config"])
        wanted = f"sha256:{hashlib.sha256(config).hexdigest()}"
        digests = [digest for digest, each in manifests.items() if each["config"]["digest"] == wanted]
        yield ArchivedImage(
            names=tuple(entry.get("RepoTags") or ()),
            config=config,
            manifest_digest=digests[0] if digests else "",
            layers=tuple(Layer(files, str(PurePosixPath(name))) for name in entry["Layers"]),
        )


def _layout(files: _Files) -> Iterator[ArchivedImage]:
    found: dict[str, ArchivedImage] = {}
    for names, digest, manifest in _manifests(files):
        known = found.get(digest)
        found[digest] = ArchivedImage(
            names=tuple(dict.fromkeys((*(known.names if known else ()), *names))),
            config=_blob(files, manifest["config"]["digest"]),
            manifest_digest=digest,
            layers=tuple(
                Layer(files, _blob_name(layer["digest"]), layer["digest"]) for layer in manifest["layers"]
            ),
        )
    if not found:
        machine = _ARCHITECTURES.get(platform.machine(), platform.machine())
        raise ArchiveError(f"it holds no image for linux/{machine}")
    yield from found.values()


def _manifests(files: _Files) -> Iterator[tuple[list[str], str, JsonObject]]:
    """Names, digest and content of the image manifests for this machine."""
    if not files.has("index.json"):
        return
    todo = [(entry, cast("list[str]", [])) for entry in _json(files, "index.json").get("manifests") or ()]
    seen = 0
    while todo:
        entry, names = todo.pop(0)
        seen += 1
        if seen > 1000:
            raise ArchiveError("its index leads nowhere")
        names = [*names, *_names_of(entry)]
        if not _for_this_machine(entry):
            continue
        content = msgspec.json.decode(_blob(files, entry["digest"]))
        if "manifests" in content:
            todo += [(each, names) for each in content["manifests"]]
        elif "layers" in content:
            yield names, entry["digest"], content


def _names_of(entry: JsonObject) -> list[str]:
    annotations = entry.get("annotations") or {}
    names = [annotations[key] for key in _NAMES if annotations.get(key)]
    return names[:1]


def _for_this_machine(entry: JsonObject) -> bool:
    wanted = entry.get("platform") or {}
    if (entry.get("annotations") or {}).get("vnd.docker.reference.type"):
        return False  # an attestation, not an image
    machine = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return bool(wanted.get("os", "linux") == "linux" and wanted.get("architecture", machine) == machine)


def _json(files: _Files, name: str) -> Any:
    return msgspec.json.decode(_read(files, name))


def _read(files: _Files, name: str) -> bytes:
    with files.open(str(PurePosixPath(name))) as file:
        data = file.read(_JSON_LIMIT + 1)
    if len(data) > _JSON_LIMIT:
        raise ArchiveError(f"{name} is too long")
    return data


def _blob(files: _Files, digest: str) -> bytes:
    data = _read(files, _blob_name(digest))
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise ArchiveError(f"{_blob_name(digest)} is not what its name says")
    return data


def _blob_name(digest: str) -> str:
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64 or not value.isalnum():
        raise ArchiveError(f"digest {digest!r} is not supported")
    return f"blobs/sha256/{value}"
