"""What a version of Redis or Valkey can do: the one table everything else asks.

Tests ask servers of Redis 3.2, 5.0, 6.0, 6.2, 7.0, 7.2, 7.4, 8.0 and 8.2 and of Valkey 8.1 and 9.1; what 4.0 can do comes
from Redis' release notes. Valkey forked from 7.2 and counts on from there: what Redis 7.2 can do, every Valkey can.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

__all__ = [
    "OLDEST",
    "Capabilities",
    "capabilities",
    "file_format",
    "full_name",
    "image_version",
    "parse_version",
    "reads",
    "reads_format",
    "server_version",
    "unread",
    "version_in",
    "why_unread",
]

Version = tuple[int, int, int]

OLDEST: Version = (3, 2, 0)
"""The oldest version anything here was tried on."""

_VALKEY: Final = "Valkey"
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


def server_version(info: Mapping[str, str]) -> str:
    """The version of a server as we name it, from its INFO: ``"7.0.15"``, ``"Valkey 9.1.2"``; "" when it tells none.

    Valkey answers ``redis_version:7.2.4`` in every version, for clients that ask.
    """
    valkey = info.get("valkey_version", "")
    return f"{_VALKEY} {valkey}" if valkey else info.get("redis_version", "")


def parse_version(text: str) -> Version:
    """``"7.0.15"`` -> ``(7, 0, 15)``, ``"Valkey 9.1.2"`` -> ``(9, 1, 2)``; what cannot be read counts as the oldest."""
    match = _VERSION.search(text)
    if match is None:
        return OLDEST
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


@lru_cache(maxsize=256)
def capabilities(version: str) -> Capabilities:
    """The row of the table for a version text (`server_version`)."""
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


#: The RDB format that each version of Redis and of Valkey writes first.
_FORMATS: Final[tuple[tuple[Version, int], ...]] = (
    ((7, 4, 0), 12),
    ((7, 2, 0), 11),
    ((7, 0, 0), 10),
    ((5, 0, 0), 9),
    ((4, 0, 0), 8),
    ((3, 2, 0), 7),
)
_FORMATS_OF_VALKEY: Final[tuple[tuple[Version, int], ...]] = (((9, 0, 0), 80), ((7, 2, 0), 11))
_COMMON: Final = 11
"""The last format that Redis and Valkey share: what Redis counts on from there Valkey refuses, and the other way round."""
_OF_VALKEY: Final = 80
"""The first format that Valkey alone has."""


def file_format(version: str) -> int:
    """The RDB format of a version text; it is also what a full synchronisation sends."""
    number = parse_version(version)
    known = _FORMATS_OF_VALKEY if _is_valkey(version) else _FORMATS
    return next((kept for since, kept in known if number >= since), 6)


def reads_format(version: str, kept: int) -> bool:
    """Whether a server of this version reads files of an RDB format: its own, and older ones of its kind."""
    if kept <= _COMMON:
        return kept <= file_format(version)
    return (kept >= _OF_VALKEY) == _is_valkey(version) and kept <= file_format(version)


def reads(version: str, writer: str) -> bool:
    """Whether a server of this version reads the files of another version: a later one of the same kind always does."""
    later = _is_valkey(version) == _is_valkey(writer) and parse_version(version) >= parse_version(writer)
    return later or reads_format(version, file_format(writer))


def image_version(image: str) -> Version | None:
    """The newest version that an image may hold, by its tag; ``None`` when the tag tells nothing (see `version_in`)."""
    path, _, tag = image.partition("@")[0].rpartition(":")
    match = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?![\w.])", tag)
    if path.rpartition("/")[2] not in ("redis", "valkey") or match is None or "/" in tag:
        return None
    major, minor, patch = (int(part) if part else 99 for part in match.groups())
    return major, minor, patch


def version_in(image: str) -> str:
    """The newest version that an image may hold, as text: ``redis:7`` -> "7.99.99"; "" when the tag tells nothing.

    Only images that are called redis or valkey are judged: others count their own versions.
    """
    number = image_version(image)
    if number is None:
        return ""
    valkey = image.partition("@")[0].rpartition(":")[0].rpartition("/")[2] == "valkey"
    text = ".".join(map(str, number))
    return f"{_VALKEY} {text}" if valkey else text


def unread(image: str, writers: Iterable[str]) -> str:
    """The newest of these versions whose files an image cannot read, by its tag; "" when it reads all, or may."""
    own = version_in(image)
    cannot = [one for one in writers if own and one and not reads(own, one)]
    return max(cannot, key=file_format, default="")


def why_unread(image: str, writer: str, *, back: str) -> str:
    """What is said of an image that cannot read the files of the version that runs; ``back``: how to go back."""
    told = f"{image} cannot read the files of {full_name(writer)}, which runs; nothing was changed. Give "
    told += f"{full_name(writer)} or a later version"
    if _is_valkey(version_in(image)) == _is_valkey(writer):
        return f"{told}; to go back, {back}"
    return (
        f"{told}; no Valkey reads files of Redis 7.4 and later, and no Redis those of Valkey 9 and later: to change "
        "over, copy the keys into a new cluster with a client"
    )


def full_name(version: str) -> str:
    """A version with the name of its kind: "Redis 7.0.15", "Valkey 9.1.2"."""
    return version if _is_valkey(version) else f"Redis {version}"


def _is_valkey(version: str) -> bool:
    return version.startswith(_VALKEY)
