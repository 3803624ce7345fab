"""The beds of the embedded tests."""

from __future__ import annotations

from tests.embedded.conftest import _logging, directory

__all__ = ["_logging", "directory"]
