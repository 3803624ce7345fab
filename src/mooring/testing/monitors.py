"""What nobody may do, looked for at every change of the server's, whatever goes wrong meanwhile.

    Workload(..., monitors=(owned(), kept("persistentvolumeclaims")))

A monitor is a function that is given every `Change` and returns what is wrong with it, or "". Two are always on: no
secret word stands in anything but a Secret (`Workload.secrets`), and nothing is deleted that the process which asks
for it has never seen (see `Faults.blind`): it meant another object of that name, and gave no UID.
"""

from __future__ import annotations

from collections.abc import Collection

from mooring.testing.workload import Change, Monitor

__all__ = ["kept", "owned"]


def owned(*, but: Collection[str] = ()) -> Monitor:
    """What the operator makes has an owner, so that it goes when that goes.

    ``but``: resources whose objects outlive it, as ``configmaps``, or single objects, as ``configmaps demo-record``.
    """

    def look(change: Change) -> str:
        meta = change.object["metadata"]
        if change.type != "ADDED" or not change.by or meta.get("ownerReferences"):
            return ""
        named = f"{change.resource} {meta['name']}"
        return "" if change.resource in but or named in but else f"made without an owner: {named}"

    return look


def kept(*resources: str) -> Monitor:
    """Objects of these resources are never deleted, nor told to go."""

    def look(change: Change) -> str:
        if change.resource not in resources or change.type == "ADDED":
            return ""
        meta = change.object["metadata"]
        if change.type == "MODIFIED" and not meta.get("deletionTimestamp"):
            return ""
        return f"deleted though it is to be kept: {change.resource} {meta['name']}"

    return look
