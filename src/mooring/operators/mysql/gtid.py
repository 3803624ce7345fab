"""Positions in the replication history, and how two of them compare: one type for both flavours.

A `Position` is a set of transactions. MySQL names them ``uuid[:tag]:1-5``; MariaDB ``domain-server-seq``, where within one
domain everything up to the last sequence number of a server is there (strict mode). Both are kept as intervals by origin,
so that one algebra serves both: an origin is ``uuid``, ``uuid:tag`` or ``domain-server``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Position"]

Intervals = tuple[tuple[int, int], ...]
"""Inclusive, sorted, disjoint, not adjacent."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """A set of transactions."""

    origins: Mapping[str, Intervals] = field(default_factory=dict)
    """Intervals of sequence numbers by origin."""
    last: Mapping[str, str] = field(default_factory=dict)
    """MariaDB only: the newest id of each domain, ``domain -> domain-server-seq``, which orders a domain's origins."""

    # SQL engineer: parse_mysql, parse_mariadb, __or__, __sub__, contains, is_empty, text, ahead_of (how many
    # transactions), comparable; all pure, tested against both real servers.
