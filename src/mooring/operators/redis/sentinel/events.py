"""The events of a pass: UCloud's newest condition, a change of master or password, a repair; pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from mooring.actor import Note, Terminal, Wait
from mooring.operators.redis.passwords.moves import (
    PasswordMove,
    PublishPassword,
    StagePassword,
    SwitchPassword,
)
from mooring.operators.redis.sentinel.failover import ALL_DATA
from mooring.operators.redis.sentinel.inputs import Inputs
from mooring.operators.redis.sentinel.legacy import failed, headed
from mooring.operators.redis.sentinel.moves import (
    DatabaseMove,
    Record,
    Verdict,
)
from mooring.operators.redis.sentinel.types import LegacyCondition, RedisClusterStatus

__all__ = ["loses_all", "notes_of", "refusal"]


def notes_of(inputs: Inputs, verdict: Verdict, head: LegacyCondition | None) -> list[Note]:
    """What to announce; ``head`` is UCloud's newest condition where it is new."""
    notes = [_head_note(head)] if head is not None else []
    if isinstance(verdict, Record) and verdict.last_failover is not None:
        if loses_all(verdict):
            text = f"{verdict.why}; lost: {verdict.last_failover.loss_bound}"
            notes.append(Note(reason="DataLost", message=text, warning=True))
        else:
            notes.append(Note(reason="Failover", message=verdict.why))
    if isinstance(verdict, Record) and verdict.tls is not None and inputs.status.tls != verdict.tls:
        before = inputs.status.tls.phase if inputs.status.tls is not None else ""
        if verdict.tls.phase or before:
            done = f"{verdict.tls.phase}: " if verdict.tls.phase else ""
            notes.append(Note(reason="TlsChanging", message=f"{done}{verdict.why}"))
    if isinstance(verdict, PublishPassword | SwitchPassword):
        notes.append(Note(reason="PasswordChanged", message=verdict.why))
    ran = any(one.type == "Healthy" for one in inputs.status.conditions or ())
    written = isinstance(verdict, StagePassword | PublishPassword)
    if ran and isinstance(verdict, DatabaseMove | PasswordMove) and not written:
        notes.append(Note(reason="CheckAndHeal", message=f"{verdict.name}: {verdict.why}"))
    return notes


def refusal(
    status: RedisClusterStatus, why: Wait | Terminal, *, now: datetime
) -> tuple[RedisClusterStatus, Note | None]:
    """The status of a cluster that cannot be as declared, and the event where that is new."""
    before = status.conditions or []
    conditions = headed(before, failed(why), now=now)
    note = _head_note(conditions[0]) if conditions != list(before) else None
    return replace(status, conditions=conditions), note


def _head_note(head: LegacyCondition) -> Note:
    """The event that announces one of UCloud's conditions, by UCloud's reason."""
    reason, message = head.type or "", head.message or ""
    if reason == "Failed":
        return Note(reason=reason, message=message, warning=True)
    reason = "ScalingDown" if head.reason == "Scaling down" else reason
    return Note(reason="Updating" if reason == "Upgrading" else reason, message=message)


def loses_all(move: Record) -> bool:
    """Whether every server came back empty."""
    return move.last_failover is not None and move.last_failover.loss_bound == ALL_DATA
