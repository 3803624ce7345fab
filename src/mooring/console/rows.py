"""What is shown of an instance in lists and streams: its name, its phase and why. Nothing of its spec."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

import msgspec

from mooring.catalog import Entry, pointer
from mooring.kube import Object, Resource
from mooring.kube.objects.core import Event

__all__ = ["conditions_of", "event_row", "phase_of", "row", "status_of"]

#: Characters of a message, conditions of an object.
MESSAGE_LIMIT, CONDITIONS_LIMIT = 1000, 50
_READY: Final = ("Ready", "Available", "Healthy")


@cache
def status_of(resource: Resource) -> type[Object]:
    """A type that reads metadata and status of a kind: its spec may hold secrets, and is not kept in memory."""
    made = msgspec.defstruct(
        f"{resource.kind}InConsole",
        [("status", Any, None)],
        bases=(Object,),
        namespace={"resource": resource, "__doc__": f"A {resource.kind} without its spec."},
        frozen=True,
        kw_only=True,
    )
    return cast("type[Object]", made)


def row(entry: Entry, obj: Object) -> dict[str, Any]:
    """One instance in a list."""
    meta = obj.metadata
    conditions = conditions_of(entry, obj)
    phase, why = phase_of(
        conditions, deleting=meta.deletion_timestamp is not None, ready=entry.spec.status.ready
    )
    if entry.spec.companion and phase in ("Running", "Provisioning"):
        phase = _ended(obj) or phase
    return {
        "entry": entry.name,
        "namespace": meta.namespace or "",
        "name": meta.name or "",
        "uid": meta.uid or "",
        "created": meta.creation_timestamp or "",
        "generation": meta.generation or 0,
        "phase": phase,
        "reason": _text(why.get("reason")),
        "message": _text(why.get("message")),
        **({"companion": True} if entry.spec.companion else {}),
    }


def _ended(obj: Object) -> str:
    """Of what is done once, such as a backup: how it ended, by its own word; "" while it goes on."""
    found = pointer.get({"status": getattr(obj, "status", None)}, "/status/phase")
    return found if found in ("Succeeded", "Failed") else ""


def phase_of(
    conditions: list[dict[str, Any]], *, deleting: bool, ready: str = ""
) -> tuple[str, Mapping[str, Any]]:
    """The phase of an object with these conditions, and the condition that says why.

    Conditions are found by type, never by place: UCloud's list is sorted by time.
    """
    by_type = {condition["type"]: condition for condition in reversed(conditions)}
    names = (ready,) if ready else _READY
    found = next((by_type[name] for name in names if name in by_type), None)
    if deleting:
        return "Deleting", by_type.get("Progressing", {})
    stalled = by_type.get("Stalled", {})
    if stalled.get("status") == "True":
        serves = found is not None and found.get("status") == "True"
        return "Degraded" if serves else "Failed", stalled
    if found is None:
        return ("Provisioning", conditions[0]) if conditions else ("Pending", {})
    if found.get("status") == "True":
        progressing = by_type.get("Progressing", {})
        return ("Updating", progressing) if progressing.get("status") == "True" else ("Running", found)
    if found.get("status") == "Unknown":
        return "Unknown", found
    # An operator sets Healthy once there was a working service.
    return ("Degraded" if "Healthy" in by_type else "Provisioning"), found


def conditions_of(entry: Entry, obj: Object) -> list[dict[str, Any]]:
    """The conditions of an object, those without a type left out."""
    found = pointer.get({"status": getattr(obj, "status", None)}, entry.spec.status.conditions)
    if not isinstance(found, list):
        return []
    shown = ("type", "status", "reason", "message", "lastTransitionTime")
    return [
        {key: _text(condition.get(key)) for key in shown}
        for condition in found[:CONDITIONS_LIMIT]
        if isinstance(condition, dict) and condition.get("type")
    ]


def event_row(event: Event) -> dict[str, Any]:
    """One event."""
    series = event.series
    last = (series.last_observed_time if series else None) or event.last_timestamp or event.event_time
    return {
        "uid": event.metadata.uid or "",
        "type": event.type or "",
        "reason": _text(event.reason),
        "message": _text(event.message),
        "count": (series.count if series else None) or event.count or 1,
        "last": last or event.metadata.creation_timestamp or "",
        "from": event.reporting_component or (event.source.component if event.source else None) or "",
    }


def _text(value: Any) -> str:
    return value[:MESSAGE_LIMIT] if isinstance(value, str) else ""
