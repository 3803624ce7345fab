"""The table of faults in the documentation names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_fault_of_the_table_names_its_test() -> None:
    page = (ROOT / "docs" / "mysql.md").read_text()
    [table] = re.findall(r"^## Self-healing$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    folders = (ROOT / "tests" / "operators" / "mysql", ROOT / "tests" / "embedded")
    there = {
        name
        for folder in folders
        for file in folder.glob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", file.read_text())
    }
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert set(named) <= there, set(named) - there
