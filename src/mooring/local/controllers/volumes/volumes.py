"""The volumes' half: phases, and what happens when their claim is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mooring.kube.errors import NotFound
from mooring.kube.object import Key
from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim
from mooring.kube.patches import MergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.volumes.binding import Phase, Reclaim, Unbind, volume_action
from mooring.local.controllers.volumes.claims import FINALIZER, PROVISIONER
from mooring.local.controllers.volumes.directories import Directories
from mooring.local.controllers.volumes.matching import BOUND_BY_CONTROLLER, PROVISIONED_BY, filed_under
from mooring.local.controllers.volumes.phases import phase_patch
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["VolumeController"]


class VolumeController:
    """Reconciles PersistentVolumes."""

    def __init__(self, context: Context, directories: Directories) -> None:
        self._context = context
        self._client = context.client
        self._directories = directories
        self._events = context.recorder("persistentvolume-controller")
        self._volumes = context.informers.of(PersistentVolume)
        self._claims = context.informers.of(PersistentVolumeClaim)
        context.index(self._volumes, "claim", filed_under)
        self._swept = False

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
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(self._directories.sweep)
        volume = self._volumes.get(key)
        if volume is None:
            return Done()
        claim = await self._claim_of(volume)
        match volume_action(volume, claim):
            case Phase(phase=phase):
                await self._set_phase(volume, phase)
                await self._let_go(volume)
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

    async def _set_phase(
        self, volume: PersistentVolume, phase: str, *, message: str = ""
    ) -> PersistentVolume:
        patch = phase_patch(volume, phase, now=self._context.clock.now(), message=message)
        if patch is None:
            return volume
        return await self._client.patch(
            PersistentVolume, volume.metadata.name or "", patch, subresource="status"
        )

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
        if policy == "Delete":
            await self._delete(volume)
        elif policy == "Recycle":
            await self._fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
        else:
            await self._let_go(volume)

    async def _delete(self, volume: PersistentVolume) -> None:
        name = volume.metadata.name or ""
        maker = (volume.metadata.annotations or {}).get(PROVISIONED_BY)
        if maker is not None and maker != PROVISIONER:
            return  # its own provisioner sees to it
        if maker is None or self._directories.owned_path(volume) is None:
            message = (
                f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
            )
            await self._fail(volume, "VolumeFailedDelete", message)
            return
        if not await self._still_released(volume):
            return
        try:
            await asyncio.to_thread(self._directories.remove, volume)
        except OSError as error:
            await self._fail(volume, "VolumeFailedDelete", str(error))
            raise
        volume = await self._drop_finalizer(volume)
        await self._client.delete(
            PersistentVolume,
            name,
            uid=volume.metadata.uid,
            resource_version=volume.metadata.resource_version,
        )

    async def _still_released(self, volume: PersistentVolume) -> bool:
        """Asked of the server, not the cache: data goes only if nobody has taken the volume meanwhile."""
        try:
            fresh = await self._client.live.get(PersistentVolume, volume.metadata.name or "")
        except NotFound:
            return False
        return (
            fresh.metadata.uid == volume.metadata.uid
            and fresh.spec is not None
            and fresh.spec.persistent_volume_reclaim_policy == "Delete"
            and (volume.spec is not None and fresh.spec.claim_ref == volume.spec.claim_ref)
        )

    async def _let_go(self, volume: PersistentVolume) -> None:
        """A volume whose data stays may be deleted without us."""
        policy = volume.spec.persistent_volume_reclaim_policy if volume.spec else None
        phase = volume.status.phase if volume.status else None
        if volume.metadata.deletion_timestamp and (
            phase == "Available" or (phase != "Bound" and policy != "Delete")
        ):
            await self._drop_finalizer(volume)

    async def _drop_finalizer(self, volume: PersistentVolume) -> PersistentVolume:
        finalizers = list(volume.metadata.finalizers or ())
        if FINALIZER not in finalizers:
            return volume
        finalizers.remove(FINALIZER)
        return await self._client.patch(
            PersistentVolume, volume.metadata.name or "", metadata_patch(volume, finalizers=finalizers)
        )

    async def _fail(self, volume: PersistentVolume, reason: str, message: str) -> None:
        status = volume.status
        if status is not None and (status.phase, status.message) == ("Failed", message):
            return
        await self._set_phase(volume, "Failed", message=message)
        self._events.warning(volume, reason, message)
