"""Mounts put together by descriptor: what a pod puts in their way leads nowhere outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mooring.local.node import namespaces as ns
from mooring.local.node import staging
from mooring.local.node.staging import Mount, StagingError, stage

from .bed import privileged

pytestmark = [pytest.mark.embedded, privileged]


def seen(
    mounts: Sequence[Mount], tmp_path: Path, look: Callable[[Path], str], *, working_dir: str = "/"
) -> str:
    """What `look` finds at the only tree of these mounts."""
    staged = stage(mounts, place=tmp_path / "place", working_dir=working_dir)
    (tree,) = staged.mounts
    assert staged.namespace is not None
    assert tree.source.is_relative_to(tmp_path / "place")

    def work() -> str:
        ns.unshare(ns.CLONE_FS)
        assert staged.namespace is not None
        ns.enter(staged.namespace, ns.CLONE_NEWNS)
        return look(tree.source)

    try:
        return ns.in_fresh_thread(work).result()
    finally:
        staged.close()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume" / "real").mkdir(parents=True)
    (tmp_path / "volume" / "real" / "name").write_text("the volume's")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "name").write_text("the machine's")
    return tmp_path / "volume"


def test_a_directory_swapped_with_a_link_while_it_is_looked_for_is_not_followed(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = staging._opened_below

    def swapped(source: int, mount: Mount) -> int:
        opened = found(source, mount)
        (volume / "real").rename(volume / "away")
        (volume / "real").symlink_to(tmp_path / "outside")
        return opened

    monkeypatch.setattr(staging, "_opened_below", swapped)
    mount = Mount(volume, "/in", below="real")
    assert seen([mount], tmp_path, lambda tree: (tree / "name").read_text()) == "the volume's"


@pytest.mark.parametrize("link", ["/", "../outside", "loop"])
def test_a_link_out_of_a_volume_is_refused_and_nothing_is_made_there(
    volume: Path, tmp_path: Path, link: str
) -> None:
    (volume / "loop").symlink_to(link)
    before = sorted(os.listdir("/"))
    for mounts in (
        [Mount(volume, "/in", below="loop/deep", made=True)],
        [Mount(volume, "/in"), Mount(volume / "real", "/in/loop/deep")],
        [Mount(volume, "/in"), Mount(volume / "real" / "name", "/in/loop/name-2")],
    ):
        with pytest.raises(StagingError, match=r"subPath|mountPath"):
            seen(mounts, tmp_path, str)
    assert sorted(os.listdir(tmp_path / "outside")) == ["name"]
    assert sorted(os.listdir("/")) == before


def test_a_working_directory_behind_a_link_is_made_nowhere(volume: Path, tmp_path: Path) -> None:
    (volume / "link").symlink_to(tmp_path / "outside")
    look = lambda tree: ",".join(sorted(os.listdir(tree)))  # noqa: E731
    found = seen([Mount(volume, "/in")], tmp_path, look, working_dir="/in/link/deep")
    assert (found, os.listdir(tmp_path / "outside")) == ("link,real", ["name"])
    assert seen([Mount(volume, "/in")], tmp_path, look, working_dir="/in/new/deep") == "link,new,real"


def test_links_within_a_volume_are_followed(volume: Path, tmp_path: Path) -> None:
    (volume / "current").symlink_to("real")
    mount = Mount(volume, "/in", below="current/name")
    assert seen([mount], tmp_path, Path.read_text) == "the volume's"


def test_what_is_missing_is_made_for_every_user(volume: Path, tmp_path: Path) -> None:
    seen([Mount(volume, "/in", below="a/b", made=True)], tmp_path, str)
    assert [(volume / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o777, 0o777]
    with pytest.raises(StagingError, match="subPath 'c' does not exist"):
        seen([Mount(volume, "/in", below="c")], tmp_path, str)


def test_mounts_below_others_are_where_they_belong_and_may_not_be_written_if_so_asked(
    volume: Path, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    mounts = [
        Mount(tmp_path / "outside", "/in/one/two", read_only=True),
        Mount(volume, "/in"),
        Mount(tmp_path / "second", "/in/other"),
    ]

    def look(tree: Path) -> str:
        (tree / "other" / "made").touch()
        try:
            (tree / "one" / "two" / "made").touch()
        except OSError as error:
            return f"{(tree / 'one' / 'two' / 'name').read_text()} {error.strerror}"
        return "written"

    assert seen(mounts, tmp_path, look) == "the machine's Read-only file system"
    assert (tmp_path / "second" / "made").exists()
    assert (volume / "one" / "two").is_dir(), "the place to mount on"
    assert not os.listdir(volume / "one" / "two")


def test_mounts_that_need_no_care_need_no_namespace(volume: Path, tmp_path: Path) -> None:
    mounts = [Mount(volume, "/in"), Mount(tmp_path / "outside", "/input")]
    staged = stage(mounts, place=tmp_path / "place", working_dir="/in")
    assert (list(staged.mounts), staged.namespace, staged.working_dir) == (mounts, None, True)
