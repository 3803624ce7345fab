"""The claims' half: find a volume, or ask a provisioner for one, and bind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mooring.cache.store import Transition
from mooring.kube.object import Key, key_of
from mooring.kube.objects.core import (
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
)
from mooring.kube.objects.storage import StorageClass
from mooring.kube.patches import MergePatch
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import metadata_patch
from mooring.local.controllers.volumes.binding import (
    AssignClass,
    Bind,
    Hold,
    Notice,
    Provision,
    claim_action,
)
from mooring.local.controllers.volumes.matching import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONER,
    STORAGE_PROVISIONER,
    filed_under,
    is_bound,
    reference_to,
)
from mooring.local.controllers.volumes.phases import set_claim_status, set_phase
from mooring.runtime.controller import Controller, Done, Result

__all__ = ["ClaimController", "claims_of_pod"]


class ClaimController:
    """Binds claims, and names the provisioner that a claim without a volume waits for."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("persistentvolume-controller")
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
        """One pass over a claim."""
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
            case Provision(storage=storage):
                await self._provision(claim, storage)
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
        volume = await set_phase(self._client, volume, "Bound", now=self._context.clock.now())
        claim = await self._bind_claim(claim, volume)
        spec = volume.spec
        await set_claim_status(
            self._client,
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
        body["spec"] = {"claimRef": msgspec.to_builtins(reference_to(claim))}
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

    # --- provisioning

    async def _provision(self, claim: PersistentVolumeClaim, storage: StorageClass) -> None:
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

    async def _name_provisioner(
        self, claim: PersistentVolumeClaim, provisioner: str
    ) -> PersistentVolumeClaim:
        wanted = dict.fromkeys(STORAGE_PROVISIONER, provisioner)
        present = claim.metadata.annotations or {}
        if all(present.get(key) == value for key, value in wanted.items()):
            return claim
        return await self._patch_claim(claim, metadata_patch(claim, annotations=wanted).body)

    # --- writing claims

    async def _set_phase(self, claim: PersistentVolumeClaim, phase: str) -> None:
        await set_claim_status(self._client, claim, phase=phase)

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
