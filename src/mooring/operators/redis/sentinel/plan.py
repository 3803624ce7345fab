"""The next safe step: every rule of fail-over, repair, change and growth, without any I/O.

`decide` looks at one snapshot and returns a `Move`, a `Wait` or `InSync`. It is called again after every move, so each
rule only has to be right about the first thing to do. The rules stand in the order of what matters: data first (which
server is master), then its replicas, then the sentinels, then what the user changed.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from mooring.operators.redis.passwords.plan import locked_out
from mooring.operators.redis.sentinel import changes, passwords, quorum, roll, switchover, transport, users
from mooring.operators.redis.sentinel.failover import find_master, gap_of, loss_of
from mooring.operators.redis.sentinel.lineage import Standing
from mooring.operators.redis.sentinel.moves import (
    Demote,
    Follow,
    InSync,
    LabelRoles,
    Quarantine,
    Record,
    SetPriority,
    Verdict,
    Wait,
    data_target,
)
from mooring.operators.redis.sentinel.snapshot import STALE_AFTER, Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server
from mooring.operators.redis.sentinel.types import PAUSE_ANNOTATION, LastFailover
from mooring.operators.redis.sentinel.waits import ENDINGS
from mooring.operators.workload.rollout import HandOver
from mooring.operators.workload.waits import while_paused, with_ending

__all__ = ["decide", "next_step"]

LOST_AFTER = 15.0
"""Seconds without an answer, under a healthy master, after which a replica no longer counts as in sync."""


def decide(snapshot: Snapshot) -> Verdict:
    """The next safe step, or while the cluster is paused what would be; each wait says what ends it."""
    verdict = next_step(snapshot)
    if snapshot.wanted.paused and not (isinstance(verdict, Record) and _only_notes(verdict)):
        return while_paused(verdict, PAUSE_ANNOTATION)
    return with_ending(verdict, ENDINGS)


def _only_notes(record: Record) -> bool:
    """It starts nothing."""
    return record.operation is None and record.password is None and record.tls is None and not record.rolls


def next_step(snapshot: Snapshot) -> Verdict:
    """The one thing to do now, paused or not."""
    if not snapshot.topology.members:
        return Wait("PodsMissing", "no redis pod exists yet", after=1.0)
    if not snapshot.answering and (verdict := roll.unblock(snapshot) or _locked_out(snapshot)):
        return verdict
    found = find_master(snapshot)
    if not isinstance(found, tuple):
        return found
    member, server = found
    for rule in _RULES:
        verdict = rule(snapshot, member, server)
        if verdict is not None:
            return verdict
    return InSync()


def _locked_out(snapshot: Snapshot) -> Wait | None:
    locked = [one.name for one in snapshot.topology.members if one.locked]
    return locked_out(snapshot.observed.password, locked)


# --- under a master --------------------------------------------------------------------------------------


def _note_master(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The record follows what is: a master the sentinels chose, a new replication id, a finished sequence."""
    lineage = snapshot.lineage
    assert lineage is not None
    operation = snapshot.recorded.operation
    ours = operation is not None and operation.kind == "Promote" and operation.subject == member.name
    if lineage.master.pod != member.name or not lineage.master.same_process(member.pod):
        planned = operation is not None and operation.kind == "Switch"
        asked = operation is not None and operation.kind == "FailOver"
        return Record(
            lineage=lineage.succeed(member.pod, replid=server.replid, sentinel_epoch=snapshot.sentinel_epoch),
            finish=True,
            last_failover=LastFailover(
                at=snapshot.now,
                old=lineage.master.pod,
                new=member.name,
                cause="Planned" if planned else "MasterDied" if asked else "SentinelDecided",
                choice=operation.why if operation else "the sentinels chose it",
                gap_seconds=gap_of(snapshot, lineage.master.pod),
                loss_bound="none: writes were held until the replicas were level"
                if planned
                else loss_of(snapshot, lineage.master, (member, server)),
            ),
            why=f"{member.name} is master now, after {lineage.master.pod}",
        )
    epoch = snapshot.named[1] if snapshot.named and snapshot.named[0] == member.ip else lineage.sentinel_epoch
    if lineage.replid != server.replid or epoch != lineage.sentinel_epoch or lineage.master.ip != member.ip:
        renewed = lineage.succeed(member.pod, replid=server.replid, sentinel_epoch=epoch)
        return Record(
            lineage=replace(renewed, epoch=lineage.epoch),
            finish=ours,
            why="the master's replication id is new",
        )
    return Record(finish=True, why=f"{member.name} was promoted") if ours else None


def _demote_others(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A second master follows at once if its data is ours, and is set aside with its data if not."""
    lineage = snapshot.lineage
    assert lineage is not None
    for other, claims in snapshot.masters:
        if other.name == member.name:
            continue
        grown = claims.replid2 == server.replid
        if grown and _being_chosen(snapshot, other):
            return Wait(
                "SentinelFailover",
                f"the sentinels are making {other.name} master in place of {member.name}",
                after=0.2,
            )
        kin = lineage.ours(claims.replid) or claims.replid in (server.replid, server.replid2)
        if not claims.keys or kin or lineage.standing(other.name) is not None:
            why = f"{member.name} is master; {other.name} still called itself so"
            last = snapshot.recorded.last_failover
            measured = claims.replid == server.replid2 and last is not None and last.old == other.name
            return Demote(
                target=data_target(other),
                master=data_target(member),
                # The second history begins one byte further on.
                forked=server.second_offset - 1 if measured and server.second_offset > 1 else 0,
                why=why,
            )
        if other.pod.volume not in snapshot.recorded.quarantined:
            return Record(
                quarantined=snapshot.recorded.quarantined | {other.pod.volume},
                why=f"{other.name} holds {claims.keys} keys of an unrelated history and is set aside",
            )
        return Quarantine(
            target=data_target(other),
            why=f"{other.name} is a master with {claims.keys} keys of an unrelated history",
        )
    return None


def _being_chosen(snapshot: Snapshot, member: Member) -> bool:
    """Sentinels that cannot reach the recorded master are about to agree on this one: they are not raced."""
    lineage = snapshot.lineage
    assert lineage is not None
    return snapshot.failing_over or any(
        one.sentinel is not None
        and one.sentinel.master is not None
        and one.sentinel.master.ip == member.ip
        and one.sentinel.epoch > lineage.sentinel_epoch
        for one in snapshot.watchers
    )


def _open_master(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The master itself may be elected again later."""
    if server.priority == 0:
        return SetPriority(targets=(data_target(member),), priority=1, why=f"{member.name} is master")
    return None


def _follow(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Every other pod of ours follows the master; foreign followers are left alone."""
    astray = [
        (other, claims)
        for other, claims in snapshot.answering
        if other.name != member.name
        and not claims.is_master
        and not claims.loading
        and not claims.follows(member.ip)
        and not snapshot.set_aside(other)
    ]
    if not astray:
        return None
    kin = {server.replid, server.replid2} - {""}
    return Follow(
        targets=tuple(data_target(other) for other, _ in astray),
        unsynced=tuple(data_target(one) for one, it in astray if it.replid not in kin and it.priority > 0),
        master=data_target(member),
        why=f"{', '.join(other.name for other, _ in astray)} must follow {member.name}",
    )


def _label(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The Services by role follow the master; who does not answer any more is no master for them either."""
    wrong = {
        one.name: "replica"
        for one in snapshot.topology.members
        if one.name != member.name
        and (one.pod.role == "master" or (one.pod.role == "" and one.server and not one.server.at_gate))
    }
    if member.pod.role not in ("master", None):
        wrong[member.name] = "master"
    pods = [one.pod for one in snapshot.topology.members]
    ended = all(not one.running for one in pods if one.name in wrong and one.role == "master")
    return LabelRoles.of(pods, wrong, leader_first=ended, why=f"{member.name} leads")


def _note_members(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Record who has all data now; what is only briefly away keeps its place."""
    lineage = snapshot.lineage
    assert lineage is not None
    synced = [other.pod for other, claims in snapshot.answering if claims.in_sync_with(member.ip)]
    released = {pod.volume for pod in synced} & snapshot.recorded.quarantined
    if released:
        return Record(
            quarantined=snapshot.recorded.quarantined - released,
            why="what was set aside was given up and replaced",
        )
    keep = [one for one in lineage.members if one.pod != member.name and _keeps_place(snapshot, member, one)]
    renewed = lineage.with_members([member.pod, *synced], keep=keep)
    if renewed.members == lineage.members:
        return None
    names = ", ".join(one.pod for one in renewed.members)
    return Record(lineage=renewed, why=f"in sync: {names}")


def _keeps_place(snapshot: Snapshot, master: Member, standing: Standing) -> bool:
    member = snapshot.topology.member(standing.pod)
    if member is None or not standing.same_process(member.pod):
        return False
    if member.server is None:
        return snapshot.unreachable_for(standing.pod) < LOST_AFTER
    return not _stale(member.server)


def _stale(server: Server) -> bool:
    return server.at_gate or server.syncing or server.loading or server.link_down_seconds > STALE_AFTER


def _release(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Replicas in sync that stay are eligible as master; those out of sync or leaving are not."""
    lineage = snapshot.lineage
    assert lineage is not None
    replicas = [(one, it) for one, it in snapshot.answering if one.name != member.name and not it.is_master]
    opened, closed = [], []
    for other, claims in replicas:
        leaving = other.pod.ordinal >= snapshot.wanted.size or other.pod.terminating
        standing = lineage.standing(other.name)
        recorded = standing is not None and standing.same_process(other.pod)
        if claims.priority > 0 and (leaving or (not claims.in_sync_with(member.ip) and _stale(claims))):
            closed.append(data_target(other))
        elif claims.priority == 0 and not leaving and recorded and claims.in_sync_with(member.ip):
            opened.append(data_target(other))
    if closed:
        names = ", ".join(one.name for one in closed)
        return SetPriority(targets=tuple(closed), priority=0, why=f"{names} is not in sync, or leaves")
    if opened:
        names = ", ".join(one.name for one in opened)
        return SetPriority(targets=tuple(opened), priority=1, why=f"{names} completed synchronisation")
    return None


Rule = Callable[[Snapshot, Member, Server], Verdict | None]


def _change(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """What the user changed; it asks back for a switch where the master is in the way."""
    verdict = changes.next_change(snapshot, member, server)
    if isinstance(verdict, HandOver):
        return switchover.relieve(snapshot, member, server, why=verdict.why)
    return verdict


_RULES: tuple[Rule, ...] = (
    _note_master,
    _demote_others,
    _open_master,
    transport.agree,
    _follow,
    _label,
    switchover.leave,
    switchover.resume,
    _note_members,
    _release,
    transport.turn_round,
    transport.move_replicas,
    passwords.keep,
    users.keep,
    quorum.repair,
    _change,
)
