"""The claims' half: find a volume, or make a directory, and bind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from mooring.cache.store import Transition
from mooring.kube.errors import AlreadyExists
from mooring.kube.object import Key, key_of
from mooring.kube.objects.core import (
    HostPathVolumeSource,
    LocalVolumeSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    Pod,
    VolumeNodeAffinity,
)
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.objects.storage import StorageClass
from mooring.kube.patches import MergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch, status_patch
from mooring.local.controllers.volumes.binding import (
    AssignClass,
    Bind,
    Hold,
    Notice,
    Provision,
    claim_action,
)
from mooring.local.controllers.volumes.directories import Directories
from mooring.local.controllers.volumes.matching import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    capacity_of,
    class_of,
    filed_under,
    is_bound,
    request_of,
)
from mooring.local.controllers.volumes.phases import phase_patch
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["CLASS", "PROVISIONER", "ClaimController", "claims_of_pod"]

PROVISIONER = "mooring.dev/local"
CLASS = "mooring-local"
FINALIZER = "mooring.dev/local-volume"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
CLASS_KEY = Key("", CLASS)
HOSTNAME = "kubernetes.io/hostname"
STORAGE_PROVISIONER = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
SHARED = ("ReadWriteMany", "ReadOnlyMany")


class ProvisioningFailed(Exception):
    """A volume could not be made; the event says why."""


class ClaimController:
    """Binds claims, and provisions directories for those of our class."""

    def __init__(self, context: Context, directories: Directories) -> None:
        self._context = context
        self._client = context.client
        self._directories = directories
        self._events = context.recorder("persistentvolume-controller")
        self._provisioner = context.recorder(PROVISIONER)
        informers = context.informers
        self._claims = informers.of(PersistentVolumeClaim)
        self._volumes = informers.of(PersistentVolume)
        self._classes = informers.of(StorageClass)
        self._pods = informers.of(Pod)
        context.index(self._pods, "claim", claims_of_pod)
        context.index(self._volumes, "claim", filed_under)
        context.index(self._claims, "unbound", lambda claim: () if is_bound(claim) else ("yes",))
        self._told: dict[str, Notice] = {}

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("claims", self.reconcile)
        made.watch(self._claims)
        made.watch(self._volumes, map=self._volume_to_claims)
        made.watch(self._classes, map=lambda _: self._unbound())
        made.watch(self._pods, map=self._pod_to_claims, predicate=_scheduling_changed)
        made.enqueue(CLASS_KEY)
        return made

    def _unbound(self) -> Iterable[Key]:
        return [key_of(claim) for claim in self._claims.by_index("unbound", "yes")]

    def _volume_to_claims(self, volume: PersistentVolume) -> Iterable[Key]:
        reference = volume.spec.claim_ref if volume.spec else None
        if reference is not None:
            return [Key(reference.namespace or "", reference.name or "")]
        return self._unbound()

    def _pod_to_claims(self, pod: Pod) -> Iterable[Key]:
        for name in claims_of_pod(pod):
            namespace, _, claim = name.partition("/")
            found = self._claims.peek(Key(namespace, claim))
            if found is not None and not is_bound(found):
                yield Key(namespace, claim)

    async def reconcile(self, key: Key) -> Result:
        """One pass over a claim; the one key without a namespace is our storage class, made at the start."""
        if key == CLASS_KEY:
            await self._ensure_class()
            return Done()
        claim = self._claims.get(key)
        if claim is None:
            return Done()
        action = claim_action(
            claim,
            volumes=self._candidates(claim),
            classes=self._classes.list(),
            consumers=self._pods.by_index("claim", f"{key.namespace}/{key.name}"),
        )
        match action:
            case Hold(phase=phase, notice=notice):
                self._tell(claim, notice)
                await self._set_phase(claim, phase)
            case Bind(volume=volume):
                self._told.pop(claim.metadata.uid or "", None)
                await self._bind(claim, volume)
            case AssignClass(name=name):
                body = metadata_patch(claim).body
                body["spec"] = {"storageClassName": name}
                await self._patch_claim(claim, body)
            case Provision(storage=storage, node=node):
                await self._provision(claim, storage, node)
        return Done()

    def _candidates(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """The volumes that are nobody's, those for the claim, and the one it names."""
        key = key_of(claim)
        found = [*self._volumes.by_index("claim", str(key)), *self._volumes.by_index("claim", "free")]
        named = claim.spec.volume_name if claim.spec else None
        if named and all(volume.metadata.name != named for volume in found):
            volume = self._volumes.get(Key("", named))
            found += [volume] if volume is not None else []
        return found

    def _tell(self, claim: PersistentVolumeClaim, notice: Notice | None) -> None:
        """Record why a claim waits, when that has changed."""
        uid = claim.metadata.uid or ""
        if notice is None or self._told.get(uid) == notice:
            return
        self._told[uid] = notice
        record = self._events.normal if notice.kind == "Normal" else self._events.warning
        record(claim, notice.reason, notice.message)

    # --- binding

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        volume = await self._bind_volume(volume, claim)
        phase = phase_patch(volume, "Bound", now=self._context.clock.now())
        if phase is not None:
            volume = await self._client.patch(
                PersistentVolume, volume.metadata.name or "", phase, subresource="status"
            )
        claim = await self._bind_claim(claim, volume)
        volume = await self._grow(claim, volume)
        spec = volume.spec
        await self._set_status(
            claim,
            phase="Bound",
            access_modes=spec.access_modes if spec else None,
            capacity=spec.capacity if spec else None,
        )

    async def _bind_volume(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        reference = volume.spec.claim_ref if volume.spec else None
        if reference is not None and reference.uid == claim.metadata.uid:
            return volume
        body = metadata_patch(volume).body
        if reference is None:
            body["metadata"]["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        body["spec"] = {"claimRef": msgspec.to_builtins(_reference(claim))}
        return await self._client.patch(PersistentVolume, volume.metadata.name or "", MergePatch(body))

    async def _bind_claim(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume
    ) -> PersistentVolumeClaim:
        named = claim.spec.volume_name if claim.spec else None
        annotations = claim.metadata.annotations or {}
        if named == volume.metadata.name and BIND_COMPLETED in annotations:
            return claim
        body = metadata_patch(claim).body
        body["metadata"]["annotations"] = {BIND_COMPLETED: "yes"}
        if named != volume.metadata.name:
            body["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes"
            body["spec"] = {"volumeName": volume.metadata.name}
        return await self._patch_claim(claim, body)

    async def _grow(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolume:
        """A claim of our class that asks for more gets it: a directory has no size."""
        storage = self._classes.peek(Key("", class_of(claim)))
        ours = (volume.metadata.annotations or {}).get(PROVISIONED_BY) == PROVISIONER
        if not ours or storage is None or not storage.allow_volume_expansion:
            return volume
        if request_of(claim) <= capacity_of(volume):
            return volume
        requests = claim.spec.resources.requests if claim.spec and claim.spec.resources else None
        body = metadata_patch(volume).body
        body["spec"] = {"capacity": {"storage": (requests or {}).get("storage")}}
        return await self._client.patch(PersistentVolume, volume.metadata.name or "", MergePatch(body))

    # --- provisioning

    async def _provision(self, claim: PersistentVolumeClaim, storage: StorageClass, node: str) -> None:
        provisioner = storage.provisioner or ""
        if provisioner.startswith("kubernetes.io/"):
            message = f"no volume plugin matched name: {provisioner}"
            self._tell(claim, Notice("Warning", "ProvisioningFailed", message))
            await self._set_phase(claim, "Pending")
            return
        claim = await self._name_provisioner(claim, provisioner)
        if provisioner != PROVISIONER:
            message = (
                f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or "
                "manually by the system administrator. If volume creation is delayed, please verify that the "
                "provisioner is running and correctly registered."
            )
            self._tell(claim, Notice("Normal", "ExternalProvisioning", message))
            await self._set_phase(claim, "Pending")
            return
        if trouble := _unsupported(claim):
            self._tell(claim, Notice("Warning", "ProvisioningFailed", _failed(storage, trouble)))
            return
        await self._make(claim, storage, node)

    async def _name_provisioner(
        self, claim: PersistentVolumeClaim, provisioner: str
    ) -> PersistentVolumeClaim:
        wanted = dict.fromkeys(STORAGE_PROVISIONER, provisioner)
        present = claim.metadata.annotations or {}
        if all(present.get(key) == value for key, value in wanted.items()):
            return claim
        return await self._patch_claim(claim, metadata_patch(claim, annotations=wanted).body)

    async def _make(self, claim: PersistentVolumeClaim, storage: StorageClass, node: str) -> None:
        name = f"pvc-{claim.metadata.uid}"
        path = self._directories.path_of(claim, name)
        try:
            await asyncio.to_thread(self._directories.make, path)
        except OSError as error:
            self._provisioner.warning(claim, "ProvisioningFailed", _failed(storage, str(error)))
            raise ProvisioningFailed(f"{path}: {error}") from error
        try:
            made = await self._client.create(_volume(claim, storage, name=name, path=str(path), node=node))
        except AlreadyExists:
            await self._client.refresh(PersistentVolume, name)
            return
        self._provisioner.normal(
            claim, "ProvisioningSucceeded", f"Successfully provisioned volume {made.metadata.name}"
        )

    async def _ensure_class(self) -> None:
        """Our class, the default one unless there is another; a user who deletes it has until the restart."""
        if self._classes.peek(CLASS_KEY) is not None:
            return
        others = any(
            (s.metadata.annotations or {}).get("storageclass.kubernetes.io/is-default-class") == "true"
            for s in self._classes.list()
        )
        annotations = {"storageclass.kubernetes.io/is-default-class": "false" if others else "true"}
        storage = StorageClass(
            metadata=ObjectMeta(name=CLASS, annotations=annotations),
            provisioner=PROVISIONER,
            reclaim_policy="Delete",
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
        )
        try:
            await self._client.create(storage)
        except AlreadyExists:
            return

    # --- writing claims

    async def _set_phase(self, claim: PersistentVolumeClaim, phase: str) -> None:
        await self._set_status(claim, phase=phase)

    async def _set_status(self, claim: PersistentVolumeClaim, **fields: Any) -> None:
        present = claim.status or PersistentVolumeClaimStatus()
        patch = status_patch(claim, msgspec.structs.replace(present, **fields))
        if patch is not None:
            await self._client.patch(
                PersistentVolumeClaim,
                claim.metadata.name or "",
                patch,
                namespace=claim.metadata.namespace or "",
                subresource="status",
            )

    async def _patch_claim(self, claim: PersistentVolumeClaim, body: dict[str, Any]) -> PersistentVolumeClaim:
        return await self._client.patch(
            PersistentVolumeClaim,
            claim.metadata.name or "",
            MergePatch(body),
            namespace=claim.metadata.namespace or "",
        )


def claims_of_pod(pod: Pod) -> Iterable[str]:
    """``namespace/claim`` for every claim that a pod mounts."""
    for volume in (pod.spec.volumes or ()) if pod.spec else ():
        if volume.persistent_volume_claim is not None:
            yield f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}"


def _scheduling_changed(change: Transition[Pod]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return bool(old.spec and old.spec.node_name) != bool(new.spec and new.spec.node_name)


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


def _reference(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


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
            claim_ref=_reference(claim),
            persistent_volume_reclaim_policy=storage.reclaim_policy or "Delete",
            storage_class_name=storage.metadata.name,
            volume_mode="Filesystem",
            mount_options=storage.mount_options,
            local=LocalVolumeSource(path=path) if tied else None,
            host_path=None if tied else HostPathVolumeSource(path=path, type="DirectoryOrCreate"),
            node_affinity=affinity if tied else None,
        ),
    )
