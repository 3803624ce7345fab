"""The moves of this operator that are writes to Kubernetes."""

from __future__ import annotations

from msgspec.structs import replace

from mooring.actor import Act, Context, Move, Outcome
from mooring.actor.children import Named
from mooring.kube.objects import apps, core
from mooring.operators.redis.passwords.moves import PublishPassword, StagePassword
from mooring.operators.redis.sentinel.inputs import Inputs
from mooring.operators.redis.sentinel.moves import (
    DeletePod,
    LabelRoles,
    PublishConfig,
    Resize,
    RestoreTemplate,
    TurnCertificates,
    UsersMove,
    WriteTemplate,
)
from mooring.operators.redis.sentinel.names import INPUTS
from mooring.operators.redis.sentinel.settings import render_live
from mooring.operators.redis.sentinel.specs import Specs
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterStatus, spec_of
from mooring.operators.redis.users.held import after
from mooring.operators.redis.users.moves import UsersDone
from mooring.operators.workload import effects
from mooring.operators.workload.adoption import rolls_itself, stop_rolling
from mooring.operators.workload.claims import own_claims, owned
from mooring.operators.workload.growing import grow_volumes
from mooring.operators.workload.hindrances import Hindrances
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.statefulset import mounted_config_maps
from mooring.operators.workload.volumes import Refusals, make_claims

__all__ = ["carry_out", "correct_children", "mounted", "orders_of"]


def correct_children(
    ctx: Context[RedisCluster], inputs: Inputs, hindrances: Hindrances, refusals: Refusals
) -> Outcome | None:
    """Bring the child objects in line with the declaration; ``None`` when they are."""
    specs, found = inputs.specs, inputs.found
    drift = ctx.children.settle(
        specs.objects, given=found, keep=mounted(ctx, inputs), unowned=specs.unowned()
    )
    rolled = [one for one in (found.redis, found.sentinel) if one and rolls_itself(one)]
    if rolled and not drift.foreign:
        return ctx.act("TakeOverStrategy", _stop_rolling, ctx, rolled)
    if (step := hindrances.settle(ctx, drift, found.redis)) is not None:
        if isinstance(step, Act) and not drift.foreign:
            ctx.events.normal(ctx.obj, "Ensure", str(drift))
        return step
    storage = spec_of(ctx.obj).storage
    claims = inputs.around.claims.values()
    wrong = [claim for claim in claims if owned(ctx.obj, claim) is specs.keeps_claims]
    if wrong and storage is not None and storage.persistent_volume_claim is not None:
        return ctx.act("OwnClaims", own_claims, ctx, wrong, not specs.keeps_claims)
    return grow_volumes(ctx, inputs.status, inputs.growth, inputs.filling, refusals)


async def _stop_rolling(ctx: Context[RedisCluster], found: list[apps.StatefulSet]) -> None:
    for one in found:
        await stop_rolling(ctx, one)


def mounted(ctx: Context[RedisCluster], inputs: Inputs) -> list[Named]:
    """Content-named ConfigMaps that a pod, or a template in place or to be put back, refers to."""
    kept = set(mounted_config_maps((inputs.found.redis, inputs.found.sentinel), inputs.around.pods))
    # Certificates stay when TLS is turned off: clients that trust them need no others when it is turned on again.
    kept |= {(core.Secret, name) for name in (inputs.specs.names.tls, inputs.specs.names.tls_authority)}
    if inputs.status.rolls:  # the template that may be put back names one that no pod mounts any more
        immutable = [one for one in ctx.children.of(core.ConfigMap) if one.immutable]
        kept |= {(core.ConfigMap, one.metadata.name or "") for one in immutable}
    return sorted(kept, key=lambda one: one[1])


async def carry_out(
    ctx: Context[RedisCluster],
    inputs: Inputs,
    move: Move,
    status: RedisClusterStatus,
    *,
    done: UsersDone | None = None,
) -> RedisClusterStatus:
    """Carry out a move; the status it leads to. ``done`` is what became of users on the servers."""
    match move:
        case UsersMove():
            held = after(inputs.found.access, move, done or UsersDone(), now=ctx.now())
            if held != inputs.found.access.held:
                await _apply(ctx, inputs, inputs.holding(held))
        case DeletePod():
            await effects.delete_pod(ctx, move)
        case LabelRoles():
            await effects.label_roles(ctx, move)
        case Resize(component="redis", replicas=replicas):
            new = inputs.specs.claims_to_make(replicas, inputs.around.claims)
            await make_claims(ctx, new, where=inputs.growth.where)
            await _apply(ctx, inputs, inputs.ordered(orders_of(inputs, move)))
        case WriteTemplate():
            specs = inputs.ordered(orders_of(inputs, move))
            made = specs.redis_set() if move.component == "redis" else specs.sentinel_set()
            await _apply(ctx, inputs, specs, but=apps.StatefulSet)
            annotations = {INPUTS: specs.inputs("redis" if move.component == "redis" else "sentinel")}
            await effects.write_template(ctx, made, annotations=annotations)
        case RestoreTemplate():
            live = inputs.found.redis if move.component == "redis" else inputs.found.sentinel
            kept = {INPUTS: move.inputs}
            if live is not None and not await effects.restore_template(ctx, move, live, annotations=kept):
                ctx.log.warning("the last good template is gone", revision=move.revision)
                return _without_revision(status, move.component)
        case _:
            await _apply(ctx, inputs, inputs.ordered(orders_of(inputs, move)))
    return status


def orders_of(inputs: Inputs, move: Move) -> Orders:
    """What a move changes about the child objects; pure."""
    kept = inputs.found.kept
    match move:
        case Resize():
            return Orders(replicas={move.component: move.replicas})
        case WriteTemplate():
            return Orders(templates=frozenset({move.component}))
        case PublishConfig():
            return Orders(live=render_live(move.values))
        case StagePassword() if inputs.declared is not None:
            return Orders(kept=kept.staged(inputs.declared))
        case TurnCertificates():
            return Orders(turn=True)
        case PublishPassword():
            return Orders(kept=kept.published())
    return Orders()


async def _apply(
    ctx: Context[RedisCluster], inputs: Inputs, specs: Specs, *, but: type[apps.StatefulSet] | None = None
) -> None:
    keep = mounted(ctx, inputs)
    await effects.apply(ctx, specs.objects(), keep=keep, unowned=specs.unowned(), but=but)


def _without_revision(status: RedisClusterStatus, component: str) -> RedisClusterStatus:
    """A roll-out whose last good template is gone is not tried to be put back."""
    rolls = status.rolls or {}
    return replace(status, rolls={**rolls, component: replace(rolls[component], revision="")})
