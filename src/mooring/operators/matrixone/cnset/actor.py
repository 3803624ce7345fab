"""The actor of CNSets: the rooms of a pass put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import replace as changed
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from mooring.actor import (
    Context,
    InSync,
    Move,
    Outcome,
    Planned,
    Related,
    Report,
    StepFailed,
    Terminal,
    Verdict,
)
from mooring.cache import Transition, rfc3339
from mooring.kube.errors import Conflict, NotFound
from mooring.kube.object import Key, Object, to_dict
from mooring.kube.objects import apps, core, policy
from mooring.kube.patches import MergePatch
from mooring.operators.matrixone import kruise
from mooring.operators.matrixone.cnset import moves
from mooring.operators.matrixone.cnset.autoscale import CONTESTED
from mooring.operators.matrixone.cnset.fence import unchanged
from mooring.operators.matrixone.cnset.inputs import Inputs, snapshot_of
from mooring.operators.matrixone.cnset.members import due
from mooring.operators.matrixone.cnset.plan import decide
from mooring.operators.matrixone.cnset.pooling import serves_claims
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.cnset.specs import (
    DRAINING,
    GATE,
    HANDED_OVER,
    owned,
    prepared,
    revision_name,
    revision_of,
    spec_in,
)
from mooring.operators.matrixone.cnset.status import report
from mooring.operators.matrixone.conditions import is_true
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.depends import NO_LOG_SET, dn_set_of, log_set_of, needs_dn_set, needs_log_set
from mooring.operators.matrixone.identity import host_uuid
from mooring.operators.matrixone.logset.moves import DeleteClaim, GrowClaim
from mooring.operators.matrixone.look import Seen
from mooring.operators.matrixone.names import CN_LABELS, INPUTS, CNNames, labels_of
from mooring.operators.matrixone.pool.labels import (
    CLAIM_LABELS,
    CLAIM_UID,
    CLAIMED_BY,
    IDLE,
    LEAVES,
    MOVE,
    OWNER,
    PHASE,
    UNKNOWN,
)
from mooring.operators.matrixone.pool.labels import DRAINING as RETURNING
from mooring.operators.matrixone.rpc.dial import RpcError
from mooring.operators.matrixone.sets import Surroundings, blocked_by, related, told
from mooring.operators.matrixone.specs import CNSpecs, LogService
from mooring.operators.matrixone.stateful import KEPT, delete_claim, grow_claim, kept_configs
from mooring.operators.matrixone.takeover_steps import Declared, adopt_nodes, take_over
from mooring.operators.matrixone.types import MAIN, POOLING, CNSet, DNSet, LogSet
from mooring.operators.workload.cpu import CPU, CPUReader
from mooring.operators.workload.ownership import SizeOwners

__all__ = ["CNSetActor"]

_UNFENCED: Final = (
    moves.SetWorking,
    moves.Drain,
    moves.HandOver,
    moves.ClearLabels,
    moves.SetLeave,
    moves.DeleteStore,
)
"""Moves whose effect is not fenced by the version of their pod."""


class CNSetActor(Planned[CNSet, Inputs, Snapshot]):
    """Observes one CNSet and acts upon it."""

    kind = CNSet
    name: Final = "matrixone-cnset"
    owns = (core.Service, core.ConfigMap, apps.ControllerRevision, policy.PodDisruptionBudget)
    dependencies = (needs_log_set, needs_dn_set)
    finalizer = "matrixorigin.io/cnset"

    def __init__(self, around: Surroundings, *, nodes: bool = True) -> None:
        self._around, self._nodes = around, nodes
        self._owners = SizeOwners(around.live, "replicas")
        self._cpu = CPUReader(around.live)
        self.related = [*related(CNSet, core.PersistentVolumeClaim, own_writes=False)]
        if nodes:
            self.related.append(Related(core.Node, around.on_node, changed=_cordon_changed))

    def forget(self, key: Key) -> None:
        """Drop what was read of its managedFields and of its CPU."""
        self._owners.forget(key)
        self._cpu.forget(key)

    # --- one pass ------------------------------------------------------------------------------------------

    async def precede(self, ctx: Context[CNSet]) -> Outcome | None:
        """Nothing is done while upstream's operator runs; what it made is taken over first."""
        if (waits := self._around.left_alone(ctx)) is not None:
            return waits
        names, pods = CNNames(ctx.obj), self._around.pods(CNSet, ctx.key)
        step = await take_over(
            ctx,
            self._around,
            kind=kruise.CloneSet,
            main=names.main,
            made=True,
            pods=pods,
            claims=self._around.claims(CNSet, ctx.key),
            look=partial(self._declared, ctx),
        )
        return step or adopt_nodes(ctx, names.main, pods, lambda id: host_uuid(names.host(names.store(id))))

    async def _declared(
        self,
        ctx: Context[CNSet],
        workload: Object | None,
        claims: Sequence[core.PersistentVolumeClaim],
    ) -> Declared:
        """The log service and the transaction nodes are taken over first. Pools have no counterpart yet."""
        cn_set, key = with_defaults(ctx.obj), log_set_of(ctx.obj)
        unmet, blocked = ctx.unmet(), blocked_by(cn_set)
        log_set = ctx.client.find(LogSet, key.name, namespace=key.namespace) if key is not None else None
        if blocked is not None or log_set is None:
            return Declared(refusal=blocked.message if blocked is not None else NO_LOG_SET.message)
        if cn_set.spec is not None and cn_set.spec.pod_management_policy == POOLING:
            return Declared(
                refusal="it belongs to a pool, and pools of upstream's operator are not taken over; delete the CNPool with "
                "upstream's operator, and declare it again"
            )
        specs = CNSpecs(cn_set, LogService.of(with_defaults(log_set)))
        made = specs.pod("0")
        first = self._around.taken_over_first
        return Declared(
            digest=specs.inputs(),
            pods=core.PodTemplateSpec(spec=made.spec),
            trouble=first(LogSet, key)
            or first(DNSet, dn_set_of(cn_set))
            or (unmet.message if unmet is not None else ""),
        )

    async def inputs(self, ctx: Context[CNSet]) -> Inputs | Outcome:
        """The declaration and the objects around it; the first pods wait for the log service and transaction nodes."""
        cn_set = with_defaults(ctx.obj)
        pods = self._around.pods(CNSet, ctx.key)
        ending = _time(ctx.obj.metadata.deletion_timestamp)
        blocked = blocked_by(cn_set)
        if blocked is not None and not pods:
            return blocked
        unmet = ctx.unmet()
        key = log_set_of(cn_set)
        log_set = ctx.client.find(LogSet, key.name, namespace=key.namespace) if key is not None else None
        begun = ctx.obj.status is not None and ctx.obj.status.host is not None
        if ending is None and unmet is not None and not pods and not begun:
            return unmet
        if log_set is None:
            return unmet or NO_LOG_SET
        made = Inputs(
            cn_set=cn_set,
            log_set=with_defaults(log_set),
            pods=pods,
            claims=self._around.claims(CNSet, ctx.key),
            cordoned=self._cordoned(ctx, pods),
            waiting=unmet.message if unmet is not None else "",
            begun=begun,
            blocked=blocked,
            ending=ending,
        )
        if blocked is not None:
            return made
        made = changed(made, contested=await self._contested(ctx), cpu=await self._cpu_of(ctx, pods))
        return changed(made, revision=_specs(made, cn_set).inputs())

    async def _contested(self, ctx: Context[CNSet]) -> str:
        """Who scales the set by its scale subresource: asked where the declaration changed, and as long as somebody did."""
        spec, status = ctx.obj.spec, ctx.obj.status
        if spec is None or spec.autoscale is None:
            return ""
        seen = status is not None and status.observed_generation == ctx.obj.metadata.generation
        if seen and status is not None and not is_true(status.conditions, CONTESTED):
            return ""
        return await self._owners.of(ctx.obj)

    async def _cpu_of(self, ctx: Context[CNSet], pods: Sequence[core.Pod]) -> CPU:
        """Of the pods, where the set follows it."""
        scale = ctx.obj.spec.autoscale if ctx.obj.spec is not None else None
        if scale is None or all(one.type != "cpu" for one in scale.metrics):
            return CPU()
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels_of(ctx.obj).items()))
        return await self._cpu.of(ctx.key, pods, selector=selector, container=MAIN, now=ctx.now())

    def _cordoned(self, ctx: Context[CNSet], pods: Iterable[core.Pod]) -> frozenset[str]:
        if not self._nodes:
            return frozenset()
        names = {pod.spec.node_name for pod in pods if pod.spec is not None and pod.spec.node_name}
        found = (ctx.client.find(core.Node, name) for name in names)
        return frozenset(
            one.metadata.name or ""
            for one in found
            if one is not None and one.spec and one.spec.unschedulable
        )

    def children(self, ctx: Context[CNSet], inputs: Inputs) -> Outcome | None:
        """The step that brings the child objects in line; pods and claims are the plan's."""
        if inputs.blocked is not None or inputs.ending is not None:
            return None
        keep = [*kept_configs(ctx, (), inputs.pods), *self._kept_revisions(ctx, inputs)]
        given = (inputs.log_set.spec, inputs.revision, len(inputs.pods))
        drift = ctx.children.settle(lambda: self._objects(ctx, inputs), given=given, keep=keep)
        if drift.foreign:
            return ctx.wait(
                "NameTaken", f"{drift.taken}; rename this object, or delete that one", stalled=True
            )
        return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift)) if drift else None

    def _objects(self, ctx: Context[CNSet], inputs: Inputs) -> Iterator[Object]:
        # A pod's gate is opened later than this is applied: the budget counts a pod before it serves.
        yield from _specs(inputs, inputs.cn_set).objects(pods=len(inputs.pods))
        # What a revision holds cannot be changed, nor need it be: it is what its pods were made from.
        if ctx.children.find(apps.ControllerRevision, revision_name(inputs.cn_set, inputs.revision)) is None:
            yield revision_of(inputs.cn_set, inputs.revision)

    def _kept_revisions(self, ctx: Context[CNSet], inputs: Inputs) -> list[tuple[type[Object], str]]:
        used = {(pod.metadata.annotations or {}).get(INPUTS, "") for pod in inputs.pods} | {inputs.revision}
        names = {revision_name(inputs.cn_set, one) for one in used}
        found = sorted(
            ctx.children.of(apps.ControllerRevision), key=lambda one: one.metadata.creation_timestamp or ""
        )
        newest = [one.metadata.name or "" for one in found[-KEPT:]]
        there = {one.metadata.name or "" for one in found}
        return [(apps.ControllerRevision, name) for name in sorted((names & there) | set(newest))]

    async def snapshot(self, ctx: Context[CNSet], inputs: Inputs) -> Snapshot:
        """Ask HAKeeper; and the compute nodes themselves where one of them has to go."""
        key, now = log_set_of(inputs.cn_set), ctx.now()
        seen = await self._around.see(key)
        made = snapshot_of(inputs, seen, gave_locks=(), now=now)
        if seen.view is None:
            return made
        if due(made) or made.scaling is not None or any(_drains(one) for one in made.members):
            asked = [one.uuid for one in made.members]
            seen = await self._around.see(key, dn_set_of(inputs.cn_set), ask=asked)
            given = [one.uuid for one in made.members if one.handed_over]
            gave = [one for one in given if await self._gave_locks(seen, one)]
            return snapshot_of(inputs, seen, gave_locks=gave, now=now)
        returned = [one.uuid for one in made.members if one.phase in (UNKNOWN, RETURNING) and one.draining]
        if not returned or not (made.paused or serves_claims(made)):
            return made  # what a claim needs depends on no session of another pod
        seen = await self._around.keeper.load(seen, returned)
        return snapshot_of(inputs, seen, gave_locks=(), now=now)

    async def _gave_locks(self, seen: Seen, uuid: str) -> bool:
        try:
            return await self._around.keeper.gave_locks(seen, uuid)
        except RpcError:
            return False

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `plan`."""
        return decide(snapshot)

    def report(self, ctx: Context[CNSet], inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
        """See `status`."""
        return report(inputs, snapshot, verdict)

    async def finalize(self, ctx: Context[CNSet]) -> Outcome:
        """Drain the pods before they go, where that was declared; bounded, and not where there is no log service."""
        if (waits := self._around.left_alone(ctx)) is not None:
            return waits
        spec, key = ctx.obj.spec, log_set_of(ctx.obj)
        there = key is not None and ctx.client.find(LogSet, key.name, namespace=key.namespace) is not None
        if spec is None or spec.termination_policy != "Drain" or not there:
            return InSync("the pods go with the CNSet")
        outcome = await self.observe(ctx)
        return InSync("the declaration cannot be read") if isinstance(outcome, Terminal) else outcome

    # --- effects -------------------------------------------------------------------------------------------

    async def step(self, ctx: Context[CNSet], inputs: Inputs, snapshot: Snapshot, move: Move) -> None:
        """Carry out a move."""
        keeper, key = self._around.keeper, log_set_of(inputs.cn_set)
        assert key is not None
        logs = self._around.pods(LogSet, key)
        if isinstance(move, _UNFENCED):
            await unchanged(ctx.client, ctx.key.namespace, inputs.pods, move)
        match move:
            case moves.CreatePod():
                await self._create(ctx, inputs, move)
            case moves.Several():
                await _all(self.step(ctx, inputs, snapshot, one) for one in move.moves)
            case moves.SetWorking(uuid=uuid, labels=labels):
                await told(lambda: keeper.set_working(key, logs, uuid, labels))
                await ctx.did(f"{move.pod}: working")
                if move.opens:
                    await self._set_gate(ctx, inputs, move, open=True)
                if _noted(inputs, move, DRAINING):
                    await _annotate(ctx, move, {DRAINING: None})
            case moves.Drain(uuid=uuid):
                await _annotate(ctx, move, {DRAINING: rfc3339(ctx.now())})
                await told(lambda: keeper.drain(key, logs, uuid))
                await ctx.did(f"{move.pod}: draining")
            case moves.HandOver(uuid=uuid):
                await _annotate(ctx, move, {HANDED_OVER: rfc3339(ctx.now())})
                seen = await self._around.see(key, dn_set_of(inputs.cn_set))
                await told(lambda: keeper.hand_over(seen, uuid))
                await ctx.did(f"{move.pod}: lock tables handed over")
            case moves.Stop(pod=pod, uid=uid, version=version):
                await ctx.client.delete(
                    core.Pod, pod, namespace=ctx.key.namespace, uid=uid, resource_version=version or None
                )
            case moves.SetLeave(leave=leave):
                await _annotate(ctx, move, {LEAVES: leave or None})
            case moves.SetPhase():
                await _set_phase(ctx, inputs, move)
            case moves.ClearLabels(uuid=uuid):
                await told(lambda: keeper.clear_labels(key, logs, uuid))
                await ctx.did(f"{move.pod}: labels cleared")
            case moves.DeleteStore(uuid=uuid):
                await told(lambda: keeper.delete(key, logs, uuid))
                await ctx.did(f"{move.pod}: forgotten")
            case moves.SetGate():
                await self._set_gate(ctx, inputs, move, open=move.open)
            case DeleteClaim(claim=claim):
                await delete_claim(ctx, claim)
            case GrowClaim(claim=claim, size=size):
                await grow_claim(ctx, claim, size)

    async def _create(self, ctx: Context[CNSet], inputs: Inputs, move: moves.CreatePod) -> None:

        cn_set = inputs.cn_set
        if move.revision != inputs.revision:
            kept = ctx.children.find(apps.ControllerRevision, revision_name(cn_set, move.revision))
            if kept is None:
                raise StepFailed(
                    f"the declaration {move.revision} of the pods that run is gone; correct the spec"
                )
            cn_set = replace(cn_set, spec=spec_in(kept))
            config = _specs(inputs, cn_set).config()
            if ctx.children.find(core.ConfigMap, config.metadata.name or "") is None:
                await ctx.client.ensure(owned(config, cn_set))
        for claim in _specs(inputs, cn_set).claims(move.id):
            await ctx.client.ensure(owned(claim, cn_set))
        made = owned(prepared(_specs(inputs, cn_set).pod(move.id)), cn_set)
        notes = {**(made.metadata.annotations or {}), INPUTS: move.revision}
        await ctx.client.ensure(replace(made, metadata=replace(made.metadata, annotations=notes)))

    async def _set_gate(
        self, ctx: Context[CNSet], inputs: Inputs, move: moves.OnStore, *, open: bool
    ) -> None:
        pod = _pod(inputs, move)
        if pod is None:
            return
        present = [one for one in (pod.status.conditions if pod.status else None) or () if one.type != GATE]
        status = "True" if open else "False"
        made = core.PodCondition(
            type=GATE, status=status, reason="CNStoreReady" if open else "CNStoreNotServing",
            last_transition_time=rfc3339(ctx.now()),
        )  # fmt: skip

        body = {
            "metadata": {"uid": move.uid, "resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": [to_dict(one) for one in (*present, made)]},
        }
        await ctx.client.patch(
            core.Pod, move.pod, MergePatch(body), namespace=ctx.key.namespace, subresource="status"
        )


def _specs(inputs: Inputs, cn_set: CNSet) -> CNSpecs:
    return CNSpecs(cn_set, LogService.of(inputs.log_set))


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Take all steps, also where some fail; then raises what the first one of those did."""
    for done in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(done, BaseException):
            raise done


def _drains(member: Member) -> bool:
    """Without having to go by the plan: a person set it aside, or deleted it."""
    return member.set_aside or (member.pod.terminating and member.draining)


def _pod(inputs: Inputs, move: moves.OnStore) -> core.Pod | None:
    return next((one for one in inputs.pods if one.metadata.uid == move.uid), None)


def _noted(inputs: Inputs, move: moves.OnStore, note: str) -> bool:
    pod = _pod(inputs, move)
    return pod is not None and note in (pod.metadata.annotations or {})


async def _annotate(ctx: Context[CNSet], move: moves.OnStore, notes: dict[str, str | None]) -> None:
    body = {"metadata": {"uid": move.uid, "annotations": notes}}
    try:
        await ctx.client.patch(core.Pod, move.pod, MergePatch(body), namespace=ctx.key.namespace)
    except NotFound:
        return


async def _set_phase(ctx: Context[CNSet], inputs: Inputs, move: moves.SetPhase) -> None:
    """A pod that becomes idle loses what its claim gave it, but never a label that the set gives all its pods."""
    pod = _pod(inputs, move)
    labels: dict[str, str | None] = {PHASE: move.phase}
    notes: dict[str, str | None] = {}
    if move.phase == IDLE and pod is not None:
        given = (pod.metadata.annotations or {}).get(CLAIM_LABELS) or ""
        overlay = inputs.spec.overlay
        own = (overlay.pod_labels if overlay is not None else None) or {}
        labels |= {one: own.get(one) for one in given.split(",") if one}
        labels |= {CLAIMED_BY: None, OWNER: None}
        notes = {CLAIM_UID: None, MOVE: None, CLAIM_LABELS: None, CN_LABELS: "null", DRAINING: None}
    body = {
        "metadata": {
            "uid": move.uid,
            "resourceVersion": move.version,
            "labels": labels,
            **({"annotations": notes} if notes else {}),
        }
    }
    try:
        await ctx.client.patch(core.Pod, move.pod, MergePatch(body), namespace=ctx.key.namespace)
    except NotFound:
        return
    except Conflict as error:
        raise StepFailed(f"{move.pod} changed meanwhile") from error


def _cordon_changed(change: Transition[core.Node]) -> bool:
    old, new = change.old, change.new
    before = bool(old.spec and old.spec.unschedulable) if old is not None else False
    after = bool(new.spec and new.spec.unschedulable) if new is not None else False
    return before != after


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
