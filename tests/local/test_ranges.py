"""The addresses a plane chooses for itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mooring.local import ranges
from mooring.local.directory import DataDirectory
from mooring.local.ranges import Ranges


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's book of ranges, empty."""
    monkeypatch.setattr(ranges, "REGISTRY", tmp_path / "registry")


def directory(path: Path) -> DataDirectory:
    made = DataDirectory(path)
    made.make()
    return made


def test_two_planes_that_choose_at_once_choose_different_addresses(tmp_path: Path) -> None:
    one, first = Ranges.of(directory(tmp_path / "one"))
    two, second = Ranges.of(directory(tmp_path / "two"))
    assert first is not None
    assert second is not None
    with first, second:
        assert not one.pods.overlaps(two.pods)
        assert not one.services.overlaps(two.services)


def test_a_plane_keeps_its_addresses(tmp_path: Path) -> None:
    before, claim = Ranges.of(directory(tmp_path))
    assert claim is not None
    claim.close()
    after, claim = Ranges.of(directory(tmp_path))
    assert claim is not None
    claim.close()
    assert after == before


def test_a_plane_that_is_down_finds_its_addresses_free_again(tmp_path: Path) -> None:
    one, claim = Ranges.of(directory(tmp_path / "one"))
    assert claim is not None
    claim.close()

    two, claim = Ranges.of(directory(tmp_path / "two"))
    assert claim is not None
    claim.close()
    assert not one.pods.overlaps(two.pods)

    shutil.rmtree(tmp_path / "one")
    three, claim = Ranges.of(directory(tmp_path / "three"))
    assert claim is not None
    claim.close()
    assert three == one, "what nobody keeps is free"


def test_a_machine_with_many_directories_still_starts_another(tmp_path: Path) -> None:
    for number in range(ranges.CHOICES + 1):
        _, claim = Ranges.of(directory(tmp_path / str(number)))
        assert claim is not None
        claim.close()
