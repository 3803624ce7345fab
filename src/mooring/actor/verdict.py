"""What a planner decides from a snapshot: a move to make, a wait with its reason, or nothing to do."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.actor.outcome import InSync, Wait

__all__ = ["InSync", "Move", "Verdict", "Wait"]


@dataclass(frozen=True, kw_only=True)
class Move:
    """One idempotent effect, and why."""

    why: str = ""
    state: str = ""
    """What it changes, as it was seen: the same move on something that has changed since is no repetition (default: the
    reason alone tells)."""

    @property
    def name(self) -> str:
        """The move as conditions, logs and events name it."""
        return type(self).__name__


Verdict = Move | Wait | InSync
