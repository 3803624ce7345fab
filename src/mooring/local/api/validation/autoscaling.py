"""The rules of autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooring.local.api import names
from mooring.local.api.autoscalers import from_v1
from mooring.local.api.constraints import same
from mooring.local.api.fields import forbidden, invalid, not_supported, required
from mooring.local.api.validation.limits import container_resource_errors
from mooring.local.api.validation.rules import (
    NOT_NEGATIVE,
    POSITIVE,
    Errors,
    JsonObject,
    Table,
    also,
    items,
    named,
    nonnegative,
    spec_of,
)
from mooring.local.api.wire import quantity_value

__all__ = ["RULES"]

_TYPES: Final = ("ContainerResource", "External", "Object", "Pods", "Resource")
#: The parts of a metric, in the order in which a server looks for them.
_PARTS: Final = ("object", "external", "pods", "resource", "containerResource")
_LONGEST_WINDOW: Final = 3600
_LONGEST_PERIOD: Final = 1800
_BELOW_ZERO: Final = "must be greater than or equal to zero"
_ABOVE_ZERO: Final = "must be greater than zero"


def _autoscaler(obj: JsonObject) -> Errors:
    if obj.get("apiVersion") == "autoscaling/v1":
        obj = from_v1(obj)
    spec = spec_of(obj)
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 1:
        yield invalid("spec.minReplicas", least, "must be greater than or equal to 1")
    if most == 0:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    yield from _reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")
    for path, metric in items(spec, "metrics", "spec"):
        yield from _metric(metric, path)
    if least == 0 and not any(m.get("type") in ("Object", "External") for m in spec.get("metrics") or ()):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden("spec.metrics", text)
    for key in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(key)
        if rules is not None:
            yield from _scaling(rules, f"spec.behavior.{key}")


def _reference(reference: JsonObject, path: str) -> Errors:
    for key in ("kind", "name"):
        yield from named(reference.get(key) or "", f"{path}.{key}", names.http_path_segment)
    version = reference.get("apiVersion") or ""
    if version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")


# --- metrics ------------------------------------------------------------------------------------------


def _metric(metric: JsonObject, path: str) -> Errors:
    kind = metric.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    if kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    found = [part for part in _PARTS if metric.get(part) is not None]
    for part in found[:1]:
        yield from _source(metric[part], part, f"{path}.{part}")
    expected = kind[:1].lower() + kind[1:]
    if kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
        expected = ""
    elif expected not in found:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    for part in sorted(set(found) - {expected}) if len(found) != 1 else ():
        yield forbidden(f"{path}.{part}", "must populate the given metric source only")


#: What a target has to have one of: the field named when it has none, the words, and the words for both.
_TARGETS: Final[Mapping[str, tuple[tuple[str, ...], str, str, str, str]]] = {
    "object": (
        ("value", "averageValue"), "averageValue", "must set either a target value or averageValue", "", "",
    ),
    "external": (
        ("value", "averageValue"), "averageValue",
        "must set either a target value for metric or a per-pod target",
        "value", "may not set both a target value for metric and a per-pod target",
    ),
    "pods": (("averageValue",), "averageValue", "must specify a positive target averageValue", "", ""),
    **dict.fromkeys(("resource", "containerResource"), (("averageUtilization", "averageValue"), "averageUtilization", "must set either a target raw value or a target utilization", "averageValue", "may not set both a target raw value and a target utilization")),
}  # fmt: skip


def _source(source: JsonObject, kind: str, path: str) -> Errors:
    if kind == "object":
        yield from _reference(source.get("describedObject") or {}, f"{path}.describedObject")
    if kind in ("resource", "containerResource"):
        name = source.get("name") or ""
        if not name:
            yield required(f"{path}.name", "must specify a resource name")
        elif kind == "containerResource":
            yield from container_resource_errors(name, f"{path}.name")
    else:
        name = (source.get("metric") or {}).get("name") or ""
        if not name:
            yield required(f"{path}.metric.name", "must specify a metric name")
        for text in names.http_path_segment(name):
            yield invalid(f"{path}.metric.name", name, text)
    if kind == "containerResource":
        container = source.get("container") or ""
        if not container:
            yield required(f"{path}.container", "must specify a container")
        for text in names.dns1123_label(container) if container else ():
            yield invalid(f"{path}.container", container, text)
    target = source.get("target") or {}
    yield from _target(target, f"{path}.target")
    wanted, missing, none, both, two = _TARGETS[kind]
    given = [key for key in wanted if target.get(key) is not None]
    if not given:
        yield required(f"{path}.target.{missing}", none)
    if both and len(given) == 2:
        yield forbidden(f"{path}.target.{both}", two)


def _target(target: JsonObject, path: str) -> Errors:
    kind = target.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for key in ("value", "averageValue"):
        if (amount := target.get(key)) is not None and quantity_value(amount) <= 0:
            yield invalid(f"{path}.{key}", amount, "must be positive")
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        yield invalid(f"{path}.averageUtilization", share, POSITIVE)


# --- behavior -----------------------------------------------------------------------------------------

_CHOICES: Final = ("Disabled", "Max", "Min")
_POLICIES: Final = ("Percent", "Pods")


def _scaling(rules: JsonObject, path: str) -> Errors:
    window, choice = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    if window is not None and window < 0:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, _BELOW_ZERO)
    if window is not None and window > _LONGEST_WINDOW:
        text = f"must be less than or equal to {_LONGEST_WINDOW}"
        yield invalid(f"{path}.stabilizationWindowSeconds", window, text)
    if choice is not None and choice not in _CHOICES:
        yield not_supported(f"{path}.selectPolicy", choice, _CHOICES)
    if not rules.get("policies"):
        yield required(f"{path}.policies", "must specify at least one Policy")
    for place, policy in items(rules, "policies", path):
        kind, seconds = policy.get("type") or "", policy.get("periodSeconds") or 0
        if kind not in _POLICIES:
            yield not_supported(f"{place}.type", kind, _POLICIES)
        if (value := policy.get("value") or 0) <= 0:
            yield invalid(f"{place}.value", value, _ABOVE_ZERO)
        if seconds <= 0:
            yield invalid(f"{place}.periodSeconds", seconds, _ABOVE_ZERO)
        if seconds > _LONGEST_PERIOD:
            yield invalid(
                f"{place}.periodSeconds", seconds, f"must be less than or equal to {_LONGEST_PERIOD}"
            )
    tolerance = rules.get("tolerance")
    if tolerance is not None and quantity_value(tolerance) < 0:
        yield invalid(f"{path}.tolerance", tolerance, NOT_NEGATIVE)


def _autoscaler_status(obj: JsonObject, old: JsonObject) -> Errors:
    status = obj.get("status") or {}
    if not same(status, old.get("status") or {}):
        for key in ("currentReplicas", "desiredReplicas"):
            yield from nonnegative(status.get(key), f"status.{key}")


RULES: Final[Table] = {
    ("autoscaling", "HorizontalPodAutoscaler"): also(_autoscaler, status=_autoscaler_status),
}
