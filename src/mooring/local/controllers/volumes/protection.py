"""Finalizers that keep a claim while a pod uses it and a volume while it is bound."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.cache.store import Transition
from mooring.kube.object import Key
from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim, Pod
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.volumes.claims import claims_of_pod
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["VOLUME_FINALIZER", "ClaimProtection", "VolumeProtection", "uses"]

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"


def uses(pod: Pod, claim: str) -> bool:
    """The pod may have the claim mounted: it has a node (a node refuses claims that are being deleted)."""
    return bool(pod.spec and pod.spec.node_name) and claim in claims_of_pod(pod)


class ClaimProtection:
    """Adds the finalizer to claims; takes it from a deleted one when no pod uses it."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._pods = context.informers.of(Pod)
        context.index(self._pods, "claim", claims_of_pod)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("claim-protection", self.reconcile)
        made.watch(self._claims)
        made.watch(self._pods, map=self._pod_to_claims, predicate=_gone)
        return made

    def _pod_to_claims(self, pod: Pod) -> Iterable[Key]:
        for name in claims_of_pod(pod):
            namespace, _, claim = name.partition("/")
            yield Key(namespace, claim)

    async def reconcile(self, key: Key) -> Result:
        """One pass over a claim."""
        claim = self._claims.get(key)
        if claim is None:
            return Done()
        finalizers = list(claim.metadata.finalizers or ())
        if claim.metadata.deletion_timestamp is None:
            if CLAIM_FINALIZER not in finalizers:
                await self._write(claim, [*finalizers, CLAIM_FINALIZER])
        elif CLAIM_FINALIZER in finalizers and not await self._in_use(key):
            finalizers.remove(CLAIM_FINALIZER)
            await self._write(claim, finalizers)
        return Done()

    async def _in_use(self, key: Key) -> bool:
        name = f"{key.namespace}/{key.name}"
        if any(uses(pod, name) for pod in self._pods.by_index("claim", name)):
            return True
        live = await self._client.live.list(Pod, namespace=key.namespace)
        return any(uses(pod, name) for pod in live.items)

    async def _write(self, claim: PersistentVolumeClaim, finalizers: list[str]) -> None:
        await self._client.patch(
            PersistentVolumeClaim,
            claim.metadata.name or "",
            metadata_patch(claim, finalizers=finalizers),
            namespace=claim.metadata.namespace or "",
        )


class VolumeProtection:
    """Adds the finalizer to volumes; takes it from a deleted one that is not bound."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._volumes = context.informers.of(PersistentVolume)

    def controller(self) -> Controller:
        """The controller with its watches."""
        return Controller("volume-protection", self.reconcile).watch(self._volumes)

    async def reconcile(self, key: Key) -> Result:
        """One pass over a volume."""
        volume = self._volumes.get(key)
        if volume is None:
            return Done()
        finalizers = list(volume.metadata.finalizers or ())
        bound = volume.status is not None and volume.status.phase == "Bound"
        if volume.metadata.deletion_timestamp is None:
            if VOLUME_FINALIZER in finalizers:
                return Done()
            finalizers.append(VOLUME_FINALIZER)
        elif VOLUME_FINALIZER in finalizers and not bound:
            finalizers.remove(VOLUME_FINALIZER)
        else:
            return Done()
        await self._client.patch(PersistentVolume, key.name, metadata_patch(volume, finalizers=finalizers))
        return Done()


def _gone(change: Transition[Pod]) -> bool:
    return change.new is None
