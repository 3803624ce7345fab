"""``mooring image``: images from files, for pods to run as they are."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from mooring.cli.listing import add_output_option, show
from mooring.local.directory import DataDirectory, default_directory
from mooring.local.node.imagestore import ImageStore, LoadedImage
from mooring.local.node.loading import load
from mooring.local.node.packages import PackageImages
from mooring.local.node.references import normalize

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "image",
        help="load container images from files, list and remove them",
        description="Images from files (docker save, OCI layout), which pods then run as they are. "
        "It makes no difference whether a control plane runs.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    loading = actions.add_parser("load", help="load images from files or OCI layout directories")
    loading.add_argument("files", nargs="+", type=Path, metavar="FILE")
    loading.add_argument(
        "--tag", action="append", default=[], metavar="NAME", help="name the image so (may be repeated)"
    )
    loading.set_defaults(run=_load)
    listed = actions.add_parser("list", help="list the images that were loaded")
    add_output_option(listed)
    listed.set_defaults(run=_list)
    remove = actions.add_parser("remove", help="remove images, or names of images")
    remove.add_argument("images", nargs="+", metavar="IMAGE", help="a name, an id, or NAME@DIGEST")
    remove.set_defaults(run=_remove)
    making = actions.add_parser(
        "make",
        help="make images of Debian's packages now instead of on their first use: mariadb, mysql, redis, valkey",
    )
    making.add_argument(
        "images", nargs="+", metavar="IMAGE", help="mariadb:10.11, mysql:9.7, redis:8.0, valkey:9.1 ..."
    )
    making.set_defaults(run=_make)
    for action in (loading, listed, remove):
        action.add_argument(
            "--data-dir", type=Path, help="as given to up (default: $MOORING_DATA_DIR, or up's default)"
        )


def _store(options: argparse.Namespace) -> ImageStore:
    directory = DataDirectory((options.data_dir or default_directory()).absolute())
    directory.make()
    return ImageStore(directory.images)


def _load(options: argparse.Namespace) -> int:
    store = _store(options)
    for file in options.files:
        print(f"mooring: loading {file}", file=sys.stderr, flush=True)
        for image in load(store, file, tags=options.tag):
            names = ", ".join(image.names) or "no name: give it one with --tag"
            print(f"loaded {_short(image)} ({names})")
    return 0


def _make(options: argparse.Namespace) -> int:
    packages = PackageImages()
    for reference in options.images:
        program = normalize(reference).rpartition(":")[0].rpartition("/")[2]
        recipe = packages.recipe(program, reference)
        image = packages.make(recipe, partial(_say, reference))
        print(f"{reference}: {recipe.packages[0]} {image.created}, {_size(image.size)}")
    return 0


def _say(reference: str, text: str) -> None:
    print(f"{reference}: {text}", flush=True)


def _list(options: argparse.Namespace) -> int:
    rows = [
        {
            "name": name,
            "id": _short(image),
            "bytes": image.size,
            "size": _size(image.size),
            "created": image.created[:10],
        }
        for image in _store(options).images()
        for name in image.names or ("<none>",)
    ]
    columns = {"name": "NAME", "id": "ID", "size": "SIZE", "created": "CREATED"}
    show(rows, columns, output=options.output, name="images")
    return 0


def _remove(options: argparse.Namespace) -> int:
    store = _store(options)
    for image in options.images:
        for gone in store.remove(image):
            print(gone)
    return 0


def _short(image: LoadedImage) -> str:
    return image.id.removeprefix("sha256:")[:12]


def _size(size: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f}{unit}"
    return f"{size}B"
