"""Volumes that grow by themselves, as an operator uses them: measure, decide, show as metrics, record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from mooring.actor import Context, Outcome
from mooring.kube.object import Key
from mooring.operators.workload.autogrow import AT_MAXIMUM, AutogrowSpec, AutogrowStatus, Filling, decide
from mooring.operators.workload.fill import Levels, Look
from mooring.operators.workload.volumes import Growth, Refusals, grow
from mooring.runtime import Manager

__all__ = ["Growing", "grow_volumes"]

_LABELS = ["operator", "namespace", "name"]


class Growing:
    """What every operator whose claims grow by themselves holds one of; ``run`` measures until cancelled.

    ``operator`` is the label of its metrics, ``container`` the servers' and ``path`` where they store.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        operator: str,
        container: str,
        path: str,
        wake: Callable[[Key], None],
        look: Look | None = None,
    ) -> None:
        self._operator = operator
        self._levels = Levels(manager, container=container, path=path, wake=wake, look=look)
        self.run = self._levels.run
        gauge = manager.metrics.gauge
        self._used = gauge(
            "mooring_volumes_used_ratio", "How full the fullest volume of a cluster is, 0 to 1.", _LABELS
        )
        self._full = gauge(
            "mooring_volumes_full_in_seconds", "When it will be full if it goes on like this.", _LABELS
        )
        self._stuck = gauge(
            "mooring_volumes_at_maximum", "1 while the claims should grow and have maxSize.", _LABELS
        )

    def decide(
        self, ctx: Context[Any], spec: AutogrowSpec | None, status: AutogrowStatus | None, growth: Growth
    ) -> Filling:
        """What to do about the size of the claims; asks for a look at them where the last one is old."""
        if spec is None:
            self.forget(ctx.key)
            return Filling()
        volumes = growth.filling
        fills = self._levels.of(ctx.key, volumes)
        made = decide(spec, status, where=growth.autogrow, volumes=volumes, fills=fills, now=ctx.now())
        self._show(ctx.key, made)
        return made

    def forget(self, key: Key) -> None:
        """The cluster is gone, another process manages it, or its volumes do not grow by themselves."""
        self._levels.forget(key)
        for gauge in (self._used, self._full, self._stuck):
            with suppress(KeyError):
                gauge.remove(self._operator, key.namespace, key.name)

    def _show(self, key: Key, made: Filling) -> None:
        if made.used is None:
            return
        labels = (self._operator, key.namespace, key.name)
        self._used.labels(*labels).set(made.used)
        self._stuck.labels(*labels).set(float(made.status is not None and made.status.reason == AT_MAXIMUM))
        if made.hours is not None:
            self._full.labels(*labels).set(made.hours * 3600)
            return
        with suppress(KeyError):
            self._full.remove(*labels)


def grow_volumes(
    ctx: Context[Any], status: Any, growth: Growth, filling: Filling, refusals: Refusals
) -> Outcome | None:
    """The step that enlarges claims, once what was decided is recorded; ``None`` while none is too small."""
    if filling.due:
        return ctx.act("RecordVolumes", _record, ctx, status, filling)
    if small := refusals.due(ctx.key, growth.volumes, ctx.now()):
        return ctx.act("GrowVolumes", grow, ctx, small, refusals)
    return None


async def _record(ctx: Context[Any], status: Any, filling: Filling) -> None:
    """Write what was decided before a claim is changed for it; ``status`` is the cluster's, with a field ``autogrow``."""
    ctx.show(replace(status, autogrow=filling.status))
    await ctx.record()
    if filling.news:
        note = ctx.events.warning if filling.warns else ctx.events.normal
        note(ctx.obj, "VolumesAtMaximum" if filling.warns else "VolumesFilling", filling.news)
