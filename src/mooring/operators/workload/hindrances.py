"""What is in the way of the child objects of a cluster that runs: it is shown, and the cluster runs on as it is.

A wrong annotation of a Service, a quota or an admission policy must not keep a cluster without a primary from getting one. So where
a cluster runs already, what the API server refuses is taken like a fault in the declaration: nothing is rolled or resized by it,
everything else goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from mooring.actor import Act, Context, Wait
from mooring.actor.children import Drift
from mooring.kube.errors import BadRequest, Forbidden, Invalid
from mooring.kube.object import Key, controller_of
from mooring.kube.objects.apps import StatefulSet
from mooring.runtime import redact

__all__ = ["RENAME", "TRY_AGAIN", "Hindrances"]

TRY_AGAIN: Final = timedelta(seconds=30)
"""Until what was refused is applied again, unless the declaration changes before."""
RENAME: Final = "rename the cluster, or delete that object"
"""The remedy where a name belongs to another owner."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    generation: int | None
    reason: str
    message: str
    again: datetime


class Hindrances:
    """By cluster, for one ``step`` that applies objects; ``remedy`` is what to do where a name belongs to another owner.

    It paces attempts and is shown: the first pass of another process learns it by an attempt of its own.
    """

    def __init__(self, step: str = "ApplyChildren", *, remedy: str = RENAME) -> None:
        self._step = step
        self._remedy = remedy
        self._known: dict[Key, _Known] = {}

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._known.pop(key, None)

    def of(self, ctx: Context[Any]) -> Wait | None:
        """What is in the way of the present declaration; another one is tried at once."""
        known = self._known.get(ctx.key)
        if known is None or known.generation != ctx.obj.metadata.generation:
            return None
        left = max(0.0, (known.again - ctx.now()).total_seconds())
        return Wait(known.reason, known.message, after=left, stalled=True)

    def settle(self, ctx: Context[Any], drift: Drift, running: StatefulSet | None) -> Act | Wait | None:
        """The step that brings the child objects in line; ``None`` when they are, or when a cluster that runs has to do without.

        ``running`` is the set of that name. Where there is none, or it is somebody else's, what is in the way is the outcome.
        """
        owner = controller_of(running) if running is not None else None
        runs = owner is not None and owner.uid == ctx.obj.metadata.uid
        if not drift and not drift.foreign:
            self.forget(ctx.key)
            return None
        known = self.of(ctx)
        if runs and known is not None and known.after > 0.0:
            return None
        taken = f"{drift.taken}; {self._remedy}"
        if drift.foreign and not runs:
            return ctx.wait("NameTaken", taken, stalled=True)
        if drift.foreign:
            return ctx.act(self._step, self._taken, ctx, taken, message=taken)
        return ctx.act(self._step, self._apply, ctx, drift, runs, message=str(drift))

    async def _taken(self, ctx: Context[Any], text: str) -> None:
        self._note(ctx, "NameTaken", text)

    async def _apply(self, ctx: Context[Any], drift: Drift, runs: bool) -> None:
        try:
            await ctx.children.apply(drift)
        except (BadRequest, Forbidden, Invalid) as error:
            if not runs:
                raise
            text = redact(f"{self._step}: the API server refused it: {error}; correct what it names")
            self._note(ctx, "Forbidden" if isinstance(error, Forbidden) else "InvalidSpec", text)

    def _note(self, ctx: Context[Any], reason: str, text: str) -> None:
        ctx.log.warning("child objects cannot be made as they should be", reason=reason, why=text)
        generation = ctx.obj.metadata.generation
        again = ctx.now() + TRY_AGAIN
        self._known[ctx.key] = _Known(generation=generation, reason=reason, message=text, again=again)
