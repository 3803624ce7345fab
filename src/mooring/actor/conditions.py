"""Standard conditions: Ready, Progressing, Stalled, computed from what an actor concluded.

They follow kstatus: Progressing says that work is under way or waited for, Stalled that somebody has to
step in, Ready that the service does what it was declared to do. ``lastTransitionTime`` moves only when a
status flips, so an object at rest is never written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mooring.actor.outcome import Act, InSync, Outcome, Terminal, Wait
from mooring.cache import rfc3339

__all__ = ["PROGRESSING", "READY", "STALLED", "STANDARD", "ConditionState", "conclude", "leaving", "merged"]

READY = "Ready"
PROGRESSING = "Progressing"
STALLED = "Stalled"
STANDARD = (READY, PROGRESSING, STALLED)


@dataclass(frozen=True, slots=True)
class ConditionState:
    """A condition without its bookkeeping; a ``status`` of ``None`` is Unknown."""

    status: bool | None
    reason: str
    message: str


def conclude(outcome: Outcome, ready: ConditionState | None) -> dict[str, ConditionState]:
    """The standard conditions after an outcome; ``ready`` is the actor's own word on readiness."""
    match outcome:
        case InSync(message=message):
            progress = ConditionState(False, "InSync", message)
            stalled = ConditionState(False, "NotStalled", "nothing is in the way")
            fallback = ConditionState(True, "InSync", message)
        case Act(name=name, message=message):
            progress = ConditionState(True, name, message or f"{name} is under way")
            stalled = ConditionState(False, "NotStalled", "nothing is in the way")
            fallback = ConditionState(False, name, progress.message)
        case Wait(reason=reason, message=message, stalled=stuck):
            progress = ConditionState(not stuck, reason, message)
            stalled = (
                ConditionState(True, reason, message)
                if stuck
                else ConditionState(False, "NotStalled", "nothing is in the way")
            )
            fallback = ConditionState(False, reason, message)
        case Terminal(reason=reason, message=message):
            progress = ConditionState(False, reason, message)
            stalled = ConditionState(True, reason, message)
            fallback = ConditionState(False, reason, message)
    return {READY: ready or fallback, PROGRESSING: progress, STALLED: stalled}


def leaving(states: dict[str, ConditionState]) -> dict[str, ConditionState]:
    """The conditions while an object is being cleaned up: not ready for anybody, and under way."""
    progress = states[PROGRESSING]
    return {
        READY: ConditionState(False, "Deleting", progress.message),
        PROGRESSING: ConditionState(not states[STALLED].status, progress.reason, progress.message),
        STALLED: states[STALLED],
    }


def merged(
    present: Sequence[Mapping[str, Any]],
    states: Mapping[str, ConditionState],
    *,
    generation: int | None,
    now: datetime,
    others: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The condition list to write: ``others`` first, as they are, then the standard ones.

    ``present`` is the list as it stands, for the transition times.
    """
    before = {entry.get("type"): entry for entry in present}
    result = [dict(entry) for entry in others if entry.get("type") not in states]
    for kind, state in states.items():
        status = "Unknown" if state.status is None else str(state.status)
        old = before.get(kind)
        same = old is not None and old.get("status") == status
        entry: dict[str, Any] = {
            "type": kind,
            "status": status,
            "reason": state.reason,
            "message": state.message[:32768],
            "lastTransitionTime": old["lastTransitionTime"]
            if same and old and old.get("lastTransitionTime")
            else rfc3339(now),
        }
        if generation is not None:
            entry["observedGeneration"] = generation
        result.append(entry)
    return result
