"""What a Redis version can do: the one table everything else asks.

Facts were run on 3.2, 5.0 and 7.0 servers; those of other versions come from Redis' release notes. Valkey
forked from 7.2 and answers ``redis_version:7.2.4`` beside its own ``valkey_version``, so the table holds for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["OLDEST", "Capabilities", "capabilities", "parse_version"]

Version = tuple[int, int, int]

OLDEST: Version = (3, 2, 0)
"""The oldest version anything here was tried on."""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What one server version understands."""

    version: Version
    replication_ids: bool
    """4.0: ``master_replid`` and ``master_replid2``; partial resynchronisation after a fail-over."""
    replica_words: bool
    """5.0: ``replica-*`` spellings; the old ``slave-*`` ones work in every version, so we send those."""
    acl: bool
    """6.0: users, and two valid passwords at once."""
    pause_writes: bool
    """6.2: ``CLIENT PAUSE n WRITE`` and ``CLIENT UNPAUSE``; before, PAUSE holds our own commands too."""
    sentinel_debug: bool
    """7.0: ``SENTINEL DEBUG info-period``: how often sentinel asks for INFO (10 s otherwise)."""
    announce: bool
    """4.0: ``slave-announce-ip`` on data servers (3.2.2 has it too, undocumented)."""
    many_config_get: bool
    """7.0: CONFIG GET takes several patterns."""


def parse_version(text: str) -> Version:
    """``"7.0.15"`` -> ``(7, 0, 15)``; what cannot be read counts as the oldest version."""
    match = _VERSION.search(text)
    if match is None:
        return OLDEST
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


@lru_cache(maxsize=256)
def capabilities(version: str) -> Capabilities:
    """The row of the table for a version text as INFO shows it."""
    number = parse_version(version)
    return Capabilities(
        version=number,
        replication_ids=number >= (4, 0, 0),
        replica_words=number >= (5, 0, 0),
        acl=number >= (6, 0, 0),
        pause_writes=number >= (6, 2, 0),
        sentinel_debug=number >= (7, 0, 0),
        announce=number >= (3, 2, 2),
        many_config_get=number >= (7, 0, 0),
    )
