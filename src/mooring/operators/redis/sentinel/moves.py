"""Every move of this operator: what the planner chooses, as data.

`steps` carries out those that concern the databases, `effects` those that write to Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.redis.address import Address
from mooring.operators.redis.sentinel.lineage import Lineage
from mooring.operators.redis.sentinel.topology import Member, Watcher
from mooring.operators.redis.sentinel.types import LastFailover, Operation, PasswordChange
from mooring.operators.redis.tls import TlsProgress
from mooring.operators.redis.users.moves import (
    PresentAccount,
    RemoveUsers,
    SetUsers,
    TellSentinels,
    UsersDone,
    UsersMove,
)
from mooring.operators.workload.configuration import ConfigResult, PublishConfig
from mooring.operators.workload.moves import DeletePod, LabelRoles, Resize, RestoreTemplate, WriteTemplate
from mooring.operators.workload.rollout import Roll

__all__ = [
    "Configure",
    "DatabaseMove",
    "DeletePod",
    "Demote",
    "Done",
    "FailOver",
    "Follow",
    "Hasten",
    "InSync",
    "LabelRoles",
    "Monitor",
    "Move",
    "MoveSentinels",
    "PresentAccount",
    "Promote",
    "PublishConfig",
    "Quarantine",
    "ReadCertificates",
    "Record",
    "RemoveUsers",
    "Repoint",
    "Resize",
    "RestartSentinel",
    "RestoreTemplate",
    "SetPriority",
    "SetTransport",
    "SetUsers",
    "Switch",
    "Target",
    "TellSentinels",
    "TuneSentinel",
    "TurnCertificates",
    "UsersMove",
    "Verdict",
    "Wait",
    "WriteTemplate",
    "data_target",
    "sentinel_target",
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server to talk to. A step goes on only if the process that was seen still answers at the address."""

    name: str
    address: Address
    run_id: str = ""
    """Of that process; "" where it was not asked."""


def data_target(member: Member) -> Target:
    """The data server of a pod."""
    run_id = member.server.run_id if member.server is not None else ""
    return Target(name=member.name, address=member.address, run_id=run_id)


def sentinel_target(watcher: Watcher) -> Target:
    """The sentinel of a pod."""
    run_id = watcher.sentinel.run_id if watcher.sentinel is not None else ""
    return Target(name=watcher.name, address=watcher.address, run_id=run_id)


@dataclass(frozen=True, kw_only=True)
class DatabaseMove(Move):
    """A move on servers or sentinels."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a database move found out that status keeps."""

    config: tuple[str, ConfigResult] | None = None
    """A key that was refused or clamped: a snapshot alone would have it set again for ever."""
    lost_bytes: int | None = None
    """What a second master had that is gone now."""
    users: UsersDone | None = None
    """What became of users."""


@dataclass(frozen=True, kw_only=True)
class Record(Move):
    """Write to the status before acting on it; a field left ``None`` stays as it is."""

    lineage: Lineage | None = None
    operation: Operation | None = None
    finish: bool = False
    """Clears the operation."""
    last_failover: LastFailover | None = None
    config: Mapping[str, ConfigResult] | None = None
    rolls: Mapping[str, Roll] | None = None
    """Roll-outs by component."""
    password: PasswordChange | None = None
    """One without a phase: the change is over."""
    tls: TlsProgress | None = None
    quarantined: frozenset[str] | None = None
    """Volumes whose foreign data is kept from being overwritten."""


@dataclass(frozen=True, kw_only=True)
class Promote(DatabaseMove):
    """Make a server master; only after that was recorded."""

    target: Target


@dataclass(frozen=True, kw_only=True)
class Follow(DatabaseMove):
    """Make servers follow the master; ``unsynced`` are excluded from election until they have synchronised."""

    targets: tuple[Target, ...]
    unsynced: tuple[Target, ...] = ()
    master: Target


@dataclass(frozen=True, kw_only=True)
class Demote(DatabaseMove):
    """Make a second master with our data a replica at once; its clients are disconnected."""

    target: Target
    master: Target
    forked: int = 0
    """The offset up to which both have the same history; 0 where that is not known."""


@dataclass(frozen=True, kw_only=True)
class Quarantine(DatabaseMove):
    """A master with foreign or no data serves no more; its data is saved and kept, and it replicates from no server."""

    target: Target
    save: bool = True


@dataclass(frozen=True, kw_only=True)
class SetPriority(DatabaseMove):
    """Make servers eligible as master (1), or exclude them (0)."""

    targets: tuple[Target, ...]
    priority: int


@dataclass(frozen=True, kw_only=True)
class FailOver(DatabaseMove):
    """Ask the sentinels for a new master now; replicas are brought to one offset before."""

    best: Target
    heirs: tuple[Target, ...]
    sentinels: tuple[Target, ...]
    equalise: bool = False


@dataclass(frozen=True, kw_only=True)
class Switch(DatabaseMove):
    """A planned change of master that loses nothing: writes held, heirs level, sentinels asked."""

    master: Target
    heirs: tuple[Target, ...]
    sentinels: tuple[Target, ...]
    pause: bool = True
    """CLIENT PAUSE WRITE (6.2); else writes are refused by ``min-slaves-to-write`` until ``fence`` is back."""
    fence: str = "0"


@dataclass(frozen=True, kw_only=True)
class Monitor(DatabaseMove):
    """Point sentinels at the master: all REMOVEd first, then MONITORed and set, then introduced to the others."""

    sentinels: tuple[Target, ...]
    master: Target
    quorum: int
    settings: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, Target] = field(default_factory=dict)
    """All that answered, these among them, by their ids."""


@dataclass(frozen=True, kw_only=True)
class TuneSentinel(DatabaseMove):
    """Set what differs on one sentinel."""

    sentinel: Target
    settings: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Hasten(DatabaseMove):
    """Make sentinels poll and publish more often, so that they notice changes and a hung master sooner."""

    sentinels: tuple[Target, ...]
    periods: Mapping[str, int]
    """Milliseconds by the names of SENTINEL DEBUG."""


@dataclass(frozen=True, kw_only=True)
class ReadCertificates(DatabaseMove):
    """Make servers read their certificate and the authorities again."""

    targets: tuple[Target, ...]
    leaf: str
    authority: str


@dataclass(frozen=True, kw_only=True)
class RestartSentinel(DatabaseMove):
    """Let a sentinel's container restart in place: it reads certificates at its start only, and keeps what it knew."""

    sentinel: Target


@dataclass(frozen=True, kw_only=True)
class TurnCertificates(Move):
    """Write the next certificates into the cluster's Secrets."""


@dataclass(frozen=True, kw_only=True)
class SetTransport(DatabaseMove):
    """Make servers present themselves by TLS, or without, from their next replication on."""

    targets: tuple[Target, ...]
    tls: bool


@dataclass(frozen=True, kw_only=True)
class Repoint(DatabaseMove):
    """Make a replica follow the same master at its other port."""

    target: Target
    master: Target
    tls: bool


@dataclass(frozen=True, kw_only=True)
class MoveSentinels(DatabaseMove):
    """Let sentinels restart in place and watch the same servers at their other port."""

    sentinels: tuple[Target, ...]
    tls: bool


@dataclass(frozen=True, kw_only=True)
class Configure(DatabaseMove):
    """Set one key live on servers; ``value`` per server spelling is found by the step."""

    targets: tuple[Target, ...]
    key: str
    value: str
    previous: str = ""
