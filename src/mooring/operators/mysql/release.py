"""Opening gates: which pod may start its server, as what, and under which server_id. Pure rules.

The id of every start is recorded before it is given, so that no two starts ever bear the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from mooring.operators.mysql import applier, gate, records
from mooring.operators.mysql.flavors import version_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import Open, Verdict, Wait
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Flavor, Member, Server
from mooring.operators.mysql.types import MySQLClusterStatus, Recorded
from mooring.operators.mysql.versions import is_older

__all__ = ["SEEDS", "can_renew", "open_gates", "replicas", "worn_out"]

SEEDS: Final = 3
"""How often within `SEEDS_WITHIN` the data of one server is set aside and made again without its having led."""
SEEDS_WITHIN: Final = 3600.0
REPLAYED: Final = 2000
"""So many transactions a new replica applies one by one from the start, in about the time that a copy takes."""

COPIES_ANYWAY: Final[frozenset[Flavor]] = frozenset({"mariadb"})
"""Lists no binary logs while commits wait for an acknowledgement, but can be copied then: a dump leaves waiting rows out."""


def open_gates(
    snapshot: Snapshot,
    roles: Mapping[str, gate.Role],
    *,
    why: str,
    status: MySQLClusterStatus | None = None,
) -> Verdict | None:
    """Open the gates of these pods; ``status`` is recorded with their ids, ``None`` stands for the present one."""
    status = status if status is not None else snapshot.status
    last, changes, orders, uids = status.last_server_id or 0, dict[str, Recorded](), dict[str, str](), {}
    for name, role in roles.items():
        member = snapshot.topology.member(name)
        if member is None or not snapshot.at_gate(member) or snapshot.unidentified(member):
            continue
        if refused := too_old(snapshot, member):
            return refused
        known = _known(status, member)
        fresh = bool(known.reseed) and role == "replica"
        if fresh and not snapshot.wanted.reclone:
            continue  # a person is to look at the data as it is
        if fresh and snapshot.leader is None:
            fresh = False  # its data may be all there is; it starts with it, read-only
        elif fresh and (not can_renew(snapshot) or worn_out(snapshot, name)):
            continue
        if fresh:
            seeded = [*_seeds(snapshot, name), snapshot.now]
            known = replace(known, reseed="", joined=False, cut=None, seeded=seeded, failed_starts=0)
        if known.start != member.pod.incarnation or not known.server_id:
            last = gate.next_server_id(last, snapshot.now.timestamp())
            failed = known.failed_starts + 1 if known.server_id and known.joined else 0
            known = replace(
                applier.freed(known, snapshot.now),
                start=member.pod.incarnation,
                server_id=last,
                synced=False,
                failed_starts=failed,
            )
        if known != (status.members or {}).get(name):
            changes[name] = known
        seed = _donor(snapshot, name) if role == "replica" and not known.joined else ""
        cut = known.cut if role == "replica" else None
        orders[name] = gate.order_line(member.start, role, known.server_id, cut, fresh=fresh, seed=seed)
        uids[name] = member.pod.uid
    if not orders:
        return None
    if changes:
        status = replace(records.members(status, changes), last_server_id=last)
    first = status if status != snapshot.status else None
    return Open(orders=orders, uids=uids, first=first, why=why)


def can_renew(snapshot: Snapshot) -> bool:
    """A server that gives up its data gets it again: the primary takes writes, and its history or a copy can be had."""
    leader = snapshot.leader
    if leader is None or leader[1].read_only:
        return False
    return leader[1].purged is not None or _copies_anyway(snapshot, leader[1])


def worn_out(snapshot: Snapshot, name: str) -> datetime | None:
    """When the data of a server may be made again; ``None``: now. What comes back each time is not its data's fault."""
    seeds = _seeds(snapshot, name)
    return seeds[-SEEDS] + timedelta(seconds=SEEDS_WITHIN) if len(seeds) >= SEEDS else None


def _seeds(snapshot: Snapshot, name: str) -> list[datetime]:
    """When its data was made again within `SEEDS_WITHIN`, and since it led last: what it led with was good."""
    led = [one.at for one in snapshot.status.promotions or () if one.old == name and one.at is not None]
    return [
        one
        for one in snapshot.recorded(name).seeded or ()
        if snapshot.seconds_since(one) < SEEDS_WITHIN and all(one > ended for ended in led)
    ]


def _copies_anyway(snapshot: Snapshot, primary: Server) -> bool:
    return primary.semi_sync.waiting > 0 and snapshot.wanted.flavor in COPIES_ANYWAY


def _donor(snapshot: Snapshot, name: str) -> str:
    """The host whose data a new replica begins with; "" where a short history is surely there from its start.

    A replica that has everything, so that the primary has no more work than it must.
    """
    leader = snapshot.leader
    if leader is None:
        return ""
    primary = leader[1]
    if primary.purged is None and not _copies_anyway(snapshot, primary):
        return ""
    whole = primary.purged is not None and primary.purged.is_empty
    if whole and primary.executed.ahead_of(Position()) <= REPLAYED:
        return ""
    healthy = [
        one
        for one, it in snapshot.replicas
        if one.name != name and snapshot.healthy(one, it) and snapshot.caught_up(one)
    ]
    return snapshot.host((healthy[-1] if healthy else leader[0]).name)


def _known(status: MySQLClusterStatus, member: Member) -> Recorded:
    """What is known of the data that this start will find."""
    known = (status.members or {}).get(member.name) or Recorded()
    return known if known.volume == member.pod.volume else Recorded(volume=member.pod.volume)


def replicas(snapshot: Snapshot) -> Verdict | None:
    """Under a primary every other pod at its gate starts as a replica, read-only, whatever it was before."""
    waiting = [
        one
        for one in snapshot.topology.members
        if one.name != snapshot.primary and snapshot.at_gate(one) and not one.pod.terminating
    ]
    if not waiting:
        return None
    names = ", ".join(one.name for one in waiting)
    roles: dict[str, gate.Role] = {one.name: "replica" for one in waiting}
    return open_gates(snapshot, roles, why=f"{names} start as replicas of {snapshot.primary}")


def too_old(snapshot: Snapshot, member: Member) -> Wait | None:
    """No server starts on data that a newer version has written."""
    image, highest = snapshot.observed.set.image, snapshot.recorded(member.name).version
    newest = member.pod.revision == snapshot.observed.set.update_revision
    if not newest or not snapshot.holds(member) or not is_older(version_of(image), highest):
        return None
    return Wait(
        "VersionRefused",
        f"{member.name}: its data was written by {highest}, which {image} cannot be trusted to read; give {highest} or "
        "a later version in spec.image",
        after=5.0,
        stalled=True,
    )
