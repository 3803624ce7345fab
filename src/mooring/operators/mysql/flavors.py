"""The two flavours of server; which of them an image is, told from its name, and its version, as far as the tag says."""

from __future__ import annotations

import re
from typing import Final, Literal

__all__ = ["Flavor", "flavor_of", "told_by", "version_of"]

Flavor = Literal["mariadb", "mysql"]

_VERSION: Final = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?")


def told_by(image: str) -> Flavor | None:
    """The flavour that an image's name tells; ``None`` where it tells none, or both."""
    name = _repository(image).lower()
    if "mariadb" in name:
        return "mariadb"
    if "mysql" in name or "percona" in name:
        return "mysql"
    return None


def flavor_of(image: str, declared: str | None) -> Flavor | None:
    """The flavour of a cluster: as declared, or as the image's name tells; ``None`` where neither says."""
    if declared == "mysql":
        return "mysql"
    if declared == "mariadb":
        return "mariadb"
    return told_by(image)


def version_of(image: str) -> tuple[int, ...]:
    """The version in an image's tag; empty where it names none (``latest``, a digest)."""
    name = image.partition("@")[0]
    tag = name.rpartition("/")[2].partition(":")[2]
    found = _VERSION.match(tag.removeprefix("v"))
    return tuple(int(part) for part in found.groups() if part is not None) if found else ()


def _repository(image: str) -> str:
    """The image without registry, tag and digest."""
    name = image.partition("@")[0]
    head, _, last = name.rpartition("/")
    first, _, rest = head.partition("/")
    path = rest if "." in first or ":" in first or first == "localhost" else head
    return f"{path}/{last.partition(':')[0]}"
