"""Every move of this operator: what the planner chooses, as data.

`steps` carries out those that concern servers, `mooring.operators.workload.effects` and `effects` those that write to
Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.topology import Member
from mooring.operators.mysql.types import MySQLClusterStatus
from mooring.operators.workload.configuration import ConfigResult
from mooring.operators.workload.moves import DeletePod, LabelRoles, Resize, RestoreTemplate, WriteTemplate

__all__ = [
    "Amend",
    "Configure",
    "DatabaseMove",
    "DeletePod",
    "Demote",
    "Done",
    "Fence",
    "Follow",
    "InSync",
    "LabelRoles",
    "Move",
    "Open",
    "Promote",
    "PublishPasswords",
    "Record",
    "ReloadCertificates",
    "Resize",
    "RestoreTemplate",
    "SetDurability",
    "SetPasswords",
    "Switch",
    "Target",
    "TryImage",
    "Tune",
    "Unask",
    "Verdict",
    "Wait",
    "WriteTemplate",
    "target_of",
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server to talk to; a step goes on only if the process that was seen still answers there."""

    name: str
    host: str
    """Address of the pod."""
    server_id: int = 0
    """Of that process: every start has its own; 0 where it was not asked."""


def target_of(member: Member) -> Target:
    """The server of a pod."""
    server_id = member.server.server_id if member.server is not None else 0
    return Target(name=member.name, host=member.pod.ip, server_id=server_id)


@dataclass(frozen=True, kw_only=True)
class DatabaseMove(Move):
    """A move on servers."""

    first: MySQLClusterStatus | None = None
    """Written before the move is carried out: what must survive a crash in the middle of it."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a database move came to, beyond having been carried out."""

    partial: bool = False
    """A part of the way: the move is to be made again (a drain that goes on)."""
    config: tuple[str, ConfigResult] | None = None
    """The result of a key that a server did not simply take."""


@dataclass(frozen=True, kw_only=True)
class Record(Move):
    """Write this status before acting on it."""

    status: MySQLClusterStatus


@dataclass(frozen=True, kw_only=True)
class Open(Move):
    """Open the gate of pods that wait to start their server: writes the order annotation of each."""

    orders: Mapping[str, str]
    """Text by pod; see `gate`."""
    uids: Mapping[str, str] = field(default_factory=dict)
    first: MySQLClusterStatus | None = None
    """Written before: the server_id of every start is recorded before it is given."""


@dataclass(frozen=True, kw_only=True)
class TryImage(Move):
    """Start the declared image once, beside the cluster, on empty data of its own."""

    image: str


@dataclass(frozen=True, kw_only=True)
class Unask(Move):
    """Remove the annotation `names.SWITCH_TO` from the cluster: it was done, or was refused."""


@dataclass(frozen=True, kw_only=True)
class Follow(DatabaseMove):
    """Make servers replicate from ``source``, read-only, acknowledging or not."""

    targets: tuple[Target, ...]
    source: Target
    source_host: str
    """The name that the replicas connect to."""
    acking: frozenset[str] = frozenset()
    """Those of them that acknowledge."""
    again: bool = False
    """Also those that follow it already: with the declared password."""
    refetch: frozenset[str] = frozenset()
    """Those of them that receive again what is in their relay log: the source has all of it."""


@dataclass(frozen=True, kw_only=True)
class Fence(DatabaseMove):
    """Stop the receivers of replicas, so that the old primary can get no acknowledgement any more."""

    targets: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class Promote(DatabaseMove):
    """Drain what the candidate received, then let it lead: only after that was recorded.

    ``others`` are pointed at it in the same step.
    """

    target: Target
    expected: Position
    """What it must have executed before it may write."""
    acks: int
    semi_sync: bool
    others: tuple[Target, ...] = ()
    source_host: str = ""
    acking: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Demote(DatabaseMove):
    """Make a second writable server read-only at once."""

    target: Target


@dataclass(frozen=True, kw_only=True)
class Switch(DatabaseMove):
    """Hold writes on the primary until the candidate has all of it; undone (writable again) past the deadline.

    Afterwards the pass sees a read-only old primary and a candidate that has everything, and promotes it.
    """

    primary: Target
    candidate: Target
    deadline: float
    """Seconds."""


@dataclass(frozen=True, kw_only=True)
class SetDurability(DatabaseMove):
    """Set semi-synchronous replication on the primary and its replicas."""

    primary: Target
    semi_sync: bool
    acks: int
    acking: tuple[Target, ...] = ()
    silent: tuple[Target, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Configure(DatabaseMove):
    """Set one global variable on servers."""

    targets: tuple[Target, ...]
    key: str
    value: str
    previous: str = ""


@dataclass(frozen=True, kw_only=True)
class Tune(DatabaseMove):
    """Give servers another size of one setting."""

    setting: str
    variables: tuple[str, ...]
    value: int
    previous: int
    targets: tuple[Target, ...]
    effect: Literal["Try", "Revert", "GiveBack"]
    """Put on trial; taken back as it did not help; a kept change taken back."""
    decided: datetime


@dataclass(frozen=True, kw_only=True)
class Amend(DatabaseMove):
    """Correct accounts, grants or databases on the primary."""

    primary: Target
    subject: str = ""
    """The account or database, as status names it."""
    statements: tuple[str, ...]
    """Without secrets; a password stands as ``%(label)s`` and is filled in by the step."""


@dataclass(frozen=True, kw_only=True)
class PublishPasswords(Move):
    """Every server accepts the declared passwords, and replicas use theirs: record that they are the ones in force."""


@dataclass(frozen=True, kw_only=True)
class ReloadCertificates(DatabaseMove):
    """Have running servers read their certificate again."""

    targets: tuple[Target, ...]
    certificate: str
    """When the one that they are to show ends."""


@dataclass(frozen=True, kw_only=True)
class SetPasswords(DatabaseMove):
    """Give accounts their declared passwords on the primary."""

    primary: Target
    accounts: tuple[tuple[str, str, str], ...]
    """Name, host, and the label of the password."""
    beside: bool = True
    """What they take now stays valid; else only the declared one does."""
    subject: str = ""
    """The account, as status names it."""
    first: MySQLClusterStatus | None = None
    """Written before: since when two passwords count."""
