"""The image catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.local.node.images import Catalog, ImageError, load, normalize


@pytest.mark.parametrize(
    ("reference", "normal"),
    [
        ("redis", "redis:latest"),
        ("docker.io/library/redis:7.2", "redis:7.2"),
        ("quay.io:5000/team/redis:5.0.4-alpine", "quay.io:5000/team/redis:5.0.4-alpine"),
        ("redis@sha256:abc", "redis:latest"),
        ("library/redis:6", "redis:6"),
    ],
)
def test_references_are_normalised(reference: str, normal: str) -> None:
    assert normalize(reference) == normal


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("redis:5.0.4", "redis"),
        ("registry.example.com/mirror/redis:7", "redis"),
        ("oliver006/redis_exporter:v1.3.5", "redis-exporter"),
        ("busybox:1.28", "busybox"),
        ("mariadb:11", "mariadb"),
        ("registry.k8s.io/pause:3.9", "pause"),
        ("matrixorigin/matrixone:1.2.4", "matrixone"),
    ],
)
def test_known_images_are_found_wherever_they_come_from(reference: str, name: str) -> None:
    assert Catalog().find(reference).name == name


def test_an_unknown_image_says_what_there_is() -> None:
    with pytest.raises(ImageError, match=r"not in this node's catalog \(it has: redis"):
        Catalog().find("postgres:16")


def test_a_malformed_reference_is_an_invalid_name() -> None:
    with pytest.raises(ImageError) as caught:
        Catalog().find("red is:7")
    assert caught.value.reason == "InvalidImageName"


def test_a_file_adds_versions_before_the_built_in_ones(tmp_path: Path) -> None:
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\necho 'Redis server v=5.0.6 sha=0'\n")
    server.chmod(0o755)
    file = tmp_path / "images.yaml"
    file.write_text(
        f"images:\n- match: ['redis:5*']\n  extends: redis\n"
        f"  programs: {{redis-server: {server}}}\n  paths: [{tmp_path}]\n"
    )
    catalog = load(file)
    resolved = catalog.resolve("redis:5.0.4")
    assert resolved.version == "5.0.6"
    assert resolved.image.programs["redis-sentinel"].path == str(server)
    assert catalog.find("redis:7").main[1].path == "/usr/bin/redis-server"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("images: [{match: [x], extends: nothing}]", "extends 'nothing'"),
        ("images: [{match: [x]}]", "names neither"),
        ("images: [{match: [x], typo: 1}]", "typo"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        load(file)


def test_a_missing_program_names_its_package(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("images: [{match: ['db:*'], programs: {db: {path: /nowhere/db, package: db-server}}}]")
    with pytest.raises(ImageError, match="install the Debian package db-server"):
        load(file).resolve("db:1")


def test_an_image_that_is_not_built_yet_says_how_and_runs_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_CACHE", str(tmp_path))
    catalog = load()
    with pytest.raises(ImageError, match=r"hack\.mo_service \(once, up to seven minutes"):
        catalog.resolve("matrixorigin/matrixone:1.2.4")
    server = tmp_path / "mo-service" / "current" / "mo-service"
    server.parent.mkdir(parents=True)
    server.write_text("#!/bin/sh\nprintf 'MatrixOne build info:\\n  Version: v1.2.4\\n'\n")
    server.chmod(0o755)
    resolved = catalog.resolve("matrixorigin/matrixone:1.2.4")
    assert (resolved.version, resolved.image.paths) == ("1.2.4", (str(server.parent),))
