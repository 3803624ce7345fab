"""Rolling out new templates of servers and sentinels: what `workload.rollout` needs to know about Redis.

A server's template is written only over a cluster that is whole. Its pods are recreated when every other server is in
sync and eligible, the master's after a planned switch. A version that could not read the files there are is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from mooring.operators.redis.sentinel.moves import Record, Verdict, Wait
from mooring.operators.redis.sentinel.names import Component
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server
from mooring.operators.redis.versions import full_name, reads, unread, why_unread
from mooring.operators.workload.moves import WriteTemplate
from mooring.operators.workload.rollout import Failure, HandOver, RecordRolls, Rollout, hopeless

__all__ = ["begin", "end", "halted", "refused", "roll_redis", "roll_sentinels", "unblock"]

V = TypeVar("V")
SYNCS_WITHIN = 10.0
"""Seconds after which an older server that does not follow a newer master never will."""


def begin(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Record what runs now, then write the templates; not over pods that are starting."""
    redis, sentinel = _servers(snapshot), _sentinels(snapshot)
    allowed = snapshot.wanted.roll
    readable = allowed and not _cannot_read(snapshot)
    return _recorded(redis.begin(allowed=readable, wait=redis.starting())) or _recorded(
        sentinel.begin(allowed=allowed)
    )


def roll_redis(snapshot: Snapshot, member: Member, server: Server) -> Verdict | HandOver | None:
    """Recreate the replicas, one planned switch, then the old master's pod."""
    rollout = replace(_servers(snapshot), failures=_failures(snapshot, server), working=_working(snapshot))
    wait = _not_in_sync(snapshot, member, rollout.state.update_revision)
    return _recorded(rollout.advance(wait=wait, leading={member.name}))


def roll_sentinels(snapshot: Snapshot, member: Member, server: Server) -> Verdict | HandOver | None:
    """Recreate the sentinels, each back before the next."""
    leaving = any(one.pod.terminating for one in snapshot.topology.watchers)
    wait = None
    if leaving or len(snapshot.watchers) < snapshot.wanted.sentinels:
        wait = Wait("RollWaiting", "the last rolled sentinel is not back yet", after=0.5)
    return _recorded(_sentinels(snapshot).advance(wait=wait))


def end(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Forget a roll-out once every pod runs the new template."""
    return _recorded(_servers(snapshot).end()) or _recorded(_sentinels(snapshot).end())


def halted(snapshot: Snapshot) -> Wait | None:
    """What is declared was tried and does not work."""
    return _servers(snapshot).halt() or _sentinels(snapshot).halt()


def refused(snapshot: Snapshot) -> Wait | None:
    """A declared version that could not read the files there are is not rolled out at all."""
    newest = _cannot_read(snapshot)
    if snapshot.observed.redis_set.current or not snapshot.wanted.roll or not newest:
        return None
    why = why_unread(snapshot.wanted.image, newest, back="restore a backup into a new cluster")
    return Wait("VersionRefused", f"spec.image: {why}", after=10.0, stalled=True)


def unblock(snapshot: Snapshot) -> Verdict | None:
    """No server runs and some cannot: give them a corrected template, or report what is wrong."""
    rollout = _servers(snapshot)
    stuck = [pod for pod in rollout.pods if hopeless(pod, snapshot.now)]
    if not stuck:
        return None
    if snapshot.wanted.roll and not rollout.state.current:
        return WriteTemplate(component="redis", why="no server runs with the present template")
    for pod in rollout.old:
        if pod in stuck:
            return rollout.recreate(pod, f"its old template cannot run: {pod.trouble}")
    pod = stuck[0]
    return Wait(pod.trouble, f"{pod.name}: {pod.trouble_message}", after=2.0, stalled=True)


def _recorded(verdict: V | RecordRolls) -> V | Record:
    """Roll-outs are recorded by this operator's own move."""
    if isinstance(verdict, RecordRolls):
        return Record(rolls=verdict.rolls, why=verdict.why)
    return verdict


def _servers(snapshot: Snapshot) -> Rollout:
    return _rollout(snapshot, "redis")


def _sentinels(snapshot: Snapshot) -> Rollout:
    return _rollout(snapshot, "sentinel")


def _rollout(snapshot: Snapshot, component: Component) -> Rollout:
    ones = snapshot.topology.members if component == "redis" else snapshot.topology.watchers
    pods = [one.pod for one in ones]
    return Rollout(
        component=component,
        state=snapshot.set_of(component),
        pods=pods,
        rolls=snapshot.recorded.rolls,
        now=snapshot.now,
        silent={pod.name: snapshot.unreachable_for(pod.name) for pod in pods},
    )


def _not_in_sync(snapshot: Snapshot, master: Member, revision: str) -> Wait | None:
    """The next pod is recreated when all others serve: running as a whole, in sync, eligible as master."""
    wanted = [one for one in snapshot.topology.members if one.pod.ordinal < snapshot.wanted.size]
    for one in wanted:
        it = one.server
        in_sync = it is not None and (
            one.name == master.name or (it.in_sync_with(master.ip) and it.priority > 0)
        )
        if not in_sync or one.pod.terminating or (one.pod.revision == revision and one.pod.trouble):
            return Wait("RollWaiting", f"{one.name} is not in sync yet", after=0.5)
        if it is not None and it.rewriting:
            text = f"{one.name} writes its append-only file, and cannot be stopped until it is done"
            return Wait("RollWaiting", text, after=0.5)
    if len(wanted) < snapshot.wanted.size:
        return Wait("RollWaiting", "the last rolled pod is not there yet", after=0.5)
    return None


def _failures(snapshot: Snapshot, master: Server) -> dict[str, Failure]:
    """Replicas of a version that cannot read what the master sends, and do not follow it."""
    found = {}
    for one, it in snapshot.answering:
        foreign = not reads(it.version, master.version)
        if _unlinked(it) and foreign and snapshot.seconds_since(one.pod.created) > SYNCS_WITHIN:
            text = f"{full_name(it.version)} cannot read what {full_name(master.version)} sends; correct spec.image"
            found[one.name] = Failure(reason="VersionCannotRead", message=text)
    return found


def _working(snapshot: Snapshot) -> frozenset[str]:
    """Replicas that load their data or synchronise."""
    return frozenset(
        one.name for one, it in snapshot.answering if _unlinked(it) and (it.loading or it.syncing)
    )


def _unlinked(server: Server) -> bool:
    return not server.is_master and not server.link_up


def _cannot_read(snapshot: Snapshot) -> str:
    """The version that runs and whose files the declared image cannot read; "" when it may."""
    if snapshot.wanted.image == snapshot.observed.redis_set.image:
        return ""
    return unread(snapshot.wanted.image, (it.version for _, it in snapshot.answering))
