"""When a new Redis Cluster that begins with a backup gets its keys. Pure rules.

The cluster is founded first, as any other. Then a Job sends it every key; until that has succeeded nothing but healing goes
on, and the cluster has no Services (see `specs`), so that clients do not find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mooring.actor import Move, Verdict, Wait
from mooring.operators.backup import restore_rules
from mooring.operators.backup.restore_rules import Restore, Settle, begun
from mooring.operators.redis.cluster.slots import ALL
from mooring.operators.redis.cluster.types import RedisClusterStatus

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.snapshot import Snapshot

__all__ = ["next_restore", "recorded"]


def next_restore(snapshot: Snapshot) -> Verdict | None:
    """The next step of a restore; ``None`` where there is none, or other rules come first. Pure.

    A try begins only while every slot has an owner and all nodes agree, the first one only in a cluster without keys: on
    data that an earlier cluster left nothing is ever restored.
    """
    seen = snapshot.restore
    if seen is None:
        return None
    verdict = restore_rules.decide(seen)
    if not isinstance(verdict, Restore):
        return verdict
    if snapshot.restore_held is not None:
        return snapshot.restore_held
    if snapshot.seen.covered != ALL or snapshot.unsettled():
        return None
    full = [one.name for one in snapshot.seen.live if one.server.keys]
    if full and not seen.status.tries:
        text = (
            f"{', '.join(full)} has keys already, and a restore never runs on data; delete the cluster and its volumes, or "
            "choose another name"
        )
        return Wait("DataInTheWay", text, after=30.0, stalled=True)
    return verdict


def recorded(status: RedisClusterStatus, snapshot: Snapshot, move: Move, *, job: str) -> RedisClusterStatus:
    """The status with what a step of the restore records; ``job`` is the name of the Job that it makes."""
    if isinstance(move, Settle):
        return replace(status, restore=move.status)
    if isinstance(move, Restore) and snapshot.restore is not None:
        known = begun(snapshot.restore.status, attempt=move.attempt, job=job, now=snapshot.now)
        return replace(status, restore=known)
    return status
