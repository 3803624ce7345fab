"""Container images as files: a layer and its configuration, written such that the same input gives the same bytes.

One file is both forms: an OCI image layout, and what `docker save` writes. `ctr images import`, `docker load`,
`podman load`, `skopeo copy oci-archive:` and registries' tools read it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hack.images.debian import MOMENT

__all__ = ["Config", "add_directory", "add_file", "add_link", "add_tree", "write"]

_CREATED = "2026-01-01T00:00:00Z"
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, kw_only=True)
class Config:
    """What an image says of how it runs; `user` is uid:gid. `aliases` are further names of it."""

    name: str
    aliases: Sequence[str] = ()
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def write(config: Config, layer: Path, target: Path, *, base: Path | None = None) -> None:
    """Write an archive of one image: the layers of `base`, another such archive, and one of its own.

    That one is given as an uncompressed tar file; the archive holds it compressed.
    """
    content = layer.read_bytes()
    layers = [
        *(_layers(base) if base else ()),
        (f"sha256:{_digest(content)}", gzip.compress(content, compresslevel=6, mtime=0)),
    ]
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    about = {
        "architecture": "amd64",
        "os": "linux",
        "created": _CREATED,
        "config": {
            "Env": [path, *(f"{key}={value}" for key, value in config.environment.items())],
            "Entrypoint": list(config.entrypoint) or None,
            "Cmd": list(config.command) or None,
            "User": config.user,
            "WorkingDir": "/",
            "Labels": dict(config.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [digest for digest, _ in layers]},
        "history": [{"created": _CREATED, "created_by": "hack/images"}] * len(layers),
    }
    body = json.dumps(about).encode()
    blobs = {_digest(content): content for content in (body, *(packed for _, packed in layers))}
    places = [_blob(_digest(packed)) for _, packed in layers]
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor(f"{_OCI}.config.v1+json", body),
            "layers": [_descriptor(f"{_OCI}.layer.v1.tar+gzip", packed) for _, packed in layers],
        }
    ).encode()
    blobs[_digest(manifest)] = manifest
    names = [config.name, *config.aliases]
    index = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.index.v1+json",
        "manifests": [
            {
                **_descriptor(f"{_OCI}.manifest.v1+json", manifest),
                "annotations": {
                    "io.containerd.image.name": name,
                    "org.opencontainers.image.ref.name": name.rpartition(":")[2],
                },
            }
            for name in names
        ],
    }
    saved = {"Config": _blob(_digest(body)), "RepoTags": names, "Layers": places}
    with tarfile.open(target, "w") as archive:
        add_file(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        for name in ("blobs", "blobs/sha256"):
            add_directory(archive, name)
        for digest, content in blobs.items():
            add_file(archive, _blob(digest), content)
        add_file(archive, "index.json", json.dumps(index).encode())
        add_file(archive, "manifest.json", json.dumps([saved]).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{_digest(content)}", "size": len(content)}


def _layers(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The layers of an archive that `write` wrote: the digest of each, and its compressed bytes."""
    with tarfile.open(archive) as files:
        entry = json.loads(_content(files, "manifest.json"))[0]
        digests = json.loads(_content(files, entry["Config"]))["rootfs"]["diff_ids"]
        for digest, name in zip(digests, entry["Layers"], strict=True):
            yield digest, _content(files, name)


def _content(files: tarfile.TarFile, name: str) -> bytes:
    member = files.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is no file of the archive")
    return member.read()


def add_file(layer: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    """Add one file of root's."""
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = len(content), mode, MOMENT
    layer.addfile(about, io.BytesIO(content))


def add_directory(layer: tarfile.TarFile, name: str, *, mode: int = 0o755, owner: int = 0) -> None:
    """Add one directory; `owner` is its uid and gid."""
    about = tarfile.TarInfo(name)
    about.type, about.mode, about.mtime = tarfile.DIRTYPE, mode, MOMENT
    about.uid = about.gid = owner
    layer.addfile(about)


def add_link(layer: tarfile.TarFile, name: str, target: str) -> None:
    """Add one symbolic link."""
    about = tarfile.TarInfo(name)
    about.type, about.linkname, about.mtime = tarfile.SYMTYPE, target, MOMENT
    layer.addfile(about)


def add_tree(layer: tarfile.TarFile, source: Path, place: str) -> None:
    """Add a directory with all that is in it, as root's and readable for all."""
    add_directory(layer, place)
    for path in sorted(source.rglob("*")):
        name = f"{place}/{path.relative_to(source)}"
        if path.is_dir():
            add_directory(layer, name)
        else:
            add_file(layer, name, path.read_bytes(), mode=0o755 if path.stat().st_mode & 0o100 else 0o644)
