"""What the sets under a StatefulSet share: its objects as they are applied, its claims, and the moves on both.

The template in place is kept until a move of the plan writes another one; the number of pods is the one in place until a
`Resize`. ConfigMaps are named by their content: the newest `KEPT` stay, and all that a pod or a template refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from mooring.actor import Context, Move, Outcome, differs
from mooring.actor.children import Named
from mooring.kube.errors import NotFound
from mooring.kube.object import Object, controller_of
from mooring.kube.objects import apps, core
from mooring.kube.patches import MergePatch
from mooring.operators.matrixone.logset.moves import DeleteClaim, GrowClaim
from mooring.operators.matrixone.logset.snapshot import Claim
from mooring.operators.matrixone.names import INPUTS
from mooring.operators.workload import effects
from mooring.operators.workload.adoption import rolls_itself, stop_rolling
from mooring.operators.workload.moves import DeletePod, Resize, RestoreTemplate, WriteTemplate
from mooring.operators.workload.pods import ordinal_of
from mooring.operators.workload.statefulset import keeping_template, made_from
from mooring.operators.workload.template import mounted_config_maps

__all__ = [
    "KEPT",
    "Found",
    "claim_of",
    "claims_by_id",
    "correct",
    "delete_claim",
    "grow_claim",
    "kept_configs",
    "same_template",
    "step",
]

KEPT: Final = 5
"""Revisions of a configuration that are kept."""
Objects = Callable[[], Iterable[Object]]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The set, its pods and its claims as they were found."""

    set: apps.StatefulSet | None
    pods: tuple[core.Pod, ...] = ()
    claims: tuple[core.PersistentVolumeClaim, ...] = field(default=(), repr=False)
    owner: str = ""
    """UID of the workload that owns the pods before there is a StatefulSet."""

    @property
    def placed(self) -> int | None:
        """Pods that the StatefulSet is asked for."""
        spec = self.set.spec if self.set is not None else None
        return None if spec is None else (spec.replicas if spec.replicas is not None else 1)

    @property
    def uid(self) -> str:
        """Of the StatefulSet."""
        return (self.set.metadata.uid if self.set is not None else None) or self.owner


def kept_configs(
    ctx: Context[Any], sets: Iterable[apps.StatefulSet | apps.Deployment | None], pods: Iterable[core.Pod]
) -> list[Named]:
    """ConfigMaps that stay although they are not declared any more."""
    owned = sorted(
        ctx.children.of(core.ConfigMap), key=lambda one: one.metadata.creation_timestamp or "", reverse=True
    )
    newest = [(core.ConfigMap, one.metadata.name or "") for one in owned[:KEPT]]
    return sorted({*mounted_config_maps(sets, pods), *newest}, key=lambda one: one[1])


def correct(ctx: Context[Any], found: Found, objects: Objects, *, given: object = None) -> Outcome | None:
    """The step that brings the child objects in line; ``None`` when they are."""
    keep = kept_configs(ctx, [found.set], found.pods)
    drift = ctx.children.settle(lambda: _in_place(objects(), found), given=given, keep=keep)
    if drift.foreign:
        return ctx.wait("NameTaken", f"{drift.taken}; rename this object, or delete that one", stalled=True)
    if found.set is not None and rolls_itself(found.set):
        return ctx.act("StopRolling", stop_rolling, ctx, found.set)
    return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift)) if drift else None


def _in_place(objects: Iterable[Object], found: Found, *, replicas: int | None = None) -> Iterator[Object]:
    for one in objects:
        if not isinstance(one, apps.StatefulSet) or one.spec is None:
            yield one
            continue
        if found.set is None:
            # Of pods that a deleted set left none may go for a number that was declared meanwhile.
            there = [
                ordinal_of(pod.metadata.name or "") + 1 for pod in found.pods if controller_of(pod) is None
            ]
            yield replace(one, spec=replace(one.spec, replicas=max(one.spec.replicas or 0, *there, 0)))
            continue
        kept = keeping_template(one, found.set, INPUTS)
        assert kept.spec is not None
        template = kept.spec.template
        if template is not None and same_template(one.spec.template, template):
            template = one.spec.template
        placed = found.placed if replicas is None else replicas
        yield replace(kept, spec=replace(kept.spec, replicas=placed, template=template))


def same_template(made: core.PodTemplateSpec | None, live: core.PodTemplateSpec) -> bool:
    """The template that is rendered says what the one in place does, which has the server's defaults beside: written as it
    is rendered, it is the same declaration as when it was made."""
    return made is not None and not differs(made, live)


async def step(ctx: Context[Any], found: Found, objects: Objects, move: Move) -> bool:
    """Carry out a move on the StatefulSet, its pods or its claims; whether this was one."""
    match move:
        case Resize(replicas=replicas):
            made = list(_in_place(objects(), found, replicas=replicas))
            await effects.apply(ctx, made, keep=kept_configs(ctx, [found.set], found.pods))
        case WriteTemplate():
            made = list(objects())
            declared = next(one for one in made if isinstance(one, apps.StatefulSet))
            keep = kept_configs(ctx, [found.set], found.pods)
            await effects.apply(ctx, made, keep=keep, but=apps.StatefulSet)
            await effects.write_template(ctx, declared, annotations={INPUTS: made_from(declared, INPUTS)})
        case RestoreTemplate(inputs=good) if found.set is not None:
            if not await effects.restore_template(ctx, move, found.set, annotations={INPUTS: good}):
                ctx.log.warning("the last good template is gone", revision=move.revision)
        case DeletePod():
            await effects.delete_pod(ctx, move)
        case DeleteClaim(claim=claim):
            await delete_claim(ctx, claim)
        case GrowClaim(claim=claim, size=size):
            await grow_claim(ctx, claim, size)
        case _:
            return False
    return True


async def delete_claim(ctx: Context[Any], claim: Claim) -> None:
    """Delete exactly this claim, as it was seen."""
    try:
        await ctx.client.delete(
            core.PersistentVolumeClaim,
            claim.name,
            namespace=ctx.key.namespace,
            uid=claim.uid,
            resource_version=claim.version or None,
        )
    except NotFound:
        return


async def grow_claim(ctx: Context[Any], claim: Claim, size: str) -> None:
    """Ask for a larger volume."""
    body = {
        "metadata": {"uid": claim.uid, "resourceVersion": claim.version},
        "spec": {"resources": {"requests": {"storage": size}}},
    }
    await ctx.client.patch(
        core.PersistentVolumeClaim, claim.name, MergePatch(body), namespace=ctx.key.namespace
    )


def claim_of(one: core.PersistentVolumeClaim) -> Claim:
    """A claim, as far as rules need it."""
    requests = (one.spec.resources.requests if one.spec and one.spec.resources else None) or {}
    return Claim(
        name=one.metadata.name or "",
        uid=one.metadata.uid or "",
        version=one.metadata.resource_version or "",
        size=str(requests.get("storage") or ""),
        terminating=one.metadata.deletion_timestamp is not None,
    )


def claims_by_id(claims: Sequence[core.PersistentVolumeClaim], prefix: str) -> Mapping[str, Claim]:
    """The claims whose name begins with ``prefix``, by what follows it."""
    return {
        (one.metadata.name or "").removeprefix(prefix): claim_of(one)
        for one in claims
        if (one.metadata.name or "").startswith(prefix)
    }
