"""What a plane chooses for itself."""

from __future__ import annotations

from pathlib import Path

from mooring.local.directory import DataDirectory
from mooring.local.plane import Ranges


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
