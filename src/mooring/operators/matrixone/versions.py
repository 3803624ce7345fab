"""Versions of MatrixOne and of upstream's operator, and what depends on them.

Whether a running server can do something is probed; a version decides only what a configuration file is written for.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from mooring.operators.matrixone.types import PodSet

__all__ = ["FIRST_OPERATOR", "LATEST_OPERATOR", "Version", "operator_version", "server_version", "tag_of"]

_FORM: Final = re.compile(
    r"[vV]?(\d+)(?:\.(\d+))?(?:\.(\d+))?(-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LONGEST: Final = 18
"""Digits of a number that upstream's parser still reads."""


class Version(NamedTuple):
    """A semantic version; pre-releases compare as the release they lead to."""

    major: int
    minor: int = 0
    patch: int = 0
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}{self.rest}"

    @classmethod
    def read(cls, text: str | None) -> Version | None:
        """The version that a text means, short forms and a leading ``v`` included; None where it means none."""
        found = _FORM.fullmatch((text or "").strip())
        if found is None:
            return None
        numbers = [part or "0" for part in found.groups()[:3]]
        if any(len(part) > _LONGEST for part in numbers):
            return None
        major, minor, patch = map(int, numbers)
        return cls(major, minor, patch, (found[4] or "") + (found[5] or ""))

    @property
    def release(self) -> tuple[int, int, int]:
        """Its three numbers."""
        return self.major, self.minor, self.patch

    @property
    def discovers(self) -> bool:
        """Every process of it finds HAKeeper by one address, and log stores take ports instead of addresses."""
        return self.release >= (2, 0, 0)


FIRST_OPERATOR: Final = Version(1, 2, 0)
"""What an absent ``operatorVersion`` means."""
LATEST_OPERATOR: Final = Version(1, 3, 0)
"""What new clusters get."""


def tag_of(image: str | None) -> str:
    """The tag of an image, as upstream reads it: what follows the last colon."""
    return (image or "").rpartition(":")[2] if ":" in (image or "") else ""


def server_version(spec: PodSet) -> Version | None:
    """The version of MatrixOne that a set runs; None where nothing says it."""
    given = spec.semantic_version
    return Version.read(given if given is not None else tag_of(spec.image))


def operator_version(spec: PodSet) -> Version:
    """The version of upstream's operator whose pods are made."""
    return Version.read(spec.operator_version) or FIRST_OPERATOR
