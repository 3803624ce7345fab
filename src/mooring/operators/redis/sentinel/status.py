"""What status says: per node, per sentinel, UCloud's conditions, and whether the service works.

Nothing here changes while the cluster does not: offsets, lags and clocks stay out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from mooring.operators.redis.sentinel.moves import (
    Configure,
    InSync,
    PublishConfig,
    Record,
    Verdict,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.sentinel.names import Names
from mooring.operators.redis.sentinel.quorum import learning
from mooring.operators.redis.sentinel.snapshot import SetState, Snapshot
from mooring.operators.redis.sentinel.topology import REDIS_PORT, Member, Watcher
from mooring.operators.redis.sentinel.types import (
    LegacyCondition,
    NodeStatus,
    RedisClusterSpec,
    RedisClusterStatus,
    SentinelStatus,
)
from mooring.runtime import rfc3339

__all__ = [
    "CREATING",
    "LEGACY",
    "Head",
    "Readiness",
    "headed",
    "learning_since",
    "legacy_head",
    "pointed_anew",
    "readiness",
    "topology_status",
    "unreachable_since",
]

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
UNREACHABLE = "Unreachable"
LEARNING = "Learning"


# --- topology --------------------------------------------------------------------------------------------


def topology_status(status: RedisClusterStatus, snapshot: Snapshot, names: Names) -> RedisClusterStatus:
    """The status with what was seen; the time of an entry moves only when its state does."""
    before = {node.name: node for node in status.nodes or ()}
    seen = {member.name: _node(snapshot, member) for member in snapshot.topology.members}
    for ordinal in range(snapshot.wanted.size):
        name = names.pod("redis", ordinal)
        seen.setdefault(name, NodeStatus(name=name, state=UNREACHABLE, reason="PodMissing"))
    nodes = [_dated(node, before.get(node.name), snapshot.now) for node in seen.values()]
    known = {one.name: one for one in status.sentinels or ()}
    ignorant = learning(snapshot)
    watchers = {one.name: _sentinel(snapshot, one, ignorant=ignorant) for one in snapshot.topology.watchers}
    for ordinal in range(snapshot.wanted.sentinels):
        name = names.pod("sentinel", ordinal)
        watchers.setdefault(name, SentinelStatus(name=name, state=UNREACHABLE, reason="PodMissing"))
    sentinels = [_dated_sentinel(one, known.get(one.name), snapshot.now) for one in watchers.values()]
    lineage = snapshot.lineage
    leader = snapshot.topology.member(lineage.master.pod) if lineage else None
    leads = leader is not None and leader.server is not None and leader.server.is_master
    return replace(
        status,
        nodes=sorted(nodes, key=_by_ordinal),
        sentinels=sorted(sentinels, key=_by_ordinal),
        size=len(snapshot.topology.members),
        master=lineage.master.pod if lineage and leads else None,
        master_ip=leader.ip if leader is not None and leads else None,
        replicas=[one.pod for one in lineage.members if one.pod != lineage.master.pod] if lineage else None,
    )


def _by_ordinal(entry: NodeStatus | SentinelStatus) -> int:
    tail = entry.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0


def _node(snapshot: Snapshot, member: Member) -> NodeStatus:
    server = member.server
    base = NodeStatus(name=member.name, ip=member.ip, node=member.pod.node)
    if server is None:
        return replace(base, state=UNREACHABLE, reason=member.pod.trouble or "NotAnswering")
    role = "master" if server.is_master else "replica"
    if server.loading:
        state = "Loading"
    elif server.is_master:
        state = "Online"
    elif server.gated:
        state = "SetAside" if member.pod.volume in snapshot.recorded.quarantined else "Gated"
    else:
        state = "Online" if server.link_up and not server.syncing else "Synchronising"
    return replace(base, role=role, state=state, version=server.version)


def _dated(node: NodeStatus, before: NodeStatus | None, now: datetime) -> NodeStatus:
    if before is not None and (before.state, before.role) == (node.state, node.role) and before.since:
        return replace(node, since=before.since)
    return replace(node, since=rfc3339(now))


def _sentinel(snapshot: Snapshot, watcher: Watcher, *, ignorant: frozenset[str]) -> SentinelStatus:
    base = SentinelStatus(name=watcher.name, ip=watcher.pod.ip)
    sentinel = watcher.sentinel
    if sentinel is None:
        return replace(base, state=UNREACHABLE, reason=watcher.pod.trouble or "NotAnswering")
    if sentinel.master is None:
        return replace(base, state="Idle")
    leader = snapshot.topology.at(sentinel.master.ip)
    right = leader is not None and leader.server is not None and leader.server.is_master
    if right and watcher.name in ignorant:
        return replace(base, state=LEARNING)
    return replace(base, state="Watching" if right else "Astray")


def _dated_sentinel(one: SentinelStatus, before: SentinelStatus | None, now: datetime) -> SentinelStatus:
    same = before is not None and before.state == one.state and before.since
    return replace(one, since=before.since if before is not None and same else rfc3339(now))


def unreachable_since(status: RedisClusterStatus) -> dict[str, datetime]:
    """Since when pods have not answered, as recorded."""
    entries: list[NodeStatus | SentinelStatus] = [*(status.nodes or ()), *(status.sentinels or ())]
    return _since(entries, UNREACHABLE)


def learning_since(status: RedisClusterStatus) -> dict[str, datetime]:
    """Since when sentinels watch the right master without knowing everybody, as recorded."""
    return _since(status.sentinels or (), LEARNING)


def pointed_anew(status: RedisClusterStatus, names: Collection[str], *, now: datetime) -> RedisClusterStatus:
    """The status after sentinels were pointed at the master again: they learn from now on."""
    if not status.sentinels:
        return status
    renewed = [
        replace(one, since=rfc3339(now)) if one.state == LEARNING and one.name in names else one
        for one in status.sentinels
    ]
    return replace(status, sentinels=renewed)


def _since(entries: Sequence[NodeStatus | SentinelStatus], state: str) -> dict[str, datetime]:
    return {
        one.name: datetime.fromisoformat(one.since) for one in entries if one.state == state and one.since
    }


# --- does it work ----------------------------------------------------------------------------------------


class Readiness(NamedTuple):
    """Whether clients can read and write, and if not, why."""

    ready: bool
    reason: str
    message: str


def readiness(snapshot: Snapshot) -> Readiness:
    """A master that a majority of sentinels names, with as many replicas as it needs to accept writes."""
    if len(snapshot.masters) != 1:
        what = (
            "no server leads"
            if not snapshot.masters
            else f"{len(snapshot.masters)} servers call themselves master"
        )
        return Readiness(False, "NoMaster" if not snapshot.masters else "SeveralMasters", what)
    member, _ = snapshot.masters[0]
    synced = sum(1 for _, other in snapshot.answering if other.in_sync_with(member.ip))
    if synced < snapshot.wanted.min_replicas:
        text = f"{member.name} accepts no writes: {synced} of {snapshot.wanted.min_replicas} needed replicas follow it"
        return Readiness(False, "ReplicasMissing", text)
    if snapshot.named is None or snapshot.named[0] != member.ip:
        return Readiness(False, "SentinelsDisagree", f"no majority of the sentinels names {member.name}")
    return Readiness(True, "Serving", f"{member.name} leads at {member.ip}:{REDIS_PORT}")


# --- UCloud's conditions ---------------------------------------------------------------------------------


class Head(NamedTuple):
    """The newest legacy condition."""

    type: str
    reason: str
    message: str


HEALTHY = Head("Healthy", "Cluster available", "Cluster ok")
CREATING = Head("Creating", "Creating", "Bootstrap redis cluster")
RESTARTING = Head("Creating", "Creating", "redis server or sentinel server be removed by user, restart")


def legacy_head(
    status: RedisClusterStatus, spec: RedisClusterSpec, snapshot: Snapshot, verdict: Verdict, ready: Readiness
) -> Head:
    """The legacy condition that describes this moment."""
    seen = {entry.type for entry in status.conditions or ()}
    if isinstance(verdict, InSync):
        return HEALTHY
    if isinstance(verdict, Wait) and verdict.stalled:
        return Head("Failed", "Cluster failed", f"{verdict.reason}: {verdict.message}")
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
    if (gone or not ready.ready) and not growing:
        # What began it stays said while pods come back one after the other.
        begun = newest is not None and newest.message.startswith(RESTARTING.message)
        return newest if newest is not None and begun else _restarting(snapshot, ready)
    return newest or CREATING


def _restarting(snapshot: Snapshot, ready: Readiness) -> Head:
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


def headed(
    conditions: Sequence[LegacyCondition], head: Head, *, generation: int | None, now: datetime
) -> list[LegacyCondition]:
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
