"""The DaemonSet controller."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.cache.store import Transition
from mooring.kube.errors import ApiError
from mooring.kube.object import Key, controller_of, key_of
from mooring.kube.objects.apps import ControllerRevision, DaemonSet
from mooring.kube.objects.core import Node, Pod, PodTemplateSpec
from mooring.kube.selectors import selector_of
from mooring.local.controllers.batches import slow_start
from mooring.local.controllers.claiming import Claimer
from mooring.local.controllers.context import Context
from mooring.local.controllers.daemonset.plan import HASH, plan, pod_for
from mooring.local.controllers.patching import status_patch
from mooring.local.controllers.refusals import namespace_is_going
from mooring.local.controllers.revisions import Revisions, obsolete
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["DaemonSetController"]


class DaemonSetController:
    """Reconciles DaemonSets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("daemonset-controller")
        self._sets = context.informers.of(DaemonSet)
        self._nodes = context.informers.of(Node)
        self._pods = Claimer(context, Pod)
        self._revisions = Revisions(context, label=HASH)

    def controller(self) -> Controller:
        """The controller with its watches."""
        informers = self._context.informers
        made = Controller("daemonset", self.reconcile)
        made.watch(self._sets)
        made.owns(informers.of(Pod), DaemonSet)
        made.owns(informers.of(ControllerRevision), DaemonSet)
        made.watch(informers.of(Pod), map=self._orphan_to_sets)
        made.watch(self._nodes, map=lambda _: [key_of(s) for s in self._sets.list()], predicate=_differs)
        return made

    def _orphan_to_sets(self, pod: Pod) -> Iterable[Key]:
        if controller_of(pod) is not None:
            return
        for each in self._sets.list(pod.metadata.namespace or ""):
            if selector_of(each.spec.selector if each.spec else None).matches(pod.metadata.labels):
                yield key_of(each)

    async def reconcile(self, key: Key) -> Result:
        """One pass over a DaemonSet."""
        daemons = self._sets.get(key)
        if daemons is None or daemons.spec is None:
            return Done()
        selector = selector_of(daemons.spec.selector)
        revisions = self._revisions.of(daemons, selector)
        if daemons.metadata.deletion_timestamp is None:
            revisions = await self._revisions.adopt(daemons, revisions)
        pods = await self._pods.claim(daemons, selector)
        template = daemons.spec.template or PodTemplateSpec()
        collisions = (daemons.status.collision_count or 0) if daemons.status else 0
        update, collisions = await self._revisions.settle(daemons, template, revisions, collisions)
        digest = (update.metadata.labels or {}).get(HASH, "")
        made = plan(
            daemons,
            self._nodes.list(),
            pods,
            revision=digest,
            collisions=collisions,
            now=self._context.clock.now(),
        )
        try:
            await slow_start(made.create, lambda node: self._create(daemons, template, node, digest))
            await slow_start(made.delete, lambda pod: self._delete(daemons, pod))
        except ApiError as error:
            if not namespace_is_going(error):
                raise
        patch = status_patch(daemons, made.status)
        if patch is not None:
            await self._client.patch(
                DaemonSet, key.name, patch, namespace=key.namespace, subresource="status"
            )
        hashes = {(pod.metadata.labels or {}).get(HASH) for pod in pods}
        live = {r.metadata.name or "" for r in revisions if (r.metadata.labels or {}).get(HASH) in hashes}
        limit = daemons.spec.revision_history_limit
        live.add(update.metadata.name or "")
        await self._revisions.drop(obsolete(revisions, live=live, limit=10 if limit is None else limit))
        return After(made.after) if made.after is not None else Done()

    async def _create(self, daemons: DaemonSet, template: PodTemplateSpec, node: str, digest: str) -> None:
        try:
            pod = await self._client.create(pod_for(daemons, template, node=node, revision=digest))
        except ApiError as error:
            if not namespace_is_going(error):
                self._events.warning(daemons, "FailedCreate", f"Error creating: {error}")
            raise
        self._events.normal(daemons, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete(self, daemons: DaemonSet, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                Pod, meta.name or "", namespace=meta.namespace or "", uid=meta.uid, propagation=None
            )
        except ApiError as error:
            self._events.warning(daemons, "FailedDelete", f"Error deleting: {error}")
            raise
        self._events.normal(daemons, "SuccessfulDelete", f"Deleted pod: {meta.name}")


def _differs(change: Transition[Node]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return old.metadata.labels != new.metadata.labels or old.spec != new.spec
