"""The controller of ReplicaSets, and of ReplicationControllers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from mooring.kube.errors import ApiError
from mooring.kube.object import Key, Object, controller_of
from mooring.kube.objects.core import Pod, PodTemplateSpec
from mooring.kube.selectors import selector_of
from mooring.local.controllers.batches import slow_start
from mooring.local.controllers.claiming import Claimer
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import status_patch
from mooring.local.controllers.pods import from_template
from mooring.local.controllers.refusals import namespace_is_going
from mooring.local.controllers.replicaset.family import Family
from mooring.local.controllers.replicaset.plan import Plan, failure, plan, with_failure
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["ReplicaSetController"]

#: Pods made or removed in one pass.
BURST = 500

T = TypeVar("T", bound=Object)


class ReplicaSetController(Generic[T]):
    """Reconciles the objects of one family: ReplicaSets or ReplicationControllers."""

    def __init__(self, context: Context, family: Family[T]) -> None:
        self._family = family
        self._context = context
        self._client = context.client
        self._events = context.recorder(family.source)
        self._sets = context.informers.of(family.kind)
        self._pods = Claimer(context, Pod)

    def controller(self) -> Controller:
        """The controller with its watches."""
        pods = self._context.informers.of(Pod)
        made = Controller(self._family.name, self.reconcile)
        made.watch(self._sets)
        made.owns(pods, self._family.kind)
        made.watch(pods, map=self._orphan_to_sets)
        return made

    def _orphan_to_sets(self, pod: Pod) -> Iterable[Key]:
        if controller_of(pod) is not None:
            return
        namespace = pod.metadata.namespace or ""
        for each in self._sets.list(namespace):
            spec = self._family.as_set(each).spec
            if selector_of(spec.selector if spec else None).matches(pod.metadata.labels):
                yield Key(namespace, each.metadata.name or "")

    async def reconcile(self, key: Key) -> Result:
        """One pass over an object."""
        owner = self._sets.get(key)
        replica_set = self._family.as_set(owner) if owner is not None else None
        if owner is None or replica_set is None or replica_set.spec is None:
            return Done()
        pods = await self._pods.claim(owner, selector_of(replica_set.spec.selector))
        made = plan(replica_set, pods, now=self._context.clock.now())
        template = replica_set.spec.template or PodTemplateSpec()
        error = await self._carry_out(owner, template, made)
        await self._write_status(owner, made, error)
        if error is not None and not namespace_is_going(error):
            raise error
        return After(made.after) if made.after is not None else Done()

    async def _carry_out(self, owner: T, template: PodTemplateSpec, made: Plan) -> ApiError | None:
        try:
            await slow_start(range(min(made.create, BURST)), lambda _: self._create(owner, template))
            await slow_start(made.delete[:BURST], lambda pod: self._delete(owner, pod))
        except ApiError as error:
            return error
        return None

    async def _write_status(self, owner: T, made: Plan, error: ApiError | None) -> None:
        condition = None
        if error is not None:
            reason = "FailedCreate" if made.create else "FailedDelete"
            condition = failure(reason, str(error), self._context.clock.now())
        patch = status_patch(owner, self._family.status(with_failure(made.status, condition)))
        if patch is not None:
            await self._client.patch(
                self._family.kind,
                owner.metadata.name or "",
                patch,
                namespace=owner.metadata.namespace or "",
                subresource="status",
            )

    async def _create(self, owner: T, template: PodTemplateSpec) -> None:
        try:
            pod = await self._client.create(from_template(template, owner))
        except ApiError as error:
            if not namespace_is_going(error):
                self._events.warning(owner, "FailedCreate", f"Error creating: {error}")
            raise
        self._events.normal(owner, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete(self, owner: T, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                Pod, meta.name or "", namespace=meta.namespace or "", uid=meta.uid, propagation=None
            )
        except ApiError as error:
            self._events.warning(owner, "FailedDelete", f"Error deleting: {error}")
            raise
        self._events.normal(owner, "SuccessfulDelete", f"Deleted pod: {meta.name}")
