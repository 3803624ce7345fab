"""The actor of CNClaimSets: the rooms of a pass put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    Move,
    Note,
    Outcome,
    Planned,
    Report,
    StepFailed,
    Terminal,
    Verdict,
)
from mooring.kube.errors import AlreadyExists, Conflict, NotFound
from mooring.kube.object import owner_reference, to_dict
from mooring.kube.objects import meta
from mooring.kube.patches import MergePatch
from mooring.operators.matrixone.cnset.fence import SEEN_AFTER
from mooring.operators.matrixone.conditions import is_true, with_synced
from mooring.operators.matrixone.pool.labels import CLAIM_SET, POD_UID
from mooring.operators.matrixone.pool.replicas import (
    CreateClaim,
    DeleteClaim,
    Relabel,
    SetClaim,
    SetSnapshot,
    decide,
)
from mooring.operators.matrixone.sets import Surroundings, blocked_by
from mooring.operators.matrixone.types import (
    ClaimMetadata,
    CNClaim,
    CNClaimSet,
    CNClaimSetSpec,
    CNClaimSetStatus,
    CNClaimSpec,
    CNClaimStatus,
    CNClaimTemplate,
)
from mooring.operators.workload.waits import while_paused

__all__ = ["ClaimSetActor"]

PAUSE: Final = "mooring.dev/pause"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The set and its claims."""

    owner: CNClaimSet = field(repr=False)
    claims: tuple[CNClaim, ...] = field(repr=False)
    blocked: Terminal | None = None

    @property
    def template(self) -> CNClaimTemplate:
        """The declared claims."""
        spec = self.owner.spec or CNClaimSetSpec()
        return spec.template or CNClaimTemplate()


class ClaimSetActor(Planned[CNClaimSet, Inputs, SetSnapshot]):
    """Observes one CNClaimSet and acts upon it. Its claims go with it, and each gives its pod back."""

    kind = CNClaimSet
    name: Final = "matrixone-cnclaimset"
    owns = (CNClaim,)

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def precede(self, ctx: Context[CNClaimSet]) -> Outcome | None:
        """Nothing is done while upstream's operator runs."""
        return self._around.left_alone(ctx)

    async def inputs(self, ctx: Context[CNClaimSet]) -> Inputs | Outcome:
        """The set and its claims, from the caches."""
        blocked = blocked_by(ctx.obj)
        claims = tuple(ctx.children.of(CNClaim))
        if blocked is not None and not claims:
            return blocked
        return Inputs(owner=ctx.obj, claims=claims, blocked=blocked)

    async def snapshot(self, ctx: Context[CNClaimSet], inputs: Inputs) -> SetSnapshot:
        """The set with its claims."""
        spec = inputs.owner.spec or CNClaimSetSpec()
        mine = {one.metadata.name for one in inputs.claims}
        every = self._around.cn_claims(ctx.key.namespace)
        return SetSnapshot(
            uid=inputs.owner.metadata.uid or "",
            name=ctx.key.name,
            replicas=len(_living(inputs)) if inputs.blocked is not None else (spec.replicas or 0),
            claims=tuple(_claim(inputs, one) for one in inputs.claims),
            taken=[one.metadata.name or "" for one in every if one.metadata.name not in mine],
            paused=PAUSE in (inputs.owner.metadata.annotations or {}),
        )

    def plan(self, snapshot: SetSnapshot) -> Verdict:
        """See `replicas`."""
        verdict = decide(snapshot)
        return while_paused(verdict, PAUSE) if snapshot.paused else verdict

    def report(
        self, ctx: Context[CNClaimSet], inputs: Inputs, snapshot: SetSnapshot, verdict: Verdict
    ) -> Report:
        """The status, readiness and events of one pass."""
        before = inputs.owner.status or CNClaimSetStatus()
        ready = sum(one.ready for one in snapshot.claims)
        status = replace(
            before,
            replicas=len([one for one in snapshot.claims if not one.ending]),
            ready_replicas=ready,
            claims=[_short(one.status) for one in inputs.claims if one.status is not None] or None,
            label_selector=f"{CLAIM_SET}={ctx.key.name}",
            conditions=with_synced(
                before.conditions,
                inputs.blocked or verdict,
                generation=inputs.owner.metadata.generation,
                now=ctx.now(),
            ),
        )
        enough = ready >= snapshot.replicas
        text = f"{ready} of {snapshot.replicas} claims have a pod that serves"
        notes = [Note(reason=verdict.name, message=verdict.why)] if isinstance(verdict, Move) else []
        state = ConditionState(enough, "Serving" if enough else "NotServing", text)
        return Report(status=status, ready=state, notes=notes, instead=inputs.blocked)

    async def step(self, ctx: Context[CNClaimSet], inputs: Inputs, snapshot: SetSnapshot, move: Move) -> None:
        """Carry out a move."""
        namespace = ctx.key.namespace
        try:
            await ctx.client.confirm(inputs.owner)  # how many claims are declared now, not in a late cache
            match move:
                case CreateClaim(claim=name):
                    await self._all_seen(ctx, inputs)
                    await ctx.client.ensure(_made(inputs, name))
                case DeleteClaim(claim=name, uid=uid, version=version):
                    await ctx.client.delete(
                        CNClaim, name, namespace=namespace, uid=uid, resource_version=version
                    )
                case Relabel(claim=name, uid=uid, version=version):
                    body = {
                        "metadata": {"uid": uid, "resourceVersion": version},
                        "spec": _relabelled(inputs, name),
                    }
                    await ctx.client.patch(CNClaim, name, MergePatch(body), namespace=namespace)
        except (Conflict, NotFound, AlreadyExists) as error:
            raise StepFailed(f"{move.why}: the claims changed meanwhile") from error

    async def _all_seen(self, ctx: Context[CNClaimSet], inputs: Inputs) -> None:
        """Raises `StepFailed` where there are other claims than were seen: one more would be one too many."""
        found = await self._around.live.list(
            CNClaim, namespace=ctx.key.namespace, label_selector=f"{CLAIM_SET}={ctx.key.name}"
        )
        if {one.metadata.uid for one in found.items} != {one.metadata.uid for one in inputs.claims}:
            raise StepFailed("the claims changed meanwhile", after=SEEN_AFTER)


def _living(inputs: Inputs) -> list[CNClaim]:
    return [
        one
        for one in inputs.claims
        if one.metadata.deletion_timestamp is None and (one.status or CNClaimStatus()).phase != "Lost"
    ]


def _claim(inputs: Inputs, claim: CNClaim) -> SetClaim:
    status, spec = claim.status or CNClaimStatus(), claim.spec or CNClaimSpec()
    declared = inputs.template.spec or CNClaimSpec()
    return SetClaim(
        name=claim.metadata.name or "",
        uid=claim.metadata.uid or "",
        version=claim.metadata.resource_version or "",
        phase=status.phase or "Pending",
        has_pod=bool((claim.metadata.annotations or {}).get(POD_UID)),
        ready=is_true(status.conditions, "Ready") and claim.metadata.deletion_timestamp is None,
        ending=claim.metadata.deletion_timestamp is not None,
        as_declared=(spec.cn_labels or [], spec.additional_pod_labels or {})
        == (declared.cn_labels or [], declared.additional_pod_labels or {}),
        created=claim.metadata.creation_timestamp or "",
    )


def _relabelled(inputs: Inputs, name: str) -> dict[str, Any]:
    """A patch that gives a claim the template's labels; a merge keeps the entries of a map that it does not name."""
    declared = to_dict(inputs.template.spec or CNClaimSpec())
    there = next((one.spec for one in inputs.claims if one.metadata.name == name), None)
    present = (there.additional_pod_labels if there is not None else None) or {}
    labels = {**dict.fromkeys(present), **(declared.get("additionalPodLabels") or {})}
    return {"cnLabels": declared.get("cnLabels"), "additionalPodLabels": labels or None}


def _made(inputs: Inputs, name: str) -> CNClaim:
    owner, template = inputs.owner, inputs.template
    given = template.metadata or ClaimMetadata()
    return CNClaim(
        metadata=meta.ObjectMeta(
            name=name,
            namespace=owner.metadata.namespace,
            labels={**(given.labels or {}), CLAIM_SET: owner.metadata.name or ""},
            annotations=given.annotations,
            owner_references=[owner_reference(owner)],
        ),
        spec=template.spec,
    )


def _short(status: CNClaimStatus) -> CNClaimStatus:
    return replace(status, conditions=None, observed_generation=None)
