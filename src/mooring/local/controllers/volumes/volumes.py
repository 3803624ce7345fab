"""The volumes' half: phases, and what happens when their claim is gone."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.kube.object import Key
from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim
from mooring.kube.patches import MergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.volumes.binding import Phase, Reclaim, Unbind, volume_action
from mooring.local.controllers.volumes.matching import BOUND_BY_CONTROLLER, PROVISIONED_BY, filed_under
from mooring.local.controllers.volumes.phases import fail, set_phase
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["VolumeController"]


class VolumeController:
    """Reconciles PersistentVolumes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("persistentvolume-controller")
        self._volumes = context.informers.of(PersistentVolume)
        self._claims = context.informers.of(PersistentVolumeClaim)
        context.index(self._volumes, "claim", filed_under)

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("volumes", self.reconcile)
        made.watch(self._volumes)
        made.watch(self._claims, map=self._claim_to_volumes)
        return made

    def _claim_to_volumes(self, claim: PersistentVolumeClaim) -> Iterable[Key]:
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        return [Key("", v.metadata.name or "") for v in self._volumes.by_index("claim", name)]

    async def reconcile(self, key: Key) -> Result:
        """One pass over a volume."""
        volume = self._volumes.get(key)
        if volume is None:
            return Done()
        claim = await self._claim_of(volume)
        match volume_action(volume, claim):
            case Phase(phase=phase):
                await self._set_phase(volume, phase)
            case Reclaim():
                await self._reclaim(volume)
            case Unbind(keep_reservation=keep):
                await self._unbind(volume, keep_reservation=keep)
        return Done()

    async def _claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """The claim that the volume names; its absence is believed only when the server says so too."""
        reference = volume.spec.claim_ref if volume.spec else None
        if reference is None:
            return None
        found = self._claims.get(Key(reference.namespace or "", reference.name or ""))
        if found is not None and found.metadata.uid == reference.uid:
            return found
        return await self._client.refresh(
            PersistentVolumeClaim, reference.name or "", namespace=reference.namespace or ""
        )

    async def _set_phase(self, volume: PersistentVolume, phase: str) -> PersistentVolume:
        return await set_phase(self._client, volume, phase, now=self._context.clock.now())

    async def _unbind(self, volume: PersistentVolume, *, keep_reservation: bool) -> None:
        body = metadata_patch(volume).body
        if keep_reservation:
            body["spec"] = {"claimRef": {"uid": None, "resourceVersion": None}}
        else:
            body["spec"] = {"claimRef": None}
            body["metadata"]["annotations"] = {BOUND_BY_CONTROLLER: None}
        volume = await self._client.patch(PersistentVolume, volume.metadata.name or "", MergePatch(body))
        await self._set_phase(volume, "Available")

    # --- reclaiming

    async def _reclaim(self, volume: PersistentVolume) -> None:
        if (volume.status.phase if volume.status else None) not in ("Released", "Failed"):
            volume = await self._set_phase(volume, "Released")
        policy = volume.spec.persistent_volume_reclaim_policy if volume.spec else None
        if policy == "Recycle":
            await self._fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
        elif policy == "Delete" and PROVISIONED_BY not in (volume.metadata.annotations or {}):
            # One that was made by a provisioner is removed by it.
            what = f'error getting deleter volume plugin for volume "{volume.metadata.name}"'
            await self._fail(volume, "VolumeFailedDelete", f"{what}: no deletable volume plugin matched")

    async def _fail(self, volume: PersistentVolume, reason: str, message: str) -> None:
        now = self._context.clock.now()
        await fail(self._client, self._events, volume, reason, message=message, now=now)
