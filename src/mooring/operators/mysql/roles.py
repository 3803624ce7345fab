"""Labels by which the Services select, and writes that a person wants held. Pure rules.

The replicas' Service has replicas that follow the primary and are not far behind. The primary's has the primary, ready or not;
its label goes on last, unless the former primary has ended, or is about to.
"""

from __future__ import annotations

from mooring.operators.mysql import applier
from mooring.operators.mysql.moves import Demote, LabelRoles, Verdict, target_of
from mooring.operators.mysql.names import PRIMARY, REPLICA
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server

__all__ = ["hold_writes", "label", "lead", "role_of"]


def lead(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Label a new primary before anything else is done about the others: clients wait for it."""
    if server.read_only or member.pod.role in (None, role_of(snapshot, member)):
        return None
    return label(snapshot, member, server)


def label(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Bring the labels in line with who leads and who may be read from."""
    wrong, ends = {}, True
    for one in snapshot.topology.members:
        role, former = role_of(snapshot, one), one.pod.role == PRIMARY
        if one.pod.role is None or (one.pod.terminating and not former):
            continue
        if (one.pod.role, one.pod.reads) != (role, role == REPLICA):
            wrong[one.name] = role
            ends = ends and (not former or snapshot.ended(one) or one.pod.terminating)
    pods = (one.pod for one in snapshot.topology.members)
    return LabelRoles.of(pods, wrong, leader_first=ends, why=f"{member.name} leads")


def role_of(snapshot: Snapshot, member: Member) -> str:
    """The role that a pod's label is to name; "" keeps it out of both Services."""
    if snapshot.fenced(member.name):
        return ""
    if member.name == snapshot.primary:
        return PRIMARY
    server = member.server
    if server is None:
        # Briefly silent: readiness takes it out of the Services; at its gate it serves nothing.
        silent = member.pod.running and not snapshot.at_gate(member)
        return REPLICA if silent and member.pod.role == REPLICA else ""
    known = snapshot.recorded(member.name)
    if known.reseed or not known.synced or not snapshot.follows(server):
        return ""
    if snapshot.standing_still(member.name) >= applier.STILL:
        return ""
    lag = server.replication.lag if server.replication is not None else None
    limit = snapshot.wanted.max_lag
    if member.pod.role == REPLICA:  # leaves late and comes back late, so that nothing flaps at the limit
        return REPLICA if lag is None or lag <= limit else ""
    return REPLICA if snapshot.healthy(member, server) and lag is not None and lag <= limit / 2 else ""


def hold_writes(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """``maintenance.readOnly``, every pod fenced, or no room left for the primary: no server takes writes."""
    if server.read_only or not snapshot.held or server.stalled:
        return None  # commits that do not end would hold up the statement
    why = f"the volume of {member.name} is full" if snapshot.full else "spec.maintenance asks for no writes"
    return Demote(target=target_of(member), why=why)
