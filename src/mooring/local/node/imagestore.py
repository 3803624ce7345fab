"""The images that were loaded into a data directory, for containers to run as they are.

    images/index.json             what there is: names, configuration, chain of layers
    images/layers/<chain id>/     the whole file system up to a layer; equal files of chains are one file
    images/layers/<chain id>.lock held by whoever runs from it

A chain is named by the digests of its layers (the OCI specification's ChainID), so what images share is there once.
Programs and a running plane may use the store at the same time: whoever changes it holds ``images/lock``, and the
index is replaced in one step. A chain that a container runs from is not removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from mooring.local.node.references import ImageError, normalize
from mooring.local.removal import remove_tree

__all__ = ["ImageConfig", "ImageStore", "LoadedImage", "StoreError"]


class StoreError(RuntimeError):
    """An image that cannot be loaded or removed; the message says why and what to do."""


class ImageConfig(msgspec.Struct, frozen=True, rename="pascal", kw_only=True):
    """The part of an image's configuration that says how to run it."""

    user: str = ""
    env: list[str] | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    working_dir: str = ""
    volumes: dict[str, Any] | None = None
    stop_signal: str = ""


class LoadedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the store."""

    id: str
    """Digest of its configuration."""
    digest: str = ""
    """Digest of its manifest, if its archive had one."""
    names: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    size: int = 0
    """Bytes of its layers."""
    created: str = ""
    config: ImageConfig = ImageConfig()

    def reference(self, name: str) -> str:
        """What a container's ``imageID`` shows."""
        head, slash, last = name.partition("@")[0].rpartition("/")
        host = head.partition("/")[0]
        if "." not in host and ":" not in host and host != "localhost":
            head = f"docker.io/{head or 'library'}"
        repository = f"{head}{slash or '/'}{last.partition(':')[0]}"
        return f"{repository}@{self.digest}" if self.digest and last else self.id


class _Index(msgspec.Struct):
    images: list[LoadedImage] = []


class ImageStore:
    """The store below a directory; all methods block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: tuple[tuple[int, int], _Index] | None = None

    # --- looking

    def images(self) -> list[LoadedImage]:
        """All images, the newest last."""
        return list(self._index().images)

    def find(self, reference: str) -> LoadedImage | None:
        """The image of a name, a digest (``redis@sha256:...``) or an id; ``None`` when it was not loaded."""
        images = self._index().images
        digest = reference.partition("@")[2] or (reference if reference.startswith("sha256:") else "")
        if digest:
            return next((image for image in images if digest in (image.digest, image.id)), None)
        with suppress(ImageError):
            name = normalize(reference)
            return next((image for image in images if name in image.names), None)
        return None

    def state(self) -> tuple[int, int]:
        """Something that is another one after every change."""
        try:
            found = self._index_file.stat()
        except FileNotFoundError:
            return (0, 0)
        return (found.st_ino, found.st_mtime_ns)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the right to change the store."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def use(self, image: LoadedImage) -> tuple[Path, int]:
        """The image's file system and the descriptor of a lock that keeps it there; raises StoreError."""
        path = self.layer(image.chain[-1])
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not path.is_dir():
            os.close(descriptor)
            raise StoreError(f"image {image.id[:19]} was removed meanwhile")
        return path, descriptor

    # --- changing

    def remove(self, reference: str) -> list[str]:
        """Take a name from its image, or remove an image by its id; says what is gone.

        An image without a name is removed with the layers that no other image has. Raises
        :class:`StoreError` when there is no such image, or a container runs from it.
        """
        with self.locked():
            index = self._index()
            image = self.find(reference) or self._by_short_id(reference)
            if image is None:
                raise StoreError(
                    f'no image "{reference}" was loaded: mooring image list shows those that were'
                )
            by_id = "@" in reference or image.id.removeprefix("sha256:").startswith(
                reference.removeprefix("sha256:")
            )
            kept = () if by_id else tuple(name for name in image.names if name != normalize(reference))
            gone = [f"untagged {name}" for name in image.names if name not in kept]
            images = [each for each in index.images if each is not image]
            if kept:
                images.insert(index.images.index(image), msgspec.structs.replace(image, names=kept))
                self._write(images)
                return gone
            self._check_unused(image, images)
            self._write(images)
            return [*gone, f"removed {image.id}", *self._collect(images)]

    # --- inside

    @property
    def _index_file(self) -> Path:
        return self.directory / "index.json"

    def layer(self, chain: str) -> Path:
        """Where the file system up to a layer is."""
        return self.directory / "layers" / chain.removeprefix("sha256:")

    def _index(self) -> _Index:
        state = self.state()
        if self._known is None or self._known[0] != state:
            try:
                index = msgspec.json.decode(self._index_file.read_bytes(), type=_Index)
            except FileNotFoundError:
                index = _Index()
            except msgspec.MsgspecError as error:
                raise StoreError(
                    f"{self._index_file} is damaged ({error}): remove it and load again"
                ) from error
            self._known = (state, index)
        return self._known[1]

    def _write(self, images: list[LoadedImage]) -> None:
        with tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as file:
            file.write(msgspec.json.encode(_Index(images)))
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self._index_file)

    def _by_short_id(self, reference: str) -> LoadedImage | None:
        wanted = reference.removeprefix("sha256:")
        if not re.fullmatch(r"[0-9a-f]{12,64}", wanted):
            return None
        found = [
            image for image in self._index().images if image.id.removeprefix("sha256:").startswith(wanted)
        ]
        return found[0] if len(found) == 1 else None

    def add(self, image: LoadedImage) -> LoadedImage:
        """Note an image; its names are taken from those that had them, which stay under their id."""
        images = []
        for each in self._index().images:
            if each.id == image.id:
                names = tuple(dict.fromkeys((*each.names, *image.names)))
                image = msgspec.structs.replace(image, names=names, digest=image.digest or each.digest)
            else:
                rest = tuple(name for name in each.names if name not in image.names)
                images.append(each if rest == each.names else msgspec.structs.replace(each, names=rest))
        self._write([*images, image])
        return image

    def _check_unused(self, image: LoadedImage, others: Sequence[LoadedImage]) -> None:
        needed = {chain for each in others for chain in each.chain}
        if image.chain[-1] not in needed and not self._unlocked(self.layer(image.chain[-1])):
            raise StoreError(
                f"image {', '.join(image.names) or image.id[:19]} is in use by a running container: delete its pod first"
            )

    def _unlocked(self, layer: Path) -> bool:
        """Whether no container runs from a layer."""
        try:
            descriptor = os.open(layer.with_suffix(".lock"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)

    def _collect(self, images: Sequence[LoadedImage]) -> list[str]:
        """Remove the layers that no image has."""
        needed = {self.layer(chain).name for image in images for chain in image.chain}
        gone = []
        for path in sorted((self.directory / "layers").iterdir()):
            if path.stem in needed or not self._unlocked(path.with_suffix("")):
                continue
            if path.is_dir():
                gone.append(f"removed layer {path.stem[:12]}")
            remove_tree(path)
        return gone
