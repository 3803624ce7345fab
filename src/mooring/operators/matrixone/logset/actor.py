"""The actor of LogSets: the rooms of a pass put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from mooring.actor import Context, Move, Outcome, Planned, Report, Terminal, Verdict
from mooring.actor.outcome import Wait
from mooring.kube.object import Key, Object, to_dict
from mooring.kube.objects import apps, core, policy
from mooring.kube.patches import MergePatch
from mooring.operators.matrixone.bucket.lock import OWNER, Bind, Take, bound, take, with_retention
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.identity import bootstrap_replicas, read_bootstrap, write_bootstrap
from mooring.operators.matrixone.logset.inputs import Inputs, snapshot_of
from mooring.operators.matrixone.logset.moves import DeleteClaim, Release, Repair
from mooring.operators.matrixone.logset.plan import decide
from mooring.operators.matrixone.logset.quorum import has_quorum
from mooring.operators.matrixone.logset.snapshot import Snapshot
from mooring.operators.matrixone.logset.specs import RELEASED, gated
from mooring.operators.matrixone.logset.status import report
from mooring.operators.matrixone.names import BOOTSTRAP, BUCKET_LIVE, INPUTS, LogNames
from mooring.operators.matrixone.sets import Surroundings, blocked_by, related
from mooring.operators.matrixone.specs import LogSpecs
from mooring.operators.matrixone.stateful import Found, correct, delete_claim, step
from mooring.operators.matrixone.takeover import of_upstream, reserved_trouble
from mooring.operators.matrixone.takeover_steps import Declared, release, take_in
from mooring.operators.matrixone.types import IN_USE, BucketClaim, LogSet, S3Provider, data_retention
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

    def forget(self, key: Key) -> None:
        """Nothing is remembered of its HAKeeper."""
        self._around.keeper.forget(key)

    async def precede(self, ctx: Context[LogSet]) -> Outcome | None:
        """Nothing is done while upstream's operator runs; what it made is taken over first."""
        if (waits := self._around.left_alone(ctx)) is not None:
            return waits
        main, pods = LogNames(ctx.obj).main, self._around.pods(LogSet, ctx.key)
        step = await take_in(ctx, self._around, main=main, look=partial(self._declared, ctx, pods))
        if step is not None:
            return step
        found = ctx.children.find(apps.StatefulSet, main)
        if found is None or not of_upstream(ctx.obj):
            return None
        claims = self._around.bucket_claims(ctx.key.namespace)
        return release(ctx, [one for one in claims if bound(one) == str(ctx.key)])

    async def _declared(
        self,
        ctx: Context[LogSet],
        pods: tuple[core.Pod, ...],
        workload: Object | None,
        claims: Sequence[core.PersistentVolumeClaim],
    ) -> Declared:
        """The log service has its quorum before the workload of its stores goes."""
        log_set = with_defaults(ctx.obj)
        if (blocked := blocked_by(log_set)) is not None:
            return Declared(refusal=blocked.message)
        owner = (workload.metadata.uid if workload is not None else None) or ""
        inputs = Inputs(log_set=log_set, found=Found(set=None, pods=pods, claims=tuple(claims), owner=owner))
        seen = await self._around.see(ctx.key)
        quorum = has_quorum(snapshot_of(inputs, seen, now=ctx.now())) if pods else ""
        made = next(one for one in _objects(inputs) if isinstance(one, apps.StatefulSet))
        return Declared(
            digest=made_from(made, INPUTS),
            pods=made.spec.template if made.spec is not None else None,
            refusal=reserved_trouble(workload, claims),
            trouble=quorum,
        )

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
        if (held := await self._bucket(ctx, made)) is not None:
            return held
        if BOOTSTRAP not in made.annotations:
            return ctx.act("RecordBootstrap", self._bootstrap, ctx, made)
        asked = LogSpecs(log_set).inputs()
        return Inputs(log_set=log_set, found=found, asked=asked, failover=self._failover)

    async def _bucket(self, ctx: Context[LogSet], inputs: Inputs) -> Outcome | None:
        """The path of the object store is this LogSet's before anything of it runs; ``None`` when it is."""
        storage = inputs.spec.shared_storage
        if storage is None or storage.s3 is None:
            return None
        s3 = with_retention(storage.s3, data_retention(inputs.spec))
        # Before the first pod the caches are not enough: another LogSet may have taken the path a moment ago.
        claims = (
            (await self._around.live.list(BucketClaim)).items
            if inputs.found.set is None and not self._around.namespaced
            else self._around.bucket_claims(ctx.key.namespace)
        )
        found = take(ctx.obj, s3, claims)
        # Stores that a take-over left without a workload hold the path already.
        starts = inputs.found.set is None and not inputs.found.pods
        if isinstance(found, Wait):
            return found if starts else None
        if isinstance(found, Take):
            claim = found.claim
            return ctx.act("TakeBucket", lambda: ctx.client.create(claim))
        if isinstance(found, Bind):
            return ctx.act("BindBucket", _bind, ctx, found.claim)
        return _corrected(ctx, found, s3, live=not starts)

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


async def _bind(ctx: Context[LogSet], claim: BucketClaim) -> None:
    """Take over a claim that was released, as it was seen."""
    body = {
        "metadata": {
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {OWNER: ctx.obj.metadata.uid},
        },
        "status": {"bindTo": str(ctx.key), "state": IN_USE},
    }
    await ctx.client.patch(
        BucketClaim, claim.metadata.name or "", MergePatch(body), namespace=claim.metadata.namespace or ""
    )


def _corrected(ctx: Context[LogSet], claim: BucketClaim, s3: S3Provider, *, live: bool) -> Outcome | None:
    """The claim says what becomes of the data, and whether a process ever ran; ``None`` when it does."""
    body: dict[str, Any] = {}
    if live and BUCKET_LIVE not in (claim.metadata.annotations or {}):
        body["metadata"] = {"annotations": {BUCKET_LIVE: "true"}}
    if claim.spec is not None and claim.spec.s3 != s3:
        body["spec"] = {"s3": to_dict(s3)}
    if not body:
        return None
    name, namespace = claim.metadata.name or "", claim.metadata.namespace or ""
    return ctx.act(
        "CorrectBucketClaim",
        lambda: ctx.client.patch(BucketClaim, name, MergePatch(body), namespace=namespace),
    )


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
