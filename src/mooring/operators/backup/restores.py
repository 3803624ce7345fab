"""How a new cluster begins with a backup: where the data comes from, the Job that brings it, what becomes of it.

`restore_rules` decides, an operator says what its cluster is and which Job fills it. Where the data goes onto a volume, that
happens before any pod is made: `VolumeRestores.observe` comes before the operator's own child objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from msgspec.structs import replace

from mooring.actor import Context, Outcome, Related, Terminal, Wait
from mooring.cache import NotCached
from mooring.kube.object import Key, Object
from mooring.kube.objects import core
from mooring.operators.backup import outcome, restore_rules
from mooring.operators.backup.restore_rules import PURPOSE, Restore, Seen, Settle, Source, source_of
from mooring.operators.backup.run import Run, job_name, secrets_of
from mooring.operators.backup.runs import Runs
from mooring.operators.backup.types import (
    SUCCEEDED,
    BackupObject,
    RestoreFrom,
    RestoreStatus,
)
from mooring.runtime import Manager

__all__ = ["Look", "Restores", "VolumeRestores"]

C = TypeVar("C", bound=Object)
I = TypeVar("I")  # noqa: E741 - the operator's inputs


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was read of a restore that is not over."""

    source: Source | Wait | Terminal
    run: outcome.Outcome | None = None
    missing: str = ""
    """A Secret of the target that does not exist."""

    def seen(self, status: RestoreStatus, *, now: datetime) -> Seen:
        """What the rules decide from; the place of the backup is fixed once a try has begun."""
        if isinstance(self.source, Source) and not status.tries:
            status = replace(status, prefix=self.source.prefix, backup=self.source.backup or None)
        return Seen(status=status, run=self.run, now=now)

    def held(self, status: RestoreStatus) -> Wait | Terminal | None:
        """Why no Job can be made now."""
        if not isinstance(self.source, Source):
            return self.source
        if status.tries and status.prefix != self.source.prefix:
            text = (
                f"spec.restoreFrom names another backup than {status.prefix}, with which the restore began; put that one "
                "back, or delete the cluster and its claims and create it again"
            )
            return Wait("BackupChanged", text, after=30.0, stalled=True)
        if not self.missing:
            return None
        text = (
            f"the Secret {self.missing} of the backup's target does not exist; create it, or correct the name"
        )
        return Wait("SecretNotFound", text, after=10.0, stalled=True)


class Restores(ABC, Generic[C]):
    """The restores of an actor's clusters: which are due, and what is known of them."""

    backups: ClassVar[type[BackupObject]]
    """The kind that ``restoreFrom.backup`` names."""

    def __init__(self, manager: Manager, by: str, *, namespaces: Sequence[str] = ()) -> None:
        self.runs = Runs(manager, f"{by}-restore", namespaces=namespaces)
        self.related: list[Related[Any]] = self.runs.related

    @abstractmethod
    def declared(self, cluster: C) -> RestoreFrom | None:
        """``spec.restoreFrom``."""

    @abstractmethod
    def recorded(self, cluster: C) -> RestoreStatus | None:
        """``status.restore``."""

    @abstractmethod
    def lives(self, ctx: Context[C]) -> bool:
        """The cluster has, or had, data of its own: nothing is restored into it any more."""

    @abstractmethod
    def unfit(self, cluster: C) -> str:
        """Why nothing can be restored into a cluster as it is declared, with field and remedy; "" where it can."""

    def pending(self, ctx: Context[C]) -> bool:
        """A restore is declared or under way."""
        known = self.recorded(ctx.obj)
        if self.declared(ctx.obj) is None and known is None:
            return False
        return (known is None or known.phase != SUCCEEDED) and not self.lives(ctx)

    async def look(self, ctx: Context[C]) -> Look | None:
        """Read what no cache has; ``None``, and nothing read, of a cluster that is not being restored."""
        if not self.pending(ctx):
            return None
        job = (self.recorded(ctx.obj) or RestoreStatus()).job or ""
        run = await self.runs.find(ctx, job, now=ctx.now(), purpose=PURPOSE)
        declared = self.declared(ctx.obj)
        if declared is None:
            text = "spec.restoreFrom was removed before the restore ended; put it back, or delete the cluster"
            return Look(source=Wait("RestoreUnfinished", text, after=30.0, stalled=True), run=run)
        source = self._source(ctx, declared)
        for name in secrets_of(source.target) if isinstance(source, Source) else ():
            if await ctx.client.refresh(core.Secret, name, namespace=ctx.key.namespace) is None:
                return Look(source=source, run=run, missing=name)
        return Look(source=source, run=run)

    def _source(self, ctx: Context[C], declared: RestoreFrom) -> Source | Wait | Terminal:
        resource = self.backups.resource
        try:
            named = ctx.client.find(self.backups, declared.backup or "", namespace=ctx.key.namespace)
        except NotCached:  # the operator began without its backups
            if declared.backup:
                text = (
                    f"spec.restoreFrom.backup: {resource.plural}.{resource.group} is not defined, or may not be listed; "
                    "define it by `mooring crds apply`, or name a target and a prefix"
                )
                return Wait("BackupNotFound", text, after=30.0, stalled=True)
            named = None
        return source_of(declared, named, kind=resource.kind)


class VolumeRestores(Restores[C], Generic[C, I]):
    """Restores by a Job that fills the volume of the first server before any pod is made."""

    def __init__(self, manager: Manager, by: str, *, namespaces: Sequence[str] = ()) -> None:
        super().__init__(manager, by, namespaces=namespaces)
        self._looks: dict[Key, Look] = {}

    @abstractmethod
    def prepare(self, ctx: Context[C], inputs: I) -> Outcome | None:
        """What has to be there before the Job: the claim; ``None`` when it is."""

    @abstractmethod
    def run(self, ctx: Context[C], inputs: I, source: Source, attempt: int) -> Run:
        """The Job of a try."""

    @abstractmethod
    def show(self, ctx: Context[C], restore: RestoreStatus) -> None:
        """Put it into the status."""

    def settled(self, ctx: Context[C], settled: Settle) -> Settle:
        """With what the operator records of a run that ended, beside what all do."""
        return settled

    async def read(self, ctx: Context[C]) -> None:
        """Take a `look` for the `observe` of the same pass."""
        self._looks.pop(ctx.key, None)
        if (found := await self.look(ctx)) is not None:
            self._looks[ctx.key] = found

    def observe(self, ctx: Context[C], inputs: I) -> Outcome | None:
        """The next step of the restore; ``None`` where there is nothing to restore (any more)."""
        look = self._looks.get(ctx.key)
        if look is None or not self.pending(ctx):
            return None
        if why := self.unfit(ctx.obj):
            return ctx.terminal("InvalidSpec", why)
        status = self.recorded(ctx.obj) or RestoreStatus()
        seen = look.seen(status, now=ctx.now())
        verdict = restore_rules.decide(seen)
        if isinstance(verdict, Restore):
            # Only a Job that is to be made needs the backup: a run that ended is judged also where that is gone.
            if (held := look.held(status)) is not None:
                return held
            return self.prepare(ctx, inputs) or self._begin(ctx, inputs, look, seen, verdict)
        if isinstance(verdict, Settle):
            verdict = self.settled(ctx, verdict)
            self.show(ctx, verdict.status)
            note = restore_rules.noted(verdict)
            record = ctx.events.warning if note.warning else ctx.events.normal
            record(ctx.obj, note.reason, note.message)
            return ctx.act("RecordRestore", ctx.record, message=verdict.why)
        if isinstance(verdict, Wait):
            self.show(ctx, seen.status)
            return verdict
        return None

    def _begin(self, ctx: Context[C], inputs: I, look: Look, seen: Seen, move: Restore) -> Outcome:
        assert isinstance(look.source, Source)
        job = job_name(ctx.obj, PURPOSE, move.attempt)
        self.show(ctx, restore_rules.begun(seen.status, attempt=move.attempt, job=job, now=ctx.now()))
        run = self.run(ctx, inputs, look.source, move.attempt)
        return ctx.act("Restore", self.runs.begin, ctx, run, message=move.why, record=True)
