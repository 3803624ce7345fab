"""Versions of servers: their series are compared, since data files and binary logs differ between those."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mooring.operators.mysql.topology import Flavor

__all__ = ["is_older", "next_stop", "series", "stops"]

_LONG_TERM: Final[Mapping[Flavor, tuple[tuple[int, int], ...]]] = {
    "mariadb": ((10, 6), (10, 11), (11, 4), (11, 8), (12, 3)),
    "mysql": ((5, 7), (8, 0), (8, 4), (9, 7)),
}
"""Series with long-term support: an upgrade goes from one to another."""
_REACH: Final[Mapping[Flavor, int]] = {"mariadb": 2, "mysql": 1}
"""How many of them one upgrade may go on: MySQL leaves none out, MariaDB one (10.11 to 11.8 was measured)."""


def series(version: str) -> tuple[int, ...]:
    """Major and minor number; as many as the text has."""
    found = re.match(r"\d+(?:\.\d+)?", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def is_older(version: tuple[int, ...], than: str) -> bool:
    """Whether a version is of an older series than another; what is not known is not older."""
    right = series(than)
    length = min(len(version), len(right), 2)
    return version[:length] < right[:length]


def next_stop(flavor: Flavor, since: str, to: tuple[int, ...]) -> str:
    """The series that has to be run between a version and a later one; "" where the later one may come next."""
    now, reach = series(since), _REACH[flavor]
    if len(now) < 2 or len(to) < 2:
        return ""
    between = [one for one in _LONG_TERM[flavor] if now < one < to[:2]]
    return ".".join(map(str, between[reach - 1])) if len(between) >= reach else ""


def stops(flavor: Flavor, since: str, to: tuple[int, ...]) -> list[str]:
    """All series that have to be run one after another between two versions."""
    found = []
    while stop := next_stop(flavor, since, to):
        found.append(stop)
        since = stop
    return found
