"""Loads images from files into the store; what only `mooring image load` needs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mooring.local.node.archives import ArchivedImage, ArchiveError, Layer, opened
from mooring.local.node.imagestore import ImageConfig, ImageStore, LoadedImage, StoreError
from mooring.local.node.layers import LayerError, apply_layer
from mooring.local.node.references import ImageError, normalize
from mooring.local.node.trees import clone_tree
from mooring.local.removal import remove_tree

__all__ = ["load"]


class _RootFs(msgspec.Struct, frozen=True):
    diff_ids: list[str]


class _Config(msgspec.Struct, frozen=True):
    rootfs: _RootFs
    config: ImageConfig | None = None
    architecture: str = ""
    os: str = ""
    created: str = ""


def load(store: ImageStore, path: Path, *, tags: Sequence[str] = ()) -> list[LoadedImage]:
    """Load all images of an archive; with ``tags`` these are the names of its only one."""
    for tag in tags:
        _checked(tag)
    try:
        with store.locked(), opened(path) as found:
            if tags and len(found) != 1:
                raise StoreError(f"{path} holds {len(found)} images: --tag is for one")
            return [_load(store, image, path, tags) for image in found]
    except ArchiveError as error:
        raise StoreError(str(error)) from error


def _load(store: ImageStore, archived: ArchivedImage, path: Path, tags: Sequence[str]) -> LoadedImage:
    try:
        config = msgspec.json.decode(archived.config, type=_Config)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path}: its configuration cannot be read: {error}") from error
    if config.os not in ("", "linux"):
        raise StoreError(f"{path}: it is for {config.os}, not linux")
    diff_ids = config.rootfs.diff_ids
    if len(diff_ids) != len(archived.layers) or not diff_ids:
        raise StoreError(f"{path}: {len(archived.layers)} layers for {len(diff_ids)} digests")
    chain, size = _unpack(store, archived.layers, diff_ids, path)
    names = tuple(_checked(name) for name in tags or archived.names if name.rpartition(":")[2] != "<none>")
    image = LoadedImage(
        id=f"sha256:{hashlib.sha256(archived.config).hexdigest()}",
        digest=archived.manifest_digest,
        names=names,
        chain=chain,
        size=size,
        created=config.created,
        config=config.config or ImageConfig(),
    )
    return store.add(image)


def _unpack(
    store: ImageStore, layers: Sequence[Layer], diff_ids: Sequence[str], path: Path
) -> tuple[tuple[str, ...], int]:
    chain: list[str] = []
    size = 0
    for layer, diff_id in zip(layers, diff_ids, strict=True):
        below = chain[-1] if chain else ""
        chain.append(_chain_id(below, diff_id))
        target = store.layer(chain[-1])
        if not target.is_dir():
            try:
                _unpack_one(layer, diff_id, store.layer(below) if below else None, target)
            except (LayerError, ArchiveError, EOFError, OSError) as error:
                raise StoreError(f"{path}: layer {diff_id[:19]}: {error}") from error
        size += int((target.with_suffix(".size")).read_text())
    return tuple(chain), size


def _unpack_one(layer: Layer, diff_id: str, below: Path | None, target: Path) -> None:
    target.parent.mkdir(mode=0o700, exist_ok=True)
    work = target.with_suffix(".new")
    remove_tree(work)
    try:
        work.mkdir(0o755)
        if below is not None:
            clone_tree(below, work)
        with layer.open() as stream:
            apply_layer(work, stream)
            if stream.digest != diff_id:
                raise LayerError(f"its content has the digest {stream.digest}: the archive is damaged")
            target.with_suffix(".size").write_text(str(stream.size))
        work.rename(target)
    except BaseException:
        remove_tree(work)
        raise


def _chain_id(below: str, diff_id: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", diff_id):
        raise StoreError(f"digest {diff_id!r} is not supported")
    if not below:
        return diff_id
    return f"sha256:{hashlib.sha256(f'{below} {diff_id}'.encode()).hexdigest()}"


def _checked(name: str) -> str:
    try:
        return normalize(name)
    except ImageError as error:
        raise StoreError(f'"{name}" is no name for an image: {error}') from error
