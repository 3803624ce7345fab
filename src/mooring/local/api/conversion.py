"""Objects that are served in two shapes: Events, and HorizontalPodAutoscalers.

They are stored in one (core/v1 and autoscaling/v2) and converted at the edge. The versions of custom
resources are a matter of `custom`.
"""

from __future__ import annotations

from typing import Any

from mooring.local.api import autoscalers

__all__ = ["from_storage", "to_storage"]

JsonObject = dict[str, Any]

#: events.k8s.io/v1 name -> core/v1 name.
_EVENT = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
#: Fields that events.k8s.io leaves out when they are empty, and core does not.
_OMITTED = ("reportingController", "reportingInstance")
_CORE_EVENT = {core: new for new, core in _EVENT.items()}


def to_storage(obj: JsonObject, *, group: str, plural: str) -> JsonObject:
    """Return an object of events.k8s.io/v1 or autoscaling/v1 in its stored shape."""
    if plural == "events":
        stored = {_EVENT.get(key, key): value for key, value in obj.items()}
        return {"reportingComponent": "", "reportingInstance": "", **stored}
    return autoscalers.from_v1(obj)


def from_storage(obj: JsonObject, *, group: str, plural: str) -> JsonObject:
    """Return a stored object in the shape of events.k8s.io/v1 or autoscaling/v1."""
    if plural == "events":
        shown = {_CORE_EVENT.get(key, key): value for key, value in obj.items()}
        return {k: v for k, v in shown.items() if v != "" or k not in _OMITTED}
    return autoscalers.to_v1(obj)
