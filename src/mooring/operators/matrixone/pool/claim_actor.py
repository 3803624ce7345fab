"""The actor of CNClaims: the rooms of a pass put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    InSync,
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
from mooring.kube.errors import Conflict, NotFound
from mooring.kube.object import Key, key_of
from mooring.kube.objects import core
from mooring.kube.patches import MergePatch
from mooring.kube.selectors import selector_of
from mooring.operators.matrixone.cnset.fence import SEEN_AFTER
from mooring.operators.matrixone.conditions import with_synced
from mooring.operators.matrixone.names import CN_BASE, CN_LOCK, CN_UUID, COMPONENT, INSTANCE, SQL
from mooring.operators.matrixone.pool.claim import decide
from mooring.operators.matrixone.pool.labels import (
    BOUND,
    CLAIMED_BY,
    DRAINING,
    IDLE,
    MOVE,
    PHASE,
    POD_UID,
)
from mooring.operators.matrixone.pool.moves import (
    Bind,
    ChoosePod,
    Dress,
    GiveBack,
    MoveClaim,
    OnClaim,
    OnPod,
    Record,
)
from mooring.operators.matrixone.pool.moving import MOVES_WITHIN, reason
from mooring.operators.matrixone.pool.pods import candidate, change, dressing, given_back
from mooring.operators.matrixone.pool.snapshot import (
    Candidate,
    ClaimSnapshot,
    chosen,
    gone,
    held,
    lost,
    recorded,
    spare,
)
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.types import (
    CNClaim,
    CNClaimSpec,
    CNClaimStatus,
    CNSet,
    CNSetStatus,
    CNStoreStatus,
    MigrateStatus,
    Workload,
)
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
    left: Workload | None = None
    """What the pod that the claim leaves still has to do, while a move is under way."""
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
        """The claim of a pod; else every claim that moves and, of an idle pod, every claim that has none."""
        labels, namespace = pod.metadata.labels or {}, pod.metadata.namespace or ""
        if name := labels.get(CLAIMED_BY):
            return [Key(namespace, name)]
        idle = labels.get(PHASE) == IDLE
        every = self._around.cn_claims(namespace)
        return [key_of(one) for one in every if _migrating(one) or (idle and not _recorded(one))]

    async def precede(self, ctx: Context[CNClaim]) -> Outcome | None:
        """Nothing is done while upstream's operator runs."""
        return self._around.left_alone(ctx)

    async def inputs(self, ctx: Context[CNClaim]) -> Inputs | Outcome:
        """The claim and the pods, from the caches."""
        pods = self._around.compute_nodes(ctx.key.namespace)
        return Inputs(
            claim=ctx.obj,
            pods=pods,
            left=_left(ctx, pods) if _migrating(ctx.obj) else None,
            blocked=blocked_by(ctx.obj),
        )

    async def snapshot(self, ctx: Context[CNClaim], inputs: Inputs) -> ClaimSnapshot:
        """The pods as cached, but as they are before one counts as gone, or the claim as holding none at its end.

        And a claim whose pod is gone, or that gives one back, must be as it was seen: it may have changed over meanwhile.
        """
        now = ctx.now()
        made = _snapshot(inputs, inputs.pods, now)
        if gone(made) or (made.ending and not held(made)):
            found = await self._around.live.list(core.Pod, namespace=ctx.key.namespace, label_selector=_NODES)
            made = _snapshot(inputs, tuple(found.items), now)
        if made.ending or not (gone(made) or spare(made)):
            return made
        return changed(made, stale=await self._changed(inputs.claim))

    async def _changed(self, claim: CNClaim) -> bool:
        name, namespace = claim.metadata.name or "", claim.metadata.namespace or ""
        try:
            now = await self._around.live.get(CNClaim, name, namespace=namespace)
        except NotFound:
            return True
        return now.metadata.resource_version != claim.metadata.resource_version

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
        pod = recorded(snapshot)
        phase = "Pending"
        if snapshot.pod_uid and not snapshot.ending:
            phase = "Lost" if lost(snapshot) and not snapshot.stale else "Bound"
        since = before.bound_time or (rfc3339(now) if pod is not None else None)
        status = replace(
            before,
            phase=phase,
            bound_time=since,
            store=_store(inputs, pod, since) if pod is not None else before.store,
            migrate=_migration(inputs, snapshot, before.migrate, now),
            conditions=with_synced(
                before.conditions,
                blocked or verdict,
                generation=inputs.claim.metadata.generation,
                now=now,
            ),
        )
        ready = pod is not None and pod.serves and not pod.terminating
        text = getattr(verdict, "message", "") or "no pod serves"
        if ready and pod is not None and not isinstance(verdict, InSync):
            text = f"{pod.name} serves"
        notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
        if phase == "Lost" and before.phase != "Lost":
            notes = [Note(reason="Lost", message=f"{snapshot.pod_name} is gone", warning=True)]
        state = ConditionState(ready, "Serving" if ready else "NotServing", text)
        instead: Terminal | InSync | None = blocked
        if instead is None and isinstance(verdict, InSync) and status.migrate is not None:
            instead = changed(verdict, again=2.0)  # its old pod is drained
        return Report(status=status, ready=state, notes=notes, instead=instead)

    async def finalize(self, ctx: Context[CNClaim]) -> Outcome:
        """Give the pod back."""
        return await self.observe(ctx)

    async def step(self, ctx: Context[CNClaim], inputs: Inputs, snapshot: ClaimSnapshot, move: Move) -> None:
        """Carry out a move, fenced by the version of what it changes."""
        match move:
            case Bind() | Dress():
                made = dressing(inputs.claim, _as_seen(inputs, move))
                taken = {MOVE: move.token or None} if isinstance(move, Bind) else {}
                await change(ctx, move, dict(made.labels), {**made.notes, **taken})
            case GiveBack():
                await change(ctx, move, *given_back(inputs.claim, ctx.now()))
            case Record(pod=one):
                await _write(ctx, move, {POD_UID: one.uid}, _bound_to(one))
            case ChoosePod(token=token):
                await _write(ctx, move, {MOVE: token or None}, {})
            case MoveClaim(pod=one, left=left):
                source = inputs.spec.source_pod
                done = source is not None and source.pod_name == left
                spec = _bound_to(one) | ({"sourcePod": None} if done else {})
                await _write(ctx, move, {POD_UID: one.uid, MOVE: None}, spec)


def _as_seen(inputs: Inputs, move: OnPod) -> core.Pod:
    """The pod whose labels are changed; raises `StepFailed` where the cache has another version than was decided from."""
    for one in inputs.pods:
        if one.metadata.uid == move.uid and one.metadata.resource_version == move.version:
            return one
    raise StepFailed(f"{move.pod} changed meanwhile; the next look chooses again", after=SEEN_AFTER)


def _bound_to(pod: Candidate) -> dict[str, Any]:
    return {"podName": pod.name, "nodeName": pod.node, "poolName": pod.pool}


async def _write(
    ctx: Context[CNClaim], move: OnClaim, notes: dict[str, str | None], spec: dict[str, Any]
) -> None:
    """Change the claim exactly as it was seen; raises `StepFailed` where it changed meanwhile."""
    body = {
        "metadata": {
            "uid": ctx.obj.metadata.uid,
            "resourceVersion": move.version,
            "annotations": notes,
        },
        **({"spec": spec} if spec else {}),
    }
    try:
        await ctx.client.patch(CNClaim, ctx.key.name, MergePatch(body), namespace=ctx.key.namespace)
    except Conflict as error:
        raise StepFailed("the claim changed meanwhile; the next look decides again") from error


def _snapshot(inputs: Inputs, pods: tuple[core.Pod, ...], now: datetime) -> ClaimSnapshot:
    claim, spec = inputs.claim, inputs.spec
    selector = selector_of(spec.selector)
    migrate = claim.status.migrate if claim.status is not None else None
    since = migrate.since if migrate is not None else None
    return ClaimSnapshot(
        name=claim.metadata.name or "",
        uid=claim.metadata.uid or "",
        version=claim.metadata.resource_version or "",
        pods=tuple(candidate(one, now=now, selector=selector, claim=claim) for one in pods),
        pod_name=spec.pod_name or "",
        pod_uid=_recorded(claim),
        source_name=(spec.source_pod.pod_name if spec.source_pod is not None else None) or "",
        token=(claim.metadata.annotations or {}).get(MOVE, ""),
        owner=spec.owner_name or "",
        late=since is not None and (now - datetime.fromisoformat(since)).total_seconds() > MOVES_WITHIN,
        ending=claim.metadata.deletion_timestamp is not None,
        paused=PAUSE in (claim.metadata.annotations or {}),
    )


def _recorded(claim: CNClaim) -> str:
    return (claim.metadata.annotations or {}).get(POD_UID, "")


def _migrating(claim: CNClaim) -> bool:
    return claim.status is not None and claim.status.migrate is not None


def _left(ctx: Context[CNClaim], pods: tuple[core.Pod, ...]) -> Workload | None:
    """What the pod that the claim leaves still has to do, by the word of its CNSet."""
    migrate = ctx.obj.status.migrate if ctx.obj.status is not None else None
    name = migrate.from_pod if migrate is not None else None
    pod = next((one for one in pods if one.metadata.name == name), None)
    owner = (pod.metadata.labels or {}).get(INSTANCE, "") if pod is not None else ""
    found = ctx.client.find(CNSet, owner, namespace=ctx.key.namespace) if owner else None
    stores = ((found.status if found is not None else None) or CNSetStatus()).stores or ()
    store = next((one for one in stores if one.pod_name == name), None)
    if store is None or (store.sessions is None and store.pipelines is None):
        return None
    return Workload(connections=store.sessions, pipelines=store.pipelines)


def _migration(
    inputs: Inputs, snapshot: ClaimSnapshot, before: MigrateStatus | None, now: datetime
) -> MigrateStatus | None:
    """The move that is under way, until the old pod is drained."""
    pod, why, new = recorded(snapshot), reason(snapshot), chosen(snapshot)
    if snapshot.ending or lost(snapshot):
        return before if snapshot.stale else None
    if pod is not None and (why or new is not None):
        same = before is not None and before.from_pod == pod.name
        return MigrateStatus(
            reason=why or (before.reason if before is not None and same else None),
            from_pod=pod.name,
            to_pod=new.name if new is not None else None,
            since=before.since if before is not None and same else rfc3339(now),
        )
    if before is None or before.from_pod is None:
        return None
    old = next((one for one in snapshot.pods if one.name == before.from_pod), None)
    if pod is None:
        return before
    if old is None or pod.name == old.name or old.phase not in (BOUND, DRAINING):
        return None
    if old.phase == BOUND and old not in held(snapshot):
        return None
    return replace(before, to_pod=pod.name, source=inputs.left)


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
