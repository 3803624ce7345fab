"""What the planner can decide: a move to make, a wait with its reason, or nothing to do.

Moves are data. `plan` chooses them, `steps` carries them out, the actor writes those that concern Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.redis.address import Address
from mooring.operators.redis.cluster.slots import Slots, Transfer
from mooring.operators.redis.cluster.types import SlotPlan
from mooring.operators.workload.autoscale import AutoscaleStatus
from mooring.operators.workload.moves import DeletePod, Resize, RestoreTemplate, WriteTemplate

__all__ = [
    "Attach",
    "Claim",
    "DeletePod",
    "Expel",
    "Follow",
    "Forget",
    "HandOver",
    "InSync",
    "Meet",
    "Move",
    "MoveSlots",
    "Paused",
    "Promote",
    "Record",
    "Release",
    "Resize",
    "RestoreTemplate",
    "Retire",
    "Settle",
    "Target",
    "Tell",
    "Unfollow",
    "Verdict",
    "Wait",
    "WriteTemplate",
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server to talk to; ``id`` guards against talking to its successor, "" where it has none yet."""

    name: str
    address: Address
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class Release(Move):
    """Let servers at their gate begin: as they are, or with a new id and without their old data."""

    as_is: tuple[Target, ...] = ()
    fresh: tuple[Target, ...] = ()
    founding: bool = False
    """No cluster serves yet: they are ready as soon as they answer."""


@dataclass(frozen=True, kw_only=True)
class Meet(Move):
    """Introduce nodes to one another: each node, and the address where the other one listens."""

    pairs: tuple[tuple[Target, Address], ...]
    number: bool = False
    """Give nodes that know no other yet distinct configuration epochs, so that they need not agree on them later."""


@dataclass(frozen=True, kw_only=True)
class Tell(Meet):
    """Nodes that know one another hear at once what slots a master has now."""


@dataclass(frozen=True, kw_only=True)
class Claim(Move):
    """Give masters of a cluster in the making their first slots."""

    parts: tuple[tuple[Target, Slots], ...]


@dataclass(frozen=True, kw_only=True)
class Attach(Move):
    """Make nodes replicas: which, and the master's id."""

    pairs: tuple[tuple[Target, str], ...]


@dataclass(frozen=True, kw_only=True)
class Promote(Move):
    """A replica takes over its master's slots: in agreement with it, by the other masters' votes, or by itself.

    One that took over by itself under a number too low gets a higher one (``BUMPEPOCH``).
    """

    target: Target
    how: Literal["", "FORCE", "TAKEOVER", "BUMPEPOCH"]
    owner: str = ""
    """The id of the master it follows, which agrees or does not serve; "" where none is asked."""
    slots: Slots = 0
    """Its slots."""
    failed: bool = False
    """Nothing is known of it but that the nodes call it failed; that ends as soon as it answers one of them."""
    hung: bool = False
    """Its process stands still, and most masters wait for its answer; that ends as soon as it answers."""


@dataclass(frozen=True, kw_only=True)
class Forget(Move):
    """Ids that are gone for good are forgotten by everybody within the minute the ban lasts."""

    ids: tuple[str, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class Expel(Move):
    """Strangers are forgotten by every node within the minute the ban lasts, and slots go back to their owners."""

    ids: tuple[str, ...]
    addresses: tuple[str, ...]
    targets: tuple[Target, ...]
    back: tuple[tuple[Target, Slots], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Retire(Move):
    """Nodes that are verified to have no slots are forgotten by the rest; clients are still told where to go."""

    leavers: tuple[Target, ...]
    rest: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class Unfollow(Move):
    """A replica too many becomes an empty node that can be given slots."""

    target: Target


@dataclass(frozen=True, kw_only=True)
class Settle(Move):
    """Bring the slots of an abandoned move together at one node, with all their keys."""

    slots: Slots
    owner: Target
    masters: tuple[Target, ...]
    """All that answer, the owner too."""
    meant: str = ""
    """The id of the one that the owner sends its clients to, if any."""


@dataclass(frozen=True, kw_only=True)
class MoveSlots(Move):
    """Move slots with their keys for about a second; the next pass decides about the rest."""

    transfer: Transfer
    source: Target
    target: Target
    masters: tuple[Target, ...]
    pipeline: int
    rate: float = 0.0
    """Bytes of keys a second at most; 0: as fast as it goes."""


@dataclass(frozen=True, kw_only=True)
class Follow(Move):
    """A pair: one leads (``leader`` is itself), the other follows its address."""

    target: Target
    leader: Address | None


@dataclass(frozen=True, kw_only=True)
class HandOver(Move):
    """A pair: the leader and its replica change places, with no write acknowledged and lost."""

    leader: Target
    heir: Target
    version: str
    """The leader's."""


@dataclass(frozen=True, kw_only=True)
class Record(Move):
    """Write down what must be known before the next step."""

    formed: bool | None = None
    lost: str = ""
    """What was lost for good, if a cluster that was formed is founded again."""
    leader: str = ""
    plan: SlotPlan | None = None
    drop_plan: bool = False
    autoscale: AutoscaleStatus | None = None
    """Another number of nodes by load, or who sets it instead."""
    drop_autoscale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Wait):
    """Nothing is changed while the declaration is paused."""

    decided: Verdict
    """What would be done, or waited for, otherwise."""
