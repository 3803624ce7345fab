"""Images made of Debian's packages: which tags they stand for, and that each is made once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from mooring.local.node import packages
from mooring.local.node.images import Catalog, Image, Program, built_in
from mooring.local.node.imagestore import LoadedImage
from mooring.local.node.packages import RECIPES, PackageImages, Recipe, Say
from mooring.local.node.references import ImageError


@pytest.mark.parametrize(
    ("reference", "series"),
    [
        ("mariadb:10.11", "10.11"),
        ("mariadb:10", "10.11"),
        ("docker.io/library/mariadb:10.11.6-jammy", "10.11"),
        ("mariadb:11", "11.8"),
        ("mariadb", "11.8"),
        ("mariadb:lts-noble", "11.8"),
        ("registry.example.com/db/mysql:9.7.0", "9.7"),
        ("mysql:9", "9.7"),
        ("mysql:latest", "9.7"),
        ("redis:8", "8.0"),
        ("redis:8.0.2-bookworm", "8.0"),
        ("valkey/valkey:8.1-alpine", "8.1"),
        ("valkey:8", "8.1"),
        ("valkey:9", "9.1"),
        ("valkey", "9.1"),
    ],
)
def test_a_tag_stands_for_the_series_it_asks_for(reference: str, series: str, tmp_path: Path) -> None:
    recipe = Catalog(packages=PackageImages(tmp_path)).to_make(reference)
    assert recipe is not None
    assert recipe.series == series


@pytest.mark.parametrize("reference", ["mysql:8.4", "mysql:8.0", "mysql:5.7", "mysql:9.1", "mysql:debian"])
def test_a_version_that_cannot_be_made_is_refused_with_those_that_can(reference: str, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"cannot be made.*mysql:9\.7.*mooring image load"):
        Catalog(packages=PackageImages(tmp_path)).to_make(reference)
    with pytest.raises(ImageError, match=r"mariadb:11\.8, mariadb:10\.11"):
        Catalog(packages=PackageImages(tmp_path)).to_make("mariadb:11.4")


def test_other_images_are_not_made(tmp_path: Path) -> None:
    catalog = Catalog(packages=PackageImages(tmp_path))
    assert catalog.to_make("busybox") is None


def machine(version: str) -> Image:
    """Redis' image where the machine has a server of this version."""
    redis = next(one for one in built_in() if one.name == "redis")
    server = Program(path="/bin/echo", version=(f"v={version}",))
    return msgspec.structs.replace(redis, programs={"redis-server": server})


@pytest.mark.parametrize("tag", ["7.0", "7", "latest", "7.2", "6.2", "5.0.4-alpine", "alpine"])
def test_the_machines_server_stands_for_its_own_and_older_versions(tag: str, tmp_path: Path) -> None:
    catalog = Catalog([machine("7.0.15")], packages=PackageImages(tmp_path))
    assert catalog.to_make(f"redis:{tag}") is None
    assert catalog.resolve(f"redis:{tag}").version == "7.0.15"


def test_a_later_version_than_the_machines_is_made_of_packages_or_refused(tmp_path: Path) -> None:
    catalog = Catalog([machine("7.0.15")], packages=PackageImages(tmp_path))
    made = catalog.to_make("redis:8.0")
    assert made is not None
    assert (made.program, made.suite) == ("redis", "trixie")
    with pytest.raises(
        ImageError, match=r"redis:8\.0; use one of these.*This machine has /bin/echo 7\.0\.15"
    ):
        catalog.to_make("redis:8.4")
    # Where the machine has that version itself, nothing is made.
    assert Catalog([machine("8.0.2")], packages=PackageImages(tmp_path)).to_make("redis:8") is None


def test_valkey_is_not_redis_under_another_name(tmp_path: Path) -> None:
    catalog = Catalog([machine("7.0.15"), *built_in()], packages=PackageImages(tmp_path))
    with pytest.raises(ImageError, match=r"valkey:9\.1, valkey:8\.1"):
        catalog.to_make("valkey:7.2")


def test_what_was_not_made_yet_is_said(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="mooring image make mysql:9"):
        Catalog(packages=PackageImages(tmp_path)).resolve("mysql:9")


def test_a_changed_recipe_makes_another_image() -> None:
    recipe = RECIPES[0]
    other = Recipe(program=recipe.program, series=recipe.series, suite=recipe.suite, packages=("x",))
    assert recipe.name != other.name


def test_no_image_of_mysql_has_tools_that_the_official_one_lacks() -> None:
    mysql = next(one for one in RECIPES if one.program == "mysql")
    assert "usr/bin/mysqlbinlog" in mysql.without
    assert "socat" not in mysql.packages


def test_the_mirror_is_the_one_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.example.com/debian stable main\n"
        "deb [arch=amd64 signed-by=/x.gpg] https://mirror.example.com/debian/ bookworm main\n"
        "deb http://packages.example.com/apt cloud main\n"
    )
    (tmp_path / "sources.list.d" / "security.sources").write_text(
        "Types: deb\n# http://snapshot.example.com/debian-security/\nURIs: http://sec.example.com/debian-security\n"
    )
    monkeypatch.setattr(packages, "_SOURCES", tmp_path)
    assert packages._mirrors() == {
        "debian": "https://mirror.example.com/debian/",
        "debian-security": "http://sec.example.com/debian-security",
    }


def test_a_machine_without_debians_archive_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_SOURCES", tmp_path)
    images = PackageImages(tmp_path / "cache")
    with pytest.raises(ImageError, match="mooring image load"):
        images.make(images.recipe("mysql", "mysql:9"))


async def test_many_that_wait_get_one_image_and_hear_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    go_on = threading.Event()

    def make(self: PackageImages, recipe: Recipe, say: Say) -> LoadedImage:
        say("fetching")
        go_on.wait(10)
        made.append(recipe.name)
        return LoadedImage(id="sha256:1", names=(recipe.name,))

    monkeypatch.setattr(PackageImages, "_make", make)
    images = PackageImages(tmp_path)
    recipe = images.recipe("mysql", "mysql:9.7")
    heard: list[list[str]] = [[], [], []]
    waiting = [asyncio.create_task(images.obtain(recipe, one.append)) for one in heard]
    deadline = asyncio.get_running_loop().time() + 5
    while not all(heard) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.01)
    told = [list(one) for one in heard]
    waiting[0].cancel()  # a pod that was deleted meanwhile
    go_on.set()
    assert {image.id for image in await asyncio.gather(*waiting[1:])} == {"sha256:1"}
    assert made == [recipe.name]
    assert told == [["fetching"]] * 3


async def test_a_failure_is_told_to_all_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def make(self: PackageImages, recipe: Recipe, say: Say) -> LoadedImage:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ImageError("no network")
        return LoadedImage(id="sha256:1", names=(recipe.name,))

    monkeypatch.setattr(PackageImages, "_make", make)
    images = PackageImages(tmp_path)
    recipe = images.recipe("mysql", "mysql:9.7")
    with pytest.raises(ImageError, match="no network"):
        await images.obtain(recipe, lambda text: None)
    assert (await images.obtain(recipe, lambda text: None)).id == "sha256:1"
