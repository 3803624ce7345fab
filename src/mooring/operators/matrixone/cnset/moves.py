"""The moves of a CNSet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.actor.verdict import Move

__all__ = [
    "ClearLabels",
    "CreatePod",
    "DeleteStore",
    "Drain",
    "HandOver",
    "OnStore",
    "SetGate",
    "SetLeave",
    "SetPhase",
    "SetWorking",
    "Several",
    "Stop",
]


@dataclass(frozen=True, kw_only=True)
class CreatePod(Move):
    """Make a pod and, where declared, its claim."""

    id: str
    revision: str
    """Digest of the declaration it is made from."""


@dataclass(frozen=True, kw_only=True)
class OnStore(Move):
    """A move on one pod and its store."""

    pod: str
    uid: str
    uuid: str


@dataclass(frozen=True, kw_only=True)
class SetWorking(OnStore):
    """Send sessions to a store, with these labels; takes back a drain."""

    labels: Mapping[str, tuple[str, ...]]
    opens: bool = False
    """Open the pod's readiness gate as soon as HAKeeper has confirmed it."""


@dataclass(frozen=True, kw_only=True)
class Drain(OnStore):
    """Send no new sessions to a store; the proxies move its sessions away."""


@dataclass(frozen=True, kw_only=True)
class HandOver(OnStore):
    """Have a drained store give its lock tables away. It refuses writing transactions from then on: only before a stop."""


@dataclass(frozen=True, kw_only=True)
class Stop(OnStore):
    """Delete the pod, exactly as it was seen."""

    version: str


@dataclass(frozen=True, kw_only=True)
class SetGate(OnStore):
    """Set the pod's readiness gate, which decides whether Services send clients to it."""

    open: bool


@dataclass(frozen=True, kw_only=True)
class SetPhase(OnStore):
    """Change what a pooled pod is for, exactly as it was seen: nobody may have claimed it meanwhile."""

    phase: str
    version: str


@dataclass(frozen=True, kw_only=True)
class SetLeave(OnStore):
    """Note on a pod of a pool why it has to leave; "" takes that back."""

    leave: str


@dataclass(frozen=True, kw_only=True)
class Several(Move):
    """Moves on different pods that do not depend on each other, in one step."""

    moves: tuple[OnStore, ...]


@dataclass(frozen=True, kw_only=True)
class ClearLabels(OnStore):
    """Take the labels of a former user from a store."""


@dataclass(frozen=True, kw_only=True)
class DeleteStore(Move):
    """Have HAKeeper forget a store whose process is gone."""

    uuid: str
    pod: str
