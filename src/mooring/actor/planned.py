"""The planned actor: inputs -> snapshot -> plan -> report -> step, with every rule in the plan.

One pass resolves the declaration (`Planned.inputs`), applies the child objects (`Planned.children`), reads the
database (`Planned.snapshot`), decides (`Planned.plan`), reports (`Planned.report`) and carries out one move
(`Planned.step`). Only `step` has effects; `plan` and `report` are pure functions of what the pass has read, so that
another process reaches the same decision from the same facts. Nothing that a status shows is kept in memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from mooring.actor.actor import Actor
from mooring.actor.conditions import ConditionState
from mooring.actor.context import Context
from mooring.actor.outcome import Act, InSync, Outcome, Terminal, Wait
from mooring.actor.verdict import Move, Verdict
from mooring.kube.object import Object
from mooring.kube.part import Part

__all__ = ["AFTER_FAILURE", "Note", "Planned", "Report", "StepFailed"]

T = TypeVar("T", bound=Object)
I = TypeVar("I")  # noqa: E741 - the inputs
S = TypeVar("S")

AFTER_FAILURE: Final = 0.2
"""Seconds until the pass after a step that failed."""


class StepFailed(Exception):
    """A step did not succeed; the next pass decides again, after so many seconds. The message may be shown to users."""

    def __init__(self, message: str, *, after: float = AFTER_FAILURE) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True, kw_only=True)
class Note:
    """One Event to record."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one pass shows.

    ``instead`` replaces a verdict that is no move: the declaration is blocked or cannot be met, although the service
    works. ``record`` writes the status before the move is carried out: for moves that cannot be undone or derived
    again, and for events that must not be repeated.
    """

    status: Part
    ready: ConditionState
    notes: Sequence[Note] = ()
    instead: Wait | Terminal | InSync | None = None
    record: bool = False


class Planned(Actor[T], Generic[T, I, S]):
    """An actor that decides in pure functions and acts in one place."""

    async def precede(self, ctx: Context[T]) -> Outcome | None:
        """What comes before everything else, such as leaving the object to another operator; ``None`` to go on."""
        return None

    @abstractmethod
    async def inputs(self, ctx: Context[T]) -> I | Outcome:
        """The declaration with all it refers to, read from the caches; an outcome where that is not possible."""

    def children(self, ctx: Context[T], inputs: I) -> Outcome | None:
        """The step that brings the child objects in line with the declaration; ``None`` when they are."""
        return None

    @abstractmethod
    async def snapshot(self, ctx: Context[T], inputs: I) -> S:
        """Inputs, the database's own view and what the status recorded, at one moment. Reads only."""

    @abstractmethod
    def plan(self, snapshot: S) -> Verdict:
        """The next safe move. Pure."""

    @abstractmethod
    def report(self, ctx: Context[T], inputs: I, snapshot: S, verdict: Verdict) -> Report:
        """What to show. Pure: derived from the snapshot, the verdict and the status before."""

    @abstractmethod
    async def step(self, ctx: Context[T], inputs: I, snapshot: S, move: Move) -> Part | bool | None:
        """Carry out one move; idempotent. Raises `StepFailed` where it did not succeed.

        Returns the status that the effect leads to, written at once where it differs; or ``False`` for a part of the way.
        """

    def failed(self, ctx: Context[T], snapshot: S, move: Move, message: str) -> Part | None:
        """The status after a step that failed; ``None`` leaves it as it is. Pure."""
        return None

    async def observe(self, ctx: Context[T]) -> Outcome:
        """One pass: the rooms in their order."""
        if (outcome := await self.precede(ctx)) is not None:
            return outcome
        inputs = await self.inputs(ctx)
        if isinstance(inputs, Act | InSync | Terminal | Wait):
            return inputs
        if (outcome := self.children(ctx, inputs)) is not None:
            return outcome
        snapshot = await self.snapshot(ctx, inputs)
        verdict = self.plan(snapshot)
        report = self.report(ctx, inputs, snapshot, verdict)
        ctx.show(report.status)
        ctx.ready(bool(report.ready.status), report.ready.reason, report.ready.message)
        for note in report.notes:
            record = ctx.events.warning if note.warning else ctx.events.normal
            record(ctx.obj, note.reason, note.message)
        if not isinstance(verdict, Move):
            return report.instead if report.instead is not None else verdict
        return ctx.act(
            verdict.name,
            self._carry_out(ctx, inputs, snapshot, verdict),
            message=verdict.why,
            record=report.record,
            state=verdict.state,
        )

    def _carry_out(
        self, ctx: Context[T], inputs: I, snapshot: S, move: Move
    ) -> Callable[[], Awaitable[object]]:
        async def run() -> bool:
            ctx.log.info("step", step=move.name, why=move.why)
            try:
                done: Any = await self.step(ctx, inputs, snapshot, move)
            except StepFailed as error:
                ctx.log.warning("a step failed", step=move.name, error=str(error))
                await _write(ctx, self.failed(ctx, snapshot, move, str(error)))
                await ctx.clock.sleep(error.after)
                return False
            if isinstance(done, Part):
                await _write(ctx, done)
            return done is not False

        return run


async def _write(ctx: Context[Any], status: Part | None) -> None:
    if status is not None and status != ctx.status:
        ctx.show(status)
        await ctx.record()
