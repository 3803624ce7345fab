"""What HAKeeper says of a MatrixOne cluster at one moment, as far as rules need it; frozen and free of I/O.

A `View` exists only of an answer without an error, from a HAKeeper that runs: everything else is ``None`` and means
that nothing is known, never that nothing is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "DRAINED",
    "DRAINING",
    "HEARD_WITHIN",
    "WORKING",
    "Compute",
    "LogStore",
    "Shard",
    "Transaction",
    "View",
]

WORKING: Final = "Working"
DRAINING: Final = "Draining"
DRAINED: Final = "Drained"
HEARD_WITHIN: Final = 5.0
"""Seconds between two heartbeats of a store that lives; it sends one a second."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A replicated log: shard 0 is HAKeeper's, 1 the transaction log."""

    id: int
    replicas: Mapping[int, str]
    """The store that holds each replica, by the replica's id."""
    leader: str = ""
    """The store that leads, "" where none is known."""


@dataclass(frozen=True, kw_only=True)
class LogStore:
    """One process of the log service."""

    uuid: str
    silent: float
    """Seconds since its last heartbeat."""
    replicas: Mapping[int, int] = field(default_factory=dict)
    """The replica it runs, by shard."""


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """One transaction node."""

    uuid: str
    silent: float
    lock_address: str = ""


@dataclass(frozen=True, kw_only=True)
class Compute:
    """One compute node."""

    uuid: str
    state: str
    """Working, Draining, Drained or Unknown."""
    silent: float = 0.0
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    query_address: str = ""


@dataclass(frozen=True, kw_only=True)
class View:
    """HAKeeper's answer."""

    shards: Mapping[int, Shard]
    stores: Mapping[str, LogStore] = field(default_factory=dict)
    """By UUID; stores that are gone stay listed for ever."""
    transactions: Mapping[str, Transaction] = field(default_factory=dict)
    computes: Mapping[str, Compute] = field(default_factory=dict)
    """By UUID; one that is gone leaves the list after 30 s."""
    advances: bool = True
    """HAKeeper's clock moved between two questions."""

    def holds(self, uuid: str) -> list[int]:
        """The shards of which a store is a member."""
        return sorted(one.id for one in self.shards.values() if uuid in one.replicas.values())

    def leads(self, uuid: str) -> list[int]:
        """The shards that a store leads."""
        return sorted(one.id for one in self.shards.values() if one.leader == uuid)
