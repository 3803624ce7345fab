"""A planned change of primary: when it is needed, which server leads next, and when it is given up. Pure rules.

The candidate has caught up before anything is held. Then writes are held on the primary until the candidate has all of
them, at most `DEADLINE` seconds, or the primary goes on as if nothing had been. Only then another one leads.
"""

from __future__ import annotations

from typing import Final

from mooring.operators.mysql import records
from mooring.operators.mysql.failover import take_over
from mooring.operators.mysql.moves import Record, Switch, Unask, Verdict, Wait, target_of
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.mysql.versions import series

__all__ = ["ask", "hand_over", "leave", "resume"]

DEADLINE: Final = 5.0
"""Seconds for which writes may be held."""
GIVEN_UP_AFTER: Final = 15.0
"""Seconds after which a switch that does not get through is forgotten; the primary takes writes again."""
BEHIND: Final = 1.0
"""Seconds a candidate may be behind when writes begin to be held."""


def resume(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A switch under way is finished, or given up, before anything else changes."""
    operation = snapshot.operation
    if operation is None or operation.kind != "Switch" or operation.old != member.name:
        return None
    candidate = snapshot.topology.member(operation.subject)
    it = candidate.server if candidate is not None else None
    late = snapshot.seconds_since(operation.since) > GIVEN_UP_AFTER
    if candidate is None or it is None or late or not snapshot.counts(candidate):
        why = (
            f"{operation.subject} did not take over within {GIVEN_UP_AFTER:.0f} s" if late else "it went away"
        )
        text = f"the switch to {operation.subject} is given up: {why}; {member.name} goes on"
        return Record(status=records.ended(snapshot.status), why=text)
    if server.read_only and it.received.contains(server.executed):
        return take_over(snapshot, (candidate, it), position=server.executed, cause="Planned")
    return Switch(
        primary=target_of(member), candidate=target_of(candidate), deadline=DEADLINE, why=operation.why
    )


def hand_over(snapshot: Snapshot, member: Member, server: Server, *, why: str, to: str = "") -> Verdict:
    """Begin a switch away from the primary: to one pod, or to the best there is."""
    heirs = [(one, it) for one, it in snapshot.replicas if _may_take_over(snapshot, one, it)]
    if to:
        heirs = [(one, it) for one, it in heirs if one.name == to]
    oldest = min((series(it.version) for _, it in snapshot.replicas if not it.seeding), default=())
    able = [(one, it) for one, it in heirs if series(it.version) <= oldest or len(snapshot.replicas) == 1]
    if not able:
        who = ", ".join(one.name for one, _ in heirs)
        text = (
            f"{who} is newer than other replicas"
            if heirs
            else f"{to or 'no replica'} is not able to lead yet"
        )
        return Wait("SwitchBlocked", f"{why}, but {text}", after=0.5)
    candidate, _ = min(able, key=lambda one: (one[0].name not in snapshot.ack_set, one[0].pod.ordinal))
    status = records.began(snapshot, "Switch", subject=candidate.name, old=member.name, why=why)
    return Switch(
        primary=target_of(member), candidate=target_of(candidate), deadline=DEADLINE, first=status, why=why
    )


def _may_take_over(snapshot: Snapshot, one: Member, it: Server) -> bool:
    behind = it.replication.lag if it.replication is not None else None
    return (
        snapshot.healthy(one, it)
        and snapshot.counts(one)
        and not snapshot.leaves(one)
        and not snapshot.recorded(one.name).stands_still
        and one.name not in snapshot.observed.cordoned
        and (behind is None or behind <= BEHIND)
    )


def leave(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A primary that is deleted, fenced, or on a node that is about to be emptied hands over while it lives."""
    if member.pod.terminating:
        why = f"{member.name} is being deleted"
    elif snapshot.fenced(member.name) and "*" not in snapshot.wanted.fenced:
        why = f"{member.name} is fenced"
    elif member.name in snapshot.observed.cordoned:
        why = f"the node of {member.name} takes no more pods"
    else:
        return None
    verdict = hand_over(snapshot, member, server, why=why)
    return None if isinstance(verdict, Wait) else verdict


def ask(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """What a person asked for by annotation; it is removed once it is done, or once it cannot be."""
    to = snapshot.wanted.switch_to
    if not to:
        return None
    if to == member.name:
        return Unask(why=f"{to} leads")
    chosen = snapshot.topology.member(to)
    if chosen is None or chosen.pod.ordinal >= snapshot.wanted.size:
        return Unask(why=f"the switch to {to} is refused: there is no such pod")
    return hand_over(snapshot, member, server, why=f"a switch to {to} was asked for", to=to)
