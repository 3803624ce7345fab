"""The actor of LogSets: the rooms of a pass put together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mooring.actor import Context, Move, Outcome, Planned, Report, Terminal, Verdict
from mooring.actor.outcome import Wait
from mooring.kube.object import Object
from mooring.kube.objects import apps, core, policy
from mooring.kube.patches import MergePatch
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.identity import bootstrap_replicas, read_bootstrap, write_bootstrap
from mooring.operators.matrixone.logset.inputs import Inputs, snapshot_of
from mooring.operators.matrixone.logset.moves import DeleteClaim, Release, Repair
from mooring.operators.matrixone.logset.plan import decide
from mooring.operators.matrixone.logset.snapshot import Snapshot
from mooring.operators.matrixone.logset.specs import RELEASED, gated
from mooring.operators.matrixone.logset.status import report
from mooring.operators.matrixone.names import BOOTSTRAP, INPUTS, LogNames
from mooring.operators.matrixone.sets import Surroundings, blocked_by, related
from mooring.operators.matrixone.specs import LogSpecs
from mooring.operators.matrixone.stateful import Found, correct, delete_claim, step
from mooring.operators.matrixone.types import LogSet
from mooring.operators.workload.effects import delete_pod
from mooring.operators.workload.moves import DeletePod
from mooring.operators.workload.rollout import RecordRolls
from mooring.operators.workload.statefulset import made_from

__all__ = ["LogSetActor"]


class LogSetActor(Planned[LogSet, Inputs, Snapshot]):
    """Observes one LogSet and acts upon it."""

    kind = LogSet
    name: Final = "matrixone-logset"
    owns = (core.Service, core.ConfigMap, apps.StatefulSet, policy.PodDisruptionBudget)
    related = related(LogSet, core.PersistentVolumeClaim)

    def __init__(self, around: Surroundings, *, failover: bool = True) -> None:
        self._around, self._failover = around, failover

    async def inputs(self, ctx: Context[LogSet]) -> Inputs | Outcome:
        """The declaration and the objects around it, from the caches."""
        log_set = with_defaults(ctx.obj)
        found = Found(
            set=ctx.children.find(apps.StatefulSet, LogNames(log_set).main),
            pods=self._around.pods(LogSet, ctx.key),
            claims=self._around.claims(LogSet, ctx.key),
        )
        blocked: Wait | Terminal | None = blocked_by(log_set)
        if blocked is not None and found.set is None:
            return blocked
        made = Inputs(log_set=log_set, found=found, blocked=blocked, failover=self._failover)
        if blocked is not None:
            return made
        if BOOTSTRAP not in made.annotations:
            return ctx.act("RecordBootstrap", self._bootstrap, ctx, made)
        asked = LogSpecs(log_set).inputs()
        return Inputs(log_set=log_set, found=found, asked=asked, failover=self._failover)

    async def _bootstrap(self, ctx: Context[LogSet], inputs: Inputs) -> None:
        """Record with which stores HAKeeper begins, before there are any: scaling must not change it."""
        text = write_bootstrap(bootstrap_replicas(inputs.shard_replicas))
        await _annotate(ctx, {BOOTSTRAP: text})

    def children(self, ctx: Context[LogSet], inputs: Inputs) -> Outcome | None:
        """The step that brings the child objects in line."""
        if inputs.blocked is not None:
            return None
        return correct(ctx, inputs.found, lambda: _objects(inputs), given=inputs.found)

    async def snapshot(self, ctx: Context[LogSet], inputs: Inputs) -> Snapshot:
        """Ask HAKeeper; whether its clock moves only where something may be stopped for it."""
        seen = await self._around.see(ctx.key, twice=_may_stop(inputs))
        return snapshot_of(inputs, seen, now=ctx.now())

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `plan`."""
        return decide(snapshot)

    def report(self, ctx: Context[LogSet], inputs: Inputs, snapshot: Snapshot, verdict: Verdict) -> Report:
        """See `status`."""
        return report(inputs, snapshot, verdict)

    async def step(self, ctx: Context[LogSet], inputs: Inputs, snapshot: Snapshot, move: Move) -> bool | None:
        """Carry out a move."""
        match move:
            case RecordRolls():  # it is written already
                return None
            case Release(pods=pods):
                for name, uid in pods:
                    body = {"metadata": {"uid": uid, "annotations": {RELEASED: "true"}}}
                    await ctx.client.patch(core.Pod, name, MergePatch(body), namespace=ctx.key.namespace)
            case Repair(pod=pod, uid=uid, claim=claim):
                if claim is not None:
                    await delete_claim(ctx, claim)
                await delete_pod(ctx, DeletePod(component="log", pod=pod, uid=uid))
            case _:
                await step(ctx, inputs.found, lambda: _objects(inputs), move)
                if isinstance(move, DeleteClaim):
                    ctx.log.info("claim deleted", claim=move.claim.name)
        return None


def _objects(inputs: Inputs) -> Iterable[Object]:
    """The child objects; the StatefulSet with its start gate."""
    members = read_bootstrap(inputs.annotations.get(BOOTSTRAP, "[]"))
    for one in LogSpecs(inputs.log_set, members=members).objects():
        yield gated(one) if isinstance(one, apps.StatefulSet) else one


def _may_stop(inputs: Inputs) -> bool:
    """A roll-out or a scale-in may be under way."""
    found, recorded = inputs.found, inputs.status
    moved = found.placed is not None and found.placed > (inputs.spec.replicas or 0)
    return moved or bool(recorded.rolls) or made_from(found.set, INPUTS) != inputs.asked


async def _annotate(ctx: Context[Any], annotations: dict[str, str]) -> None:
    body = {"metadata": {"uid": ctx.obj.metadata.uid, "annotations": annotations}}
    await ctx.client.patch(type(ctx.obj), ctx.key.name, MergePatch(body), namespace=ctx.key.namespace)
