"""What `mooring test` does around the tiers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mooring.cli import tests

SLOW = """
import os, pathlib, sys, time
nice = lambda: str(os.getpriority(os.PRIO_PROCESS, 0))
pathlib.Path("begun").write_text(nice())
time.sleep(0.5)
pathlib.Path("built").write_text(" ".join([*sys.argv[1:], nice()]))
"""


def root_with(tmp_path: Path, program: str) -> Path:
    (tmp_path / "hack").mkdir()
    (tmp_path / "hack" / "build.py").write_text(program)
    return tmp_path


def test_what_later_tiers_need_is_built_beside_the_first_and_there_when_they_begin(tmp_path: Path) -> None:
    root = root_with(tmp_path, SLOW)
    with tests._building(root, ["unit", "embedded", "kubernetes", "full"]) as built:
        while not (root / "begun").exists() or not (first := (root / "begun").read_text()):
            time.sleep(0.01)
        built()
        tiers = (root / "built").read_text().split()
    assert tiers[:2] == ["kubernetes", "full"]
    # The builder gives way to tests, and no longer once they wait for it (root alone may take that back).
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert int(first) > own
    assert tiers[2] == (str(own) if os.geteuid() == 0 else first)


def test_a_tier_that_fails_ends_the_builds(tmp_path: Path) -> None:
    root = root_with(tmp_path, "import time; time.sleep(60)")
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), tests._building(root, ["unit", "full"]):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 10


def test_nothing_is_built_for_tiers_that_need_nothing(tmp_path: Path) -> None:
    with tests._building(tmp_path, ["unit", "embedded"]) as built:
        built()
