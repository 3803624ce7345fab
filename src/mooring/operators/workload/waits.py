"""What ends a wait, for its message: readers need not know the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.actor.verdict import Move, Verdict, Wait

__all__ = ["while_paused", "with_ending"]


def with_ending(verdict: Verdict, endings: Mapping[str, str]) -> Verdict:
    """A wait whose message goes on with what ends it, by its reason; other verdicts as they are."""
    ending = endings.get(verdict.reason) if isinstance(verdict, Wait) else None
    if ending is None or not isinstance(verdict, Wait):
        return verdict
    return replace(verdict, message=f"{verdict.message}; {ending}")


def while_paused(verdict: Verdict, annotation: str) -> Wait:
    """The verdict of a paused cluster: nothing is done, and the message says what would be."""
    rest = ""
    if isinstance(verdict, Wait):
        rest = f"; it would wait for {verdict.reason}"
    elif isinstance(verdict, Move):
        rest = f"; it would do {verdict.name}"
    message = f"the annotation {annotation} holds the operator back{rest}; remove it to go on"
    return Wait(reason="Paused", message=message, after=5.0)
