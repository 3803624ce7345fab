"""The take-over of one set of upstream's operator: what it left is read, and each step of `takeover` is carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

from mooring.actor import Context, Outcome
from mooring.actor.verdict import Move, Verdict, Wait
from mooring.kube.errors import DecodeError, Forbidden, NotFound
from mooring.kube.object import Object, controller_of, owner_reference, to_dict
from mooring.kube.objects import apps, core
from mooring.kube.patches import MergePatch
from mooring.operators.matrixone import kruise
from mooring.operators.matrixone.conditions import as_before
from mooring.operators.matrixone.names import CN_UUID, INPUTS, STORE_ID, labels_of
from mooring.operators.matrixone.sets import Surroundings
from mooring.operators.matrixone.takeover import (
    OLDER,
    TAKE_OVER,
    TAKEN_OVER,
    Abandon,
    AdoptPods,
    FreePods,
    KeepClaims,
    Left,
    MarkPods,
    SettlePods,
    decide,
    foreign,
    made_for,
    mounted,
    of_upstream,
    orphans,
    settle,
    without_upstreams,
)
from mooring.operators.matrixone.types import CNSet, MatrixOneCluster
from mooring.operators.workload.waits import while_paused

__all__ = ["Declared", "adopt_nodes", "asked_of", "held_by_upstream", "release", "take_in", "take_over"]

_PAUSE = "mooring.dev/pause"
_REVISION = "controller-revision-hash"
_NO_RIGHTS = "this operator may not read OpenKruise's workloads: grant it by helm upgrade --reuse-values --set rbac.takeover=true"
_ONE_NAMESPACE = (
    "an operator of single namespaces cannot see whether upstream's runs: take clusters over with scope all"
)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a set declares, and whether it can be taken over now; see `Left`."""

    digest: str = ""
    pods: core.PodTemplateSpec | None = field(default=None, repr=False)
    refusal: str = ""
    trouble: str = ""


Look = Callable[[Object | None, Sequence[core.PersistentVolumeClaim]], Awaitable[Declared]]
"""What a set declares, asked only where something is left; with OpenKruise's workload, and the claims."""


def asked_of(ctx: Context[Any]) -> tuple[Object, bool]:
    """The object on which a person asks for the take-over, and whether that was done."""
    owner = controller_of(ctx.obj)
    asked: Object = ctx.obj
    if owner is not None and owner.kind == MatrixOneCluster.resource.kind:
        found = ctx.client.find(MatrixOneCluster, owner.name or "", namespace=ctx.key.namespace)
        if found is not None and found.metadata.uid == owner.uid:
            asked = found
    return asked, (asked.metadata.annotations or {}).get(TAKE_OVER) == "true"


async def take_over(
    ctx: Context[Any],
    around: Surroundings,
    *,
    kind: type[kruise.StatefulSet] | type[kruise.CloneSet],
    main: str,
    made: bool,
    pods: Sequence[core.Pod],
    claims: Sequence[core.PersistentVolumeClaim] = (),
    look: Look,
) -> Outcome | None:
    """The next step until OpenKruise's workload is gone; ``None`` when nothing is left of it.

    ``made``: Mooring's own workload is there. Where nothing bears upstream's marks nothing is asked of the API server.
    """
    theirs = foreign(pods)
    marked = any(TAKEN_OVER in (one.metadata.annotations or {}) for one in pods)
    if not theirs and (made or not (marked or of_upstream(ctx.obj))):
        return None
    asked, allowed = asked_of(ctx)
    left = Left(owner=_named(ctx.obj), ask=_named(asked), allowed=allowed, main=main, kind=kind, pods=theirs)
    if not allowed and theirs:
        return _outcome(ctx, left, decide(left))
    workload, unknown = await _read(around, kind, main, ctx.key.namespace)
    left = changed(left, workload=workload, unknown=_ONE_NAMESPACE if around.namespaced else unknown)
    if allowed and (workload is not None or theirs):
        found = await _claims(ctx, around, theirs, claims)
        declared = await look(workload, found)
        left = changed(
            left, claims=found, digest=declared.digest, declared=declared.pods,
            refusal=declared.refusal, trouble=declared.trouble,
        )  # fmt: skip
    return _outcome(ctx, left, decide(left))


def _named(obj: Object) -> str:
    return f"{obj.resource.kind} {obj.metadata.name}"


def _outcome(ctx: Context[Any], left: Left, verdict: Verdict | None) -> Outcome | None:
    if verdict is not None and _paused(ctx):
        verdict = while_paused(verdict, _PAUSE)
    if verdict is not None:
        as_before(ctx)
    if not isinstance(verdict, Move):
        return verdict
    if isinstance(verdict, Abandon | FreePods):
        ctx.events.normal(ctx.obj, "TakeOver", verdict.why)
    return ctx.act(verdict.name, _carry_out, ctx, left, verdict, message=verdict.why)


def _paused(ctx: Context[Any]) -> bool:
    return _PAUSE in (ctx.obj.metadata.annotations or {})


async def _read(
    around: Surroundings, kind: type[Object], name: str, namespace: str
) -> tuple[Object | None, str]:
    try:
        return await around.live.get(kind, name, namespace=namespace), ""
    except NotFound:
        return None, ""
    except Forbidden:
        return None, _NO_RIGHTS
    except DecodeError as error:
        return None, f"OpenKruise's {kind.resource.kind} {name} cannot be read: {error}"


async def _claims(
    ctx: Context[Any],
    around: Surroundings,
    pods: Iterable[core.Pod],
    known: Sequence[core.PersistentVolumeClaim],
) -> list[core.PersistentVolumeClaim]:
    """The set's claims, and all that its pods mount as they are now: some may lack the labels they are found by."""
    found = {one.metadata.name or "": one for one in known}
    for name in sorted({each for one in pods for each in mounted(one)}):
        try:
            found[name] = await around.live.get(core.PersistentVolumeClaim, name, namespace=ctx.key.namespace)
        except NotFound:
            continue
    return list(found.values())


async def _carry_out(ctx: Context[Any], left: Left, move: Move) -> None:
    ctx.log.info("take-over", step=move.name, why=move.why)
    match move:
        case KeepClaims(claims=claims, policy=policy):
            if policy and left.workload is not None:
                kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
                body = {
                    "metadata": _seen(left.workload),
                    "spec": {"persistentVolumeClaimRetentionPolicy": kept},
                }
                await ctx.client.patch(left.kind, left.main, MergePatch(body), namespace=ctx.key.namespace)
            for claim in claims:
                await _disown(ctx, claim, left)
        case MarkPods(pods=marks):
            for one in left.pods:
                if (mark := marks.get(one.metadata.uid or "")) is not None:
                    await _patch(
                        ctx, one, {"metadata": {"uid": one.metadata.uid, "annotations": {TAKEN_OVER: mark}}}
                    )
        case Abandon() if left.workload is not None:
            seen = left.workload.metadata
            await ctx.client.delete(
                left.kind,
                left.main,
                namespace=ctx.key.namespace,
                uid=seen.uid,
                resource_version=seen.resource_version,
                propagation="Orphan",
            )
        case FreePods(pods=pods):
            for one in pods:
                await _disown(ctx, one, left)


async def _disown(ctx: Context[Any], one: Object, left: Left) -> None:
    """Take OpenKruise's workload off an object, as it was seen."""
    owners = [
        to_dict(ref)
        for ref in one.metadata.owner_references or ()
        if not ((ref.api_version or "").startswith(f"{kruise.GROUP}/") and ref.name == left.main)
    ]
    await _patch(ctx, one, {"metadata": {**_seen(one), "ownerReferences": owners or None}})


def _seen(one: Object) -> dict[str, Any]:
    return {"uid": one.metadata.uid, "resourceVersion": one.metadata.resource_version}


async def _patch(ctx: Context[Any], one: Object, body: dict[str, Any]) -> None:
    try:
        await ctx.client.patch(
            type(one), one.metadata.name or "", MergePatch(body), namespace=ctx.key.namespace
        )
    except NotFound:
        return


# --- under Mooring's own workloads -----------------------------------------------------------------------------


async def take_in(ctx: Context[Any], around: Surroundings, *, main: str, look: Look) -> Outcome | None:
    """The next step until the pods of OpenKruise's StatefulSet belong to Mooring's of the same name; ``None`` when done."""
    kind = type(ctx.obj)
    found, pods = ctx.children.find(apps.StatefulSet, main), around.pods(kind, ctx.key)
    step = await take_over(
        ctx,
        around,
        kind=kruise.StatefulSet,
        main=main,
        made=found is not None,
        pods=pods,
        claims=around.claims(kind, ctx.key),
        look=look,
    )
    return step or _taken_in(ctx, found, pods)


def _taken_in(ctx: Context[Any], found: apps.StatefulSet | None, pods: Sequence[core.Pod]) -> Outcome | None:
    """The step that ends the take-over of a StatefulSet's pods; ``None`` when there is none."""
    verdict = settle(found, pods)
    if verdict is not None and _paused(ctx):
        verdict = while_paused(verdict, _PAUSE)
    if verdict is not None:
        as_before(ctx)
    if not isinstance(verdict, SettlePods):
        return verdict
    ctx.events.normal(ctx.obj, "TakeOver", verdict.why)
    return ctx.act(verdict.name, _settle, ctx, verdict, message=verdict.why)


async def _settle(ctx: Context[Any], move: SettlePods) -> None:
    for name, (uid, revision) in move.pods.items():
        labels = {"labels": {_REVISION: revision}} if revision else {}
        body = {"metadata": {"uid": uid, "annotations": {TAKEN_OVER: None}, **labels}}
        try:
            await ctx.client.patch(core.Pod, name, MergePatch(body), namespace=ctx.key.namespace)
        except NotFound:
            continue


def adopt_nodes(
    ctx: Context[CNSet], main: str, pods: Sequence[core.Pod], uuid: Callable[[str], str]
) -> Outcome | None:
    """Make a CNSet the owner of compute nodes that OpenKruise's CloneSet left; ``uuid``: of a store, from its id."""
    loose = [one for one in orphans(pods) if (one.metadata.name or "").startswith(f"{main}-")]
    if not loose:
        return None
    names = ", ".join(one.metadata.name or "" for one in loose)
    why = f"the compute nodes {names} belong to the CNSet"
    move = AdoptPods(why=why)
    if _paused(ctx):
        as_before(ctx)
        return while_paused(move, _PAUSE)
    ctx.events.normal(ctx.obj, "TakeOver", why)
    return ctx.act(move.name, _adopt, ctx, main, loose, uuid, message=why)


async def _adopt(
    ctx: Context[CNSet], main: str, pods: Sequence[core.Pod], uuid: Callable[[str], str]
) -> None:
    """Claims first: what says that it is done is the pod's owner."""
    owner = to_dict(owner_reference(ctx.obj))
    for one in pods:
        id = (one.metadata.name or "").removeprefix(f"{main}-")
        for claim in made_for(one):
            body = {"metadata": {"labels": {**labels_of(ctx.obj), STORE_ID: id}, "ownerReferences": [owner]}}
            with suppress(NotFound):
                await ctx.client.patch(
                    core.PersistentVolumeClaim, claim, MergePatch(body), namespace=ctx.key.namespace
                )
        notes = one.metadata.annotations or {}
        known = (one.metadata.labels or {}).get(CN_UUID)
        others = [to_dict(ref) for ref in one.metadata.owner_references or () if not ref.controller]
        whole: dict[str, Any] = {
            "metadata": {
                **_seen(one),
                "ownerReferences": [*others, owner],
                "finalizers": without_upstreams(one),
                "labels": {STORE_ID: id, CN_UUID: known or uuid(id)},
                "annotations": {INPUTS: notes.get(TAKEN_OVER) or OLDER, TAKEN_OVER: None},
            }
        }
        await _patch(ctx, one, whole)


def held_by_upstream(ctx: Context[Any], sets: Iterable[Object]) -> Wait | None:
    """What a cluster that is deleted waits for: sets with upstream's finalizers would never be gone. ``None``: nothing."""
    every = [one for one in sets if of_upstream(one) and not one.metadata.deletion_timestamp]
    held = [f"{_named(one)} ({', '.join(of_upstream(one))})" for one in every]
    if not held:
        return None
    _, allowed = asked_of(ctx)
    help = "their conditions show how far the take-over is"
    if not allowed:
        help = f"set the annotation {TAKE_OVER}=true on it, or start upstream's operator again"
    text = f"upstream's finalizers hold {', '.join(held)}; {help}. Until then nothing is deleted"
    return Wait("TakingOver" if allowed else "NotAdopted", text, after=2.0, stalled=not allowed)


def release(ctx: Context[Any], others: Iterable[Object] = ()) -> Outcome | None:
    """Take upstream's finalizers off a set that is taken over, and off ``others``; ``None`` when there are none.

    The set comes last: the others are looked at as long as it has one.
    """
    held = [one for one in (*others, ctx.obj) if of_upstream(one)]
    if not held or _paused(ctx):
        return None
    return ctx.act("ReleaseFinalizers", _release, ctx, held, message="upstream's finalizers are taken off")


async def _release(ctx: Context[Any], held: Sequence[Object]) -> None:
    for one in held:
        body = {"metadata": {**_seen(one), "finalizers": without_upstreams(one)}}
        await _patch(ctx, one, body)
