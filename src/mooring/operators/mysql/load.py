"""The load chooses the number of servers: what is measured, and when a change may begin; see `workload.autoscale`.

Only replicas are measured. A further server takes reads off the others behind the replicas' Service, and nothing off the
primary. Nothing is decided while anything else has to be done: a copy, a roll-out or a failover would be mistaken for load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from mooring.kube.object import Key
from mooring.operators.mysql.moves import Record
from mooring.operators.mysql.snapshot import Scaling, Snapshot
from mooring.operators.mysql.topology import Member, Server, Topology
from mooring.operators.workload.autoscale import (
    CONTESTED,
    AutoscaleStatus,
    Decision,
    Signal,
    contested,
    decide,
    period_of,
    remembered,
    wish_of,
)
from mooring.operators.workload.cpu import CPU
from mooring.operators.workload.rates import Rates

__all__ = ["Reads", "decision", "follow", "look_again", "ownership", "shown"]

LAG: Final = 5.0
"""Seconds that a replica may be behind while servers are removed: those that stay get its share of the reads."""
_OWN: Final = 1
"""Connections to each server that the operator keeps itself."""


class Reads:
    """SELECTs a second of each server, from two passes of this process; forgotten with it, as a metric is."""

    def __init__(self) -> None:
        self._rates = Rates()

    def of(self, key: Key, scaling: Scaling | None, topology: Topology) -> Mapping[str, float] | None:
        """The rates since the last measurement; ``None`` while none is due, or nothing is to be decided."""
        if scaling is None:
            self.forget(key)
            return None
        counters = {one.name: (it.server_id, it.selects) for one, it in topology.answering}
        return self._rates.of(key, counters, period=period_of(scaling.policy))

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        self._rates.forget(key)


def ownership(snapshot: Snapshot, member: Member, server: Server) -> Record | None:
    """Stand still while another one sets the size, and say so; go on once it does not."""
    if snapshot.wanted.scaling is None:
        return None
    before, owner = snapshot.status.autoscale, snapshot.observed.size_owner
    stands = before is not None and before.reason == CONTESTED
    if owner and not stands:
        after = contested(owner, "spec.size")
        return Record(status=replace(snapshot.status, autoscale=after), why=after.message or "")
    if stands and not owner:
        return Record(
            status=replace(snapshot.status, autoscale=None), why="no autoscaler sets spec.size any more"
        )
    return None


def follow(snapshot: Snapshot, member: Member, server: Server) -> Record | None:
    """Record another number of servers, once the load called for it long enough; `changes` carries it out."""
    decided, size = decision(snapshot), snapshot.wanted.size
    if decided is None or decided.replicas == size:
        return None
    after = remembered(snapshot.status.autoscale, decided, size, snapshot.now)
    why = f"{decided.reason}: from {size} to {decided.replicas} servers: {decided.numbers}"
    return Record(status=replace(snapshot.status, autoscale=after), why=why)


def shown(snapshot: Snapshot) -> AutoscaleStatus | None:
    """What status remembers of a cluster in which nothing else is to be done."""
    before, decided = snapshot.status.autoscale, decision(snapshot)
    if decided is None:
        return before
    return remembered(before, decided, snapshot.wanted.size, snapshot.now)


def look_again(snapshot: Snapshot) -> float | None:
    """Seconds until the next measurement; ``None`` where the load decides nothing."""
    return period_of(snapshot.wanted.scaling.policy) if snapshot.wanted.scaling is not None else None


def decision(snapshot: Snapshot) -> Decision | None:
    """What the load calls for now; ``None`` where nothing is decided in this pass."""
    scaling = snapshot.wanted.scaling
    if scaling is None or snapshot.observed.size_owner or snapshot.observed.reads is None:
        return None
    return decide(
        snapshot.wanted.size,
        scaling.policy,
        [_signal(snapshot, name, target) for name, target in scaling.targets.items()],
        wish_of(snapshot.status.autoscale),
        snapshot.now,
        keep=_behind(snapshot),
    )


def _behind(snapshot: Snapshot) -> str:
    """Why no replica may be spared now."""
    for one, it in snapshot.replicas:
        lag = it.replication.lag if it.replication is not None else None
        if lag is None or lag > LAG:
            return f"{one.name} is {'an unknown time' if lag is None else f'{lag:.0f} s'} behind"
    return ""


def _signal(snapshot: Snapshot, name: str, target: float) -> Signal:
    """One average over the replicas; unknown where one of them did not answer."""
    replicas = snapshot.replicas
    rates = snapshot.observed.reads or {}
    values: list[float | None]
    unit, why = "", ""
    if name == "Connections":
        values = [float(_clients(it)) for _, it in replicas]
    elif name == "ConnectionsPercent":
        unit = "%"
        values = [
            100 * _clients(it) / it.max_connections if it.max_connections else None for _, it in replicas
        ]
    elif name == "CPU":
        unit, cpu = "%", snapshot.observed.cpu or CPU()
        values, why = [cpu.percent.get(one.name) for one, _ in replicas], cpu.why
    else:
        unit = "/s"
        values = [rates.get(one.name) for one, _ in replicas]
    known = [one for one in values if one is not None]
    complete = known and len(known) == snapshot.wanted.size - 1
    return Signal(name, sum(known) / len(known) if complete else None, target, unit, why)


def _clients(server: Server) -> int:
    return max(0, server.connections - _OWN)
