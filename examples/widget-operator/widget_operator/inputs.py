"""What one pass reads from the caches."""

from dataclasses import dataclass

from mooring.actor import Context
from mooring.kube.objects import apps, core

from widget_operator.types import Spec, Status, Widget

PAUSE = "mooring.dev/pause"
"""Annotation of a Widget: while it is there, nothing is changed."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    spec: Spec
    status: Status
    """As it was reported last."""
    paused: bool
    found: apps.StatefulSet | None
    pods: tuple[core.Pod, ...]


def read(ctx: Context[Widget]) -> Inputs:
    found = ctx.children.find(apps.StatefulSet, ctx.key.name)
    return Inputs(
        spec=ctx.obj.spec or Spec(),
        status=ctx.obj.status or Status(),
        paused=PAUSE in (ctx.obj.metadata.annotations or {}),
        found=found,
        pods=tuple(ctx.client.owned_by(core.Pod, found)) if found is not None else (),
    )
