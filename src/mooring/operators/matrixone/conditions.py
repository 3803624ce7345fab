"""Upstream's condition Synced, beside the standard ones: every pod is as declared."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from mooring.actor import Context, InSync, Move, Terminal, Verdict, Wait
from mooring.kube.objects import meta
from mooring.runtime import rfc3339

__all__ = ["as_before", "is_true", "with_condition", "with_synced"]

SYNCED = "Synced"


def with_synced(
    present: Sequence[meta.Condition] | None,
    verdict: Verdict | Terminal,
    *,
    generation: int | None,
    now: datetime,
) -> list[meta.Condition]:
    """The conditions with Synced as the verdict has it."""
    match verdict:
        case InSync(message=message):
            state, reason, text = True, "InSync", message
        case Wait(reason=reason, message=text) | Terminal(reason=reason, message=text):
            state = False
        case Move() as move:
            state, reason, text = False, move.name, move.why or move.name
    return with_condition(present, SYNCED, state, reason, text, generation=generation, now=now)


def with_condition(
    present: Sequence[meta.Condition] | None,
    type: str,
    state: bool,
    reason: str,
    message: str,
    *,
    generation: int | None,
    now: datetime,
) -> list[meta.Condition]:
    """The conditions with one of them set; its transition time moves only when its status does."""
    old = next((one for one in present or () if one.type == type), None)
    status = str(state)
    since = old.last_transition_time if old is not None and old.status == status else None
    made = meta.Condition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=since or rfc3339(now),
    )
    return [made, *(one for one in present or () if one.type != type)]


def is_true(present: Sequence[meta.Condition] | None, type: str) -> bool:
    """A condition is there and True."""
    return any(one.type == type and one.status == "True" for one in present or ())


def as_before(ctx: Context[Any]) -> None:
    """Leave `Ready` as it is reported: what is only looked at serves as well as it did."""
    listed = getattr(getattr(ctx.obj, "status", None), "conditions", None) or ()
    ready = next((one for one in listed if one.type == "Ready"), None)
    if ready is not None:
        ctx.ready(ready.status == "True", ready.reason or "AsBefore", ready.message or "")
