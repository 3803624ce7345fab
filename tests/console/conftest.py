"""The fixtures of `tests.console.bed` for all tests of the console."""

from tests.console.bed import bed, browsers

__all__ = ["bed", "browsers"]
