"""The data directory: who may enter it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mooring.local.directory import FORMAT, DataDirectory, DirectoryUnusable


def test_no_other_user_of_the_machine_gets_to_volumes_that_are_open_to_all(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.make()
    directory.path.chmod(0o711)  # as an earlier version made them
    directory.volumes.chmod(0o711)
    directory.make()
    assert [one.stat().st_mode & 0o777 for one in (directory.path, directory.volumes)] == [0o700, 0o700]


def test_a_directory_of_a_later_format_is_refused_by_its_version_and_left_as_it_is(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.make()
    directory.stamp("0.1.0")
    note = directory.path / "version.json"
    assert json.loads(note.read_text()) == {"format": FORMAT, "version": "0.1.0"}

    later = json.dumps({"format": FORMAT + 1, "version": "0.9.0"})
    note.write_text(later)
    with pytest.raises(
        DirectoryUnusable, match=r"used by Mooring 0\.9\.0.*this version, 0\.1\.0.*nothing was changed"
    ):
        directory.stamp("0.1.0")
    assert note.read_text() == later


def test_a_directory_of_an_earlier_version_is_taken_over_and_an_unreadable_note_is_not(
    tmp_path: Path,
) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.make()
    note = directory.path / "version.json"
    note.write_text(json.dumps({"format": FORMAT, "version": "0.1.0"}))
    directory.stamp("0.2.0")
    assert json.loads(note.read_text())["version"] == "0.2.0"

    note.write_text("{")
    with pytest.raises(DirectoryUnusable, match="cannot be read"):
        directory.stamp("0.2.0")
