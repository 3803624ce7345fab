"""Images from files: docker archives and OCI layouts, names, shared layers, removal."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.cli.main import main
from mooring.local.node.images import Catalog
from mooring.local.node.imagestore import ImageStore, StoreError
from mooring.local.node.loading import load
from mooring.local.node.references import ImageError, normalize

from .imaging import Blueprint, docker_archive, file, layer, layout

BASE = layer(file("etc/base", "groundwork"))
TOP = layer(file("etc/top", "top"))
CONFIG = {"Entrypoint": ["/run"], "Cmd": ["fast"], "Env": ["A=1", "B=x=y"], "User": "app", "WorkingDir": "/w"}


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def tree(store: ImageStore, reference: str) -> set[str]:
    image = store.find(reference)
    assert image is not None
    path, lock = store.use(image)
    os.close(lock)
    return {str(each.relative_to(path)) for each in path.rglob("*")}


def layers(store: ImageStore) -> list[str]:
    return sorted(path.name for path in (store.directory / "layers").iterdir() if path.is_dir())


def test_a_docker_archive_is_found_under_all_its_names(store: ImageStore, tmp_path: Path) -> None:
    image = Blueprint([BASE, TOP], names=["team/app:1", "docker.io/library/app:2"], config=CONFIG)
    (loaded,) = load(store, docker_archive(tmp_path / "a.tar", image))
    assert loaded.id == image.id
    assert loaded.names == ("team/app:1", "app:2")
    for name in ("team/app:1", "app:2", "docker.io/library/app:2", image.id):
        assert store.find(name) == loaded
    assert store.find("app:3") is None
    assert tree(store, "app:2") == {"etc", "etc/base", "etc/top"}
    assert loaded.config.env == ["A=1", "B=x=y"]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_layers_and_whole_archives_may_be_compressed(
    store: ImageStore, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = docker_archive(tmp_path / "a.tar", Blueprint([BASE, TOP]), compress=compress)
    path.write_bytes(compress(path.read_bytes()))
    load(store, path)
    assert tree(store, "localhost/small:1") == {"etc", "etc/base", "etc/top"}


@pytest.mark.parametrize("nested", [False, True])
def test_an_oci_layout_tells_the_digest_of_its_manifest(
    store: ImageStore, tmp_path: Path, nested: bool
) -> None:
    source = layout(tmp_path / "oci", Blueprint([BASE], names=["ghcr.io/team/app:1"]), nested=nested)
    (loaded,) = load(store, source)
    assert loaded.digest.startswith("sha256:")
    assert store.find(f"ghcr.io/team/app@{loaded.digest}") == loaded
    assert loaded.reference("ghcr.io/team/app:1") == f"ghcr.io/team/app@{loaded.digest}"
    assert loaded.reference("redis:7") == f"docker.io/library/redis@{loaded.digest}"


def test_a_tar_of_a_layout_with_one_image_takes_a_name(store: ImageStore, tmp_path: Path) -> None:
    source = layout(tmp_path / "oci", Blueprint([BASE], names=[]))
    with tarfile.open(tmp_path / "oci.tar", "w") as tar:
        tar.add(source, ".")
    (unnamed,) = load(store, tmp_path / "oci.tar")
    assert unnamed.names == ()
    (named,) = load(store, tmp_path / "oci.tar", tags=["mine:1"])
    assert named.names == ("mine:1",)
    assert store.images() == [named]


def test_a_name_goes_to_the_image_that_was_loaded_last(store: ImageStore, tmp_path: Path) -> None:
    old, new = Blueprint([BASE], names=["app:1"]), Blueprint([TOP], names=["app:1"])
    load(store, docker_archive(tmp_path / "a.tar", old))
    load(store, docker_archive(tmp_path / "b.tar", new))
    assert tree(store, "app:1") == {"etc", "etc/top"}
    assert [(image.id, image.names) for image in store.images()] == [(old.id, ()), (new.id, ("app:1",))]


def test_removing_takes_the_layers_that_no_other_image_has(store: ImageStore, tmp_path: Path) -> None:
    one = Blueprint([BASE, TOP], names=["one:1", "uno:1"])
    two = Blueprint([BASE], names=["two:1"])
    load(store, docker_archive(tmp_path / "a.tar", one, two))
    assert len(layers(store)) == 2
    assert store.remove("one:1") == ["untagged one:1"]
    assert len(layers(store)) == 2
    gone = store.remove("uno:1")
    assert gone[:2] == ["untagged uno:1", f"removed {one.id}"]
    assert len(layers(store)) == 1
    assert tree(store, "two:1") == {"etc", "etc/base"}
    store.remove(two.id.removeprefix("sha256:")[:12])
    assert list((store.directory / "layers").iterdir()) == []
    with pytest.raises(StoreError, match="no image"):
        store.remove("two:1")


def test_an_image_that_is_used_is_not_removed(store: ImageStore, tmp_path: Path) -> None:
    (image,) = load(store, docker_archive(tmp_path / "a.tar", Blueprint([BASE])))
    _, lock = store.use(image)
    with pytest.raises(StoreError, match="in use by a running container"):
        store.remove(image.names[0])
    os.close(lock)
    store.remove(image.names[0])
    with pytest.raises(StoreError, match="removed meanwhile"):
        store.use(image)


def tampered(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    source = layout(tmp_path / "oci", Blueprint([BASE]))
    index = json.loads((source / "index.json").read_text())
    change(index)
    (source / "index.json").write_text(json.dumps(index))
    return source


def test_what_is_damaged_is_refused_and_leaves_nothing(store: ImageStore, tmp_path: Path) -> None:
    image = Blueprint([BASE])
    path = docker_archive(
        tmp_path / "a.tar", image, compress=lambda data: data.replace(b"groundwork", b"groundwors")
    )
    with pytest.raises(StoreError, match="the archive is damaged"):
        load(store, path)
    assert layers(store) == []
    source = layout(tmp_path / "blob", image)
    for blob in (source / "blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            blob.write_bytes(gzip.compress(TOP))
    with pytest.raises(StoreError, match="has the digest"):
        load(store, source)
    assert store.images() == []


def test_what_is_no_image_is_answered(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "other.tar").write_bytes(layer(file("x")))
    for name, why in (("text", "text"), ("other.tar", "neither manifest.json"), ("missing", "No such file")):
        with pytest.raises(StoreError, match=why):
            load(store, tmp_path / name)
    path = tampered(tmp_path, lambda index: index["manifests"][0].update(digest="sha256:../../../etc/passwd"))
    with pytest.raises(StoreError, match="not supported"):
        load(store, path)


def test_an_image_for_other_machines_is_refused(store: ImageStore, tmp_path: Path) -> None:
    path = tampered(tmp_path, lambda index: index["manifests"][0].update(platform={"architecture": "s390x"}))
    with pytest.raises(StoreError, match="no image for linux/"):
        load(store, path)


def test_a_loaded_image_wins_over_the_catalog(store: ImageStore, tmp_path: Path) -> None:
    catalog = Catalog(store=store)
    assert catalog.resolve("busybox:1").loaded is None
    load(store, docker_archive(tmp_path / "a.tar", Blueprint([BASE], names=["busybox:1"], config=CONFIG)))
    resolved = catalog.resolve("docker.io/library/busybox:1")
    assert resolved.loaded is not None
    assert (resolved.image.entrypoint, resolved.image.cmd) == (("/run",), ("fast",))
    assert resolved.image.env == {"A": "1", "B": "x=y"}
    assert (resolved.image.user, resolved.image.working_dir) == ("app", "/w")


def test_the_command_loads_lists_and_removes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = Blueprint([BASE], names=["app:1"])
    path, data = str(docker_archive(tmp_path / "a.tar", image)), ["--data-dir", str(tmp_path / "data")]

    def run(*words: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as end:
            main(["image", *words, *data])
        return end.value.code, capsys.readouterr().out

    short = image.id.removeprefix("sha256:")[:12]
    assert run("load", path) == (0, f"loaded {short} (app:1)\n")
    status, text = run("list")
    assert status == 0
    assert text.splitlines()[1].split() == ["app:1", short, "10.2kB", "2026-01-02"]
    assert run("remove", "app:1")[0] == 0
    assert run("list")[1].splitlines()[1:] == []
    assert run("remove", "app:1")[0] == 1


@pytest.mark.parametrize(
    "name",
    [
        "../redis",
        "a/../b",
        "a//b",
        "/redis",
        "redis:7.0:latest",
        "Redis",
        "a/.b",
        "redis:",
        "redis: 7",
        "a" * 300,
    ],
)
def test_what_is_no_name_of_an_image_is_refused(name: str) -> None:
    with pytest.raises(ImageError, match="invalid reference format"):
        normalize(name)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("docker.io/library/redis@sha256:abc", "redis:latest"),
        ("localhost/a/b__c-d:V1.0_x", "localhost/a/b__c-d:V1.0_x"),
        ("Registry.example.com:5000/x", "Registry.example.com:5000/x:latest"),
        ("127.0.0.1:5000/x.y:1", "127.0.0.1:5000/x.y:1"),
    ],
)
def test_names_of_images_are_those_of_registries(name: str, found: str) -> None:
    assert normalize(name) == found
