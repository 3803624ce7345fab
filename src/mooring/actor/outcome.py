"""What an actor concludes from one look: values, not exceptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Act", "InSync", "Outcome", "Terminal", "Wait"]


@dataclass(frozen=True, slots=True)
class InSync:
    """All is as declared. ``again`` looks once more after so many seconds, for what no watch can tell."""

    message: str = "everything is as declared"
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """One idempotent step to take now; the object is observed again right after it.

    With ``record`` the status is written before the step runs: for steps that cannot be undone or
    derived again, whose intent must survive a crash. A step whose ``run`` returns ``False`` failed, or
    only a part of the way.
    One that does, and is asked for again and again with the same name and message, is held back: see
    `mooring.actor.repeats`. ``state`` tells steps of one name and message apart that change something each time.
    """

    name: str
    run: Callable[[], Awaitable[object]]
    message: str = ""
    record: bool = False
    state: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something outside changes; observed again after ``after`` seconds at the latest.

    ``stalled`` means that waiting alone does not help: a person has to do what ``message`` says.
    """

    reason: str
    message: str
    after: float = 1.0
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class Terminal:
    """The declaration itself is wrong; nothing happens until it is edited."""

    reason: str
    message: str


Outcome = InSync | Act | Wait | Terminal
