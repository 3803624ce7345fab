"""TLS turned on or off in a running cluster, or back again half-way: recorded phases, one after another. Pure rules.

Opening: pods are rolled to a template with both ports open; nothing uses the new one yet. Moving: replicas move to the
other port one by one, each back in sync before the next, then the sentinels, which restart in place and keep what they
know. Closing: pods are rolled to a template with the declared ports. What is used is the recorded transport; whatever
does not use it is moved there, so a phase can be turned round at any moment.
"""

from __future__ import annotations

from mooring.operators.redis.sentinel.moves import (
    MoveSentinels,
    Record,
    Repoint,
    SetTransport,
    Verdict,
    Wait,
    data_target,
    sentinel_target,
)
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server, Watcher
from mooring.operators.redis.tls import TlsProgress

__all__ = ["advance", "agree", "move_replicas", "move_sentinels", "turn_round"]

_WHY = {
    "": "every pod has the declared ports open",
    "Opening": "every pod is to open its plain port too",
    "Closing": "every pod is to have the declared port alone",
}


def agree(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Servers that follow nobody yet present themselves at the recorded port before they are made to."""
    wrong = [
        one for one, it in snapshot.answering if not it.follows(member.ip) and _otherwise(snapshot, one, it)
    ]
    if not wrong:
        return None
    return SetTransport(
        targets=tuple(data_target(one) for one in wrong),
        tls=snapshot.encrypts,
        why=f"{', '.join(one.name for one in wrong)} must replicate {_by(snapshot)}",
    )


def turn_round(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A change that is put back on its way does not wait for a replica that may never get through."""
    wanted, known = snapshot.wanted, snapshot.recorded.tls or TlsProgress()
    if known.phase != "Moving" or wanted.transport == snapshot.observed.transport:
        return None
    if not wanted.roll or snapshot.recorded.rolls or not _whole(snapshot):
        return None
    if not isinstance(move_replicas(snapshot, member, server), Wait):
        return None
    return _record(wanted.transport, "Moving", "it was put back, and every pod has both ports open")


def move_replicas(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """One replica at a time moves to the recorded port; the others go on meanwhile."""
    if member.ports == "plain" and not snapshot.encrypts:
        return None
    replicas = [(one, it) for one, it in snapshot.answering if it.follows(member.ip)]
    wrong = [
        (one, it)
        for one, it in replicas
        if one.ports != "plain" and (it.master != member.address or _otherwise(snapshot, one, it))
    ]
    if not wrong:
        return None
    names = {one.name for one, _ in wrong}
    behind = [one.name for one, it in replicas if one.name not in names and not it.in_sync_with(member.ip)]
    # One that is cut off anyway loses nothing.
    one, it = next(((one, it) for one, it in wrong if not it.link_up and not it.syncing), wrong[0])
    if behind and it.link_up:
        return Wait(
            "ReplicaSynchronising", f"{behind[0]} must be in sync before the next one moves", after=0.2
        )
    return Repoint(
        target=data_target(one),
        master=data_target(member),
        tls=snapshot.encrypts,
        why=f"{one.name} must replicate {_by(snapshot)}",
    )


def move_sentinels(snapshot: Snapshot) -> Verdict | None:
    """All at once: sentinels that use different ports do not hear one another."""
    wrong = [
        one
        for one in snapshot.watchers
        if one.ports == "both" and one.sentinel is not None and one.sentinel.encrypts is not snapshot.encrypts
    ]
    if not wrong:
        return None
    return MoveSentinels(
        sentinels=tuple(sentinel_target(one) for one in wrong),
        tls=snapshot.encrypts,
        why=f"{', '.join(one.name for one in wrong)} must watch the servers {_by(snapshot)}",
    )


def advance(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Record the next phase; everything of the present one is done when this is asked."""
    wanted, seen, known = snapshot.wanted, snapshot.observed, snapshot.recorded.tls or TlsProgress()
    if not wanted.roll:
        return None
    if wanted.transport == seen.transport:
        if known.phase == "Moving" and not _whole(snapshot):
            return None
        phase = _rolling(snapshot)
        if phase == known.phase and (known.transport or seen.ports == "plain"):
            return None
        return _record(seen.transport, phase, _WHY[phase])
    if _whole(snapshot) and not snapshot.recorded.rolls:
        return _closed(snapshot) or _record(wanted.transport, "Moving", "every pod has both ports open")
    if known.phase != "Opening":
        word = "on" if wanted.transport == "tls" else "off"
        return _record(seen.transport, "Opening", f"TLS is turned {word}: first, every pod opens both ports")
    return None


def _record(transport: str, phase: str, why: str) -> Record:
    return Record(tls=TlsProgress(transport=transport, phase=phase), why=why)


def _whole(snapshot: Snapshot) -> bool:
    """Every server and sentinel answers and has both ports open."""
    both = [one for one, _ in snapshot.answering if one.ports == "both"]
    watchers = [one for one in snapshot.watchers if one.ports == "both"]
    return (
        len(both) == len(snapshot.topology.members) >= snapshot.wanted.size
        and len(watchers) == len(snapshot.topology.watchers) >= snapshot.wanted.sentinels
    )


def _closed(snapshot: Snapshot) -> Wait | None:
    """Once servers are to use the other port the operator does too: it would find none of them behind a closed one."""
    pods: tuple[Member | Watcher, ...] = (*snapshot.topology.members, *snapshot.topology.watchers)
    shut = [one for one in pods if one.closed]
    if not shut:
        return None
    ports = "6380 and 26380" if snapshot.wanted.transport == "tls" else "6379 and 26379"
    text = (
        f"{shut[0].name} does not answer at the port to move to ({shut[0].closed}); let the operator and the pods of the "
        f"cluster connect to {ports}: a NetworkPolicy may keep them out"
    )
    return Wait("PortClosed", text, after=5.0, stalled=True)


def _rolling(snapshot: Snapshot) -> str:
    """The phase where only ports are opened or closed; empty where templates and pods have the declared ones."""
    opened = {snapshot.observed.ports}
    opened |= {one.ports for one in snapshot.topology.members}
    opened |= {one.ports for one in snapshot.topology.watchers}
    if opened == {snapshot.wanted.ports}:
        return ""
    return "Opening" if snapshot.wanted.ports == "both" else "Closing"


def _otherwise(snapshot: Snapshot, member: Member, server: Server) -> bool:
    """Its own setting is not the recorded one; a pod with one port has no choice."""
    return member.ports == "both" and (server.config.get("tls-replication") == "yes") is not snapshot.encrypts


def _by(snapshot: Snapshot) -> str:
    return "by TLS" if snapshot.encrypts else "without TLS"
