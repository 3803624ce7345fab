"""The StatefulSet controller: carries out the plan, writes the status, keeps the history short."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mooring.kube.errors import AlreadyExists, ApiError
from mooring.kube.object import Key, key_of
from mooring.kube.objects.apps import ControllerRevision, StatefulSet
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.kube.patches import MergePatch
from mooring.kube.selectors import selector_of
from mooring.local.controllers.batches import slow_start
from mooring.local.controllers.claiming import Claimer
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch, status_patch
from mooring.local.controllers.refusals import namespace_is_going
from mooring.local.controllers.revisions import Revisions, obsolete
from mooring.local.controllers.statefulset.identity import (
    claim_name,
    ordinal_of,
    ordinals,
    parent_of,
    revision_of,
    templates_of,
    with_identity,
    with_storage,
)
from mooring.local.controllers.statefulset.plan import (
    CreateClaim,
    CreatePod,
    DeletePod,
    OwnClaim,
    Plan,
    RepairPod,
    Step,
    plan,
)
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["StatefulSetController"]


class ClaimGoing(Exception):
    """A pod cannot be made while its claim is being deleted."""


def _claim_stems(sts: StatefulSet) -> Iterable[str]:
    """``namespace/TEMPLATE-SET``: what the names of the set's claims begin with."""
    return [f"{sts.metadata.namespace}/{t.metadata.name}-{sts.metadata.name}" for t in templates_of(sts)]


class StatefulSetController:
    """Reconciles StatefulSets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("statefulset-controller")
        self._sets = context.informers.of(StatefulSet)
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._pods = Claimer(context, Pod)
        self._revisions = Revisions(context)
        context.index(self._sets, "claims", _claim_stems)

    def controller(self) -> Controller:
        """The controller with its watches."""
        informers = self._context.informers
        made = Controller("statefulset", self.reconcile)
        made.watch(self._sets)
        made.owns(informers.of(Pod), StatefulSet)
        made.watch(informers.of(Pod), map=self._orphan_to_sets)
        made.owns(informers.of(ControllerRevision), StatefulSet)
        made.watch(self._claims, map=self._claim_to_sets)
        return made

    def _orphan_to_sets(self, pod: Pod) -> Iterable[Key]:
        """A pod that nobody controls wakes the sets that might take it in."""
        if any(owner.controller for owner in pod.metadata.owner_references or ()):
            return ()
        key = Key(pod.metadata.namespace or "", parent_of(pod))
        return (key,) if self._sets.peek(key) is not None else ()

    def _claim_to_sets(self, claim: PersistentVolumeClaim) -> Iterable[Key]:
        stem = (claim.metadata.name or "").rpartition("-")[0]
        found = self._sets.by_index("claims", f"{claim.metadata.namespace}/{stem}")
        return [key_of(sts) for sts in found]

    async def reconcile(self, key: Key) -> Result:
        """One pass over a set."""
        sts = self._sets.get(key)
        if sts is None or sts.spec is None:
            return Done()
        selector = selector_of(sts.spec.selector)
        revisions = self._revisions.of(sts, selector)
        if sts.metadata.deletion_timestamp is None:
            revisions = await self._revisions.adopt(sts, revisions)
        pods = await self._pods.claim(sts, selector, belongs=lambda pod: parent_of(pod) == key.name)
        status = sts.status
        collisions = (status.collision_count or 0) if status else 0
        update, collisions = await self._revisions.settle(sts, sts.spec.template, revisions, collisions)
        named = status.current_revision if status else None
        current = next((r for r in revisions if r.metadata.name == named), update)
        made = plan(
            sts,
            pods,
            claims=self._claims_of(sts, pods),
            current=current,
            update=update,
            collisions=collisions,
            now=self._context.clock.now(),
        )
        await self._carry_out(sts, made)
        limit = sts.spec.revision_history_limit
        live = {revision_of(pod) for pod in pods} | {update.metadata.name or "", current.metadata.name or ""}
        await self._revisions.drop(obsolete(revisions, live=live, limit=10 if limit is None else limit))
        return After(made.after) if made.after is not None else Done()

    def _claims_of(self, sts: StatefulSet, pods: Iterable[Pod]) -> dict[str, PersistentVolumeClaim]:
        """The claims that exist of those the set's pods have or will have."""
        namespace = sts.metadata.namespace or ""
        wanted = {ordinal_of(pod) for pod in pods} | set(ordinals(sts))
        names = {claim_name(sts, template, n) for template in templates_of(sts) for n in wanted}
        found = {name: self._claims.get(Key(namespace, name)) for name in names}
        return {name: claim for name, claim in found.items() if claim is not None}

    async def _carry_out(self, sts: StatefulSet, made: Plan) -> None:
        failure: Exception | None = None
        try:
            for stage in made.stages:
                if made.parallel:
                    await slow_start(stage, lambda step: self._run(sts, step))
                else:
                    for step in stage:
                        await self._run(sts, step)
        except Exception as error:
            failure = error
        await self._write_status(sts, made)
        if failure is not None and not namespace_is_going(failure):
            raise failure

    async def _write_status(self, sts: StatefulSet, made: Plan) -> None:
        patch = status_patch(sts, made.status)
        if patch is not None:
            await self._client.patch(
                StatefulSet,
                sts.metadata.name or "",
                patch,
                namespace=sts.metadata.namespace or "",
                subresource="status",
            )

    async def _run(self, sts: StatefulSet, step: Step) -> None:
        match step:
            case CreateClaim():
                await self._create_claim(sts, step)
            case CreatePod():
                await self._create_pod(sts, step)
            case DeletePod():
                await self._delete_pod(sts, step.pod)
            case OwnClaim():
                await self._own_claim(sts, step)
            case RepairPod():
                await self._repair(sts, step.pod)

    async def _create_claim(self, sts: StatefulSet, step: CreateClaim) -> None:
        claim = step.claim.metadata.name
        where = f"Pod {step.pod.metadata.name} in StatefulSet {sts.metadata.name}"
        try:
            await self._client.create(step.claim)
        except AlreadyExists:
            return
        except ApiError as error:
            if namespace_is_going(error):
                raise
            self._events.warning(
                sts, "FailedCreate", f"Create Claim {claim} for {where} failed error: {error}"
            )
            raise
        self._events.normal(sts, "SuccessfulCreate", f"Create Claim {claim} {where} success")

    async def _create_pod(self, sts: StatefulSet, step: CreatePod) -> None:
        for claim in step.claims:
            await self._create_claim(sts, claim)
        try:
            if step.blocked:
                raise ClaimGoing(f"pvc {step.blocked} is being deleted")
            await self._client.create(step.pod)
        except AlreadyExists:
            raise  # a stranger of that name; it is looked at again when it goes
        except (ApiError, ClaimGoing) as error:
            if not namespace_is_going(error):
                self._tell(sts, "Create", step.pod, error)
            raise
        self._tell(sts, "Create", step.pod)

    async def _delete_pod(self, sts: StatefulSet, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                Pod, meta.name or "", namespace=meta.namespace or "", uid=meta.uid, propagation=None
            )
        except ApiError as error:
            self._tell(sts, "Delete", pod, error)
            raise
        self._tell(sts, "Delete", pod)

    async def _own_claim(self, sts: StatefulSet, step: OwnClaim) -> None:
        name = step.claim.metadata.name or ""
        if step.conflict:
            self._events.warning(
                sts,
                "ConflictingController",
                f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a managing "
                "controller, the retention policy is ignored for this claim",
            )
        owners = [msgspec.to_builtins(owner) for owner in step.owners]
        await self._client.patch(
            PersistentVolumeClaim,
            name,
            metadata_patch(step.claim, ownerReferences=owners),
            namespace=step.claim.metadata.namespace or "",
        )

    async def _repair(self, sts: StatefulSet, pod: Pod) -> None:
        wanted = with_storage(sts, with_identity(sts, pod))
        body = metadata_patch(pod, labels=wanted.metadata.labels).body
        if wanted.spec is not None and pod.spec is not None and wanted.spec.volumes != pod.spec.volumes:
            body["spec"] = {"volumes": msgspec.to_builtins(wanted.spec.volumes)}
        try:
            await self._client.patch(
                Pod, pod.metadata.name or "", MergePatch(body), namespace=pod.metadata.namespace or ""
            )
        except ApiError as error:
            self._tell(sts, "Update", pod, error)
            raise
        self._tell(sts, "Update", pod)

    def _tell(self, sts: StatefulSet, verb: str, pod: Pod, error: Exception | None = None) -> None:
        what = f"{verb} Pod {pod.metadata.name} in StatefulSet {sts.metadata.name}"
        if error is None:
            self._events.normal(sts, f"Successful{verb}", f"{what} successful")
        else:
            self._events.warning(sts, f"Failed{verb}", f"{what} failed error: {error}")
