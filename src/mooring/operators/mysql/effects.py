"""The moves of this operator that are writes to Kubernetes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace as replaced

from msgspec.structs import replace

from mooring.actor import Context, Move, Outcome
from mooring.actor.children import Drift, Named
from mooring.kube.errors import AlreadyExists, Conflict, NotFound
from mooring.kube.object import Object, controller_of
from mooring.kube.objects import apps, core
from mooring.kube.patches import MergePatch
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.moves import (
    DeletePod,
    LabelRoles,
    Open,
    PublishPasswords,
    Resize,
    RestoreTemplate,
    TryImage,
    Unask,
    WriteTemplate,
)
from mooring.operators.mysql.names import ARCHIVE, COMPONENT, INPUTS, ORDER, SWITCH_TO
from mooring.operators.mysql.specs import Specs
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus
from mooring.operators.workload import effects
from mooring.operators.workload.adoption import rolls_itself, stop_rolling
from mooring.operators.workload.claims import own_claims, owned
from mooring.operators.workload.configuration import PublishConfig
from mooring.operators.workload.growing import grow_volumes
from mooring.operators.workload.hindrances import Hindrances
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.template import mounted_config_maps
from mooring.operators.workload.volumes import Refusals, make_claims

__all__ = ["carry_out", "correct_children", "mounted"]


def correct_children(
    ctx: Context[MySQLCluster],
    inputs: Inputs,
    hindrances: Hindrances,
    of_archive: Hindrances,
    refusals: Refusals,
) -> Outcome | None:
    """Bring the child objects in line with the declaration; ``None`` when they are.

    Those of the archive come last: what is in their way keeps no cluster from a failover.
    """
    specs, found = inputs.specs, inputs.found
    drift, archive = _apart(ctx, inputs)
    if given := _given_credentials(ctx, inputs):
        return ctx.act("AdoptCredentials", _label_secret, ctx, given, specs.labels)
    if found.set is not None and rolls_itself(found.set) and not drift.foreign:
        return ctx.act("TakeOverStrategy", stop_rolling, ctx, found.set)
    if (step := hindrances.settle(ctx, drift, found.set)) is not None:
        return step
    claims = inputs.around.claims.values()
    wrong = [claim for claim in claims if owned(ctx.obj, claim) is specs.keeps_claims]
    if wrong:
        return ctx.act("OwnClaims", own_claims, ctx, wrong, not specs.keeps_claims)
    if grows := grow_volumes(ctx, inputs.status, inputs.growth, inputs.filling, refusals):
        return grows
    return of_archive.settle(ctx, archive, found.set)


def _apart(ctx: Context[MySQLCluster], inputs: Inputs) -> tuple[Drift, Drift]:
    """What differs: of the cluster itself, and of its archive."""
    specs = inputs.specs
    drift = ctx.children.settle(
        specs.objects, given=inputs.found, keep=mounted(ctx, inputs), unowned=specs.unowned()
    )
    if not drift and not drift.foreign:
        return drift, drift
    taken = ctx.children.diff(specs.archive()).foreign if drift.foreign else ()
    own = replaced(
        drift,
        apply=tuple(one for one in drift.apply if not _archives(one)),
        prune=tuple(one for one in drift.prune if not _archives(one)),
        foreign=tuple(one for one in drift.foreign if one not in taken),
    )
    archive = replaced(
        drift,
        apply=tuple(one for one in drift.apply if _archives(one)),
        prune=tuple(one for one in drift.prune if _archives(one)),
        foreign=taken,
    )
    return own, archive


def _archives(one: Object) -> bool:
    return (one.metadata.labels or {}).get("app.kubernetes.io/name") == ARCHIVE


def _given_credentials(ctx: Context[MySQLCluster], inputs: Inputs) -> core.Secret | None:
    """A Secret of the fixed name that the user made: its passwords are used."""
    there = ctx.children.find(core.Secret, inputs.specs.names.credentials)
    if there is None or controller_of(there) is not None or there.metadata.deletion_timestamp:
        return None
    ours = inputs.specs.labels.items() <= (there.metadata.labels or {}).items()
    return None if ours else there


async def _label_secret(ctx: Context[MySQLCluster], one: core.Secret, labels: dict[str, str]) -> None:
    body = MergePatch({"metadata": {"uid": one.metadata.uid, "labels": labels}})
    await ctx.client.patch(core.Secret, one.metadata.name or "", body, namespace=ctx.key.namespace)


def mounted(ctx: Context[MySQLCluster], inputs: Inputs) -> list[Named]:
    """What pods mount and is not made here: content-named ConfigMaps, also of a template to be put back, and emptied Secrets."""
    names = inputs.specs.names
    kept: set[Named] = {(core.Secret, name) for name in (names.credentials, names.credentials_copy)}
    kept.update(mounted_config_maps((inputs.found.set,), inputs.around.pods))
    if inputs.status.rolls:  # the template that may be put back names one that no pod mounts any more
        immutable = [one for one in ctx.children.of(core.ConfigMap) if one.immutable]
        kept |= {(core.ConfigMap, one.metadata.name or "") for one in immutable}
    return sorted(kept, key=lambda one: one[1])


async def carry_out(
    ctx: Context[MySQLCluster], inputs: Inputs, move: Move, status: MySQLClusterStatus
) -> MySQLClusterStatus:
    """Carry out a move; the status it leads to."""
    match move:
        case DeletePod():
            await effects.delete_pod(ctx, move)
        case LabelRoles():
            await effects.label_roles(ctx, move, reads=True)
        case Open():
            await _open(ctx, move)
        case TryImage():
            await _apply(ctx, inputs, inputs.specs)  # its scripts
            with suppress(AlreadyExists):
                await ctx.client.create(inputs.specs.trial())
        case Unask():
            await _annotate_cluster(ctx, {SWITCH_TO: None})
        case Resize():
            new = inputs.specs.claims_to_make(move.replicas, inputs.around.claims)
            await make_claims(ctx, new, where=inputs.growth.where)
            await _apply(ctx, inputs, inputs.ordered(Orders(replicas={COMPONENT: move.replicas})))
        case PublishConfig():
            await _apply(ctx, inputs, inputs.ordered(live=move.values))
        case PublishPasswords():
            await _apply(ctx, inputs, inputs.ordered(credentials=inputs.credentials.published()))
        case WriteTemplate():
            specs = inputs.ordered(Orders(templates=frozenset({COMPONENT})))
            await _apply(ctx, inputs, specs, but=apps.StatefulSet)
            annotations = {INPUTS: specs.inputs}
            await effects.write_template(ctx, specs.declared_set(), annotations=annotations)
        case RestoreTemplate():
            live, kept = inputs.found.set, {INPUTS: move.inputs}
            if live is not None and not await effects.restore_template(ctx, move, live, annotations=kept):
                ctx.log.warning("the last good template is gone", revision=move.revision)
                return _without_revision(status)
    return status


async def _open(ctx: Context[MySQLCluster], move: Open) -> None:
    """Write the orders; a pod that was replaced meanwhile is left: the next pass sees the new one."""
    for pod, order in sorted(move.orders.items()):
        metadata: dict[str, object] = {"annotations": {ORDER: order}}
        if uid := move.uids.get(pod):
            metadata["uid"] = uid
        try:
            await ctx.client.patch(
                core.Pod, pod, MergePatch({"metadata": metadata}), namespace=ctx.key.namespace
            )
        except (Conflict, NotFound):
            continue


async def _annotate_cluster(ctx: Context[MySQLCluster], annotations: dict[str, str | None]) -> None:
    body = MergePatch({"metadata": {"uid": ctx.obj.metadata.uid, "annotations": annotations}})
    await ctx.client.patch(type(ctx.obj), ctx.key.name, body, namespace=ctx.key.namespace)


async def _apply(
    ctx: Context[MySQLCluster], inputs: Inputs, specs: Specs, *, but: type[apps.StatefulSet] | None = None
) -> None:
    """All but the archive: what is refused of that must not end a step."""
    objects = [one for one in specs.objects() if not _archives(one)]
    archive = [
        one for kind in (core.ConfigMap, apps.Deployment) for one in ctx.children.of(kind) if _archives(one)
    ]
    keep = [*mounted(ctx, inputs), *((type(one), one.metadata.name or "") for one in archive)]
    await effects.apply(ctx, objects, keep=keep, unowned=specs.unowned(), but=but)


def _without_revision(status: MySQLClusterStatus) -> MySQLClusterStatus:
    """A roll-out whose last good template is gone is not tried to be put back."""
    rolls = status.rolls or {}
    return replace(status, rolls={**rolls, COMPONENT: replace(rolls[COMPONENT], revision="")})
