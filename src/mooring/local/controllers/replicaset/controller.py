"""The ReplicaSet controller."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.kube.errors import ApiError
from mooring.kube.object import Key, controller_of
from mooring.kube.objects.apps import ReplicaSet
from mooring.kube.objects.core import Pod, PodTemplateSpec
from mooring.kube.selectors import selector_of
from mooring.local.controllers.batches import slow_start
from mooring.local.controllers.claiming import Claimer
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import status_patch
from mooring.local.controllers.pods import from_template
from mooring.local.controllers.refusals import namespace_is_going
from mooring.local.controllers.replicaset.plan import Plan, failure, plan, with_failure
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["ReplicaSetController"]

#: Pods made or removed in one pass.
BURST = 500


class ReplicaSetController:
    """Reconciles ReplicaSets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("replicaset-controller")
        self._sets = context.informers.of(ReplicaSet)
        self._pods = Claimer(context, Pod)

    def controller(self) -> Controller:
        """The controller with its watches."""
        pods = self._context.informers.of(Pod)
        made = Controller("replicaset", self.reconcile)
        made.watch(self._sets)
        made.owns(pods, ReplicaSet)
        made.watch(pods, map=self._orphan_to_sets)
        return made

    def _orphan_to_sets(self, pod: Pod) -> Iterable[Key]:
        if controller_of(pod) is not None:
            return
        namespace = pod.metadata.namespace or ""
        for each in self._sets.list(namespace):
            if selector_of(each.spec.selector if each.spec else None).matches(pod.metadata.labels):
                yield Key(namespace, each.metadata.name or "")

    async def reconcile(self, key: Key) -> Result:
        """One pass over a ReplicaSet."""
        replica_set = self._sets.get(key)
        if replica_set is None or replica_set.spec is None:
            return Done()
        pods = await self._pods.claim(replica_set, selector_of(replica_set.spec.selector))
        made = plan(replica_set, pods, now=self._context.clock.now())
        error = await self._carry_out(replica_set, made)
        await self._write_status(replica_set, made, error)
        if error is not None and not namespace_is_going(error):
            raise error
        return After(made.after) if made.after is not None else Done()

    async def _carry_out(self, replica_set: ReplicaSet, made: Plan) -> ApiError | None:
        try:
            await slow_start(range(min(made.create, BURST)), lambda _: self._create(replica_set))
            await slow_start(made.delete[:BURST], lambda pod: self._delete(replica_set, pod))
        except ApiError as error:
            return error
        return None

    async def _write_status(self, replica_set: ReplicaSet, made: Plan, error: ApiError | None) -> None:
        condition = None
        if error is not None:
            reason = "FailedCreate" if made.create else "FailedDelete"
            condition = failure(reason, str(error), self._context.clock.now())
        patch = status_patch(replica_set, with_failure(made.status, condition))
        if patch is not None:
            await self._client.patch(
                ReplicaSet,
                replica_set.metadata.name or "",
                patch,
                namespace=replica_set.metadata.namespace or "",
                subresource="status",
            )

    async def _create(self, replica_set: ReplicaSet) -> None:
        template = (replica_set.spec.template if replica_set.spec else None) or PodTemplateSpec()
        try:
            pod = await self._client.create(from_template(template, replica_set))
        except ApiError as error:
            if not namespace_is_going(error):
                self._events.warning(replica_set, "FailedCreate", f"Error creating: {error}")
            raise
        self._events.normal(replica_set, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete(self, replica_set: ReplicaSet, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                Pod, meta.name or "", namespace=meta.namespace or "", uid=meta.uid, propagation=None
            )
        except ApiError as error:
            self._events.warning(replica_set, "FailedDelete", f"Error deleting: {error}")
            raise
        self._events.normal(replica_set, "SuccessfulDelete", f"Deleted pod: {meta.name}")
