"""What nobody may do, looked for at every change of the server's, whatever goes wrong meanwhile.

    Workload(..., monitors=(owned(), kept("persistentvolumeclaims")))

A monitor is a function that is given every `Change` and returns what is wrong with it, or "". Three are always on: no
secret word stands in anything but a Secret (`Workload.secrets`), nothing is deleted that the process which asks
for it has never seen (see `Faults.blind`): it meant another object of that name, and gave no UID; and no step is
repeated that changes nothing (`repeated`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from mooring.actor.conditions import PROGRESSING
from mooring.actor.repeats import STEP_REPEATS
from mooring.testing.changes import Change

__all__ = ["Monitor", "kept", "owned", "repeated"]

Monitor = Callable[[Change], str]
"""Looks at every change; what it returns is a violation, "" is none."""


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


def repeated(change: Change) -> str:
    """A condition says that a step is taken again and again and changes nothing."""
    message = next(_repeats(change.object.get("status")), "")
    return (
        f"a step repeats: {change.resource} {change.object['metadata']['name']}: {message}" if message else ""
    )


def _repeats(value: Any) -> Iterator[str]:
    """What the conditions say of it, wherever in a status they are."""
    if isinstance(value, dict):
        if value.get("type") == PROGRESSING and value.get("reason") == STEP_REPEATS:
            yield value.get("message") or ""
        for inner in value.values():
            yield from _repeats(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _repeats(inner)
