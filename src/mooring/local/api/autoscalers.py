"""HorizontalPodAutoscalers of autoscaling/v1, which are stored as autoscaling/v2.

v1 has one field for the share of the cpu; everything else that v2 knows is in annotations there, as JSON
of v1's own metric types, in the order in which Go writes their fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["from_v1", "to_v1"]

Json = Any
JsonObject = dict[str, Any]

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_METRICS, _STATUSES, _CONDITIONS, _BEHAVIOR = (
    _PREFIX + name for name in ("metrics", "current-metrics", "conditions", "behavior")
)
_OURS: Final = frozenset(
    (_METRICS, _STATUSES, _CONDITIONS, _BEHAVIOR, _PREFIX + "scale-down-tolerance", _PREFIX + "scale-up-tolerance")
)  # fmt: skip
_DEFAULT: Final = 80

#: v1's fields of each source: name, where v2 has it, whether it is written when empty.
_Fields = Sequence[tuple[str, str, bool]]
_SOURCES: Final[Mapping[str, _Fields]] = {
    "object": (
        ("target", "describedObject", True),
        ("metricName", "metric.name", True),
        ("targetValue", "target.value", True),
        ("selector", "metric.selector", False),
        ("averageValue", "target.averageValue", False),
    ),
    "pods": (
        ("metricName", "metric.name", True),
        ("targetAverageValue", "target.averageValue", True),
        ("selector", "metric.selector", False),
    ),
    "resource": (
        ("name", "name", True),
        ("targetAverageUtilization", "target.averageUtilization", False),
        ("targetAverageValue", "target.averageValue", False),
    ),
    "containerResource": (
        ("name", "name", True),
        ("targetAverageUtilization", "target.averageUtilization", False),
        ("targetAverageValue", "target.averageValue", False),
        ("container", "container", True),
    ),
    "external": (
        ("metricName", "metric.name", True),
        ("metricSelector", "metric.selector", False),
        ("targetValue", "target.value", False),
        ("targetAverageValue", "target.averageValue", False),
    ),
}
_STATUS: Final[Mapping[str, _Fields]] = {
    "object": (
        ("target", "describedObject", True),
        ("metricName", "metric.name", True),
        ("currentValue", "current.value", True),
        ("selector", "metric.selector", False),
        ("averageValue", "current.averageValue", False),
    ),
    "pods": (
        ("metricName", "metric.name", True),
        ("currentAverageValue", "current.averageValue", True),
        ("selector", "metric.selector", False),
    ),
    "resource": (
        ("name", "name", True),
        ("currentAverageUtilization", "current.averageUtilization", False),
        ("currentAverageValue", "current.averageValue", True),
    ),
    "containerResource": (
        ("name", "name", True),
        ("currentAverageUtilization", "current.averageUtilization", False),
        ("currentAverageValue", "current.averageValue", True),
        ("container", "container", True),
    ),
    "external": (
        ("metricName", "metric.name", True),
        ("metricSelector", "metric.selector", False),
        ("currentValue", "current.value", True),
        ("currentAverageValue", "current.averageValue", False),
    ),
}
#: The type of a target whose v1 form has this field; the last one is that of all others.
_TYPES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "object": (("averageValue", "AverageValue"), ("", "Value")),
    "pods": (("", "AverageValue"),),
    "resource": (("targetAverageUtilization", "Utilization"), ("", "AverageValue")),
    "containerResource": (("targetAverageUtilization", "Utilization"), ("", "AverageValue")),
    "external": (("targetValue", "Value"), ("", "AverageValue")),
}
#: Go writes the behavior by the names of its own fields, in this order.
_RULES: Final = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY: Final = ("type", "value", "periodSeconds")
_CONDITION: Final = ("type", "status", "lastTransitionTime", "reason", "message")


def to_v1(obj: JsonObject) -> JsonObject:
    """Return a stored autoscaler as autoscaling/v1 shows it."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metrics, behavior = spec.pop("metrics", None) or [], spec.pop("behavior", None)
    current, conditions = status.pop("currentMetrics", None) or [], status.pop("conditions", None) or []
    shares = [share for metric in metrics if (share := _share(metric, "target")) is not None]
    if shares:
        spec["targetCPUUtilizationPercentage"] = shares[0]
    others = [_to_v1(metric, _SOURCES) for metric in metrics if _share(metric, "target") is None]
    used = [share for metric in current if (share := _share(metric, "current")) is not None]
    status = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    if used:
        status["currentCPUUtilizationPercentage"] = used[0]
    added = {
        _METRICS: others,
        _STATUSES: [_to_v1(metric, _STATUS) for metric in current],
        _BEHAVIOR: _go_behavior(behavior) if behavior is not None else None,
        _CONDITIONS: [{k: c[k] for k in _CONDITION if c.get(k)} for c in conditions],
    }
    annotations = {key: _encoded(value) for key, value in added.items() if value}
    return _annotated({**obj, "spec": spec, "status": status}, annotations)


def from_v1(obj: JsonObject) -> JsonObject:
    """Return an autoscaler of autoscaling/v1 as it is stored."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    share = spec.pop("targetCPUUtilizationPercentage", None)
    used = status.pop("currentCPUUtilizationPercentage", None)
    metrics = [_from_v1(metric, _SOURCES) for metric in _decoded(annotations, _METRICS, [])]
    if share is not None or not metrics:
        target = {"type": "Utilization", "averageUtilization": _DEFAULT if share is None else share}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    spec["metrics"] = metrics
    if behavior := _decoded(annotations, _BEHAVIOR, {}):
        spec["behavior"] = _json_behavior(behavior)
    current = [_from_v1(metric, _STATUS) for metric in _decoded(annotations, _STATUSES, [])]
    if not current and used is not None:
        value = {"averageUtilization": used}
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": value}}]
    if current:
        status["currentMetrics"] = current
    if conditions := _decoded(annotations, _CONDITIONS, []):
        status["conditions"] = conditions
    return _annotated({**obj, "spec": spec, "status": status}, {})


def _share(metric: JsonObject, part: str) -> int | None:
    """Return the share of the cpu that a metric is about, None when it is about something else."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    share: int | None = (resource.get(part) or {}).get("averageUtilization")
    return share


def _annotated(obj: JsonObject, added: Mapping[str, str]) -> JsonObject:
    """Return an object whose annotations of ours are these and no others."""
    metadata = dict(obj.get("metadata") or {})
    kept = {
        key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key not in _OURS
    }
    if kept or added:
        metadata["annotations"] = {**kept, **added}
    return {**obj, "metadata": metadata}


def _key_of(kind: str) -> str:
    return kind[:1].lower() + kind[1:]


def _to_v1(metric: JsonObject, known: Mapping[str, _Fields]) -> JsonObject:
    key = _key_of(metric.get("type") or "")
    shown: JsonObject = {"type": metric.get("type") or ""}
    source = metric.get(key)
    if key in known and source is not None:
        found = ((name, _at(source, path), always) for name, path, always in known[key])
        shown[key] = {
            name: "0" if value is None else _reference(value) if name == "target" else value
            for name, value, always in found
            if value is not None or always
        }
    return shown


def _reference(value: JsonObject) -> JsonObject:
    return {key: value[key] for key in ("kind", "name", "apiVersion") if key in value}


def _from_v1(metric: JsonObject, known: Mapping[str, _Fields]) -> JsonObject:
    key = _key_of(metric.get("type") or "")
    shown: JsonObject = {"type": metric.get("type") or ""}
    source = metric.get(key)
    if key in known and source is not None:
        made: JsonObject = {}
        for name, path, _ in known[key]:
            # A v1 type cannot leave the value out; its zero means that there is none.
            if name in source and not (name == "targetValue" and source[name] == "0"):
                _put(made, path.split("."), source[name])
        if known is _SOURCES:
            kind = next(kind for name, kind in _TYPES[key] if not name or name in source)
            made["target"] = {"type": kind, **(made.get("target") or {})}
        shown[key] = made
    return shown


def _at(value: Json, path: str) -> Json:
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _put(target: JsonObject, steps: Sequence[str], value: Json) -> None:
    for step in steps[:-1]:
        target = target.setdefault(step, {})
    target[steps[-1]] = value


def _go_name(name: str) -> str:
    return name[:1].upper() + name[1:]


def _go_behavior(behavior: JsonObject) -> JsonObject:
    return {_go_name(name): _go_rules(behavior.get(name)) for name in ("scaleUp", "scaleDown")}


def _go_rules(rules: JsonObject | None) -> JsonObject | None:
    if rules is None:
        return None
    shown = {_go_name(name): rules.get(name) for name in _RULES}
    policies = rules.get("policies")
    if policies is not None:
        shown["Policies"] = [{_go_name(name): policy.get(name) for name in _POLICY} for policy in policies]
    return shown


def _json_behavior(value: Json) -> Json:
    """Return what Go wrote by its own names by those of the API, without what is not there."""
    if isinstance(value, dict):
        return {_key_of(key): _json_behavior(child) for key, child in value.items() if child is not None}
    return [_json_behavior(item) for item in value] if isinstance(value, list) else value


def _encoded(value: Json) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _decoded(annotations: Mapping[str, str], key: str, default: Json) -> Json:
    """Return what an annotation says; one that cannot be read says nothing."""
    try:
        value = json.loads(annotations.get(key) or "null")
    except ValueError:
        return default
    return value if isinstance(value, type(default)) else default
