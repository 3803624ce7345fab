"""UCloud's conditions: which one describes a moment, in its own words, and the list with it first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from mooring.actor import ConditionState, Terminal
from mooring.operators.redis.sentinel.moves import (
    Configure,
    InSync,
    PublishConfig,
    Record,
    Verdict,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Watcher
from mooring.operators.redis.sentinel.types import LegacyCondition, RedisClusterSpec, RedisClusterStatus
from mooring.operators.workload.rollout import SetState
from mooring.runtime import rfc3339

__all__ = ["CREATING", "LEGACY", "Head", "failed", "headed", "legacy_head"]

LEGACY = frozenset(
    {
        "Healthy",
        "Creating",
        "Scaling",
        "Upgrading",
        "Updating",
        "Failed",
        "Available",
        "Running",
        "Recovering",
    }
)


class Head(NamedTuple):
    """The newest legacy condition."""

    type: str
    reason: str
    message: str


HEALTHY = Head("Healthy", "Cluster available", "Cluster ok")
CREATING = Head("Creating", "Creating", "Bootstrap redis cluster")
RESTARTING = Head("Creating", "Creating", "redis server or sentinel server be removed by user, restart")


def failed(why: Wait | Terminal) -> Head:
    """The condition of a cluster that cannot be as declared."""
    return Head("Failed", "Cluster failed", f"{why.reason}: {why.message}")


def legacy_head(
    status: RedisClusterStatus,
    spec: RedisClusterSpec,
    snapshot: Snapshot,
    verdict: Verdict,
    ready: ConditionState,
) -> Head:
    """The legacy condition that describes this moment."""
    seen = {entry.type for entry in status.conditions or ()}
    if isinstance(verdict, InSync):
        return HEALTHY
    if isinstance(verdict, Wait) and verdict.stalled:
        return failed(verdict)
    newest = _newest(status)
    if scaling := _scaling(snapshot):
        begun = (
            newest is not None
            and newest.reason == scaling.reason
            and newest.message.endswith(_ends(snapshot))
        )
        return newest if newest is not None and begun else scaling
    if "Healthy" not in seen:
        return CREATING
    if isinstance(verdict, Configure | PublishConfig) or (
        isinstance(verdict, Record) and verdict.config is not None
    ):
        return Head("Updating", "Cluster updating", "Updating redis config")
    begins = isinstance(verdict, Record) and any(not roll.pod for roll in (verdict.rolls or {}).values())
    if begins or isinstance(verdict, WriteTemplate) or _rolling(snapshot):
        return Head("Upgrading", "Cluster upgrading", f"Upgrading to {spec.image}")
    gone = (
        len(snapshot.answering) < snapshot.wanted.size or len(snapshot.watchers) < snapshot.wanted.sentinels
    )
    growing = newest is not None and newest.type == "Scaling" and newest.message.endswith(_ends(snapshot))
    if (gone or not ready.status) and not growing:
        # The cause stays shown while pods come back one after the other.
        begun = newest is not None and newest.message.startswith(RESTARTING.message)
        return newest if newest is not None and begun else _restarting(snapshot, ready)
    return newest or CREATING


def _restarting(snapshot: Snapshot, ready: ConditionState) -> Head:
    """UCloud's words, and what really happened."""
    members, watchers = snapshot.topology.members, snapshot.topology.watchers
    silent = [(one.pod, one.error) for one in members if one.server is None]
    silent += [(one.pod, one.error) for one in watchers if one.sentinel is None]
    causes = [
        f"{pod.name}: {pod.trouble_message or error or 'does not answer'}".rstrip(".")
        for pod, error in silent
    ]
    causes += [
        f"{wanted - there} of {wanted} {component} pods missing"
        for component, there, wanted in (
            ("redis", len(members), snapshot.wanted.size),
            ("sentinel", len(watchers), snapshot.wanted.sentinels),
        )
        if there < wanted
    ]
    return RESTARTING._replace(message=f"{RESTARTING.message} ({'; '.join(causes[:3]) or ready.message})")


def _newest(status: RedisClusterStatus) -> Head | None:
    """The legacy condition on top."""
    newest = next((entry for entry in status.conditions or () if entry.type in LEGACY), None)
    return Head(newest.type or "", newest.reason or "", newest.message or "") if newest else None


def _ends(snapshot: Snapshot) -> tuple[str, str]:
    """How the message of a change to the declared sizes ends: of the servers (UCloud's), and of the sentinels."""
    return f" to: {snapshot.wanted.size}", f" to: {snapshot.wanted.sentinels} sentinels"


def _scaling(snapshot: Snapshot) -> Head | None:
    if snapshot.lineage is None:
        return None
    servers, sentinels = _ends(snapshot)
    return _resizing(
        snapshot.observed.redis_set, snapshot.topology.members, snapshot.wanted.size, servers
    ) or _resizing(
        snapshot.observed.sentinel_set, snapshot.topology.watchers, snapshot.wanted.sentinels, sentinels
    )


def _resizing(there: SetState, ones: Sequence[Member | Watcher], wanted: int, end: str) -> Head | None:
    now = len([one for one in ones if not one.pod.terminating])
    if not there.replicas or (there.replicas == wanted and now <= wanted):
        return None
    before = there.replicas if there.replicas != wanted else now
    word = "up" if before < wanted else "down"
    return Head("Scaling", f"Scaling {word}", f"Scaling {word} form: {before}{end}")


def _rolling(snapshot: Snapshot) -> bool:
    pairs: list[tuple[Sequence[Member | Watcher], str]] = [
        (snapshot.topology.members, snapshot.observed.redis_set.update_revision),
        (snapshot.topology.watchers, snapshot.observed.sentinel_set.update_revision),
    ]
    return any(
        revision and one.pod.revision and one.pod.revision != revision
        for ones, revision in pairs
        for one in ones
    )


def headed(conditions: Sequence[LegacyCondition], head: Head, *, now: datetime) -> list[LegacyCondition]:
    """The list with this legacy condition first; unchanged when it is first already."""
    legacy = [entry for entry in conditions if entry.type in LEGACY]
    rest = [entry for entry in conditions if entry.type not in LEGACY]
    if legacy and (legacy[0].type, legacy[0].reason, legacy[0].message) == head:
        return [*legacy, *rest]
    stamp = rfc3339(now)
    entry = LegacyCondition(
        type=head.type,
        status="True",
        reason=head.reason,
        message=head.message,
        last_update_time=stamp,
        last_transition_time=stamp,
    )
    return [entry, *(one for one in legacy if one.type != head.type), *rest]
