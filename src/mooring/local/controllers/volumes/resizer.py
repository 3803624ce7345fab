"""Volumes of our class grow with what their claims ask for: a directory has no size, so it is a matter of numbers.

As external resizers do: the volume first, then what the claim says it has. So it works beside any binder, ours or a real
kube-controller-manager's.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooring.kube.object import Key, key_of
from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim
from mooring.kube.objects.storage import StorageClass
from mooring.kube.patches import MergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.volumes.matching import (
    PROVISIONED_BY,
    PROVISIONER,
    capacity_of,
    class_of,
    is_bound,
    request_of,
)
from mooring.local.controllers.volumes.phases import set_claim_status
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["Resizer"]


class Resizer:
    """Enlarges the volumes of bound claims whose class allows it."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._volumes = context.informers.of(PersistentVolume)
        self._classes = context.informers.of(StorageClass)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("resizer", self.reconcile)
        made.watch(self._claims)
        made.watch(self._volumes, map=_claim_of)
        made.watch(self._classes, map=self._claims_of)
        return made

    def _claims_of(self, storage: StorageClass) -> Iterable[Key]:
        return [key_of(claim) for claim in self._claims.list() if class_of(claim) == storage.metadata.name]

    async def reconcile(self, key: Key) -> Result:
        """One pass over a claim."""
        claim = self._claims.get(key)
        if claim is None or claim.spec is None or not is_bound(claim):
            return Done()
        volume = self._volumes.get(Key("", claim.spec.volume_name or ""))
        storage = self._classes.peek(Key("", class_of(claim)))
        ours = volume is not None and (volume.metadata.annotations or {}).get(PROVISIONED_BY) == PROVISIONER
        if volume is None or not ours or storage is None or not storage.allow_volume_expansion:
            return Done()
        if request_of(claim) > capacity_of(volume):
            volume = await self._enlarge(volume, claim)
        await self._tell(claim, volume)
        return Done()

    async def _enlarge(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        requests = claim.spec.resources.requests if claim.spec and claim.spec.resources else None
        body = metadata_patch(volume).body
        body["spec"] = {"capacity": {"storage": (requests or {}).get("storage")}}
        return await self._client.patch(PersistentVolume, volume.metadata.name or "", MergePatch(body))

    async def _tell(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Write what the volume has into a claim that the binder has finished with; before, that is the binder's to write."""
        if claim.status is None or claim.status.phase != "Bound":
            return
        capacity = volume.spec.capacity if volume.spec else None
        await set_claim_status(self._client, claim, capacity=capacity)


def _claim_of(volume: PersistentVolume) -> Iterable[Key]:
    reference = volume.spec.claim_ref if volume.spec else None
    return [] if reference is None else [Key(reference.namespace or "", reference.name or "")]
