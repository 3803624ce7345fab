"""Layers: what they add, what they take away, and what is refused."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mooring.local.node.layers import LayerError, apply_layer
from mooring.local.node.trees import clone_tree, inside
from mooring.local.removal import remove_tree

from .imaging import Entry, directory, file, layer, link


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("theirs")
    return made


def put(root: Path, *entries: tuple[object, bytes]) -> None:
    apply_layer(root, io.BytesIO(layer(*entries)))  # type: ignore[arg-type]


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_files_modes_and_links_come_as_they_are_written(root: Path) -> None:
    put(
        root,
        directory("./a", mode=0o711),
        file("a/run", "x", mode=0o755),
        link("a/soft", "../anywhere"),
        link("a/hard", "a/run", hard=True),
    )
    assert (root / "a").stat().st_mode & 0o7777 == 0o711
    assert (root / "a/run").stat().st_mode & 0o7777 == 0o755
    assert (root / "a/soft").readlink() == Path("../anywhere")
    assert (root / "a/hard").samefile(root / "a/run")


def test_a_whiteout_removes_what_is_below_and_not_what_its_own_layer_brings(root: Path) -> None:
    put(root, file("etc/old"), file("etc/kept"), file("dir/deep/file"))
    put(root, file("etc/new"), file("etc/.wh.old"), file("etc/.wh.new"), file(".wh.dir"))
    assert names(root) == {"etc", "etc/kept", "etc/new"}


def test_an_opaque_directory_hides_all_that_was_in_it(root: Path) -> None:
    put(root, file("var/a"), file("var/sub/b"), file("other"))
    put(root, file("var/sub/mine"), file("var/.wh..wh..opq"), file("var/later"))
    assert names(root) == {"other", "var", "var/sub", "var/sub/mine", "var/later"}


def test_a_later_layer_replaces_files_by_directories_and_back(root: Path) -> None:
    put(root, file("a"), file("b/c"), link("d", "b"))
    put(root, directory("a"), file("a/inside"), file("b", "now a file"), directory("d"))
    assert names(root) == {"a", "a/inside", "b", "d"}
    assert not (root / "d").is_symlink()


@pytest.mark.parametrize("name", ["../escaped", "a/../../escaped", "a/..", "a/.wh...", ".wh.."])
def test_names_that_lead_out_are_refused(root: Path, name: str) -> None:
    with pytest.raises(LayerError, match="refused"):
        put(root, directory("a"), file(name, "x"))
    assert sorted(os.listdir(root.parent)) == ["root", "secret"]


def test_hard_links_that_lead_out_are_refused(root: Path) -> None:
    for target in ("../secret/key", "..", ""):
        with pytest.raises(LayerError, match="refused"):
            put(root, link("stolen", target, hard=True))
    with pytest.raises(LayerError, match="not there"):
        put(root, link("out", str(root.parent)), link("stolen", "out/secret/key", hard=True))


def test_what_is_written_through_a_link_stays_inside(root: Path) -> None:
    outside = root.parent / "secret"
    put(root, link("out", str(outside)), link("up", "../../../../.."), link("lib", "usr/lib"))
    put(root, file("out/key", "ours"), file("up/top", "ours"), file("lib/x"), file("out/.wh.nothing"))
    assert (outside / "key").read_text() == "theirs"
    assert (root / str(outside).lstrip("/") / "key").read_text() == "ours"
    assert (root / "top").read_text() == "ours"
    assert (root / "usr/lib/x").exists()
    put(root, file("out/.wh.key"))
    assert (outside / "key").exists()


def test_a_file_replaces_a_link_instead_of_being_written_where_it_leads(root: Path) -> None:
    outside = root.parent / "secret/key"
    put(root, link("conf", str(outside)))
    put(root, file("conf", "ours"))
    assert outside.read_text() == "theirs"
    assert not (root / "conf").is_symlink()


@pytest.mark.parametrize("entry", ["a", "a/b"])
def test_a_directory_that_becomes_a_link_gives_its_mode_to_nothing_outside(root: Path, entry: str) -> None:
    outside = root.parent / "secret"
    (outside / "b").mkdir(mode=0o700)
    outside.chmod(0o700)
    put(root, directory(entry, mode=0o777), link("a", str(outside)))
    assert [path.stat().st_mode & 0o7777 for path in (outside, outside / "b")] == [0o700, 0o700]


def test_a_link_to_nothing_and_numbers_out_of_range_end_no_program(root: Path) -> None:
    for target in ("", "a\0b"):
        info, nothing = link("a", target)
        info.pax_headers = {"linkpath": target}
        with pytest.raises(LayerError, match="refused"):
            put(root, (info, nothing))
    put(root, file("f", uid=2**40, gid=2**40))
    assert (root / "f").exists()


def test_loops_of_links_and_files_in_the_way_are_told(root: Path) -> None:
    with pytest.raises(LayerError, match="too many links"):
        put(root, link("a", "b"), link("b", "a"), file("a/x"))
    with pytest.raises(LayerError, match="no directory"):
        put(root, file("f"), file("f/x"))


def test_garbage_is_no_layer(root: Path) -> None:
    with pytest.raises(LayerError, match="not a tar"):
        apply_layer(root, io.BytesIO(b"hello" * 1000))


def test_a_clone_shares_files_and_a_change_of_one_leaves_the_other(tmp_path: Path, root: Path) -> None:
    put(root, directory("d", mode=0o700), file("d/f", "old"), link("d/l", "f"))
    clone_tree(root, tmp_path / "twin")
    twin = tmp_path / "twin"
    assert (twin / "d/f").samefile(root / "d/f")
    assert (twin / "d").stat().st_mode & 0o777 == 0o700
    put(twin, file("d/f", "new"))
    assert (root / "d/f").read_text() == "old"


def test_a_layer_that_nests_without_end_is_refused(root: Path) -> None:
    with pytest.raises(LayerError, match="nests too deep"):
        put(root, directory("/".join(["a"] * 300)))
    steps = [directory("/".join(["d"] * 200)), link("near", "/".join(["d"] * 200))]
    with pytest.raises(LayerError, match="nests too deep"):
        put(root, *steps, directory("near/" + "/".join(["e"] * 200)))


def test_a_layer_takes_no_more_than_the_disk_has(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    put(root, file("a", "x" * 80_000))
    with pytest.raises(LayerError, match="does not fit"):
        put(root, file("b", "x" * 50_000), file("c", "x" * 50_000))
    with pytest.raises(LayerError, match="does not fit"):
        put(root, *(directory(f"d{n}") for n in range(100)))


def test_a_tree_that_is_deeper_than_a_path_is_long_is_removed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
    os.close(here)
    remove_tree(tmp_path / "deep")
    assert os.listdir(tmp_path) == []


def test_a_tree_that_nobody_may_write_is_removed(root: Path) -> None:
    put(root, directory("closed", mode=0o000), file("closed/f"))
    remove_tree(root)
    assert not root.exists()


def test_paths_are_looked_up_as_the_container_would(root: Path) -> None:
    put(root, link("var/run", "/run"), directory("run"), link("a", "b/c"))
    assert inside(root, "/var/run/x") == root / "run/x"
    assert inside(root, "../../etc") == root / "etc"


#: Stands for the absolute path outside of the image, which no example knows beforehand.
OUTSIDE = "@outside"
SEGMENTS = ("a", "b", "..", ".", ".wh.a", ".wh..wh..opq", ".wh...", "")
NAMES = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=4).map("/".join)
TARGETS = st.one_of(NAMES, st.sampled_from(("/", "../../secret", "../secret/key", "/a", "..")))
ENTRIES = st.one_of(
    st.builds(directory, NAMES, mode=st.sampled_from((0o755, 0o000, 0o777))),
    st.builds(lambda name: file(name, "ours"), NAMES),
    st.builds(lambda name, target, hard: link(name, target, hard=hard), NAMES, TARGETS, st.booleans()),
    st.builds(link, NAMES, st.sampled_from((OUTSIDE, f"{OUTSIDE}/key"))),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layers=st.lists(st.lists(ENTRIES, max_size=6), min_size=1, max_size=3))
def test_a_layer_made_at_random_writes_nothing_outside(tmp_path: Path, layers: list[list[Entry]]) -> None:
    home = Path(tempfile.mkdtemp(dir=tmp_path))
    (home / "secret").mkdir()
    (home / "secret/key").write_text("theirs")
    modes = (1, (home / "secret/key").stat().st_mode, (home / "secret").stat().st_mode)
    root = home / "root"
    root.mkdir()
    for entries in layers:
        for info, _ in entries:
            info.linkname = info.linkname.replace(OUTSIDE, str(home / "secret"))
        with suppress(LayerError):
            put(root, *entries)
    assert sorted(os.listdir(home)) == ["root", "secret"]
    assert os.listdir(home / "secret") == ["key"]
    assert (home / "secret/key").read_text() == "theirs"
    key = (home / "secret/key").stat()
    assert (key.st_nlink, key.st_mode, (home / "secret").stat().st_mode) == modes
    remove_tree(root)
    assert not root.exists()
