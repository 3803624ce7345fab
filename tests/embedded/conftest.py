"""Beds for the tests with real processes; each has its own data directory and leaves nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mooring.testing.bed import Bed


@pytest.fixture
def directory() -> Iterator[Path]:
    """A data directory with a short path (socket files live below it)."""
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def bed(directory: Path) -> AsyncIterator[Bed]:
    """A running control plane with all operators."""
    async with Bed(directory) as running:
        yield running
