"""Objects that are served in two shapes: Events, and HorizontalPodAutoscalers.

They are stored in one (core/v1 and autoscaling/v2) and converted at the edge. The versions of custom
resources are a matter of `custom`.
"""

from __future__ import annotations

from typing import Any

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
    return _autoscaler_v2(obj)


def from_storage(obj: JsonObject, *, group: str, plural: str) -> JsonObject:
    """Return a stored object in the shape of events.k8s.io/v1 or autoscaling/v1."""
    if plural == "events":
        shown = {_CORE_EVENT.get(key, key): value for key, value in obj.items()}
        return {k: v for k, v in shown.items() if v != "" or k not in _OMITTED}
    return _autoscaler_v1(obj)


def _autoscaler_v2(obj: JsonObject) -> JsonObject:
    spec = dict(obj.get("spec") or {})
    target = spec.pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        utilization = {"type": "Utilization", "averageUtilization": target}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}]
    status = {k: v for k, v in (obj.get("status") or {}).items() if k != "currentCPUUtilizationPercentage"}
    return {**obj, "spec": spec, "status": status}


def _autoscaler_v1(obj: JsonObject) -> JsonObject:
    spec = dict(obj.get("spec") or {})
    for metric in spec.pop("metrics", None) or ():
        resource = metric.get("resource") or {}
        if resource.get("name") == "cpu" and "averageUtilization" in resource.get("target", {}):
            spec["targetCPUUtilizationPercentage"] = resource["target"]["averageUtilization"]
    spec.pop("behavior", None)
    status = {k: v for k, v in (obj.get("status") or {}).items() if k not in ("currentMetrics", "conditions")}
    return {**obj, "spec": spec, "status": status}
