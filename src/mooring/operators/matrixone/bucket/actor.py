"""The actor of BucketClaims: the rooms of a pass put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from mooring.actor import (
    ConditionState,
    Context,
    Move,
    Outcome,
    Planned,
    Related,
    Report,
    StepFailed,
    Terminal,
    Verdict,
    Wait,
)
from mooring.kube.errors import NotFound
from mooring.kube.object import Key
from mooring.kube.objects import core
from mooring.kube.patches import MergePatch
from mooring.objectstore import ObjectStoreError
from mooring.operators.matrixone.bucket.erase import erase
from mooring.operators.matrixone.bucket.lock import OWNER, bound
from mooring.operators.matrixone.bucket.plan import Erase, MarkDeleting, Release, Snapshot, decide, leave
from mooring.operators.matrixone.conditions import with_condition
from mooring.operators.matrixone.depends import log_set_of
from mooring.operators.matrixone.names import BUCKET_LIVE
from mooring.operators.matrixone.sets import Surroundings
from mooring.operators.matrixone.types import (
    DELETE,
    DELETING,
    IN_USE,
    RELEASED,
    BucketClaim,
    BucketClaimStatus,
    CNSet,
    DNSet,
    LogSet,
)

__all__ = ["BucketClaimActor"]

AFTER_FAILURE: Final = 5.0
"""Seconds until a store that failed is asked again."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The claim, and who may still write to its path."""

    claim: BucketClaim = field(repr=False)
    snapshot: Snapshot


class BucketClaimActor(Planned[BucketClaim, Inputs, Snapshot]):
    """Observes one BucketClaim and acts upon it."""

    kind = BucketClaim
    name: Final = "matrixone-bucketclaim"
    finalizer = "matrixorigin.io/bucket-data-finalizer"
    status_subresource = ""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.related = (Related(LogSet, around.claims_on),)

    async def precede(self, ctx: Context[BucketClaim]) -> Outcome | None:
        """Nothing is done while upstream's operator runs."""
        return self._around.left_alone(ctx)

    async def inputs(self, ctx: Context[BucketClaim]) -> Inputs | Outcome:
        """The claim, and who may still write to its path; from the caches."""
        claim, spec = ctx.obj, ctx.obj.spec
        if spec is None or spec.s3 is None:
            return Terminal("InvalidSpec", "spec.s3: is missing; give a path")
        status, notes = claim.status or BucketClaimStatus(), claim.metadata.annotations or {}
        namespace, _, name = bound(claim).partition("/")
        key = Key(namespace, name)
        owner = ctx.client.find(LogSet, name, namespace=namespace) if name else None
        same = owner is not None and notes.get(OWNER, owner.metadata.uid) == owner.metadata.uid
        return Inputs(
            claim=claim,
            snapshot=Snapshot(
                state=status.state or IN_USE,
                bound_to=bound(claim),
                owner_there=same and owner is not None and not owner.metadata.deletion_timestamp,
                users=tuple(self._users(ctx, key)) if name and not same else (),
                policy=spec.s3.s3_retention_policy or DELETE,
                was_live=bool(notes.get(BUCKET_LIVE)),
                deleted=claim.metadata.deletion_timestamp is not None,
            ),
        )

    def _users(self, ctx: Context[BucketClaim], key: Key) -> list[str]:
        """Sets and pods that may still write there."""
        found = [f"Pod {one.metadata.name}" for one in self._around.pods(LogSet, key)]
        for kind in (DNSet, CNSet):
            for one in ctx.client.list(kind, namespace=key.namespace):
                name = one.metadata.name or ""
                pods = self._around.pods(kind, Key(key.namespace, name))
                if log_set_of(one) == key and pods:  # type: ignore[arg-type]
                    found.append(f"{kind.resource.kind} {name}")
        return found

    async def snapshot(self, ctx: Context[BucketClaim], inputs: Inputs) -> Snapshot:
        """Nothing else is asked."""
        return inputs.snapshot

    def plan(self, snapshot: Snapshot) -> Verdict:
        """See `plan`."""
        return leave(snapshot) if snapshot.deleted else decide(snapshot)

    def report(
        self, ctx: Context[BucketClaim], inputs: Inputs, snapshot: Snapshot, verdict: Verdict
    ) -> Report:
        """Whether the path may be used by another; upstream's condition."""
        status = inputs.claim.status or BucketClaimStatus()
        free = snapshot.state != IN_USE
        text = getattr(verdict, "message", "") or getattr(verdict, "why", "")
        conditions = with_condition(
            status.conditions, "recyclable", free, snapshot.state, text, generation=None, now=ctx.now()
        )
        ready = ConditionState(True, snapshot.state, text)
        instead = Wait("InUse", text, after=10.0) if isinstance(verdict, Wait) else None
        return Report(status=replace(status, conditions=conditions), ready=ready, instead=instead)

    async def finalize(self, ctx: Context[BucketClaim]) -> Outcome:
        """Delete the data where that was asked for; the claim of a LogSet that is there stays."""
        return await self.observe(ctx)

    async def step(
        self, ctx: Context[BucketClaim], inputs: Inputs, snapshot: Snapshot, move: Move
    ) -> bool | None:
        """Carry out a move."""
        match move:
            case Release():
                await _mark(ctx, {"bindTo": "", "state": RELEASED})
            case MarkDeleting():
                await _mark(ctx, {"state": DELETING})
                if not snapshot.deleted:
                    await ctx.client.delete(
                        BucketClaim, ctx.key.name, namespace=ctx.key.namespace, uid=ctx.obj.metadata.uid
                    )
            case Erase():
                return await self._erase(ctx, inputs)
        return None

    async def _erase(self, ctx: Context[BucketClaim], inputs: Inputs) -> bool | None:
        spec = inputs.claim.spec
        assert spec is not None
        assert spec.s3 is not None
        name = spec.s3.secret_ref.name if spec.s3.secret_ref is not None else None
        secret = await _secret(ctx, name) if name else None
        if name and secret is None and (ending := await _ending(ctx)) is not None:
            # About the namespace: no event can be made in one that is being deleted.
            ctx.events.warning(
                ending,
                "DataLeft",
                f"the Secret {name} went with the namespace; the bucket keeps the data of {spec.s3.path}",
            )
            await _mark(ctx, {"bindTo": "", "state": RELEASED})
            return None
        ctx.fence()
        try:
            done = await erase(spec.s3, secret)
        except ObjectStoreError as error:
            await ctx.clock.sleep(AFTER_FAILURE)
            raise StepFailed(str(error)) from error
        await ctx.did("objects deleted")
        if not done:
            return False
        await _mark(ctx, {"bindTo": "", "state": RELEASED})
        return None


async def _mark(ctx: Context[BucketClaim], status: dict[str, str]) -> None:
    """Change the state; the kind has no status subresource."""
    body = {"metadata": {"uid": ctx.obj.metadata.uid}, "status": status}
    await ctx.client.patch(BucketClaim, ctx.key.name, MergePatch(body), namespace=ctx.key.namespace)


async def _secret(ctx: Context[BucketClaim], name: str) -> core.Secret | None:
    try:
        return await ctx.client.live.get(core.Secret, name, namespace=ctx.key.namespace)
    except NotFound:
        return None


async def _ending(ctx: Context[BucketClaim]) -> core.Namespace | None:
    """The namespace, if it is being deleted."""
    found = await ctx.client.live.get(core.Namespace, ctx.key.namespace)
    return found if found.metadata.deletion_timestamp is not None else None
