"""What INFO says."""

from __future__ import annotations

__all__ = ["parse_info"]


def parse_info(text: str) -> dict[str, str]:
    """The fields of INFO."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}
