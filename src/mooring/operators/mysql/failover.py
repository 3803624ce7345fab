"""Who leads when the recorded primary does not: wait for it, start it again, or let a replica take over. Pure rules.

A failover is recorded, then every receiver that is within reach is stopped: from then on the old primary can get no
acknowledgement. If those that were stopped hold every acknowledged write (`durability.safe`), the one that received most
is recorded as primary together with what it received, applies it, and takes writes. Without so many the old primary is
started again where its data is; where it is not, the cluster is lost until the servers return that the message names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as seen
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.operators.mysql import durability, records, release
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import DeletePod, Fence, Promote, Record, Verdict, Wait, target_of
from mooring.operators.mysql.names import COMPONENT, OPERATOR_USER, SWITCH_TO, Names
from mooring.operators.mysql.snapshot import ALIVE, DENIED, Snapshot
from mooring.operators.mysql.topology import Flavor, Member, Server
from mooring.operators.mysql.types import MySQLClusterStatus, TailCut
from mooring.operators.mysql.versions import series
from mooring.operators.workload.rollout import hopeless

__all__ = ["find_primary", "promotion", "take_over"]

Candidate = tuple[Member, Server]
CUT: Final[frozenset[Flavor]] = frozenset({"mysql"})
"""Whose binary log is cut; MariaDB rolls its tail back itself, and does not start with a log that was cut."""
RECENT: Final = 3.0
"""Seconds by which the end of a container and the last answer of its server may lie apart."""
ABANDONED_AFTER: Final = 30.0
"""Seconds of silence after which a pod that is being deleted is not waited for: its node may never say that it ended."""
REFUSED_FOR: Final = 2.0
"""Seconds since its last answer after which a server that refuses connections counts as ended although its pod is said to run."""
REFUSED_STRICT: Final = 0.5
"""The same in Strict mode, where nothing is deleted for it.

The kubelet reports the end of a container up to a second late, and then takes the pod out of its Services. kube-proxy applies a
second change of a Service about a second later. A primary that is labelled before the report is reachable at once.
"""


def find_primary(snapshot: Snapshot) -> Candidate | Verdict:
    """The primary, if it answers and is the one that may lead; else what is to be done about that."""
    operation, leader = snapshot.operation, snapshot.leader
    if leader is not None and _started_without_data(snapshot, leader[1]):
        return _without_data(snapshot, leader[0])
    if operation is not None and operation.kind == "FailOver" and not operation.subject:
        return _elect(snapshot)
    if leader is None:
        return _without(snapshot)
    if not _has_what_it_must(snapshot, leader[1]):
        return _another(snapshot)
    return leader


# --- no answer -------------------------------------------------------------------------------------------


def _without(snapshot: Snapshot) -> Verdict:
    """The recorded primary does not answer."""
    operation = snapshot.operation
    if operation is not None and operation.subject == snapshot.primary and operation.position:
        return _another(snapshot)  # it was recorded, and died before it led
    death = _death(snapshot)
    if isinstance(death, Wait):
        # Replicas of a new cluster start beside its primary.
        founding = operation is not None and operation.kind == "Found"
        return (release.replicas(snapshot) if founding else None) or death
    if snapshot.strict and durability.safe(snapshot, [one.name for one, _ in snapshot.votes]):
        return _begin(snapshot, death)
    if snapshot.wanted.mode == "Async" and not snapshot.strict and _survivors(snapshot):
        return _release_hung(snapshot) or _begin(snapshot, death)
    return _return(snapshot, death)


def _death(snapshot: Snapshot) -> str | Wait:
    """Why the recorded primary is taken for dead, or a wait while it may still answer."""
    member, away = snapshot.topology.member(snapshot.primary), snapshot.observed.primary_unreachable
    if member is None:
        return f"the pod {snapshot.primary} is gone"
    if not member.pod.running:
        return f"the container of {member.name} ended"
    if snapshot.at_gate(member):
        return f"{member.name} was started again"
    if locked_out := _locked_out(snapshot):
        return locked_out
    if member.error in ALIVE:
        text = f"{member.name} answers, but does not let the operator in: {member.error}"
        return Wait("PrimaryRefuses", text, after=1.0)
    if member.pod.terminating and away >= 1.0:
        return f"{member.name} is being deleted and does not answer"
    refused = REFUSED_STRICT if snapshot.strict else REFUSED_FOR
    if member.error == "Refused" and away >= refused and _links_lost(snapshot):
        return f"nothing listens at {member.name}"
    if away >= snapshot.wanted.detect and _links_lost(snapshot):
        return f"{member.name} has not answered for {snapshot.wanted.detect:g} s"
    if snapshot.operation is not None and snapshot.operation.kind == "Found":
        return Wait("PrimaryStarting", f"{member.name} starts for the first time", after=0.3)
    text = f"{member.name} does not answer ({member.error})"
    if away >= snapshot.wanted.detect and any(snapshot.follows(it) for _, it in snapshot.replicas):
        text += ", but its replicas still hear from it"
    return Wait("PrimaryNotAnswering", text, after=0.3)


def _locked_out(snapshot: Snapshot) -> Wait | None:
    """No server lets the operator in, by any password that it knows."""
    locked = [one.name for one in snapshot.topology.members if one.error == DENIED]
    if not locked or snapshot.topology.answering:
        return None
    secret = Names(snapshot.primary.rpartition("-")[0]).credentials
    text = (
        f"{', '.join(locked)} take no password of the account {OPERATOR_USER} that the Secret {secret} has; write the "
        "one that they take into it from a file, and every account gets the password that is declared: "
        f"kubectl create secret generic {secret} --from-file={ACCOUNTS[OPERATOR_USER]}=FILE "
        "--dry-run=client -o yaml | kubectl apply --server-side --force-conflicts -f -"
    )
    return Wait("PasswordRefused", text, after=5.0, stalled=True)


def _links_lost(snapshot: Snapshot) -> bool:
    """Most replicas that answer have lost the primary too; a start that answered nobody yet has none."""
    links = [it.replication for _, it in snapshot.replicas if snapshot.follows(it)]
    lost = sum(1 for one in links if one is not None and not one.io_running)
    return 2 * lost > len(links)


def _begin(snapshot: Snapshot, death: str) -> Verdict:
    """Record the failover, and stop the receivers."""
    old = snapshot.primary
    status = records.began(snapshot, "FailOver", old=old, why=death, since=_end_of_primary(snapshot))
    return _fence(snapshot, status=status, why=death) or _elect(snapshot, status=status)


def _end_of_primary(snapshot: Snapshot) -> datetime:
    """When the primary ended, or answered last, as far as it was seen."""
    member = snapshot.topology.member(snapshot.primary)
    silent = snapshot.later(-snapshot.observed.primary_unreachable)
    died = member.pod.died_at if member is not None else None
    # A container tells of its last end only, which may be an earlier one.
    recent = died is not None and abs((silent - died).total_seconds()) <= RECENT
    return died if died is not None and recent else silent


def _fence(snapshot: Snapshot, *, status: MySQLClusterStatus | None, why: str) -> Verdict | None:
    """Stop every receiver that runs, or tries to."""
    running = [
        one
        for one, it in snapshot.replicas
        if it.replication is not None and (it.replication.io_running or it.replication.connecting)
    ]
    if not running:
        return None
    return Fence(targets=tuple(map(target_of, running)), first=status, why=why)


def _release_hung(snapshot: Snapshot) -> Verdict | None:
    """Asynchronous replication fences nobody: a hung primary is removed before another leads."""
    member = snapshot.topology.member(snapshot.primary)
    if member is None or not member.pod.running or snapshot.at_gate(member):
        return None
    if member.pod.terminating:
        text = f"{member.name} is being deleted; without acknowledgements nobody leads before it ended"
        return Wait("PrimaryEnding", text, after=0.5)
    pod = member.pod
    why = "it does not answer, and could still take writes"
    return DeletePod(component=COMPONENT, pod=pod.name, uid=pod.uid, version=pod.version, why=why)


def _started_without_data(snapshot: Snapshot, server: Server) -> bool:
    """It lost its data, and does not take writes, or a person wants another one to."""
    chosen = snapshot.operation is not None and snapshot.operation.subject
    return not chosen and bool(server.read_only or snapshot.wanted.switch_to) and snapshot.emptied(server)


def _without_data(snapshot: Snapshot, member: Member) -> Verdict:
    """The recorded primary started, but not with its data: it must not lead, or replicas would be emptied after it."""
    text = f"{member.name} does not have the data that it led with"
    if snapshot.strict and durability.safe(snapshot, [one.name for one, _ in snapshot.votes]):
        under_way = snapshot.operation is not None and snapshot.operation.kind == "FailOver"
        return _elect(snapshot) if under_way else _begin(snapshot, text)
    text += f"; {_who_must_return(snapshot)}"
    return _by_hand(snapshot) or release.replicas(snapshot) or Wait("DataLost", text, after=1.0, stalled=True)


# --- election --------------------------------------------------------------------------------------------


def _elect(snapshot: Snapshot, *, status: MySQLClusterStatus | None = None) -> Verdict:
    """Choose among the replicas whose receivers are stopped; they hold every acknowledged write, or none leads."""
    operation = (status or snapshot.status).operation
    assert operation is not None
    if again := _fence(snapshot, status=None, why=operation.why):
        return again
    votes = snapshot.votes if snapshot.strict else _survivors(snapshot)
    if not votes or (snapshot.strict and not durability.safe(snapshot, [one.name for one, _ in votes])):
        if status is None and snapshot.leader is not None:
            why = f"{snapshot.primary} answers and goes on, since {_why_no_failover(snapshot)}"
            return Record(status=records.ended(snapshot.status), why=why)
        return _return(snapshot, operation.why, status=records.ended(snapshot.status))
    best = _most_advanced(snapshot, votes)
    if best is None:
        names = ", ".join(one.name for one, _ in votes)
        text = f"{names} received different transactions; no one of them has all that was acknowledged"
        return Wait("Diverged", text, after=2.0, stalled=True)
    base = seen(snapshot, status=status) if status is not None else snapshot
    return take_over(base, best, position=best[1].received, cause=_cause(operation.why))


def _cause(why: str) -> str:
    return "Unreachable" if "has not answered" in why else "Died"


def _survivors(snapshot: Snapshot) -> list[Candidate]:
    """Replicas that had caught up with the primary, in asynchronous replication."""
    return [(one, it) for one, it in snapshot.replicas if snapshot.counts(one)]


def _most_advanced(snapshot: Snapshot, votes: Sequence[Candidate]) -> Candidate | None:
    """The replica that received everything that any of the voters did, and what another one received beyond it."""
    needed = Position()
    for _, it in votes:
        needed = needed | it.received
    for one, it in snapshot.replicas:
        usable = snapshot.follows(it) and snapshot.holds(one) and not snapshot.recorded(one.name).reseed
        if usable and it.received.contains(needed):
            needed = it.received
    fit = [
        (one, it)
        for one, it in snapshot.replicas
        if it.received.contains(needed) and snapshot.holds(one) and not snapshot.recorded(one.name).reseed
    ]
    return min(fit, key=lambda one: _preference(snapshot, *one), default=None)


def _preference(snapshot: Snapshot, member: Member, server: Server) -> tuple[object, ...]:
    """Stays; oldest version, so that every other can follow it; its applier works; has applied what it received; lowest ordinal."""
    return (
        snapshot.leaves(member),
        series(server.version),
        server.replication is not None and server.replication.deadlocked,
        not server.executed.contains(server.received),
        member.pod.ordinal,
    )


def take_over(snapshot: Snapshot, candidate: Candidate, *, position: Position, cause: str) -> Verdict:
    """Record a new primary and what it must have, then promote it; the others follow in the same step."""
    member, _ = candidate
    others = [one for one, it in snapshot.topology.answering if _can_follow(snapshot, one, it, member)]
    ack_set = durability.chosen(snapshot, member.name, others)
    status = records.led_by(
        snapshot, member.name, cause=cause, position=position.text(), ack_set=ack_set, why=cause
    )
    status = _with_cut(snapshot, status)
    if snapshot.held:
        return Record(
            status=status, why=f"{member.name} leads term {status.term}, and takes no writes for now"
        )
    return _promote(seen(snapshot, status=status), member, others=others, expected=position, first=status)


def _can_follow(snapshot: Snapshot, one: Member, it: Server, new: Member) -> bool:
    """It is a read-only replica, or the old primary after a planned hand-over."""
    if one.name == new.name or not it.read_only or snapshot.recorded(one.name).reseed:
        return False
    operation = snapshot.operation
    planned = operation is not None and operation.kind == "Switch"
    return snapshot.holds(one) and (one.name != snapshot.primary or planned)


def _with_cut(snapshot: Snapshot, status: MySQLClusterStatus) -> MySQLClusterStatus:
    """Where the old primary's binary log is cut: the furthest byte that an acknowledging replica received."""
    old = snapshot.operation.old if snapshot.operation is not None else ""
    known = snapshot.recorded(old)
    ends = [
        (it.replication.source_file, it.replication.source_position)
        for _, it in snapshot.votes
        if it.replication is not None and it.replication.source_file and snapshot.follows(it)
    ]
    planned = snapshot.operation is not None and snapshot.operation.kind == "Switch"
    # What a server acknowledged that does not vote lies beyond these ends, and may be in that log alone.
    if (
        planned
        or not snapshot.strict
        or not durability.safe(snapshot, [one.name for one, _ in snapshot.votes])
    ):
        return status
    if snapshot.wanted.flavor not in CUT or not ends or not known.volume:
        return status
    file, position = max(ends, key=lambda end: (_number(end[0]), end[1]))
    return records.members(
        status, {old: replace(known, synced=False, cut=TailCut(file=file, position=position))}
    )


def _number(file: str) -> int:
    tail = file.rpartition(".")[2]
    return int(tail) if tail.isdigit() else 0


# --- promotion -------------------------------------------------------------------------------------------


def _has_what_it_must(snapshot: Snapshot, server: Server) -> bool:
    """A new primary still has what it was elected for: its relay log did not go with its process."""
    operation = snapshot.operation
    if operation is None or operation.subject != snapshot.primary or not operation.position:
        return True
    return not server.read_only or server.received.contains(snapshot.parse(operation.position))


def _another(snapshot: Snapshot) -> Verdict:
    """The new primary died, or lost what it had not applied, before it led: another one that has it leads instead."""
    operation = snapshot.operation
    assert operation is not None
    needed = snapshot.parse(operation.position)
    fit = [
        (one, it)
        for one, it in snapshot.replicas
        if it.read_only and it.received.contains(needed) and not snapshot.recorded(one.name).reseed
    ]
    member = snapshot.topology.member(snapshot.primary)
    dead = member is None or not member.pod.running or snapshot.at_gate(member)
    lacking = snapshot.leader is not None and snapshot.leader[1].read_only
    if fit and (dead or lacking):
        if fenced := _fence(snapshot, status=None, why=f"{snapshot.primary} did not come to lead"):
            return fenced
        best = min(fit, key=lambda one: _preference(snapshot, *one))
        return take_over(snapshot, best, position=needed, cause="Died")
    why = f"{snapshot.primary} did not come to lead"
    if lacking:
        text = f"{why}: its relay log is gone; a server that received {operation.position} must return"
        return release.replicas(snapshot) or Wait("Lost", text, after=1.0, stalled=True)
    return _open(snapshot, why) or Wait("PrimaryNotAnswering", f"{why}; it is waited for", after=0.3)


def promotion(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The recorded primary takes writes: after its election, after a start, or after a step that did not get through."""
    operation = snapshot.operation
    held = snapshot.held or (
        operation is not None and operation.kind == "Switch" and operation.old == member.name
    )
    if held or (not server.read_only and server.replication is None):
        return None
    elected = operation is not None and operation.subject == member.name and operation.position
    chosen = snapshot.wanted.switch_to == member.name
    expected = Position() if chosen else snapshot.required
    if operation is not None and elected:
        expected = snapshot.parse(operation.position)
    others = [
        one
        for one, it in snapshot.replicas
        if elected
        and it.read_only
        and snapshot.holds(one)
        and not snapshot.follows(it)
        and it.replication is not None
        and not snapshot.recorded(one.name).reseed
    ]
    return _promote(snapshot, member, others=others, expected=expected, first=None)


def _promote(
    snapshot: Snapshot,
    member: Member,
    *,
    others: Sequence[Member],
    expected: Position,
    first: MySQLClusterStatus | None,
) -> Promote:
    return Promote(
        target=target_of(member),
        expected=expected,
        acks=snapshot.status.acks or 0,
        semi_sync=snapshot.strict,
        others=tuple(map(target_of, others)),
        source_host=snapshot.host(member.name),
        acking=snapshot.ack_set & {one.name for one in others},
        first=first,
        why=f"{member.name} leads term {snapshot.term}",
    )


# --- the recorded primary has to return ------------------------------------------------------------------


def _return(snapshot: Snapshot, death: str, *, status: MySQLClusterStatus | None = None) -> Verdict:
    """No replica may lead: the primary starts again with its data, or the servers are named that must return."""
    if opened := _open(snapshot, death, status=status):
        return opened
    member = snapshot.topology.member(snapshot.primary)
    if member is not None and snapshot.holds(member) and not _given_up(snapshot, member):
        text = f"{death}; it is started again, since {_why_no_failover(snapshot)}"
        return Wait("PrimaryReturning", text, after=0.3)
    return _by_hand(snapshot) or Wait(
        "Lost", f"{death}; {_who_must_return(snapshot)}", after=1.0, stalled=True
    )


def _given_up(snapshot: Snapshot, member: Member) -> bool:
    """It does not come back by itself: its pod cannot run, or is deleted on a node that does not confirm it."""
    stays = member.pod.terminating and snapshot.observed.primary_unreachable >= ABANDONED_AFTER
    return stays or hopeless(member.pod, snapshot.now)


def _by_hand(snapshot: Snapshot) -> Verdict | None:
    """A person names the server that leads in place of what cannot return."""
    chosen = snapshot.topology.member(snapshot.wanted.switch_to)
    if chosen is None or chosen.server is None or chosen.name == snapshot.primary:
        return None
    known = snapshot.recorded(chosen.name)
    if chosen.server.received.is_empty and (known.reseed or not known.joined):
        text = f"{chosen.name} is empty and cannot lead; {_who_must_return(snapshot)}"
        return Wait("Lost", text, after=1.0, stalled=True)
    why = f"a person chose {chosen.name} in place of {snapshot.primary}"
    status = records.began(snapshot, "FailOver", old=snapshot.primary, why=why)
    if fenced := _fence(snapshot, status=status, why=why):
        return fenced
    base = seen(snapshot, status=status)
    return take_over(base, (chosen, chosen.server), position=chosen.server.received, cause="Chosen")


def _open(snapshot: Snapshot, death: str, *, status: MySQLClusterStatus | None = None) -> Verdict | None:
    """Open the recorded primary's gate if its data is there, those of replicas with it."""
    member = snapshot.topology.member(snapshot.primary)
    if member is None or not snapshot.at_gate(member) or member.pod.terminating or not snapshot.holds(member):
        return release.replicas(snapshot)
    why = f"{death}; it leads again, since {_why_no_failover(snapshot)}"
    waiting = [one for one in snapshot.topology.members if snapshot.at_gate(one) and not one.pod.terminating]
    return release.open_gates(
        snapshot,
        {one.name: "primary" if one.name == member.name else "replica" for one in waiting},
        why=why,
        status=status,
    )


def _why_no_failover(snapshot: Snapshot) -> str:
    if not snapshot.strict:
        return "writes were acknowledged by no replica"
    votes = sorted(one.name for one, _ in snapshot.votes)
    return (
        f"only {', '.join(votes) or 'none'} of {', '.join(sorted(snapshot.ack_set)) or 'no replica'} can tell what was "
        "acknowledged"
    )


def _who_must_return(snapshot: Snapshot) -> str:
    """Exactly which servers must return before a primary can be found without losing a write."""
    votes = {one.name for one, _ in snapshot.votes}
    missing = sorted(snapshot.ack_set - votes)
    needed = len(snapshot.ack_set) - (snapshot.status.acks or 0) + 1 - len(votes)
    parts = [f"{snapshot.primary} with its data"]
    if snapshot.strict and missing and needed > 0:
        parts.append(f"{needed} of {', '.join(missing)} as they ran before")
    return (
        f"nobody leads until this returns: {', or '.join(parts)}; to go on without what they alone hold, name the server "
        f"that is to lead in the annotation {SWITCH_TO}"
    )
