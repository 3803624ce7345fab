"""The events of a pass: a change of primary, durability given up, data set aside, a repair; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.actor import Note
from mooring.operators.mysql.moves import (
    DatabaseMove,
    DeletePod,
    Demote,
    Open,
    Record,
    Tune,
    Unask,
    Verdict,
)
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.types import MySQLClusterStatus
from mooring.operators.workload.autoscale import CONTESTED

__all__ = ["notes_of"]


def notes_of(snapshot: Snapshot, verdict: Verdict) -> Sequence[Note]:
    """What to announce, each once: only of what is written to the status in this pass, or of what a person did."""
    if isinstance(verdict, Unask):
        refused = "refused" in verdict.why
        return [
            Note(reason="SwitchRefused" if refused else "SwitchDone", message=verdict.why, warning=refused)
        ]
    if isinstance(verdict, DeletePod):
        return [Note(reason="PodReplaced", message=f"{verdict.pod}: {verdict.why}")]
    if isinstance(verdict, Demote) and snapshot.full and verdict.target.name == snapshot.primary:
        return [Note(reason="VolumeFull", message=f"{verdict.why}; writes are held", warning=True)]
    if isinstance(verdict, Tune):
        reason = {"Try": "TuningTrial", "Revert": "TuningReverted"}.get(verdict.effect, "TuningGivenBack")
        return [Note(reason=reason, message=verdict.why)]
    if isinstance(verdict, Record):
        return list(_changes(snapshot, verdict.status, verdict.why))
    if isinstance(verdict, DatabaseMove | Open) and verdict.first is not None:
        return list(_changes(snapshot, verdict.first, verdict.why))
    return []


def _changes(snapshot: Snapshot, after: MySQLClusterStatus, why: str) -> Sequence[Note]:
    before = snapshot.status
    notes = []
    operation = after.operation
    if (after.term or 0) != snapshot.term and after.promotions:
        cause = after.promotions[0].cause
        text = f"{after.primary} leads term {after.term}" + (
            f", after {snapshot.primary}" if snapshot.primary else ""
        )
        if operation is not None and operation.why:
            text += f": {operation.why}"
        reason = {"Founded": "Founded", "Planned": "Switchover"}.get(cause, "Failover")
        reason = reason if snapshot.primary else "Founded"
        notes.append(Note(reason=reason, message=text, warning=reason == "Failover"))
    if before.durability == "Strict" and after.durability == "Async":
        notes.append(Note(reason="DurabilityWeakened", message=why, warning=True))
    if before.durability == "Async" and after.durability == "Strict":
        notes.append(Note(reason="DurabilityRestored", message=why))
    if after.autoscale is not None and after.autoscale != before.autoscale:
        stands = after.autoscale.reason == CONTESTED
        notes.append(Note(reason=CONTESTED if stands else "Autoscaled", message=why, warning=stands))
    for name, one in (after.members or {}).items():
        if one.reseed and not snapshot.recorded(name).reseed:
            notes.append(Note(reason="Diverged", message=f"{name}: {one.reseed}", warning=True))
    kept = (after.tuning.applied if after.tuning is not None else None) or {}
    known = (before.tuning.applied if before.tuning is not None else None) or {}
    if kept != known and kept.keys() >= known.keys():
        notes.append(Note(reason="TuningKept", message=why))
    switched = before.operation is not None and before.operation.kind == "Switch" and operation is None
    if switched and (after.term or 0) == snapshot.term and "given up" in why:
        notes.append(Note(reason="SwitchGivenUp", message=why, warning=True))
    return notes
