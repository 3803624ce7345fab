"""What status shows: every node and sentinel, what was recorded, and whether the service works; pure.

Nothing here changes while the cluster does not: offsets, lags and clocks stay out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace as changed
from datetime import datetime

from msgspec.structs import replace

from mooring.actor import ConditionState, Report, Terminal
from mooring.operators.redis.passwords.moves import PublishPassword
from mooring.operators.redis.sentinel.events import notes_of
from mooring.operators.redis.sentinel.inputs import Inputs
from mooring.operators.redis.sentinel.legacy import CREATING, failed, headed, legacy_head
from mooring.operators.redis.sentinel.moves import (
    Done,
    InSync,
    Monitor,
    Move,
    Record,
    Resize,
    UsersMove,
    Verdict,
    Wait,
)
from mooring.operators.redis.sentinel.names import Names, selector_of
from mooring.operators.redis.sentinel.quorum import learning
from mooring.operators.redis.sentinel.snapshot import LEARNING, UNREACHABLE, Snapshot
from mooring.operators.redis.sentinel.topology import Member, Watcher
from mooring.operators.redis.sentinel.types import NodeStatus, RedisClusterStatus, SentinelStatus, spec_of
from mooring.operators.redis.sentinel.users import servers_of
from mooring.operators.redis.users import status as users_status
from mooring.operators.redis.users.moves import UsersDone
from mooring.operators.workload.pods import ordinal_of
from mooring.runtime import rfc3339

__all__ = ["LOOK_AGAIN", "after_step", "after_users", "readiness", "recorded", "report", "topology_status"]

LOOK_AGAIN = 60.0
"""Seconds between two passes over a cluster that is in sync.

Sentinels and pods announce what goes wrong; only a value that somebody set on a server by hand is announced by nothing.
"""


# --- one pass --------------------------------------------------------------------------------------------


def report(
    inputs: Inputs, snapshot: Snapshot, verdict: Verdict, *, entry: str | None, unknown: Sequence[str]
) -> Report:
    """What a pass shows; ``entry`` is the address of the sentinels' Service, ``unknown`` names unknown fields."""
    status, names, shown = inputs.status, inputs.specs.names, snapshot
    if isinstance(verdict, Record):  # it is written before anything else is read: the new master with it
        status = recorded(status, verdict)
        lineage = verdict.lineage or snapshot.lineage
        shown = changed(snapshot, recorded=changed(snapshot.recorded, lineage=lineage))
    metadata = inputs.cluster.metadata
    labels = selector_of(metadata.namespace or "", names.cluster, "redis")
    servers = servers_of(snapshot.answering)
    users = snapshot.observed.users
    status = replace(
        topology_status(status, shown, names),
        users=users_status.results(status.users, users, servers, now=snapshot.now),
        other_users=users_status.other_users(users, servers),
        volumes=inputs.growth.shown(),
        autogrow=inputs.filling.status,
        sentinel_ip=entry,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
    )
    ready = readiness(snapshot)
    head = legacy_head(status, spec_of(inputs.cluster), snapshot, verdict, ready)
    if inputs.blocked is not None and not isinstance(verdict, Move):
        head = failed(inputs.blocked)
    if ready.status and head == CREATING:  # a new cluster is ready when it is Healthy, in one write
        ready = ConditionState(
            False, "Creating", f"{ready.message}; the rest of the cluster is being created"
        )
    conditions = headed(status.conditions or [], head, now=snapshot.now)
    # A head that is shown only with the next wait would be announced twice.
    written = not isinstance(verdict, Move) or isinstance(verdict, Record | Resize)
    changes = written and conditions != list(status.conditions or [])
    return Report(
        status=replace(status, conditions=conditions),
        ready=ready,
        notes=notes_of(inputs, verdict, conditions[0] if changes else None),
        instead=_instead(inputs, status, unknown) if isinstance(verdict, InSync) else None,
        record=isinstance(verdict, Record | Resize),
    )


def _instead(inputs: Inputs, status: RedisClusterStatus, unknown: Sequence[str]) -> Wait | Terminal | InSync:
    """The outcome of a pass over a cluster that works well."""
    if inputs.blocked is not None:
        return inputs.blocked
    unmet = [
        f"spec.config.{key}: {result.message}"
        for key, result in sorted((inputs.status.config or {}).items())
        if result.message and result.state != "Clamped"
    ]
    storage = inputs.specs.unlike_declared(inputs.around.claims)
    unmet += [
        *([storage] if storage else []),
        *inputs.growth.unmet(),
        *inputs.filling.unmet(),
        *users_status.unmet(status.users),
        *unknown,
    ]
    if unmet:
        return Wait("NotAsDeclared", "; ".join(unmet), after=LOOK_AGAIN, stalled=True)
    return inputs.growth.wait(after=LOOK_AGAIN) or InSync(again=LOOK_AGAIN)


def recorded(status: RedisClusterStatus, move: Record) -> RedisClusterStatus:
    """The status with what has to be known before the next step."""
    operation = move.operation or (None if move.finish else status.operation)
    return replace(
        status,
        lineage=move.lineage or status.lineage,
        operation=operation,
        last_failover=move.last_failover or status.last_failover,
        config=status.config if move.config is None else dict(move.config) or None,
        password=status.password
        if move.password is None
        else (move.password if move.password.phase else None),
        tls=move.tls or status.tls,
        rolls=status.rolls if move.rolls is None else dict(move.rolls) or None,
        quarantined=status.quarantined if move.quarantined is None else sorted(move.quarantined),
    )


def after_step(status: RedisClusterStatus, move: Move, done: Done, *, now: datetime) -> RedisClusterStatus:
    """The status with what a step on the databases found out."""
    if done.config is not None:
        key, result = done.config
        status = replace(status, config={**(status.config or {}), key: result})
    if done.lost_bytes is not None and status.last_failover is not None:
        status = replace(status, last_failover=replace(status.last_failover, lost_bytes=done.lost_bytes))
    if isinstance(move, Monitor):
        status = _pointed(status, {one.name for one in move.sentinels}, now)
    if isinstance(move, PublishPassword) and status.password is not None:  # the grace of the old one begins
        status = replace(status, password=replace(status.password, since=now))
    return status


def after_users(
    status: RedisClusterStatus, snapshot: Snapshot, move: UsersMove, done: Done, *, now: datetime
) -> RedisClusterStatus:
    """The status with what servers refused of users."""
    servers = servers_of(snapshot.answering)
    said = users_status.refusals(status.users, move, done.users or UsersDone(), servers=servers, now=now)
    return replace(status, users=said)


def _pointed(status: RedisClusterStatus, names: Collection[str], now: datetime) -> RedisClusterStatus:
    """Sentinels that were pointed at the master again learn from now on."""
    if not status.sentinels:
        return status
    renewed = [
        replace(one, since=rfc3339(now)) if one.state == LEARNING and one.name in names else one
        for one in status.sentinels
    ]
    return replace(status, sentinels=renewed)


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
    return ordinal_of(entry.name)


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
    elif server.at_gate:
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


# --- does it work ----------------------------------------------------------------------------------------


def readiness(snapshot: Snapshot) -> ConditionState:
    """A master that a majority of sentinels names, with as many replicas as it needs to accept writes."""
    if len(snapshot.masters) != 1:
        what = (
            "no server leads"
            if not snapshot.masters
            else f"{len(snapshot.masters)} servers call themselves master"
        )
        return ConditionState(False, "NoMaster" if not snapshot.masters else "SeveralMasters", what)
    member, _ = snapshot.masters[0]
    synced = sum(1 for _, other in snapshot.answering if other.in_sync_with(member.ip))
    if synced < snapshot.wanted.min_replicas:
        text = f"{member.name} accepts no writes: {synced} of {snapshot.wanted.min_replicas} needed replicas follow it"
        return ConditionState(False, "ReplicasMissing", text)
    if snapshot.named is None or snapshot.named[0] != member.ip:
        return ConditionState(False, "SentinelsDisagree", f"no majority of the sentinels names {member.name}")
    return ConditionState(True, "Serving", f"{member.name} leads at {member.address}")
