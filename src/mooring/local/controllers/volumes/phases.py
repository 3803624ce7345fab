"""The phase of a volume: as a patch, and written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.objects.core import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeStatus,
)
from mooring.kube.patches import MergePatch
from mooring.local.controllers.context import Recorder
from mooring.local.controllers.patching import status_patch
from mooring.runtime.client import CachedClient

__all__ = ["fail", "phase_patch", "set_claim_status", "set_phase"]


def phase_patch(
    volume: PersistentVolume, phase: str, *, now: datetime, message: str = ""
) -> MergePatch | None:
    """What makes a volume have this phase and message; ``None`` when it has."""
    present = volume.status or PersistentVolumeStatus()
    wanted = msgspec.structs.replace(present, phase=phase, message=message or None, reason=None)
    if wanted.phase != present.phase:
        wanted = msgspec.structs.replace(wanted, last_phase_transition_time=rfc3339(now))
    return status_patch(volume, wanted)


async def set_phase(
    client: CachedClient, volume: PersistentVolume, phase: str, *, now: datetime, message: str = ""
) -> PersistentVolume:
    """Give a volume a phase; nothing is written when it has it."""
    patch = phase_patch(volume, phase, now=now, message=message)
    if patch is None:
        return volume
    return await client.patch(PersistentVolume, volume.metadata.name or "", patch, subresource="status")


async def set_claim_status(client: CachedClient, claim: PersistentVolumeClaim, **fields: Any) -> None:
    """Write these fields into the status of a claim; nothing is written when it has them."""
    present = claim.status or PersistentVolumeClaimStatus()
    patch = status_patch(claim, msgspec.structs.replace(present, **fields))
    if patch is not None:
        await client.patch(
            PersistentVolumeClaim,
            claim.metadata.name or "",
            patch,
            namespace=claim.metadata.namespace or "",
            subresource="status",
        )


async def fail(
    client: CachedClient,
    events: Recorder,
    volume: PersistentVolume,
    reason: str,
    *,
    message: str,
    now: datetime,
) -> None:
    """Give a volume the phase Failed, and an event that says why, once."""
    status = volume.status
    if status is not None and (status.phase, status.message) == ("Failed", message):
        return
    await set_phase(client, volume, "Failed", now=now, message=message)
    events.warning(volume, reason, message)
