"""What the planners of both operators can decide: a move to make, a wait with its reason, or nothing to do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InSync", "Move", "Verdict", "Wait"]


@dataclass(frozen=True, kw_only=True)
class Move:
    """One idempotent effect, and why."""

    why: str = ""

    @property
    def name(self) -> str:
        """The move as conditions, logs and events name it."""
        return type(self).__name__


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing may be done now; ``after`` seconds it is looked at again."""

    reason: str
    message: str
    after: float = 1.0
    stalled: bool = False
    """It will not go on without a person; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class InSync:
    """Everything is as declared."""


Verdict = Move | Wait | InSync
