"""A cluster in the making: its nodes meet, get their first slots, and their replicas. Pure rules."""

from __future__ import annotations

from mooring.operators.redis.cluster.members import attach_spare, mesh
from mooring.operators.redis.cluster.moves import Claim, Record, Target, Verdict, Wait
from mooring.operators.redis.cluster.placement import choose_masters
from mooring.operators.redis.cluster.slots import ALL, count, shares, show
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.cluster.stuck import pods_starting

__all__ = ["answering", "foreign_data", "found"]


def found(snapshot: Snapshot) -> Verdict | None:
    """Make a cluster of nodes that are none yet, from wherever an earlier attempt got to."""
    seen = snapshot.seen
    if not snapshot.complete and seen.assigned != ALL:
        return pods_starting(snapshot, answering=answering(snapshot))
    # Strangers are left out: they wait for a person, and no other node waits for them.
    if verdict := mesh(snapshot):
        return verdict
    if seen.foreign:
        return foreign_data(snapshot)
    if seen.assigned != ALL:
        return _claim(snapshot)
    if verdict := attach_spare(snapshot):
        return verdict
    if not snapshot.complete:
        return pods_starting(snapshot, answering=answering(snapshot))
    if verdict := snapshot.agreeing(serving=False):
        return verdict
    return Record(formed=True, why="all slots have an owner, and every node agrees")


def _claim(snapshot: Snapshot) -> Verdict:
    seen = snapshot.seen
    candidates = [snapshot.place(one) for one in seen.live if one.is_master and snapshot.stays(one.node)]
    fixed = [one.name for one in snapshot.owners]
    names = choose_masters(candidates, number=max(snapshot.masters, len(fixed)), fixed=fixed)
    takers = [one for one in seen.live if one.name in names and not one.slots]
    parts = [part for each in shares(snapshot.masters) if (part := each & ~seen.assigned)]
    if not takers:
        takers = [min(snapshot.owners, key=lambda one: count(one.slots))] * len(parts)
    given: dict[Target, int] = {}
    for at, part in enumerate(parts):
        taker = target_of(takers[min(at, len(takers) - 1)])
        given[taker] = given.get(taker, 0) | part
    shown = "; ".join(f"{one.name} {show(part)}" for one, part in given.items())
    return Claim(parts=tuple(given.items()), why=f"first slots: {shown}")


def answering(snapshot: Snapshot) -> int:
    return sum(1 for one in snapshot.seen.live if snapshot.stays(one.node))


def foreign_data(snapshot: Snapshot) -> Wait:
    names = ", ".join(f"{one.name} ({one.server.keys} keys)" for one in snapshot.seen.foreign)
    return Wait(
        reason="ForeignData",
        message=f"{names} has data and belongs to no cluster; empty it by FLUSHALL if the data may go. Files that were put "
        "onto its volume to be restored: keep a copy, FLUSHALL, and once the cluster runs start a redis-server on the copy "
        "and bring its keys in by redis-cli --cluster import",
        after=10.0,
        stalled=True,
    )
