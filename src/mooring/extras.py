"""Parts of the package that need more than ``pip install mooring`` brings."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["MissingExtra", "require"]


class MissingExtra(ImportError):
    """An extra of the package is not installed; the message names it."""


def require(extra: str, part: str, modules: tuple[str, ...]) -> None:
    """Raise `MissingExtra` unless the modules that an extra brings can be imported; imports none of them."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"{part} needs more packages ({', '.join(missing)} not found): pip install 'mooring[{extra}]'",
            name=missing[0],
        )
