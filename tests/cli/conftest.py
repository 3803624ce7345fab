"""The program, run by the user of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.program import Program, ourselves, temporary


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that is thrown away."""
    with temporary() as path:
        yield path


@pytest.fixture
def program(home: Path) -> Program:
    """``mooring`` with a home of its own."""
    return ourselves(home)
