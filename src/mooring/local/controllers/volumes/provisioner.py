"""Volumes of our class: directories, made for claims that ask for one and removed when their claim is gone.

Both halves keep to the contract of external provisioners: the binder names the provisioner in an annotation of
the claim, a volume is made for that claim, the binder binds the two; and of a volume whose claim is gone the
binder says so in its phase. So they work beside any binder, ours or a real kube-controller-manager's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mooring.kube.errors import AlreadyExists, NotFound
from mooring.kube.object import Key, key_of
from mooring.kube.objects.core import (
    HostPathVolumeSource,
    LocalVolumeSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.objects.storage import StorageClass
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.volumes.binding import IS_DEFAULT
from mooring.local.controllers.volumes.directories import Directories
from mooring.local.controllers.volumes.matching import (
    HOSTNAME,
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    class_of,
    reference_to,
    waits_for_consumer,
)
from mooring.local.controllers.volumes.phases import fail
from mooring.local.controllers.volumes.protection import VOLUME_FINALIZER
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["CLASS", "Provisioner", "Reclaimer"]

CLASS = "mooring-local"
CLASS_KEY = Key("", CLASS)
FINALIZER = "mooring.dev/local-volume"
SHARED = ("ReadWriteMany", "ReadOnlyMany")


class ProvisioningFailed(Exception):
    """A volume could not be made; the event says why."""


class Provisioner:
    """Makes our storage class, and a volume for each claim that waits for one of it."""

    def __init__(self, context: Context, directories: Directories) -> None:
        self._client = context.client
        self._directories = directories
        self._events = context.recorder(PROVISIONER)
        self._claims = context.informers.of(PersistentVolumeClaim)
        self._volumes = context.informers.of(PersistentVolume)
        self._classes = context.informers.of(StorageClass)
        context.index(self._claims, "ours", _ours)
        self._told: dict[str, str] = {}

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("provisioner", self.reconcile)
        made.watch(self._claims)
        made.watch(self._volumes, map=lambda _: ())  # only looked into
        made.watch(self._classes, map=lambda _: [key_of(one) for one in self._claims.by_index("ours", "yes")])
        made.enqueue(CLASS_KEY)
        return made

    async def reconcile(self, key: Key) -> Result:
        """One pass over a claim; the one key without a namespace is our storage class, made at the start."""
        if key == CLASS_KEY:
            await self._ensure_class()
            return Done()
        claim = self._claims.get(key)
        if claim is None or not _ours(claim):
            return Done()
        storage = self._classes.peek(Key("", class_of(claim)))
        node = (claim.metadata.annotations or {}).get(SELECTED_NODE, "")
        if storage is None or (waits_for_consumer(storage) and not node):
            return Done()
        if trouble := _unsupported(claim):
            self._refuse(claim, _failed(storage, trouble))
            return Done()
        await self._make(claim, storage, node)
        return Done()

    def _refuse(self, claim: PersistentVolumeClaim, message: str) -> None:
        """Say why there will be no volume, once."""
        uid = claim.metadata.uid or ""
        if self._told.get(uid) != message:
            self._told[uid] = message
            self._events.warning(claim, "ProvisioningFailed", message)

    async def _make(self, claim: PersistentVolumeClaim, storage: StorageClass, node: str) -> None:
        name = f"pvc-{claim.metadata.uid}"
        if self._volumes.peek(Key("", name)) is not None:
            return
        path = self._directories.path_of(claim, name)
        try:
            await asyncio.to_thread(self._directories.make, path)
        except OSError as error:
            self._events.warning(claim, "ProvisioningFailed", _failed(storage, str(error)))
            raise ProvisioningFailed(f"{path}: {error}") from error
        try:
            made = await self._client.create(_volume(claim, storage, name=name, path=str(path), node=node))
        except AlreadyExists:
            await self._client.refresh(PersistentVolume, name)
            return
        self._told.pop(claim.metadata.uid or "", None)
        self._events.normal(
            claim, "ProvisioningSucceeded", f"Successfully provisioned volume {made.metadata.name}"
        )

    async def _ensure_class(self) -> None:
        """Our class, the default one unless there is another; a user who deletes it has until the restart."""
        if self._classes.peek(CLASS_KEY) is not None:
            return
        others = any((s.metadata.annotations or {}).get(IS_DEFAULT) == "true" for s in self._classes.list())
        storage = StorageClass(
            metadata=ObjectMeta(name=CLASS, annotations={IS_DEFAULT: "false" if others else "true"}),
            provisioner=PROVISIONER,
            reclaim_policy="Delete",
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
        )
        try:
            await self._client.create(storage)
        except AlreadyExists:
            return


class Reclaimer:
    """Removes volumes that were made here when their claim is gone, if their policy says so."""

    def __init__(self, context: Context, directories: Directories) -> None:
        self._client = context.client
        self._clock = context.clock
        self._directories = directories
        self._events = context.recorder(PROVISIONER)
        self._volumes = context.informers.of(PersistentVolume)
        self._swept = False

    def controller(self) -> Controller:
        """The controller with its watches."""
        return Controller("reclaimer", self.reconcile).watch(self._volumes)

    async def reconcile(self, key: Key) -> Result:
        """One pass over a volume."""
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(self._directories.sweep)
        volume = self._volumes.get(key)
        if volume is None or (volume.metadata.annotations or {}).get(PROVISIONED_BY) != PROVISIONER:
            return Done()
        policy = volume.spec.persistent_volume_reclaim_policy if volume.spec else None
        phase = volume.status.phase if volume.status else None
        if _to_remove(volume):
            await self._remove(volume)
        elif volume.metadata.deletion_timestamp and (
            phase == "Available" or (phase != "Bound" and policy != "Delete")
        ):
            await self._drop_finalizer(volume)  # its data stays, so it may go without us
        return Done()

    async def _remove(self, volume: PersistentVolume) -> None:
        if self._directories.owned_path(volume) is None:
            message = f"its directory is not below {self._directories.root}: remove the volume by hand"
            await self._fail(volume, message)
            return
        if not await self._still_released(volume):
            return
        try:
            await asyncio.to_thread(self._directories.remove, volume)
        except OSError as error:
            await self._fail(volume, str(error))
            raise
        volume = await self._drop_finalizer(volume)
        await self._client.delete(
            PersistentVolume,
            volume.metadata.name or "",
            uid=volume.metadata.uid,
            resource_version=volume.metadata.resource_version,
        )

    async def _still_released(self, volume: PersistentVolume) -> bool:
        """Asked of the server, not the cache: data goes only if nobody has taken the volume meanwhile."""
        try:
            fresh = await self._client.live.get(PersistentVolume, volume.metadata.name or "")
        except NotFound:
            return False
        same = fresh.metadata.uid == volume.metadata.uid and _to_remove(fresh)
        return same and (fresh.spec and fresh.spec.claim_ref) == (volume.spec and volume.spec.claim_ref)

    async def _drop_finalizer(self, volume: PersistentVolume) -> PersistentVolume:
        finalizers = list(volume.metadata.finalizers or ())
        if FINALIZER not in finalizers:
            return volume
        finalizers.remove(FINALIZER)
        return await self._client.patch(
            PersistentVolume, volume.metadata.name or "", metadata_patch(volume, finalizers=finalizers)
        )

    async def _fail(self, volume: PersistentVolume, message: str) -> None:
        await fail(
            self._client, self._events, volume, "VolumeFailedDelete", message=message, now=self._clock.now()
        )


def _ours(claim: PersistentVolumeClaim) -> Iterable[str]:
    """Index value ``yes`` for a claim without a volume that the binder has left to us."""
    annotations = claim.metadata.annotations or {}
    named = any(annotations.get(key) == PROVISIONER for key in STORAGE_PROVISIONER)
    bound = bool(claim.spec and claim.spec.volume_name)
    return ("yes",) if named and not bound and claim.metadata.deletion_timestamp is None else ()


def _to_remove(volume: PersistentVolume) -> bool:
    """The binder has found the claim gone, and nothing of the volume is to be kept."""
    phase = volume.status.phase if volume.status else None
    policy = volume.spec.persistent_volume_reclaim_policy if volume.spec else None
    return policy == "Delete" and phase in ("Released", "Failed")


def _failed(storage: StorageClass, trouble: str) -> str:
    return f'failed to provision volume with StorageClass "{storage.metadata.name}": {trouble}'


def _unsupported(claim: PersistentVolumeClaim) -> str:
    spec = claim.spec
    if spec is None:
        return ""
    if spec.selector is not None:
        return "claim.Spec.Selector is not supported: remove it, or make a volume that it matches"
    if spec.volume_mode == "Block":
        return "block volumes are not supported: ask for volumeMode Filesystem"
    if spec.data_source is not None or spec.data_source_ref is not None:
        return "a dataSource is not supported: copy the data in a pod"
    return ""


def _volume(
    claim: PersistentVolumeClaim, storage: StorageClass, *, name: str, path: str, node: str
) -> PersistentVolume:
    """The volume of a new directory. One that only one node may use at a time is tied to that node."""
    modes = list((claim.spec.access_modes or ()) if claim.spec else ())
    requests = claim.spec.resources.requests if claim.spec and claim.spec.resources else None
    tied = bool(node) and not any(mode in SHARED for mode in modes)
    here = NodeSelectorRequirement(key=HOSTNAME, operator="In", values=[node])
    affinity = VolumeNodeAffinity(
        required=NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[here])])
    )
    delete = (storage.reclaim_policy or "Delete") == "Delete"
    return PersistentVolume(
        metadata=ObjectMeta(
            name=name,
            annotations={PROVISIONED_BY: PROVISIONER},
            finalizers=[VOLUME_FINALIZER, *([FINALIZER] if delete else [])],
        ),
        spec=PersistentVolumeSpec(
            capacity={"storage": (requests or {}).get("storage", 0)},
            access_modes=modes,
            claim_ref=reference_to(claim),
            persistent_volume_reclaim_policy=storage.reclaim_policy or "Delete",
            storage_class_name=storage.metadata.name,
            volume_mode="Filesystem",
            mount_options=storage.mount_options,
            local=LocalVolumeSource(path=path) if tied else None,
            host_path=None if tied else HostPathVolumeSource(path=path, type="DirectoryOrCreate"),
            node_affinity=affinity if tied else None,
        ),
    )
