"""Replicas: who must follow the primary, whose threads are started again, and who cannot go on with its data. Pure rules.

A replica is judged by its source and its data, never by whether its threads run: one that follows
another server shows no error and no lag, and is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from mooring.operators.mysql import applier, durability, records, release
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import DeletePod, Demote, Follow, Record, Verdict, Wait, target_of
from mooring.operators.mysql.names import COMPONENT, SWITCH_TO
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.mysql.types import MySQLClusterStatus, Recorded

__all__ = [
    "BROKEN",
    "PURGED",
    "behind",
    "demote_others",
    "errant",
    "held",
    "lacks_history",
    "note",
    "renew",
    "repair",
    "unstartable",
]

PURGED: Final = frozenset({1236})
"""Receiver errors that say: the source no longer has what this replica needs."""
BROKEN: Final = frozenset(
    {
        1032,
        1062,
        1050,
        1051,
        1054,
        1064,
        1091,
        1146,
        1194,
        1195,
        1396,
        1590,
        1594,
        1595,
        1677,
        1942,
        1947,
        1948,
        1950,
        13121,
    }
)
"""Applier errors that starting again does not cure: the data differs, a table or the relay log is damaged."""

LEFT_BROKEN: Final = 120.0
"""Seconds for which a replica that cannot apply is kept, while no other one has what it acknowledged."""

FAILED_STARTS: Final = 4
"""Starts in a row without an answer after which a replica's files count as damaged."""

LONGEST: Final = 400
"""Characters of a position that a reason names."""


def note(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Record what the pass learnt: versions, who has caught up, a change of primary that is complete."""
    status = snapshot.status
    changes: dict[str, Recorded] = {}
    for one, it in snapshot.topology.answering:
        known = new = snapshot.recorded(one.name)
        if known.server_id != it.server_id or not snapshot.holds(one):
            continue
        leads = one.name == member.name
        caught_up = not leads and snapshot.healthy(one, it) and snapshot.caught_up(one)
        new = replace(new, cut=None, failed_starts=0)
        if it.version and it.version != known.version:
            new = replace(new, version=it.version)
        if (leads and not it.read_only) or caught_up:
            new = replace(new, joined=True)
        # A failover counts on one who acknowledges only where nobody else does so in its place.
        if caught_up and not (snapshot.strangers and one.name in snapshot.ack_set):
            new = replace(new, synced=True)
        if new != known:
            changes[one.name] = new
    if changes:
        status = records.members(status, changes)
    operation = snapshot.operation
    leads = not server.read_only or (snapshot.held and _has_applied(snapshot, server))
    if operation is not None and operation.subject == member.name and leads:
        status = records.ended(status)
        if status.promotions:
            first = replace(status.promotions[0], gap_seconds=_gap(snapshot))
            status = replace(status, promotions=[first, *status.promotions[1:]])
    status = _with_marker(snapshot, status, server)
    if status == snapshot.status:
        return None
    return Record(status=status, why=_learnt(snapshot, status.operation is None, changes))


def _has_applied(snapshot: Snapshot, server: Server) -> bool:
    """It has what it was elected for, and could take writes."""
    operation = snapshot.operation
    return operation is not None and server.executed.contains(snapshot.parse(operation.position))


def _with_marker(snapshot: Snapshot, status: MySQLClusterStatus, server: Server) -> MySQLClusterStatus:
    """A primary that began empty: what it must still have after a restart is recorded once it has something."""
    newest = next(iter(status.promotions or ()), None)
    if newest is None or newest.pod != snapshot.primary or server.read_only:
        return status
    confirmed = snapshot.wanted.switch_to == newest.pod and not server.received.contains(snapshot.required)
    if newest.position and not confirmed:
        return status
    marked = replace(newest, position=records.bounded(server.executed.text()))
    return replace(status, promotions=[marked, *(status.promotions or ())[1:]])


def _learnt(snapshot: Snapshot, over: bool, changes: Mapping[str, Recorded]) -> str:
    if over and snapshot.operation is not None:
        return f"{snapshot.primary} takes writes in term {snapshot.term}"
    return f"seen: {', '.join(sorted(changes)) or snapshot.primary}"


def _gap(snapshot: Snapshot) -> float:
    """Seconds from the end of the old primary, as far as it was seen, to now."""
    operation = snapshot.operation
    if operation is None or operation.since is None:
        return 0.0
    return round(max(0.0, (snapshot.now - operation.since).total_seconds()), 2)


def demote_others(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A second writable server is made read-only at once; it can get no acknowledgement meanwhile."""
    for other, it in snapshot.replicas:
        if not it.read_only and not other.pod.terminating:
            if it.semi_sync.waiting:
                # Ending its sessions would commit what nobody acknowledged, and read_only waits for them.
                return _remove(
                    other, f"{member.name} leads; {other.name} holds writes that nobody acknowledges"
                )
            return Demote(target=target_of(other), why=f"{member.name} leads; {other.name} took writes too")
    return None


def _remove(other: Member, why: str) -> DeletePod:
    pod = other.pod
    return DeletePod(component=COMPONENT, pod=pod.name, uid=pod.uid, version=pod.version, why=why)


# --- who has what others do not --------------------------------------------------------------------------


def errant(snapshot: Snapshot, it: Server) -> Position:
    """Transactions of a server that the primary does not have.

    Those that the primary itself made are left out: a replica may have one before the primary shows it.
    """
    if snapshot.leader is None:
        return Position()
    _, primary = snapshot.leader
    return (it.executed - primary.executed).without(primary.origin)


def lacks_history(snapshot: Snapshot, it: Server) -> bool:
    """The primary no longer has binary logs of what this server lacks."""
    purged = snapshot.leader[1].purged if snapshot.leader is not None else None
    if purged is None:
        return False
    of_one_history = errant(snapshot, it).is_empty
    return not (it.executed.reaches(purged) if of_one_history else it.executed.contains(purged))


def held(snapshot: Snapshot, member: Member) -> bool:
    """It is left as it is: its data differs, and a person is to decide."""
    return bool(snapshot.recorded(member.name).reseed) and not snapshot.wanted.reclone


def renew(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A server whose data cannot be used is recorded, stopped, and starts with an empty directory beside the old one."""
    if doubt := _doubtful(snapshot, server):
        return Wait("PrimaryDoubtful", doubt, after=2.0, stalled=True)
    for other, it in snapshot.replicas:
        known = snapshot.recorded(other.name)
        if other.pod.terminating or not it.read_only or it.seeding or _needed(snapshot, other, it):
            continue
        if known.reseed:
            if not release.can_renew(snapshot) or release.worn_out(snapshot, other.name):
                continue  # `missing` reports it
            if snapshot.wanted.reclone and known.server_id == it.server_id:
                return _remove(other, f"{known.reseed}; it is seeded again")
            continue
        why = _unusable(snapshot, other, it)
        if why:
            status = records.members(snapshot.status, {other.name: replace(known, reseed=why, synced=False)})
            return Record(status=status, why=f"{other.name}: {why}")
    return None


def unstartable(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A replica whose server ends at every start, on pods like the primary's: its files are damaged, and are made again."""
    for one in snapshot.topology.members:
        known = snapshot.recorded(one.name)
        if one.name == member.name or known.reseed or known.failed_starts < FAILED_STARTS:
            continue
        alike = one.pod.revision == member.pod.revision and snapshot.holds(one)
        if not (alike and snapshot.at_gate(one)) or server.read_only or _alone(snapshot, one):
            continue
        why = f"its server did not start {known.failed_starts} times in a row, and that of {member.name} does"
        status = records.members(snapshot.status, {one.name: replace(known, reseed=why, synced=False)})
        return Record(status=status, why=f"{one.name}: {why}")
    return None


def _alone(snapshot: Snapshot, other: Member) -> bool:
    """No other server that acknowledges is known to have what this one acknowledged."""
    in_force = snapshot.strict and other.name in snapshot.ack_set
    return in_force and not durability.all_caught_up(snapshot, snapshot.ack_set - {other.name})


def _needed(snapshot: Snapshot, other: Member, it: Server) -> bool:
    """It may be the only replica with what it acknowledged: the others of the ack set have yet to catch up.

    They may never return. A replica that cannot apply could not lead anyway, and its directory is kept beside the new one.
    """
    return _alone(snapshot, other) and not (
        _cannot_apply(snapshot, it) and _broken_for(snapshot, other) > LEFT_BROKEN
    )


def _broken_for(snapshot: Snapshot, other: Member) -> float:
    """Seconds for which status has shown a server as broken, or as one that is to be seeded again."""
    shown = next((one for one in snapshot.status.instances or () if one.name == other.name), None)
    if shown is None or shown.since is None or shown.state not in ("Broken", "Diverged"):
        return 0.0
    return snapshot.seconds_since(shown.since)


def _cannot_apply(snapshot: Snapshot, it: Server) -> bool:
    link = it.replication
    return link is not None and not link.sql_running and link.sql_errno in BROKEN and snapshot.follows(it)


def _doubtful(snapshot: Snapshot, server: Server) -> str:
    """Why it may be the primary whose data is wrong, so that no replica gives up its own; "" where nothing says so."""
    member, others = snapshot.primary, snapshot.replicas
    advice = f"no data is set aside before the annotation {SWITCH_TO} names the server that is to lead"
    if snapshot.wanted.switch_to == member or not any(_unusable(snapshot, one, it) for one, it in others):
        return ""
    if snapshot.emptied(server):
        return f"{member} lacks what it had when it began to lead; {advice}"
    chosen = bool(snapshot.status.promotions) and (snapshot.status.promotions or [])[0].cause == "Chosen"
    strays = [
        one.name
        for one, it in others
        if not snapshot.recorded(one.name).reseed and not errant(snapshot, it).is_empty
    ]
    if len(strays) > 1 and len(strays) == len(others) and not chosen:
        return f"every replica ({', '.join(strays)}) has transactions that {member} does not have; {advice}"
    return ""


def _unusable(snapshot: Snapshot, other: Member, it: Server) -> str:
    if not (extra := errant(snapshot, it)).is_empty:
        return f"it has transactions that {snapshot.primary} does not have: {_short(extra.text())}"
    link = it.replication
    if lacks_history(snapshot, it) or (link is not None and link.io_errno in PURGED and snapshot.follows(it)):
        return f"{snapshot.primary} no longer has the binary logs that it needs"
    if link is not None and _cannot_apply(snapshot, it):
        return f"it cannot apply what it received: error {link.sql_errno}"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


# --- following -------------------------------------------------------------------------------------------


def repair(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Every usable replica follows the primary; threads that stopped are started again."""
    astray = [
        (one, it)
        for one, it in snapshot.replicas
        if it.read_only
        and not it.seeding
        and not one.pod.terminating
        and not snapshot.recorded(one.name).reseed
        and _stopped(snapshot, it)
        and not (_needed(snapshot, one, it) and _unusable(snapshot, one, it))
    ]
    if not astray:
        return None
    names = [one.name for one, _ in astray]
    usable = [one for one, it in snapshot.replicas if snapshot.healthy(one, it) or one.name in names]
    wanted = durability.chosen(snapshot, member.name, usable)
    acking = {name for name in names if name in wanted}
    status = records.unsynced(snapshot.status, names)
    status = replace(status, ack_set=sorted({*snapshot.ack_set, *acking}))
    return Follow(
        targets=tuple(target_of(one) for one, _ in astray),
        source=target_of(member),
        source_host=snapshot.host(member.name),
        acking=frozenset(acking),
        refetch=frozenset(one.name for one, it in astray if applier.refetches(snapshot, server, one, it)),
        first=status if status != snapshot.status else None,
        why=_why(snapshot, astray),
    )


def _stopped(snapshot: Snapshot, it: Server) -> bool:
    link = it.replication
    if link is None or not snapshot.follows(it):
        return True
    return not link.sql_running or not (link.io_running or link.connecting)


def _why(snapshot: Snapshot, astray: list[tuple[Member, Server]]) -> str:
    parts = []
    for one, it in astray:
        link = it.replication
        error = (link.io_error or link.sql_error) if link is not None and snapshot.follows(it) else ""
        parts.append(f"{one.name} must follow {snapshot.primary}" + (f" ({error[:120]})" if error else ""))
    return "; ".join(parts)


def behind(snapshot: Snapshot, one: Member) -> str:
    """Why a replica could not lead now; "" where it has every acknowledged write and follows."""
    it, link = one.server, one.server.replication if one.server is not None else None
    if it is not None and snapshot.counts(one) and snapshot.healthy(one, it):
        return ""
    if it is None:
        answer = f"it does not answer ({one.error})" if one.error and one.pod.running else "it is starting"
        answer = "its server has yet to be told to start" if snapshot.at_gate(one) else answer
        why = one.pod.trouble_message or answer
    elif link is not None and (error := link.io_error or link.sql_error):
        why = error
    elif not snapshot.follows(it):
        why = f"it has yet to follow {snapshot.primary}"
    elif not snapshot.healthy(one, it):
        why = (
            "it is connecting"
            if link is not None and link.connecting
            else "a thread of its replication is stopped"
        )
    elif snapshot.strangers and one.name in snapshot.ack_set:
        why = (
            f"{snapshot.strangers} servers beside the pods of this cluster acknowledge the writes of {snapshot.primary}; "
            "stop them: a pod deleted by force may still run on its node"
        )
    else:
        why = f"it has yet to receive what {snapshot.primary} has written"
    return f"{one.name} is not in sync yet: {why}"


def missing(snapshot: Snapshot) -> Wait | None:
    """Replicas that cannot go on, and what a person can do."""
    for one in snapshot.topology.members:
        known = snapshot.recorded(one.name)
        if one.name == snapshot.primary or not snapshot.holds(one):
            continue
        if held(snapshot, one) and (one.server is not None or snapshot.at_gate(one)):
            state = "is held" if one.server is not None else "is held and is not started"
            text = f"{one.name} {state}: {known.reseed}; spec.failover.onDivergence: Reclone seeds it again"
            return Wait("Diverged", text, after=5.0, stalled=True)
        if one.server is None and not snapshot.at_gate(one):
            continue
        if known.reseed and (again := release.worn_out(snapshot, one.name)):
            text = (
                f"{one.name} was seeded {release.SEEDS} times within an hour, and is to be seeded again: {known.reseed}. "
                f"It waits until {again:%H:%M:%S} UTC; look for what writes to it, or for a volume that fails"
            )
            return Wait("SeedingPaused", text, after=5.0, stalled=True)
        if known.reseed and not release.can_renew(snapshot):
            return Wait("HistoryUnknown", f"{one.name} is to be seeded again: {known.reseed}", after=1.0)
        if known.reseed:
            return Wait("Seeding", f"{one.name} is seeded again: {known.reseed}", after=1.0)
    return None
