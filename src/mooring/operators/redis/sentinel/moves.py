"""What the planner can decide: a move to make, a wait with its reason, or nothing to do.

Moves are data. `plan` chooses them, `steps` carries them out, the actor writes those that concern Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final, Literal

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.kube.part import Part
from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.lineage import Lineage
from mooring.operators.redis.sentinel.topology import REDIS_PORT, SENTINEL_PORT, Member, Watcher
from mooring.runtime.crd import F

__all__ = [
    "AddPassword",
    "ConfigResult",
    "Configure",
    "DeletePod",
    "Demote",
    "FailOver",
    "Follow",
    "Hasten",
    "InSync",
    "LabelRoles",
    "LastFailover",
    "Monitor",
    "Move",
    "Operation",
    "PasswordChange",
    "PresentPassword",
    "Promote",
    "PublishConfig",
    "PublishPassword",
    "Quarantine",
    "Record",
    "Resize",
    "RestoreTemplate",
    "Roll",
    "SetPassword",
    "SetPriority",
    "StagePassword",
    "Switch",
    "SwitchPassword",
    "Target",
    "TuneSentinel",
    "Verdict",
    "Wait",
    "WriteTemplate",
    "data_target",
    "sentinel_target",
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server to talk to; the run id guards against talking to its successor."""

    name: str
    address: Address


def data_target(member: Member) -> Target:
    """The data server of a pod."""
    return Target(name=member.name, address=Address(member.ip, REDIS_PORT))


def sentinel_target(watcher: Watcher) -> Target:
    """The sentinel of a pod."""
    return Target(name=watcher.name, address=Address(watcher.pod.ip, SENTINEL_PORT))


# --- what status remembers -----------------------------------------------------------------------------


TIME: Final = {"type": "string", "format": "date-time"}


class Operation(Part, frozen=True, kw_only=True):
    """A sequence under way that cannot be derived again; recorded before its first effect."""

    kind: Annotated[str, F("Promote, FailOver or Switch.")] = ""
    subject: Annotated[str, F("The pod to promote, the dead master, or the master to relieve.")] = ""
    since: Annotated[datetime | None, F("When it began.", schema=TIME)] = None
    why: Annotated[str, F("The reason.")] = ""
    fence: Annotated[str, F("The min-slaves-to-write to put back after a switch below 6.2.")] = ""


class LastFailover(Part, frozen=True, kw_only=True):
    """What happened the last time another server became master."""

    at: Annotated[datetime | None, F("When.", schema=TIME)] = None
    old: Annotated[str, F("The pod that led before.")] = ""
    new: Annotated[str, F("The pod that leads since.")] = ""
    cause: Annotated[str, F("MasterDied, MasterUnreachable, Planned or SentinelDecided.")] = ""
    choice: Annotated[str, F("Why this one and not another.")] = ""
    gap_seconds: Annotated[float, F("From the old master's end to the record of the new one.")] = 0.0
    loss_bound: Annotated[str, F("What may be lost at most.")] = ""
    lost_bytes: Annotated[
        int | None,
        F(
            "Bytes of writes that the old master had and the new one had not, measured when the old one was made to "
            "follow; absent where it could not be asked, such as after a restart."
        ),
    ] = None


class ConfigResult(Part, frozen=True, kw_only=True):
    """What became of one wanted key."""

    wanted: Annotated[str, F("The value in the spec.")] = ""
    effective: Annotated[str, F("The value the server made of it.")] = ""
    state: Annotated[str, F("Applied, Clamped, NeedsRestart, Forbidden, Unknown, Rejected or Pending.")] = (
        "Pending"
    )
    message: Annotated[str, F("What is in the way, and the remedy.")] = ""
    restart: Annotated[bool, F("The server reads the key at start only.")] = False
    previous: Annotated[str, F("The value before; comes back when the key is dropped from the spec.")] = ""


class Roll(Part, frozen=True, kw_only=True):
    """A roll-out under way, or one that was stopped by a pod that does not come up."""

    inputs: Annotated[str, F("Digest of the declaration that is rolled out.")] = ""
    good: Annotated[str, F("Digest of the last one that all pods ran.")] = ""
    revision: Annotated[str, F("The ControllerRevision with the template of that.")] = ""
    since: Annotated[datetime | None, F("When it began.", schema=TIME)] = None
    pod: Annotated[str, F("The pod that did not come up; the roll-out is stopped.")] = ""
    reason: Annotated[str, F("Why it did not.")] = ""
    message: Annotated[str, F("For people.")] = ""


class PasswordChange(Part, frozen=True, kw_only=True):
    """Where a change of the password stands; the passwords themselves are in the cluster's Secret alone."""

    phase: Annotated[str, F("Announced, or BothValid while the old and the new one are.")] = ""
    since: Annotated[datetime | None, F("Since when.", schema=TIME)] = None


# --- verdicts ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Record(Move):
    """Write down, before acting on it; a field left None stays as it is."""

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
    quarantined: frozenset[str] | None = None
    """Volumes whose foreign data is kept from being overwritten."""


@dataclass(frozen=True, kw_only=True)
class Promote(Move):
    """Make a server master by ourselves; only after it was recorded."""

    target: Target


@dataclass(frozen=True, kw_only=True)
class Follow(Move):
    """Let servers follow the master; ``unsynced`` are held out of election until they have synchronised."""

    targets: tuple[Target, ...]
    unsynced: tuple[Target, ...] = ()
    master: Target


@dataclass(frozen=True, kw_only=True)
class Demote(Move):
    """A second master of our own history follows the right one at once; its clients are sent away."""

    target: Target
    master: Target
    forked: int = 0
    """The offset up to which both have the same history; 0 where that is not known."""


@dataclass(frozen=True, kw_only=True)
class Quarantine(Move):
    """A master with foreign or no data serves no more; its data is saved and kept, it follows nobody."""

    target: Target
    save: bool = True


@dataclass(frozen=True, kw_only=True)
class SetPriority(Move):
    """Let servers into election (1) or hold them out (0)."""

    targets: tuple[Target, ...]
    priority: int


@dataclass(frozen=True, kw_only=True)
class FailOver(Move):
    """Ask the sentinels for a new master now; the heirs are first brought to one offset."""

    best: Target
    heirs: tuple[Target, ...]
    sentinels: tuple[Target, ...]
    equalise: bool = False


@dataclass(frozen=True, kw_only=True)
class Switch(Move):
    """A planned change of master that loses nothing: writes held, heirs level, sentinels asked."""

    master: Target
    heirs: tuple[Target, ...]
    sentinels: tuple[Target, ...]
    pause: bool = True
    """CLIENT PAUSE WRITE (6.2); else writes are refused by ``min-slaves-to-write`` until ``fence`` is back."""
    fence: str = "0"


@dataclass(frozen=True, kw_only=True)
class Monitor(Move):
    """Point sentinels at the master: all REMOVEd first, then MONITORed and set, then introduced to the others."""

    sentinels: tuple[Target, ...]
    master: Address
    quorum: int
    settings: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, Target] = field(default_factory=dict)
    """All that answered, these among them, by their ids."""


@dataclass(frozen=True, kw_only=True)
class TuneSentinel(Move):
    """Set what differs on one sentinel."""

    sentinel: Target
    settings: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Hasten(Move):
    """Let sentinels look and talk more often, so that they learn of changes and of a hung master sooner."""

    sentinels: tuple[Target, ...]
    periods: Mapping[str, int]
    """Milliseconds by the names of SENTINEL DEBUG."""


@dataclass(frozen=True, kw_only=True)
class StagePassword(Move):
    """Write the declared password into the cluster's Secret as the next one."""


@dataclass(frozen=True, kw_only=True)
class AddPassword(Move):
    """Let servers take these passwords beside those they take (6.0)."""

    targets: tuple[Target, ...]
    passwords: tuple[str, ...]
    """By name: password, next, previous."""


@dataclass(frozen=True, kw_only=True)
class PresentPassword(Move):
    """Let servers show this password to their master."""

    targets: tuple[Target, ...]
    password: str


@dataclass(frozen=True, kw_only=True)
class PublishPassword(Move):
    """Tell the sentinels, then write the next password down as the one in force."""

    sentinels: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class SwitchPassword(Move):
    """From now on servers take and present the next password alone; the sentinels too."""

    targets: tuple[Target, ...]
    sentinels: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class SetPassword(Move):
    """Servers take and present the password in force and no other."""

    targets: tuple[Target, ...]
    sentinels: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class Configure(Move):
    """Set one key live on servers; ``value`` per server spelling is found by the step."""

    targets: tuple[Target, ...]
    key: str
    value: str
    previous: str = ""


@dataclass(frozen=True, kw_only=True)
class PublishConfig(Move):
    """Write the accepted live keys where the next start reads them."""

    values: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class LabelRoles(Move):
    """Say on the pods who leads, for the Services that select by it."""

    roles: Mapping[str, str]
    """``master`` or ``replica`` by pod; the master comes last, so that there are never two."""


@dataclass(frozen=True, kw_only=True)
class Resize(Move):
    """Give a StatefulSet another number of pods."""

    component: Literal["redis", "sentinel"]
    replicas: int


@dataclass(frozen=True, kw_only=True)
class WriteTemplate(Move):
    """Write the pod template the user's inputs ask for; pods take it up one by one."""

    component: Literal["redis", "sentinel"]


@dataclass(frozen=True, kw_only=True)
class RestoreTemplate(Move):
    """Put the last good template back, so that no pod comes up with the one that does not work."""

    component: Literal["redis", "sentinel"]
    revision: str
    """The ControllerRevision that holds it."""
    inputs: str
    """Digest of the declaration it was made from."""


@dataclass(frozen=True, kw_only=True)
class DeletePod(Move):
    """Let a pod be made anew from the present template; only the one that was looked at, as it was then."""

    component: Literal["redis", "sentinel"]
    pod: str
    uid: str
    version: str = ""
    """Its resourceVersion."""
