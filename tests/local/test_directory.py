"""The data directory: who may enter it."""

from __future__ import annotations

from pathlib import Path

from mooring.local.directory import DataDirectory


def test_no_other_user_of_the_machine_gets_to_volumes_that_are_open_to_all(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.make()
    directory.path.chmod(0o711)  # as an earlier version made them
    directory.volumes.chmod(0o711)
    directory.make()
    assert [one.stat().st_mode & 0o777 for one in (directory.path, directory.volumes)] == [0o700, 0o700]
