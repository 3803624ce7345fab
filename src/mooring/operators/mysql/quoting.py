"""Text as it stands in a statement."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(text: str) -> str:
    """A string literal; sessions of ours run with the default rules for quotes and backslashes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\0", "\\0")
    return f"'{escaped}'"
