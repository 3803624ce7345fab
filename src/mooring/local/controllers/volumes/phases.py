"""The phase of a volume, as a patch."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.objects.core import PersistentVolume, PersistentVolumeStatus
from mooring.kube.patches import MergePatch
from mooring.local.controllers.patching import status_patch

__all__ = ["phase_patch"]


def phase_patch(
    volume: PersistentVolume, phase: str, *, now: datetime, message: str = ""
) -> MergePatch | None:
    """What makes a volume have this phase and message; ``None`` when it has."""
    present = volume.status or PersistentVolumeStatus()
    wanted = msgspec.structs.replace(present, phase=phase, message=message or None, reason=None)
    if wanted.phase != present.phase:
        wanted = msgspec.structs.replace(wanted, last_phase_transition_time=rfc3339(now))
    return status_patch(volume, wanted)
