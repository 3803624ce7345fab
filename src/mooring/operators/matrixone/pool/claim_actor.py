"""The actor of CNClaims: the rooms of a pass put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Final

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    Move,
    Note,
    Outcome,
    Planned,
    Related,
    Report,
    StepFailed,
    Terminal,
    Verdict,
)
from mooring.cache import rfc3339
from mooring.kube.errors import Conflict
from mooring.kube.object import Key, key_of
from mooring.kube.objects import core
from mooring.kube.patches import MergePatch
from mooring.kube.selectors import selector_of
from mooring.operators.matrixone.conditions import with_synced
from mooring.operators.matrixone.names import CN_BASE, CN_LOCK, CN_UUID, COMPONENT, SQL
from mooring.operators.matrixone.pool.claim import (
    Bind,
    Candidate,
    ClaimSnapshot,
    Dress,
    GiveBack,
    Record,
    decide,
    held,
    lost,
)
from mooring.operators.matrixone.pool.labels import CLAIMED_BY, IDLE, PHASE, POD_UID
from mooring.operators.matrixone.pool.pods import candidate, change, dressing, given_back
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.types import CNClaim, CNClaimSpec, CNClaimStatus, CNStoreStatus
from mooring.operators.workload.waits import while_paused

__all__ = ["ClaimActor"]

PAUSE: Final = "mooring.dev/pause"
_NODES: Final = f"{COMPONENT}=CNSet"
_QUERY: Final = CN_BASE + 2


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The claim, and the compute nodes of its namespace."""

    claim: CNClaim = field(repr=False)
    pods: tuple[core.Pod, ...] = field(repr=False)
    blocked: Terminal | None = None

    @property
    def spec(self) -> CNClaimSpec:
        """The declaration."""
        return self.claim.spec or CNClaimSpec()


class ClaimActor(Planned[CNClaim, Inputs, ClaimSnapshot]):
    """Observes one CNClaim and acts upon it."""

    kind = CNClaim
    name: Final = "matrixone-cnclaim"
    finalizer = "matrixorigin.io/cn-claim-manager"

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.related = (Related(core.Pod, self._concerned, label_selector=_NODES),)

    def _concerned(self, pod: core.Pod) -> list[Key]:
        """The claim of a pod; every claim that has none where a pod is idle."""
        labels, namespace = pod.metadata.labels or {}, pod.metadata.namespace or ""
        if name := labels.get(CLAIMED_BY):
            return [Key(namespace, name)]
        if labels.get(PHASE) != IDLE:
            return []
        every = self._around.cn_claims(namespace)
        return [key_of(one) for one in every if not _recorded(one)]

    async def precede(self, ctx: Context[CNClaim]) -> Outcome | None:
        """Nothing is done while upstream's operator runs."""
        return self._around.left_alone(ctx)

    async def inputs(self, ctx: Context[CNClaim]) -> Inputs | Outcome:
        """The claim and the pods, from the caches."""
        return Inputs(
            claim=ctx.obj,
            pods=self._around.compute_nodes(ctx.key.namespace),
            blocked=blocked_by(ctx.obj),
        )

    async def snapshot(self, ctx: Context[CNClaim], inputs: Inputs) -> ClaimSnapshot:
        """The pods as cached; as they are before the claim counts as lost, or as holding none at its end."""
        made = _snapshot(inputs, inputs.pods)
        if lost(made) or (made.ending and not held(made)):
            found = await self._around.live.list(
                core.Pod, namespace=ctx.key.namespace, label_selector=f"{CLAIMED_BY}={ctx.key.name}"
            )
            return _snapshot(inputs, tuple(found.items))
        return made

    def plan(self, snapshot: ClaimSnapshot) -> Verdict:
        """See `claim`."""
        verdict = decide(snapshot)
        return while_paused(verdict, PAUSE) if snapshot.paused else verdict

    def report(
        self, ctx: Context[CNClaim], inputs: Inputs, snapshot: ClaimSnapshot, verdict: Verdict
    ) -> Report:
        """The status, readiness and events of one pass."""
        before, now = inputs.claim.status or CNClaimStatus(), ctx.now()
        blocked = inputs.blocked if not snapshot.pod_uid and not snapshot.ending else None
        pod = next((one for one in held(snapshot) if one.uid == snapshot.pod_uid), None)
        phase = "Pending"
        if snapshot.pod_uid and not snapshot.ending:
            phase = "Lost" if pod is None else "Bound"
        since = before.bound_time or (rfc3339(now) if pod is not None else None)
        status = replace(
            before,
            phase=phase,
            bound_time=since,
            store=_store(inputs, pod, since) if pod is not None else before.store,
            conditions=with_synced(
                before.conditions,
                blocked or verdict,
                generation=inputs.claim.metadata.generation,
                now=now,
            ),
        )
        ready = pod is not None and pod.serves and not pod.terminating
        text = (
            f"{pod.name} serves"
            if ready and pod is not None
            else getattr(verdict, "message", "") or "no pod serves"
        )
        notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
        if phase == "Lost" and before.phase != "Lost":
            notes = [Note(reason="Lost", message=f"{snapshot.pod_name} is gone", warning=True)]
        state = ConditionState(ready, "Serving" if ready else "NotServing", text)
        return Report(status=status, ready=state, notes=notes, instead=blocked)

    async def finalize(self, ctx: Context[CNClaim]) -> Outcome:
        """Give the pod back."""
        return await self.observe(ctx)

    async def step(self, ctx: Context[CNClaim], inputs: Inputs, snapshot: ClaimSnapshot, move: Move) -> None:
        """Carry out a move, fenced by the version of what it changes."""
        match move:
            case Bind() | Dress():
                pod = next(one for one in inputs.pods if one.metadata.uid == move.uid)
                labels, notes = dressing(inputs.claim, pod)
                await change(ctx, move, dict(labels), dict(notes))
            case GiveBack():
                await change(ctx, move, *given_back(inputs.claim, ctx.now()))
            case Record():
                await _record(ctx, move)


async def _record(ctx: Context[CNClaim], move: Record) -> None:
    pod = move.pod
    body = {
        "metadata": {
            "uid": ctx.obj.metadata.uid,
            "resourceVersion": move.version,
            "annotations": {POD_UID: pod.uid},
        },
        "spec": {"podName": pod.name, "nodeName": pod.node, "poolName": pod.pool},
    }
    try:
        await ctx.client.patch(CNClaim, ctx.key.name, MergePatch(body), namespace=ctx.key.namespace)
    except Conflict as error:
        raise StepFailed("the claim changed meanwhile; the next look decides again") from error


def _snapshot(inputs: Inputs, pods: tuple[core.Pod, ...]) -> ClaimSnapshot:
    claim, spec = inputs.claim, inputs.spec
    selector = selector_of(spec.selector)
    recorded = _recorded(claim)
    made = ClaimSnapshot(
        name=claim.metadata.name or "",
        uid=claim.metadata.uid or "",
        version=claim.metadata.resource_version or "",
        pods=tuple(candidate(one, selector=selector, claim=claim) for one in pods),
        pod_name=spec.pod_name or "",
        pod_uid=recorded,
        owner=spec.owner_name or "",
        ending=claim.metadata.deletion_timestamp is not None,
        paused=PAUSE in (claim.metadata.annotations or {}),
    )
    mine = held(made)
    elsewhere = bool(recorded) and any(one.uid == recorded and one.name != spec.pod_name for one in mine)
    source = spec.source_pod is not None and bool(spec.source_pod.pod_name)
    return changed(made, moves=elsewhere or (bool(recorded) and source))


def _recorded(claim: CNClaim) -> str:
    return (claim.metadata.annotations or {}).get(POD_UID, "")


def _store(inputs: Inputs, pod: Candidate, since: str | None) -> CNStoreStatus:
    found = next((one for one in inputs.pods if one.metadata.uid == pod.uid), None)
    labels = (found.metadata.labels if found is not None else None) or {}
    subdomain = (found.spec.subdomain if found is not None and found.spec is not None else None) or ""
    host = f"{pod.name}.{subdomain}.{inputs.claim.metadata.namespace}.svc"
    return CNStoreStatus(
        service_id=labels.get(CN_UUID),
        lock_service_address=f"{host}:{CN_LOCK}",
        pipeline_service_address=f"{host}:{CN_BASE}",
        sql_address=f"{host}:{SQL}",
        query_address=f"{host}:{_QUERY}",
        work_state=1 if pod.serves else 2,
        labels=inputs.spec.cn_labels,
        pod_name=pod.name,
        bound_time=since,
    )
