"""What one pass reads from the caches."""

from dataclasses import dataclass

from memcached_operator.types import Memcached, Spec, Status
from mooring.actor import Context
from mooring.kube.objects import apps, core

PAUSE = "mooring.dev/pause"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    spec: Spec
    paused: bool
    found: apps.StatefulSet | None
    pods: tuple[core.Pod, ...]
    """Of the StatefulSet, by owner: those of one that was made by hand bear none of our labels."""
    status: Status


def read(ctx: Context[Memcached]) -> Inputs:
    found = ctx.children.find(apps.StatefulSet, ctx.key.name)
    return Inputs(
        spec=ctx.obj.spec or Spec(),
        paused=PAUSE in (ctx.obj.metadata.annotations or {}),
        found=found,
        pods=tuple(ctx.client.owned_by(core.Pod, found)) if found is not None else (),
        status=ctx.obj.status or Status(),
    )
