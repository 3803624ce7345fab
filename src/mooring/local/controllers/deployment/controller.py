"""The Deployment controller."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.kube.errors import AlreadyExists, ApiError
from mooring.kube.object import Key, controller_of
from mooring.kube.objects.apps import Deployment, DeploymentStatus, ReplicaSet
from mooring.kube.objects.core import Pod
from mooring.kube.patches import MergePatch
from mooring.kube.selectors import selector_of
from mooring.local.controllers.claiming import Claimer
from mooring.local.controllers.context import Context
from mooring.local.controllers.deployment.plan import (
    REVISION,
    Create,
    Drop,
    Resize,
    Revise,
    Step,
    plan,
    same_template,
)
from mooring.local.controllers.deployment.sizes import size_of
from mooring.local.controllers.patching import metadata_patch, status_patch
from mooring.local.controllers.refusals import namespace_is_going
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["DeploymentController"]


class DeploymentController:
    """Reconciles Deployments."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("deployment-controller")
        self._deployments = context.informers.of(Deployment)
        self._replica_sets = context.informers.of(ReplicaSet)
        self._pods = context.informers.of(Pod)
        self._claimer = Claimer(context, ReplicaSet)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("deployment", self.reconcile)
        made.watch(self._deployments)
        made.owns(self._replica_sets, Deployment)
        made.watch(self._replica_sets, map=self._orphan_to_deployments)
        made.watch(self._pods, map=self._pod_to_deployment)
        return made

    def _orphan_to_deployments(self, replica_set: ReplicaSet) -> Iterable[Key]:
        if controller_of(replica_set) is not None:
            return
        namespace = replica_set.metadata.namespace or ""
        for each in self._deployments.list(namespace):
            if selector_of(each.spec.selector if each.spec else None).matches(replica_set.metadata.labels):
                yield Key(namespace, each.metadata.name or "")

    def _pod_to_deployment(self, pod: Pod) -> Iterable[Key]:
        """Only Recreate waits for pods themselves."""
        owner = controller_of(pod)
        if owner is None or owner.kind != "ReplicaSet":
            return
        namespace = pod.metadata.namespace or ""
        replica_set = self._replica_sets.peek(Key(namespace, owner.name or ""))
        above = controller_of(replica_set) if replica_set is not None else None
        deployment = self._deployments.peek(Key(namespace, above.name or "")) if above is not None else None
        strategy = deployment.spec.strategy if deployment is not None and deployment.spec else None
        if above is not None and strategy is not None and strategy.type == "Recreate":
            yield Key(namespace, above.name or "")

    async def reconcile(self, key: Key) -> Result:
        """One pass over a Deployment."""
        deployment = self._deployments.get(key)
        if deployment is None or deployment.spec is None:
            return Done()
        selector = selector_of(deployment.spec.selector)
        replica_sets = await self._claimer.claim(deployment, selector)
        pods = [pod for each in replica_sets for pod in self._pods.owned_by(each)]
        status = deployment.status
        made = plan(
            deployment,
            replica_sets,
            pods,
            now=self._context.clock.now(),
            collisions=(status.collision_count or 0) if status else 0,
        )
        try:
            for step in made.steps:
                await self._run(deployment, step)
        except ApiError as error:
            if not namespace_is_going(error):
                raise
            return Done()
        await self._write_status(deployment, made.status, made.revision)
        return After(made.after) if made.after is not None else Done()

    async def _write_status(self, deployment: Deployment, status: DeploymentStatus, revision: str) -> None:
        """Status and revision annotation in one write of the status, which leaves the generation alone."""
        patch = status_patch(deployment, status)
        if revision and (deployment.metadata.annotations or {}).get(REVISION, "") != revision:
            patch = patch or MergePatch({"metadata": {"uid": deployment.metadata.uid}})
            patch.body["metadata"]["annotations"] = {REVISION: revision}
        if patch is not None:
            await self._client.patch(
                Deployment,
                deployment.metadata.name or "",
                patch,
                namespace=deployment.metadata.namespace or "",
                subresource="status",
            )

    async def _run(self, deployment: Deployment, step: Step) -> None:
        match step:
            case Create(replica_set=replica_set):
                await self._create(deployment, replica_set)
            case Resize(replica_set=replica_set, size=size, annotations=annotations):
                body = metadata_patch(replica_set, annotations=dict(annotations)).body
                body["spec"] = {"replicas": size}
                await self._patch(replica_set, body)
                self._tell_size(deployment, replica_set, size_of(replica_set), size)
            case Revise(replica_set=replica_set, annotations=annotations, min_ready_seconds=seconds):
                body = metadata_patch(replica_set, versioned=False, annotations=dict(annotations)).body
                body["spec"] = {"minReadySeconds": seconds or None}
                await self._patch(replica_set, body)
            case Drop(replica_set=replica_set):
                meta = replica_set.metadata
                await self._client.delete(
                    ReplicaSet,
                    meta.name or "",
                    namespace=meta.namespace or "",
                    uid=meta.uid,
                    resource_version=meta.resource_version,
                )

    async def _create(self, deployment: Deployment, replica_set: ReplicaSet) -> None:
        name, namespace = replica_set.metadata.name or "", replica_set.metadata.namespace or ""
        try:
            await self._client.create(replica_set)
        except AlreadyExists:
            present = await self._client.refresh(ReplicaSet, name, namespace=namespace)
            await self._collided(deployment, replica_set, present)
            return
        except ApiError as error:
            if not namespace_is_going(error):
                message = f'Failed to create new replica set "{name}": {error}'
                self._events.warning(deployment, "ReplicaSetCreateError", message)
            raise
        self._tell_size(deployment, replica_set, 0, size_of(replica_set))

    async def _collided(self, deployment: Deployment, wanted: ReplicaSet, present: ReplicaSet | None) -> None:
        """The name is taken: by our own earlier attempt, or by another template with the same hash."""
        if present is None or present.spec is None or wanted.spec is None:
            return
        owner = controller_of(present)
        ours = owner is not None and owner.uid == deployment.metadata.uid
        if ours and same_template(present.spec.template, wanted.spec.template):
            return
        count = ((deployment.status.collision_count or 0) if deployment.status else 0) + 1
        body = {"metadata": {"uid": deployment.metadata.uid}, "status": {"collisionCount": count}}
        await self._client.patch(
            Deployment,
            deployment.metadata.name or "",
            MergePatch(body),
            namespace=deployment.metadata.namespace or "",
            subresource="status",
        )
        raise AlreadyExists(
            f"replicasets {wanted.metadata.name!r} belongs to another template; trying another name",
            status=409,
            reason="AlreadyExists",
        )

    async def _patch(self, replica_set: ReplicaSet, body: dict[str, object]) -> None:
        await self._client.patch(
            ReplicaSet,
            replica_set.metadata.name or "",
            MergePatch(body),
            namespace=replica_set.metadata.namespace or "",
        )

    def _tell_size(self, deployment: Deployment, replica_set: ReplicaSet, before: int, after: int) -> None:
        if before == after:
            return
        direction = "up" if after > before else "down"
        message = f"Scaled {direction} replica set {replica_set.metadata.name} from {before} to {after}"
        self._events.normal(deployment, "ScalingReplicaSet", message)
