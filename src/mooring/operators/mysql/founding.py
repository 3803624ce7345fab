"""The first primary of a cluster, and of one whose status was lost or that finds the claims of an earlier one. Pure rules.

An empty server never leads while another has data, or may have: a server that does not answer is not taken for empty.
"""

from __future__ import annotations

from dataclasses import replace as seen

from msgspec.structs import replace

from mooring.operators.mysql import durability, gate, records, release
from mooring.operators.mysql.failover import take_over
from mooring.operators.mysql.moves import Verdict, Wait
from mooring.operators.mysql.names import SWITCH_TO
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member
from mooring.operators.mysql.types import MySQLClusterStatus
from mooring.operators.workload.rollout import hopeless

__all__ = ["found"]


def found(snapshot: Snapshot) -> Verdict:
    """The next step towards a first primary."""
    members = [one for one in snapshot.topology.members if one.pod.ordinal < snapshot.wanted.size]
    if not members:
        return Wait("PodsMissing", "no pod exists yet", after=0.5)
    if _may_hold_data(snapshot, members):
        return _by_data(snapshot, members)
    first = next((one for one in members if not hopeless(one.pod, snapshot.now)), members[0])
    if snapshot.status.restore is not None:  # its volume has the restored data
        restored = next((one for one in members if one.pod.ordinal == 0), None)
        if restored is None:
            return Wait("PodsMissing", "the pod with the restored data does not exist yet", after=0.5)
        first = restored
    if not snapshot.at_gate(first):
        trouble = first.pod.trouble_message or "it is starting"
        stalled = hopeless(first.pod, snapshot.now)
        return Wait(
            first.pod.trouble or "PodsStarting", f"{first.name}: {trouble}", after=0.5, stalled=stalled
        )
    restore = snapshot.status.restore
    status = _founded(snapshot, first.name, position=(restore.position if restore else None) or "")
    roles: dict[str, gate.Role] = {one.name: "replica" for one in members if snapshot.at_gate(one)}
    roles[first.name] = "primary"
    snapshot = seen(snapshot, status=status)
    opened = release.open_gates(snapshot, roles, status=status, why=f"{first.name} leads the new cluster")
    return opened or Wait("PodsStarting", f"{first.name} is starting", after=0.5)


def _founded(snapshot: Snapshot, name: str, *, position: str) -> MySQLClusterStatus:
    strength, acks = durability.initial(snapshot)
    return records.led_by(
        snapshot,
        name,
        cause="Founded",
        position=position,
        ack_set=(),
        why="the cluster is new",
        durability=strength,
        acks=acks,
        phase="Creating",
    )


def _may_hold_data(snapshot: Snapshot, members: list[Member]) -> bool:
    """A claim is older than the cluster, a pod is recorded to have had data, or a server answers already."""
    return (
        bool(snapshot.observed.old_claims)
        or any(not one.pod.fresh or one.server is not None for one in members)
        or any(one.joined for one in (snapshot.status.members or {}).values())
    )


def _by_data(snapshot: Snapshot, members: list[Member]) -> Verdict:
    """Every server starts, keeping all it has, and the one with everything leads."""
    waiting = [one for one in members if snapshot.at_gate(one) and not one.pod.terminating]
    if waiting:
        names = ", ".join(one.name for one in waiting)
        roles: dict[str, gate.Role] = {one.name: "primary" for one in waiting}
        opened = release.open_gates(snapshot, roles, why=f"{names} may hold data; they are read first")
        if opened is not None:
            return opened
    silent = [one for one in members if one.server is None]
    missing = snapshot.wanted.size - len(members)
    chosen = snapshot.topology.member(snapshot.wanted.switch_to)
    named = chosen is not None and chosen.server is not None
    if (silent or missing) and not named:
        who = ", ".join(one.name for one in silent) or f"{missing} pods"
        text = (
            f"{who} may hold data and does not answer yet; to go on without it, name the server that is to lead in the "
            f"annotation {SWITCH_TO}"
        )
        stalled = any(hopeless(one.pod, snapshot.now) for one in silent)
        return Wait("DataUnknown", text, after=0.5, stalled=stalled)
    answering = [(one, it) for one, it in snapshot.topology.answering if one in members]
    fit = [
        (one, it)
        for one, it in answering
        if all(it.received.contains(other.received) for _, other in answering)
    ]
    if named:
        fit = [(one, it) for one, it in answering if one is chosen]
    if not fit:
        names = ", ".join(one.name for one, _ in answering)
        text = (
            f"{names} have different transactions, none has all; name the server that is to lead in the annotation "
            f"{SWITCH_TO}: what the others have beyond it is set aside"
        )
        return Wait("Diverged", text, after=2.0, stalled=True)
    best = min(fit, key=lambda one: (one[1].read_only, one[0].pod.ordinal))
    strength, acks = durability.initial(snapshot)
    status = replace(snapshot.status, durability=strength, acks=acks)
    return take_over(
        seen(snapshot, status=status), best, position=best[1].received, cause="Chosen" if named else "Founded"
    )
