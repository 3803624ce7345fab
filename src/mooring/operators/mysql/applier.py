"""Appliers that wait for their own idle threads: how a replica comes to it, and how it gets out again. Pure rules.

MySQL takes a change of file in its relay log for one of its own making if it bears the server_id of the server, else for one of
the source's: then it waits until everything before it was applied. Every start has a server_id of its own, so a change of file
that was written before the start counts as the source's. Where it stands amid a transaction, since the connection to the source
broke there, the thread that hands out waits for the one that applies, and that one for the rest of the transaction. Run on
9.7.4: ``STOP REPLICA`` waits without end, a shutdown too, and after another start the same happens at the same place.

So a replica does not go on in a relay log of before its start where it can receive all of that again (`refetches`). Where
it did and stands still, its server starts again, and then it receives again. `survey.with_applier` looks twice in a pass;
here it has to be so for `STILL` seconds with the same position.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from mooring.operators.mysql import durability, records
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import DeletePod, Record, Verdict, Wait
from mooring.operators.mysql.names import COMPONENT
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Flavor, Member, Server
from mooring.operators.mysql.types import Recorded, StandStill

__all__ = ["STILL", "elected", "free", "freed", "refetches", "waiting", "watch"]

STILL: Final = 30.0
"""Seconds without progress after which the server is started again.

An applier whose threads are done goes on within milliseconds. The rest is for a machine that gives the server no time, so
that no replica of a busy node loses its place among those that acknowledge.
"""
FREED: Final = 3
"""How often within `WITHIN` one server is started again for this."""
WITHIN: Final = 3600.0
RECENT: Final = 300.0
"""Seconds after a start for an applier within which its replica does not go on in the relay log."""
GRACE: Final = 10
"""Seconds that the server gets to end: its shutdown waits for the applier, which does not end."""
KEEPS: Final[frozenset[Flavor]] = frozenset({"mysql"})
"""Whose relay log outlives the process."""


def watch(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Record since when an applier stands still, and at which position; forgotten once it goes on."""
    changes: dict[str, Recorded] = {}
    for one, it in snapshot.topology.answering:
        known = snapshot.recorded(one.name)
        if known.server_id != it.server_id or not snapshot.holds(one):
            continue
        before, now = known.stands_still, None
        if it.replication is not None and it.replication.deadlocked:
            at = _digest(it.executed)
            same = before is not None and before.at == at
            # A clock that was set back would have it wait until then.
            known_since = before.since if before is not None and before.since is not None else snapshot.now
            now = before if same and known_since <= snapshot.now else StandStill(at=at, since=snapshot.now)
        if now != before:
            changes[one.name] = replace(known, stands_still=now)
    if not changes:
        return None
    stuck = [name for name, one in changes.items() if one.stands_still is not None]
    names = ", ".join(sorted(stuck or changes))
    why = f"the applier of {names} " + ("waits for its own idle threads" if stuck else "goes on")
    return Record(status=records.members(snapshot.status, changes), why=why)


def free(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Start the server of a replica again whose applier stands still, one at a time, where the others suffice meanwhile."""
    for one, it in snapshot.replicas:
        seconds = snapshot.standing_still(one.name)
        if seconds < STILL or not it.read_only or one.pod.terminating or snapshot.recorded(one.name).reseed:
            continue
        if worn_out(snapshot, one.name) is None and not _needed(snapshot, one):
            return _restart(one, seconds)
    return None


def elected(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The same for an elected primary that has yet to lead, where another one can lead in its place."""
    seconds, operation = snapshot.standing_still(member.name), snapshot.operation
    if seconds < STILL or not server.read_only or member.pod.terminating or operation is None:
        return None
    needed = snapshot.parse(operation.position)
    others = [
        one
        for one, it in snapshot.replicas
        if it.received.contains(needed)
        and not snapshot.recorded(one.name).reseed
        and not (it.replication is not None and it.replication.deadlocked)
    ]
    return _restart(member, seconds) if operation.position and others else None


def refetches(snapshot: Snapshot, primary: Server, one: Member, it: Server) -> bool:
    """A replica that was started receives again what it had not applied: the primary has all of it, and so have the others.

    Where it has applied all that was whole there is nothing to lose: what is left can be the begin of a transaction alone.

    After a start that was for an applier that stood still the primary's word is enough: in that relay log it would stand
    still again.
    """
    link = it.replication
    if (
        snapshot.wanted.flavor not in KEEPS
        or link is None
        or not snapshot.follows(it)
        or snapshot.counts(one)
    ):
        return False
    stopped = not (link.sql_running or link.io_running or link.connecting)
    if not stopped or not primary.executed.contains(it.received):
        return False
    if it.executed.contains(it.received):
        return True
    times = snapshot.recorded(one.name).freed or ()
    if any(snapshot.seconds_since(at) < RECENT for at in times):
        return True
    alone = snapshot.strict and snapshot.ack_set == {one.name}
    return not alone and not _needed(snapshot, one)


def _restart(one: Member, seconds: float) -> DeletePod:
    pod = one.pod
    why = f"its applier has waited for its own idle threads for {seconds:.0f} s; its server starts again"
    return DeletePod(
        component=COMPONENT, pod=pod.name, uid=pod.uid, version=pod.version, grace=GRACE, why=why
    )


def waiting(snapshot: Snapshot) -> Wait | None:
    """An applier that stands still: until its server may be started again, or why it is not."""
    for one, it in snapshot.replicas:
        if it.replication is None or not it.replication.deadlocked:
            continue
        seconds = snapshot.standing_still(one.name)
        text = f"{one.name} applies nothing: its applier waits for its own idle threads"
        if seconds < STILL:
            return Wait("ReplicaCatchingUp", text, after=min(5.0, STILL - seconds))
        if again := worn_out(snapshot, one.name):
            text += (
                f". Its server was started again for that {FREED} times within an hour; it waits until {again:%H:%M:%S} UTC. "
                "Look for what its log says, or for a newer version of the server"
            )
            return Wait("ApplierStuck", text, after=5.0, stalled=True)
        if _needed(snapshot, one):
            text += "; its server starts again once enough others acknowledge and have what it acknowledged"
            return Wait("ApplierStuck", text, after=1.0, stalled=True)
    return None


def freed(known: Recorded, now: datetime) -> Recorded:
    """What is known of a replica whose server starts: an applier that stood still counts as one start for that."""
    if known.stands_still is None:
        return known
    before = [one for one in known.freed or () if (now - one).total_seconds() < WITHIN]
    return replace(known, stands_still=None, freed=[*before, now])


def worn_out(snapshot: Snapshot, name: str) -> datetime | None:
    """When a server may be started again for this; ``None``: now."""
    times = [one for one in snapshot.recorded(name).freed or () if snapshot.seconds_since(one) < WITHIN]
    return times[-FREED] + timedelta(seconds=WITHIN) if len(times) >= FREED else None


def _needed(snapshot: Snapshot, one: Member) -> bool:
    """Without it writes would wait, or what it acknowledged would be on the primary alone.

    The only replica that acknowledges could not lead as it is: its start costs writes a wait, and no copy of them.
    """
    if not snapshot.strict or one.name not in snapshot.ack_set:
        return False
    others = snapshot.ack_set - {one.name}
    if not others:
        return snapshot.wanted.flavor not in KEEPS
    acking = sum(
        1
        for other, it in snapshot.replicas
        if other.name in others
        and it.semi_sync.replica
        and snapshot.healthy(other, it)
        and not other.pod.terminating
    )
    return acking < (snapshot.status.acks or 0) or not durability.all_caught_up(snapshot, others)


def _digest(position: Position) -> str:
    return hashlib.sha256(position.text().encode()).hexdigest()[:16]
