"""Slots move at rest where one master holds far more data than the others: ``spec.balance: Size``. Pure rules.

What a slot holds is measured by samples (see `sizes`), so small differences mean nothing: a move begins beyond a share of
the mean and a number of bytes, and ends well below it. Measured again, the masters are then too alike for another one.
"""

from __future__ import annotations

from typing import Final

from mooring.operators.redis.cluster.moves import Record
from mooring.operators.redis.cluster.scale import record_plan
from mooring.operators.redis.cluster.slots import after, level_sizes, size_of
from mooring.operators.redis.cluster.snapshot import Snapshot

__all__ = ["BEYOND", "LEAST", "rebalance"]

BEYOND: Final = 0.2
"""Share of the mean by which the fullest master must exceed it."""
LEAST: Final = 8 << 20
"""Bytes by which it must exceed it at least: small clusters are left alone."""
GAIN: Final = 0.5
"""Share of what the fullest has too much that a plan must take off it; a single large slot cannot be divided."""


def rebalance(snapshot: Snapshot) -> Record | None:
    """Plan to move slots off the fullest master, once it holds far more than the others."""
    if not snapshot.wanted.by_size or not snapshot.sizes or snapshot.unsettled():
        return None
    owned, sizes = snapshot.seen.owners, snapshot.sizes
    have = {id: size_of(slots, sizes) for id, slots in owned.items()}
    mean = sum(have.values()) / len(have)
    fullest = max(have, key=lambda id: have[id])
    over = have[fullest] - mean
    if over < LEAST or over < BEYOND * mean:
        return None
    transfers = level_sizes(owned, sizes)
    then = max(size_of(slots, sizes) for slots in after(owned, transfers).values())
    if have[fullest] - then < GAIN * over:
        return None
    name = snapshot.seen.by_id[fullest].name
    because = (
        f" by size: {name} holds about {_mib(have[fullest])}, the mean is {_mib(mean)}, "
        f"and none will hold more than {_mib(then)}"
    )
    return record_plan(snapshot, "Rebalance", transfers, because=because)


def _mib(number: float) -> str:
    return f"{number / (1 << 20):.1f} MiB"
