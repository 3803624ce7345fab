"""The load of the masters chooses their number: when a change may begin, and how far; see `workload.autoscale`. Pure rules.

Nodes are declared and shown, as ``replicas`` is; masters are decided on, and each brings its replica. Nothing is decided
while anything else has to be done: slots that move, a roll-out or a failover would be mistaken for load.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from msgspec import structs

from mooring.operators.redis.cluster.moves import Record
from mooring.operators.redis.cluster.slots import count, drain
from mooring.operators.redis.cluster.snapshot import Scaling, Snapshot
from mooring.operators.redis.cluster.topology import Live
from mooring.operators.redis.cluster.types import masters_of
from mooring.operators.workload.autoscale import (
    CONTESTED,
    AutoscaleStatus,
    Decision,
    Policy,
    Signal,
    Wish,
    contested,
    decide,
    period_of,
    remembered,
    wish_of,
)

__all__ = ["MARGIN", "decision", "follow", "least_that_holds", "look_again", "ownership", "shown"]

MARGIN: Final = 0.8
"""Share of its memory that a master may use at most once others are gone."""
HELD: Final = "ScaleInHeld"
"""Reason while fewer masters are called for and could not hold the data."""
_FULL: Final = "AtMaximum"


def ownership(snapshot: Snapshot) -> Record | None:
    """Stand still while another one sets the number of nodes, and say so; go on once it does not."""
    if snapshot.wanted.scaling is None:
        return None
    before, owner = snapshot.recorded.autoscale, snapshot.size_owner
    stands = before is not None and before.reason == CONTESTED
    if owner and not stands:
        after = contested(owner, "spec.replicas")
        return Record(autoscale=after, why=after.message or "")
    if stands and not owner:
        return Record(drop_autoscale=True, why="no autoscaler sets spec.replicas any more")
    return None


def follow(snapshot: Snapshot) -> Record | None:
    """Record another number of nodes, once the load called for it long enough; `scale` carries it out."""
    decided, masters = decision(snapshot), snapshot.masters
    if decided is None or decided.replicas == masters:
        return None
    now, then = snapshot.wanted.nodes, _nodes(snapshot, decided.replicas)
    why = (
        f"{decided.reason}: from {now} to {then} nodes ({masters} to {decided.replicas} masters): "
        f"{decided.numbers}"
    )
    return Record(autoscale=structs.replace(_remembered(snapshot, decided), message=why), why=why)


def shown(snapshot: Snapshot) -> AutoscaleStatus | None:
    """What status remembers of a cluster in which nothing else is to be done; without numbers that change at rest."""
    before, decided = snapshot.recorded.autoscale, decision(snapshot)
    if decided is None:
        return before
    after = _remembered(snapshot, decided)
    if decided.reason in (HELD, _FULL):
        return structs.replace(after, reason=decided.reason, message=_in_the_way(snapshot, decided))
    held = before is None or before.reason in (HELD, _FULL, CONTESTED)
    return structs.replace(after, message=None if held or before is None else before.message)


def look_again(snapshot: Snapshot) -> float:
    """Seconds until the next measurement; infinite where the load decides nothing."""
    return period_of(snapshot.wanted.scaling.policy) if snapshot.wanted.scaling is not None else math.inf


def decision(snapshot: Snapshot) -> Decision | None:
    """How many masters the load calls for now; ``None`` where nothing is decided in this pass."""
    scaling = snapshot.wanted.scaling
    silent = any(snapshot.missed.values())
    if scaling is None or snapshot.size_owner or snapshot.rates is None or silent:
        return None
    declared, least = _in_masters(scaling.policy), least_that_holds(snapshot, scaling)
    policy = replace(declared, minimum=min(max(declared.minimum, least), declared.maximum))
    before = snapshot.recorded.autoscale
    last = before.last_scale_time if before is not None else None
    if last is not None and (snapshot.now - last).total_seconds() < scaling.cooldown_s:
        policy = replace(policy, up_after_s=math.inf, down_after_s=math.inf)
    signals = [_signal(snapshot, scaling, name, target) for name, target in scaling.targets.items()]
    wish = wish_of(before)
    asked = Wish(masters_of(wish.desired), wish.since, wish.reason) if wish is not None else None
    decided = decide(snapshot.masters, policy, signals, asked, snapshot.now)
    held = decided.reason == "AtMinimum" and policy.minimum > declared.minimum
    return replace(decided, reason=HELD) if held else decided


def least_that_holds(snapshot: Snapshot, scaling: Scaling) -> int:
    """The fewest masters, the present number at most, that hold the data with a margin.

    What goes is shared out as `scale` does, each slot with its part of its master's memory. Memory that nobody knows the
    limit of may be too small: then all of them stay.
    """
    for number in range(2, snapshot.masters):
        if _holds(snapshot, scaling, number):
            return number
    return snapshot.masters


def _holds(snapshot: Snapshot, scaling: Scaling, number: int) -> bool:
    leaving = sorted(snapshot.owners, key=lambda one: -one.node.pod.ordinal)[:-number]
    used = {one.id: _used(one, scaling) for one in snapshot.owners}
    after: dict[str, float] = {}
    for id, measured in used.items():
        if measured is None:
            return False
        after[id] = measured[0]
    for part in drain(snapshot.seen.owners, [one.id for one in leaving]):
        share = count(part.slots) / count(snapshot.seen.owners[part.source])
        after[part.target] += (used[part.source] or (0, 0))[0] * share
    gone = {one.id for one in leaving}
    return all(
        after[id] <= MARGIN * measured[1] for id, measured in used.items() if id not in gone and measured
    )


def _used(one: Live, scaling: Scaling) -> tuple[int, int] | None:
    """Bytes in use and the limit of them; ``None`` where one of them is not known."""
    load = one.server.load
    limits = [limit for limit in (load.limit if load is not None else 0, scaling.limit) if limit]
    return (load.memory, min(limits)) if load is not None and limits else None


def _signal(snapshot: Snapshot, scaling: Scaling, name: str, target: float) -> Signal:
    """One average over the masters; unknown where one of them did not tell."""
    values: list[float | None]
    if name == "MemoryPercent":
        unit = "%"
        used = [_used(one, scaling) for one in snapshot.owners]
        values = [100 * one[0] / one[1] if one is not None else None for one in used]
    else:
        unit = "/s"
        values = [(snapshot.rates or {}).get(one.name) for one in snapshot.owners]
    known = [one for one in values if one is not None]
    complete = known and len(known) == snapshot.masters
    return Signal(name, sum(known) / len(known) if complete else None, target, unit)


def _in_masters(policy: Policy) -> Policy:
    """The declared policy, which counts nodes."""

    def half(step: int | None) -> int | None:
        return None if step is None else max(1, masters_of(step))

    return replace(
        policy,
        minimum=masters_of(policy.minimum),
        maximum=masters_of(policy.maximum),
        max_step_up=half(policy.max_step_up),
        max_step_down=half(policy.max_step_down),
    )


def _nodes(snapshot: Snapshot, masters: int) -> int:
    """Nodes with so many masters: each has its replica, and a further replica that is declared stays."""
    return 2 * masters + snapshot.wanted.nodes % 2


def _remembered(snapshot: Snapshot, decided: Decision) -> AutoscaleStatus:
    """What status remembers of a decision, in nodes."""
    wish = decided.wish
    if wish is not None:
        wish = Wish(_nodes(snapshot, wish.desired), wish.since, wish.reason)
    in_nodes = replace(decided, replicas=_nodes(snapshot, decided.replicas), wish=wish)
    return remembered(snapshot.recorded.autoscale, in_nodes, snapshot.wanted.nodes, snapshot.now)


def _in_the_way(snapshot: Snapshot, decided: Decision) -> str:
    scaling = snapshot.wanted.scaling
    if scaling is None or decided.reason == _FULL:
        most = scaling.policy.maximum if scaling is not None else 0
        return f"the load calls for more than {most} nodes; raise spec.autoscale.maxReplicas"
    if any(_used(one, scaling) is None for one in snapshot.owners):
        return (
            "no node is removed, as no limit of their memory is known; set MAXMEMORY in spec.pod[0].env, or a memory "
            "limit in spec.pod[0].resources"
        )
    return f"no node is removed: the masters that stay would use more than {MARGIN:.0%} of their memory"
