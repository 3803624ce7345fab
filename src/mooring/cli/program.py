"""How this program is called: by the launcher of a tree, or as an installed command."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["checkout", "program"]


def checkout() -> Path | None:
    """The tree whose launcher runs this process; ``None`` for an installed package."""
    root = os.environ.get("MOORING_ROOT")
    return Path(root) if root else None


def program() -> str:
    """The word to type: ``./mooring`` in a tree, else ``mooring``."""
    return "./mooring" if checkout() is not None else "mooring"
