"""Changes to what the status records, as values: each function returns the status that is to be written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.types import MySQLClusterStatus, Operation, Promotion, Recorded

__all__ = ["began", "bounded", "ended", "led_by", "members", "unsynced"]

KEPT: Final = 10
"""Promotions that the status keeps."""
LONGEST: Final = 1000
"""Characters of a position that a promotion keeps."""


def members(status: MySQLClusterStatus, changes: Mapping[str, Recorded]) -> MySQLClusterStatus:
    """The status with what is now known of these pods."""
    return replace(status, members={**(status.members or {}), **changes})


def unsynced(status: MySQLClusterStatus, names: Iterable[str] | None = None) -> MySQLClusterStatus:
    """The status in which these pods have yet to catch up again; ``None``: all."""
    known = status.members or {}
    chosen = set(known if names is None else names)
    return members(
        status,
        {name: replace(one, synced=False) for name, one in known.items() if name in chosen and one.synced},
    )


def began(
    snapshot: Snapshot,
    kind: str,
    *,
    subject: str = "",
    old: str = "",
    why: str,
    since: datetime | None = None,
) -> MySQLClusterStatus:
    """The status in which a change of primary is under way."""
    return replace(
        snapshot.status,
        operation=Operation(kind=kind, subject=subject, old=old, since=since or snapshot.now, why=why),
        phase={"FailOver": "FailingOver", "Switch": "SwitchingOver"}.get(kind, "Creating"),
    )


def bounded(position: str) -> str:
    """A position, or as much of a long one as a promotion keeps: a part of it that can still be read."""
    if len(position) <= LONGEST:
        return position
    parts, kept = position.split(","), list[str]()
    for part in parts:
        if sum(map(len, kept)) + len(kept) + len(part) > LONGEST:
            break
        kept.append(part)
    if kept:
        return ",".join(kept)
    # One server's many intervals: the first of them.
    return parts[0][:LONGEST].rpartition(":")[0]


def ended(status: MySQLClusterStatus) -> MySQLClusterStatus:
    """The status in which no change of primary is under way."""
    return replace(status, operation=None)


def led_by(
    snapshot: Snapshot,
    name: str,
    *,
    cause: str,
    position: str,
    ack_set: Collection[str],
    why: str,
    **more: Any,
) -> MySQLClusterStatus:
    """The status in which ``name`` leads a new term: written before it may take writes.

    ``position`` is what it must have; ``ack_set`` are those that will acknowledge. What anyone acknowledged before counts
    through that position alone, so nobody is in sync with the new primary yet.
    """
    status = unsynced(snapshot.status)
    if (known := (status.members or {}).get(name)) is not None:
        status = members(status, {name: replace(known, cut=None, reseed="")})
    before = snapshot.operation
    term = snapshot.term + 1
    old = (before.old if before is not None else "") or snapshot.primary
    promotion = Promotion(
        term=term, pod=name, old=old, at=snapshot.now, cause=cause, position=bounded(position)
    )
    return replace(
        status,
        primary=name,
        term=term,
        ack_set=sorted(ack_set),
        promotions=[promotion, *(status.promotions or ())][:KEPT],
        operation=Operation(
            kind=before.kind if before is not None else "Found",
            subject=name,
            old=old,
            since=before.since if before is not None else snapshot.now,
            why=before.why if before is not None and before.why else why,
            position=position,
        ),
        **more,
    )
