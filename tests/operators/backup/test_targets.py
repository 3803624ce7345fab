"""What of a target is refused."""

from __future__ import annotations

import pytest

from mooring.objectstore import Target
from mooring.objectstore.target import Claim, Directory
from mooring.operators.backup.targets import DIRECTORIES, problems


def test_directories_of_nodes_are_refused_where_the_chart_forbids_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = Target(directory=Directory(path="/srv/backups"))
    monkeypatch.delenv(DIRECTORIES, raising=False)
    assert problems(target, "spec.target") == []
    monkeypatch.setenv(DIRECTORIES, "forbid")
    (one,) = problems(target, "spec.target")
    assert one.field == "spec.target.directory"
    assert "backups.directories" in one.message
    assert problems(Target(claim=Claim(name="backups")), "spec.target") == []
    (wrong,) = problems(Target(), "spec.target")
    assert wrong.field == "spec.target"
