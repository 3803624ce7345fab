"""Container images written without a container engine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from hack.images import recipes
from hack.images.archive import Config, add_file, add_tree, write
from hack.images.debian import unpack

from mooring.local.node.archives import opened

ROOT = Path(__file__).resolve().parents[2]


def layer_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as layer:
        for name, content in files.items():
            add_file(layer, name, content)
    return path


def test_the_same_input_gives_the_same_archive_and_it_says_how_it_runs(tmp_path: Path) -> None:
    layer = layer_of(tmp_path / "layer.tar", {"etc/motd": b"hello"})
    config = Config(name="example:1", entrypoint=("/run",), user="7:7", environment={"A": "b"})
    for name in ("one.tar", "two.tar"):
        write(config, layer, tmp_path / name)

    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        entries = {member.name: archive.extractfile(member) for member in archive}
        read = {name: file.read() for name, file in entries.items() if file is not None}
    manifest = json.loads(read["manifest.json"])[0]
    about = json.loads(read[manifest["Config"]])
    assert manifest["RepoTags"] == ["example:1"]
    assert about["config"]["User"] == "7:7"
    assert "A=b" in about["config"]["Env"]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(read[manifest["Layers"][0]]))) as unpacked:
        assert unpacked.getnames() == ["etc/motd"]


def test_an_archive_is_an_oci_layout_as_well(tmp_path: Path) -> None:
    layer = layer_of(tmp_path / "layer.tar", {"etc/motd": b"hello"})
    config = Config(name="example.org/one:1", aliases=("example.org/one:2",))
    write(config, layer, tmp_path / "one.tar")
    with tarfile.open(tmp_path / "one.tar") as archive:
        archive.extractall(tmp_path / "layout", filter="data")
    (tmp_path / "layout" / "manifest.json").unlink()

    with opened(tmp_path / "layout") as images:
        (name,) = {image.manifest_digest for image in images}
        assert sorted(one for image in images for one in image.names) == [
            "example.org/one:1",
            "example.org/one:2",
        ]
        with images[0].layers[0].open() as content:
            assert content.read()
            assert [content.digest] == json.loads(images[0].config)["rootfs"]["diff_ids"]
    blob = tmp_path / "layout" / "blobs" / "sha256" / name.removeprefix("sha256:")
    assert f"sha256:{hashlib.sha256(blob.read_bytes()).hexdigest()}" == name


def test_files_are_roots_and_readable_for_all(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "private").write_text("x")
    (source / "sub" / "private").chmod(0o600)
    (source / "tool").write_text("#!/bin/sh")
    (source / "tool").chmod(0o700)
    with tarfile.open(tmp_path / "layer.tar", "w") as layer:
        add_tree(layer, source, "opt")
    with tarfile.open(tmp_path / "layer.tar") as layer:
        modes = {member.name: (member.mode, member.uid) for member in layer}
    assert modes["opt/sub/private"] == (0o644, 0)
    assert modes["opt/tool"] == (0o755, 0)


def test_files_of_packages_lie_under_merged_usr(tmp_path: Path) -> None:
    # Given a Debian package with a file in /bin and one that nobody needs.
    package = tmp_path / "package"
    for name in ("DEBIAN/control", "bin/tool", "usr/share/doc/tool/copyright"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(
            "Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: b\n"
        )
    archive = tmp_path / "tool.deb"
    subprocess.run(["dpkg-deb", "--build", package, archive], check=True, capture_output=True)

    with tarfile.open(tmp_path / "layer.tar", "w") as layer:
        unpack([archive], layer)

    with tarfile.open(tmp_path / "layer.tar") as layer:
        assert layer.getmember("bin").linkname == "usr/bin"
        assert "usr/bin/tool" in layer.getnames()
        assert "usr/share/doc/tool/copyright" not in layer.getnames()


def test_the_image_holds_every_locked_dependency() -> None:
    locked = recipes._locked()
    assert " ; " not in locked
    assert "async-timeout==" in locked
    assert "obstore==" in locked
    assert "tzdata==" in locked  # schedules of backups name time zones
    assert locked.count("--hash=") > 50


@pytest.mark.parametrize("name", recipes.IMAGES)
def test_every_image_has_a_name_that_clusters_ask_for(name: str) -> None:
    assert ":" in recipes.IMAGES[name].config().name
