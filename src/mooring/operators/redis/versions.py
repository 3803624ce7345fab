"""What a Redis version can do: the one table everything else asks.

Facts were run on 3.2, 5.0 and 7.0 servers; those of other versions come from Redis' release notes. Valkey
forked from 7.2 and answers ``redis_version:7.2.4`` beside its own ``valkey_version``, so the table holds for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = [
    "OLDEST",
    "Capabilities",
    "capabilities",
    "file_format",
    "image_format",
    "image_version",
    "parse_version",
]

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
    inline_auth: bool
    """Before 4.0 a replica sends its password as a bare line, where a space or a quote ends it."""
    migrate_auth: bool
    """4.0.7: MIGRATE takes the password of its target; before, keys cannot be moved to a server that has one."""
    acl: bool
    """6.0: users, and two valid passwords at once."""
    channels: bool
    """6.2: rules about channels (``&``)."""
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
        inline_auth=number < (4, 0, 0),
        migrate_auth=number >= (4, 0, 7),
        acl=number >= (6, 0, 0),
        channels=number >= (6, 2, 0),
        pause_writes=number >= (6, 2, 0),
        sentinel_debug=number >= (7, 0, 0),
        announce=number >= (3, 2, 2),
        many_config_get=number >= (7, 0, 0),
    )


#: The RDB format that each version writes first; a server reads its own and every older one.
_FORMATS: tuple[tuple[Version, int], ...] = (
    ((7, 4, 0), 12),
    ((7, 2, 0), 11),
    ((7, 0, 0), 10),
    ((5, 0, 0), 9),
    ((4, 0, 0), 8),
    ((3, 2, 0), 7),
)


def file_format(version: str) -> int:
    """The RDB format of a version text; it is also what a full synchronisation sends."""
    number = parse_version(version)
    return next((kept for since, kept in _FORMATS if number >= since), 6)


def image_version(image: str) -> Version | None:
    """The newest version that an image may hold, by its tag; ``None`` when the tag tells nothing (see `image_format`)."""
    path, _, tag = image.partition("@")[0].rpartition(":")
    match = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?![\w.])", tag)
    if path.rpartition("/")[2] not in ("redis", "valkey") or match is None or "/" in tag:
        return None
    major, minor, patch = (int(part) if part else 99 for part in match.groups())
    return major, minor, patch


def image_format(image: str) -> int:
    """The newest RDB format an image reads, by its tag (``redis:5.0.4-alpine`` -> 9); 0 when the tag tells nothing.

    Only images that are called redis or valkey are judged: others count their own versions. A short tag stands
    for the newest of its kind: ``redis:7`` may be 7.4. Valkey 7.2 and 8 stayed with 11.
    """
    path, _, tag = image.partition("@")[0].rpartition(":")
    name = path.rpartition("/")[2]
    match = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?![\w.])", tag)
    if name not in ("redis", "valkey") or match is None or "/" in tag:
        return 0
    major, minor, patch = (int(part) if part else 99 for part in match.groups())
    if name == "valkey":
        return 11 if major < 9 else 0
    return file_format(f"{major}.{minor}.{patch}")
