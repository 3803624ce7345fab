"""Images that the embedded plane makes of Debian's packages, as archives for a real node: the same files, the same first start."""

from __future__ import annotations

import tarfile
from functools import partial
from pathlib import Path

from hack.images.archive import Config
from hack.images.debian import MOMENT
from hack.images.recipes import Recipe, make

from mooring.local.node.packages import PackageImages

__all__ = ["build"]


def build(reference: str) -> Path:
    """The archive of an image such as mysql:9.7; built on first use (a minute or two)."""
    images, program = PackageImages(), reference.partition(":")[0]
    made = images.make(images.recipe(program, reference))
    config = Config(
        name=f"docker.io/library/{reference}",
        entrypoint=made.config.entrypoint or (),
        command=made.config.cmd or (),
    )
    root = images.store.layer(made.chain[-1])
    return make(program, Recipe(config=lambda: config, fill=partial(_add, root=root), inputs=made.id.encode))


def _add(layer: tarfile.TarFile, *, root: Path) -> None:
    """Add a root as it is, with links, owners and modes."""

    def timeless(about: tarfile.TarInfo) -> tarfile.TarInfo:
        about.mtime = MOMENT
        return about

    for path in sorted(root.iterdir()):
        layer.add(path, path.name, filter=timeless)
