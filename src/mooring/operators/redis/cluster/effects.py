"""Carry out one move: on the servers (`steps`), or as a write of whole objects to Kubernetes; correct the child objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from mooring.actor import Context, Move, Note, Outcome, StepFailed, Wait
from mooring.cache import rfc3339
from mooring.kube.client import Client
from mooring.kube.errors import BadRequest, Forbidden, Invalid
from mooring.kube.object import Object
from mooring.kube.objects import core
from mooring.operators.backup.restore_rules import Settle
from mooring.operators.redis.cluster import certificates, events, moves
from mooring.operators.redis.cluster.inputs import Inputs
from mooring.operators.redis.cluster.report import Early, failure, step_failed
from mooring.operators.redis.cluster.retries import PACE, after_success, said_of
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.specs import Orders, Specs
from mooring.operators.redis.cluster.steps import Steps, is_database_move
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterStatus, password_of, status_of
from mooring.operators.redis.cluster.users import servers_of
from mooring.operators.redis.dial import Dial, DialError
from mooring.operators.redis.passwords.moves import DropPassword, PublishPassword, StagePassword
from mooring.operators.redis.users.held import after
from mooring.operators.redis.users.moves import UsersMove
from mooring.operators.redis.users.status import refusals
from mooring.operators.workload import effects
from mooring.operators.workload.adoption import pods_of_set
from mooring.operators.workload.claims import own_claims, owned
from mooring.operators.workload.effects import delete_pod
from mooring.operators.workload.growing import grow_volumes
from mooring.operators.workload.hindrances import Hindrances
from mooring.operators.workload.statefulset import apply_whole, kept_template, mounted_config_maps
from mooring.operators.workload.volumes import Refusals, make_claims
from mooring.runtime import EventRecorder

__all__ = ["apply", "carry_out", "correct_children", "end", "record_notes"]


def correct_children(
    ctx: Context[RedisCluster],
    inputs: Inputs,
    claims: Sequence[core.PersistentVolumeClaim],
    hindrances: Hindrances,
    refusals: Refusals,
) -> Outcome | None:
    """Apply what differs, and let the claims go or stay with the cluster; ``None`` when all is as declared."""
    drift = ctx.children.diff(inputs.specs.objects(), keep=_mounted(inputs))
    step = hindrances.settle(ctx, drift, inputs.live)
    if isinstance(step, Wait):
        return end(ctx, failure(inputs.status, step.message, reason=step.reason, after=step.after))
    if step is not None:
        if inputs.live is None:
            nodes = inputs.orders.replicas or inputs.spec.replicas or 0
            record_notes(ctx.events, ctx.obj, events.of_beginning(nodes=nodes, formed=inputs.formed))
        return step
    goes = inputs.claims_go
    if wrong := [claim for claim in claims if owned(ctx.obj, claim) is not goes]:
        return ctx.act("OwnClaims", own_claims, ctx, wrong, goes)
    return grow_volumes(ctx, inputs.status, inputs.growth, inputs.filling, refusals)


def end(ctx: Context[RedisCluster], early: Early) -> Outcome:
    """End a pass before there is anything to decide."""
    record_notes(ctx.events, ctx.obj, early.notes)
    ctx.show(early.status)
    return early.outcome


async def carry_out(
    ctx: Context[RedisCluster],
    inputs: Inputs,
    snapshot: Snapshot,
    move: Move,
    *,
    client: Client,
    dial: Dial,
) -> RedisClusterStatus | bool | None:
    """One move, with what the status says and which Event is recorded if it fails; see `Planned.step`.

    ``client`` reads from the API server itself.
    """
    if isinstance(move, moves.Record | Settle):
        return None  # the status has it already
    before = status_of(ctx.status)
    try:
        if isinstance(move, UsersMove):
            before = await _change_users(ctx, inputs, snapshot, move, dial)
        elif is_database_move(move):
            await _is_no_pod(inputs, move, client)
            await Steps(dial, kept=inputs.found.kept, access=inputs.found.access).run(move)
        else:
            await _write(ctx, inputs, move, client)
    except (StepFailed, DialError) as error:
        said = said_of(move, str(error))
        record_notes(ctx.events, ctx.obj, step_failed(before, snapshot, move, said, now=ctx.now())[1])
        if isinstance(move, moves.MoveSlots):
            await ctx.clock.sleep(PACE)
        raise StepFailed(said) from error
    except (BadRequest, Forbidden, Invalid) as error:
        status, notes = step_failed(before, snapshot, move, str(error), now=ctx.now(), refused=True)
        record_notes(ctx.events, ctx.obj, notes)
        ctx.show(status)
        raise
    status = after_success(before, move)
    if not isinstance(move, moves.MoveSlots):
        return status
    if status != before:
        ctx.show(status)
        await ctx.record()
    return False  # a part of the way: a slot with many keys takes as many steps as it takes


async def _change_users(
    ctx: Context[RedisCluster], inputs: Inputs, snapshot: Snapshot, move: UsersMove, dial: Dial
) -> RedisClusterStatus:
    """On the servers, and then in the cluster's Secret what they accepted."""
    found = inputs.found
    done = await Steps(dial, kept=found.kept, access=found.access).users(move)
    held = after(found.access, move, done, now=ctx.now())
    if held != found.access.held:
        new = replace(found, access=replace(found.access, held=held))
        await effects.apply(ctx, Specs(inputs.cluster, new, inputs.orders).objects(), keep=_mounted(inputs))
    status = status_of(ctx.status)
    said = refusals(status.users, move, done, servers=servers_of(snapshot.seen.nodes), now=ctx.now())
    return structs.replace(status, users=said)


def record_notes(events: EventRecorder, obj: Object, notes: Iterable[Note]) -> None:
    """Record Events of an object."""
    for one in notes:
        (events.warning if one.warning else events.normal)(obj, one.reason, one.message)


async def _write(ctx: Context[Any], inputs: Inputs, move: Move, client: Client) -> None:
    if isinstance(move, moves.DeletePod):
        await delete_pod(ctx, move)
        return
    if isinstance(move, moves.Resize):
        new = inputs.specs.claims_to_make(move.replicas, inputs.claims_by_name)
        await make_claims(ctx, new, where=inputs.growth.where)
    orders = await _orders(ctx, inputs, move, client)
    specs = Specs(inputs.cluster, inputs.found, orders)
    if specs.taken_over and isinstance(move, moves.WriteTemplate | moves.RestoreTemplate):
        await apply_whole(ctx, specs.objects(), keep=_mounted(inputs))
    await apply(ctx, inputs, orders)


async def _orders(ctx: Context[Any], inputs: Inputs, move: Move, client: Client) -> Orders:
    kept = inputs.found.kept
    match move:
        case moves.Resize():
            return Orders(replicas=move.replicas)
        case moves.WriteTemplate():
            return Orders(rewrite=True)
        case moves.RestoreTemplate():
            good = await kept_template(client, move.revision, namespace=ctx.key.namespace)
            return Orders(good=good, inputs=move.inputs, why=move.why)
        case StagePassword():
            return Orders(kept=kept.staged(password_of(inputs.spec)))
        case PublishPassword():
            return Orders(kept=kept.published(), published=rfc3339(ctx.now()))
        case certificates.TurnCertificates():
            return Orders(turn=True)
        case DropPassword():
            return Orders(kept=replace(kept, next=None, previous=None))
    raise StepFailed(f"{move.name} is no write to Kubernetes")


async def apply(ctx: Context[Any], inputs: Inputs, orders: Orders) -> None:
    """Apply what differs from the child objects with these orders."""
    objects = Specs(inputs.cluster, inputs.found, orders).objects()
    await effects.apply(ctx, objects, keep=_mounted(inputs))


def _mounted(inputs: Inputs) -> list[tuple[type[Object], str]]:
    """Content-named ConfigMaps that a pod or the template in place still refers to."""
    return mounted_config_maps([inputs.live], inputs.pods)


async def _is_no_pod(inputs: Inputs, move: Move, client: Client) -> None:
    """Raise `StepFailed` where strangers to be expelled are pods of the cluster that the cache does not have yet."""
    if not isinstance(move, moves.Expel):
        return
    pods = await pods_of_set(client, inputs.live) if inputs.live is not None else []
    ips = {(pod.status.pod_ip if pod.status else None) or "" for pod in pods}
    if inputs.live is None or any(one.rpartition(":")[0].strip("[]") in ips for one in move.addresses):
        raise StepFailed("a pod of the cluster may be at that address; the cache has not heard of it yet")
