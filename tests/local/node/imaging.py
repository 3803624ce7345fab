"""Small images made from this machine's own programs, in the forms that images come in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Blueprint", "Entry", "directory", "docker_archive", "file", "layer", "layout", "link", "programs"]

Entry = tuple[tarfile.TarInfo, bytes]


def file(name: str, content: bytes | str = b"", *, mode: int = 0o644, uid: int = 0, gid: int = 0) -> Entry:
    """A file of a layer."""
    data = content.encode() if isinstance(content, str) else content
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.uid, info.gid = len(data), mode, uid, gid
    return info, data


def directory(name: str, *, mode: int = 0o755, uid: int = 0, gid: int = 0) -> Entry:
    """A directory of a layer."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, uid, gid
    return info, b""


def link(name: str, target: str, *, hard: bool = False) -> Entry:
    """A link of a layer."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = (tarfile.LNKTYPE if hard else tarfile.SYMTYPE), target
    return info, b""


def layer(*entries: Entry) -> bytes:
    """The tar of a layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def programs(*paths: str, applets: Sequence[str] = ()) -> bytes:
    """A layer with programs of this machine, their libraries, and busybox' applets as links."""
    entries = [directory(name) for name in ("bin", "etc", "tmp")]
    seen = set()
    for path in (*paths, *(["/usr/bin/busybox"] if applets else [])):
        done = subprocess.run(["/usr/bin/ldd", path], capture_output=True, text=True, check=False)
        words = [word for line in done.stdout.splitlines() for word in line.split()]
        for needed in [path, *(word for word in words if word.startswith("/"))]:
            if needed not in seen:
                seen.add(needed)
                name = f"bin/{Path(needed).name}" if needed == path else needed.lstrip("/")
                entries.append(file(name, Path(needed).resolve().read_bytes(), mode=0o755))
    return layer(*entries, *(link(f"bin/{name}", "busybox") for name in applets))


@dataclass
class Blueprint:
    """An image to be."""

    layers: Sequence[bytes]
    names: Sequence[str] = ("localhost/small:1",)
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def config_bytes(self) -> bytes:
        """The configuration as it is stored."""
        document = {
            "architecture": "amd64",
            "os": "linux",
            "created": "2026-01-02T03:04:05Z",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [_digest(each) for each in self.layers]},
        }
        return json.dumps(document).encode()

    @property
    def id(self) -> str:
        """Digest of the configuration."""
        return _digest(self.config_bytes)


def docker_archive(
    path: Path, *images: Blueprint, compress: Callable[[bytes], bytes] = lambda data: data
) -> Path:
    """What ``docker save`` writes."""
    manifest, members = [], []
    for number, image in enumerate(images):
        names = [f"{number}-{index}/layer.tar" for index in range(len(image.layers))]
        members += [file(name, compress(data)) for name, data in zip(names, image.layers, strict=True)]
        config = f"{image.id.removeprefix('sha256:')}.json"
        members.append(file(config, image.config_bytes))
        manifest.append({"Config": config, "RepoTags": list(image.names), "Layers": names})
    path.write_bytes(layer(*members, file("manifest.json", json.dumps(manifest))))
    return path


def layout(
    path: Path, image: Blueprint, *, compress: Callable[[bytes], bytes] = gzip.compress, nested: bool = False
) -> Path:
    """A directory in OCI's layout, also with an index of several machines in between."""
    blobs = path / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, **more: Any) -> dict[str, Any]:
        digest = _digest(data)
        (blobs / digest.removeprefix("sha256:")).write_bytes(data)
        return {"digest": digest, "size": len(data), **more}

    manifest = {
        "schemaVersion": 2,
        "config": put(image.config_bytes),
        "layers": [put(compress(each)) for each in image.layers],
    }
    entry = put(json.dumps(manifest).encode())
    if nested:
        other = {"platform": {"os": "linux", "architecture": "s390x"}, **put(b"{}")}
        entry = put(json.dumps({"manifests": [other, entry]}).encode())
    named = [
        {**entry, "annotations": {"org.opencontainers.image.ref.name": name}} for name in image.names or ("",)
    ]
    (path / "index.json").write_text(json.dumps({"manifests": named}))
    (path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return path


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
