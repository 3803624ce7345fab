"""The actor of CNPools: a CNSet of the pool's name, whose number of pods follows from the claims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Final

import msgspec
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
    Terminal,
    Verdict,
    not_ready,
)
from mooring.kube.object import Key, key_of, to_dict
from mooring.kube.objects import core, meta
from mooring.kube.selectors import selector_of
from mooring.operators.matrixone.conditions import with_synced
from mooring.operators.matrixone.names import COMPONENT, INSTANCE, labels_of
from mooring.operators.matrixone.pool.labels import BOUND, DRAINING, IDLE, POD_UID, POOL
from mooring.operators.matrixone.pool.moves import GiveBack
from mooring.operators.matrixone.pool.moving import needs_move
from mooring.operators.matrixone.pool.pods import candidate, change, given_back
from mooring.operators.matrixone.pool.snapshot import Candidate
from mooring.operators.matrixone.pool.warm import PoolSnapshot, decide, wanted
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.types import (
    POOLING,
    CNClaim,
    CNClaimSpec,
    CNPool,
    CNPoolSpec,
    CNPoolStatus,
    CNSet,
    CNSetDeps,
    CNSetSpec,
    Overlay,
    PoolScaleStrategy,
    PoolTemplate,
    ScalingConfig,
)
from mooring.operators.workload.waits import while_paused

__all__ = ["PoolActor", "set_of"]

PAUSE: Final = "mooring.dev/pause"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The pool, its pods, and the claims of the namespace."""

    pool: CNPool = field(repr=False)
    pods: tuple[core.Pod, ...] = field(default=(), repr=False)
    claims: tuple[CNClaim, ...] = field(default=(), repr=False)
    trouble: str = ""
    blocked: Terminal | None = None

    @property
    def snapshot(self) -> PoolSnapshot:
        """What the number of pods is decided from."""
        spec = self.pool.spec or CNPoolSpec()
        scale = (spec.strategy.scale_strategy if spec.strategy is not None else None) or PoolScaleStrategy()
        pods = tuple(candidate(one) for one in self.pods)
        return PoolSnapshot(
            pods=pods,
            claims={one.metadata.name or "": one.metadata.uid or "" for one in self.claims},
            waiting=sum(_waits(one, self.pool, pods) for one in self.claims),
            max_idle=scale.max_idle or 0,
            max_pods=scale.max_pods,
            trouble=self.trouble,
            ending=self.pool.metadata.deletion_timestamp is not None,
            paused=PAUSE in (self.pool.metadata.annotations or {}),
        )


class PoolActor(Planned[CNPool, Inputs, PoolSnapshot]):
    """Observes one CNPool and acts upon it."""

    kind = CNPool
    name: Final = "matrixone-cnpool"
    owns = (CNSet,)
    finalizer = "matrixorigin.io/cn-pool-manager"

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.related = (
            Related(core.Pod, _pool_of, label_selector=f"{COMPONENT}=CNSet"),
            Related(CNClaim, self._pools_of),
        )

    def _pools_of(self, claim: CNClaim) -> list[Key]:
        return [key_of(one) for one in self._around.pools(claim.metadata.namespace or "")]

    async def precede(self, ctx: Context[CNPool]) -> Outcome | None:
        """Nothing is done while upstream's operator runs."""
        return self._around.left_alone(ctx)

    async def inputs(self, ctx: Context[CNPool]) -> Inputs | Outcome:
        """The pool with what is around it, from the caches."""
        blocked = blocked_by(ctx.obj)
        made = ctx.children.find(CNSet, ctx.key.name)
        if blocked is not None and made is None:
            return blocked
        return Inputs(
            pool=ctx.obj,
            pods=self._around.pods(CNSet, ctx.key) if made is not None else (),
            claims=tuple(self._around.cn_claims(ctx.key.namespace)),
            trouble=f"CNSet {ctx.key.name} {not_ready(made)}" if made is not None and not_ready(made) else "",
            blocked=blocked,
        )

    def children(self, ctx: Context[CNPool], inputs: Inputs) -> Outcome | None:
        """The step that brings the CNSet in line."""
        snapshot = inputs.snapshot
        if inputs.blocked is not None or snapshot.paused:
            return None
        number = wanted(snapshot)
        drift = ctx.children.settle(lambda: [set_of(inputs.pool, number)], given=number)
        if drift.foreign:
            return ctx.wait("NameTaken", f"{drift.taken}; rename this pool, or delete that one", stalled=True)
        return ctx.act("ApplyChildren", ctx.children.apply, drift, message=str(drift)) if drift else None

    async def snapshot(self, ctx: Context[CNPool], inputs: Inputs) -> PoolSnapshot:
        """As cached; the claims as they are before a pod counts as nobody's."""
        made = inputs.snapshot
        if not any(
            one.phase == BOUND and made.claims.get(one.claimed_by) != one.claim_uid for one in made.pods
        ):
            return made
        found = await self._around.live.list(CNClaim, namespace=ctx.key.namespace)
        known = {one.metadata.name or "": one.metadata.uid or "" for one in found.items}
        return changed(made, claims=known)

    def plan(self, snapshot: PoolSnapshot) -> Verdict:
        """See `warm`."""
        verdict = decide(snapshot)
        return while_paused(verdict, PAUSE) if snapshot.paused else verdict

    def report(
        self, ctx: Context[CNPool], inputs: Inputs, snapshot: PoolSnapshot, verdict: Verdict
    ) -> Report:
        """The status, readiness and events of one pass."""
        before = inputs.pool.status or CNPoolStatus()
        idle = snapshot.count(IDLE)
        status = replace(
            before,
            idle=idle,
            bound=snapshot.count(BOUND),
            draining=snapshot.count(DRAINING),
            conditions=with_synced(
                before.conditions,
                inputs.blocked or verdict,
                generation=inputs.pool.metadata.generation,
                now=ctx.now(),
            ),
        )
        used = snapshot.count(BOUND) + snapshot.count(DRAINING)
        ready = idle >= min(snapshot.max_idle, max(0, wanted(snapshot) - used))
        text = f"{idle} of {snapshot.max_idle} pods are idle"
        notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
        state = ConditionState(ready, "Warm" if ready else "NotWarm", text)
        return Report(status=status, ready=state, notes=notes, instead=inputs.blocked)

    async def finalize(self, ctx: Context[CNPool]) -> Outcome:
        """A pool goes when no pod of it is claimed."""
        return await self.observe(ctx)

    async def step(self, ctx: Context[CNPool], inputs: Inputs, snapshot: PoolSnapshot, move: Move) -> None:
        """Give back a pod whose claim is gone."""
        assert isinstance(move, GiveBack)
        await change(ctx, move, *given_back(None, ctx.now()))


def set_of(pool: CNPool, replicas: int) -> CNSet:
    """The CNSet of a pool."""
    spec = pool.spec or CNPoolSpec()
    template = spec.template or PoolTemplate()
    plain = msgspec.convert(to_dict(template), CNSetSpec)
    overlay, scaling = plain.overlay or Overlay(), plain.scaling_config or ScalingConfig()
    labels = _pod_labels(pool)
    return CNSet(
        metadata=meta.ObjectMeta(
            name=pool.metadata.name, namespace=pool.metadata.namespace, labels=labels_of(pool)
        ),
        spec=replace(
            plain,
            replicas=replicas,
            overlay=replace(overlay, pod_labels=labels),
            # A new store must not serve before it is claimed.
            scaling_config=replace(scaling, store_drain_enabled=True),
            pod_management_policy=POOLING,
        ),
        deps=spec.deps or CNSetDeps(),
    )


def _pod_labels(pool: CNPool) -> dict[str, str]:
    spec = pool.spec or CNPoolSpec()
    overlay = spec.template.overlay if spec.template is not None else None
    given = (overlay.pod_labels if overlay is not None else None) or {}
    return {**given, **(spec.pod_labels or {}), POOL: pool.metadata.name or ""}


def _pool_of(pod: core.Pod) -> list[Key]:
    labels = pod.metadata.labels or {}
    name = labels.get(POOL)
    return [Key(pod.metadata.namespace or "", name)] if name and name == labels.get(INSTANCE) else []


def _waits(claim: CNClaim, pool: CNPool, pods: Iterable[Candidate]) -> bool:
    """It has no pod, or has to leave one of this pool, and may get one of this pool."""
    spec, name = claim.spec or CNClaimSpec(), claim.metadata.name or ""
    if claim.metadata.deletion_timestamp is not None:
        return False
    mine = [one for one in pods if one.claimed_by == name and one.claim_uid == claim.metadata.uid]
    if recorded := (claim.metadata.annotations or {}).get(POD_UID):
        if len(mine) != 1 or mine[0].uid != recorded or not _leaves(spec, mine[0]):
            return False
    elif mine or spec.pod_name or spec.pool_name not in (None, "", pool.metadata.name):
        return False
    return selector_of(spec.selector).matches(_pod_labels(pool))


def _leaves(spec: CNClaimSpec, pod: Candidate) -> bool:
    """It has to leave its pod for any other; one that names its next pod needs none of the pool."""
    asked, source = spec.pod_name or "", spec.source_pod
    name = (source.pod_name if source is not None else None) or ""
    return asked in ("", pod.name) and bool(
        needs_move(pod.name, leaves=pod.leaves, pod_name=asked, source_name=name)
    )
