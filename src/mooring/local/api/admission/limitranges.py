"""LimitRanges: what containers get that do not say what they need, and between which bounds all must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mooring.local.api.amounts import Amounts, pod_total
from mooring.local.api.call import Call
from mooring.local.api.objectmeta import with_metadata
from mooring.local.api.wire import quantity_value

__all__ = ["check_limits", "with_default_limits"]

JsonObject = dict[str, Any]

_ANNOTATION = "kubernetes.io/limit-ranger"
_PARTS = (("containers", "container"), ("initContainers", "init container"))


def _limits(call: Call) -> Iterator[JsonObject]:
    """Yield the LimitRanges that concern a call."""
    ranges = call.cluster.store.collection("limitranges")
    if ranges.count and call.namespace:
        for entry in ranges.entries(call.namespace):
            yield entry.obj["spec"]


def with_default_limits(pod: JsonObject, call: Call) -> JsonObject:
    """Return a new pod whose containers have the requests and limits of their namespace's LimitRanges."""
    for spec in _limits(call):
        limits = [one for one in spec.get("limits") or () if one.get("type") == "Container"]
        requests: Amounts = {}
        maximum: Amounts = {}
        for one in limits:
            requests |= one.get("defaultRequest") or {}
            maximum |= one.get("default") or {}
        pod = _filled(pod, {"requests": requests, "limits": maximum})
    return pod


def _filled(pod: JsonObject, defaults: dict[str, Amounts]) -> JsonObject:
    told: list[str] = []
    spec = dict(pod.get("spec") or {})
    for part, called in _PARTS:
        if spec.get(part):
            spec[part] = [_filled_container(one, called, defaults, told) for one in spec[part]]
    if not told:
        return pod
    annotations = dict((pod.get("metadata") or {}).get("annotations") or {})
    annotations[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(told)
    return with_metadata({**pod, "spec": spec}, annotations=annotations)


def _filled_container(
    container: JsonObject, called: str, defaults: dict[str, Amounts], told: list[str]
) -> JsonObject:
    resources = dict(container.get("resources") or {})
    for part, singular in (("requests", "request"), ("limits", "limit")):
        present = resources.get(part) or {}
        missing = {name: amount for name, amount in defaults[part].items() if name not in present}
        if missing:
            resources[part] = {**present, **missing}
            told.append(f"{', '.join(sorted(missing))} {singular} for {called} {container['name']}")
    return {**container, "resources": resources} if resources else container


def check_limits(obj: JsonObject, call: Call, *, creates: bool) -> None:
    """Raise 403 when a new pod, or a claim, is outside the bounds of its namespace."""
    if call.target.subresource or call.served.storage not in ("pods", "persistentvolumeclaims"):
        return
    is_pod = call.served.storage == "pods"
    if is_pod and not creates:
        return  # what bounds look at never changes
    for spec in _limits(call):
        errors = [
            error
            for limit in spec.get("limits") or ()
            for error in (_pod_errors(obj["spec"], limit) if is_pod else _claim_errors(obj["spec"], limit))
        ]
        if errors:
            why = errors[0] if len(errors) == 1 else f"[{', '.join(dict.fromkeys(errors))}]"
            raise call.forbidden(why, obj["metadata"].get("name") or "")


def _pod_errors(spec: JsonObject, limit: JsonObject) -> Iterator[str]:
    if limit.get("type") == "Pod":
        yield from _errors(limit, pod_total(spec, "requests"), pod_total(spec, "limits"))
    if limit.get("type") == "Container":
        for part, _ in _PARTS:
            for container in spec.get(part) or ():
                resources = container.get("resources") or {}
                yield from _errors(limit, resources.get("requests") or {}, resources.get("limits") or {})


def _errors(limit: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = limit["type"]
    for name, bound in sorted((limit.get("min") or {}).items()):
        about, least = f"minimum {name} usage per {kind} is {bound}", quantity_value(bound)
        if name not in requests:
            yield f"{about}.  No request is specified"
        elif quantity_value(requests[name]) < least:
            yield f"{about}, but request is {requests[name]}"
        elif name in limits and quantity_value(limits[name]) < least:
            yield f"{about}, but limit is {limits[name]}"
    for name, bound in sorted((limit.get("max") or {}).items()):
        about, most = f"maximum {name} usage per {kind} is {bound}", quantity_value(bound)
        if name not in limits:
            yield f"{about}.  No limit is specified"
        elif quantity_value(limits[name]) > most:
            yield f"{about}, but limit is {limits[name]}"
        elif name in requests and quantity_value(requests[name]) > most:
            yield f"{about}, but request is {requests[name]}"
    for name, bound in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        about = f"{name} max limit to request ratio per {kind} is {bound}"
        request, most = quantity_value(requests.get(name, "0")), quantity_value(limits.get(name, "0"))
        if not request:
            yield f"{about}, but no request is specified or request is 0"
        elif not most:
            yield f"{about}, but no limit is specified or limit is 0"
        elif (ratio := most / request) > quantity_value(bound):
            yield f"{about}, but provided ratio is {float(ratio):f}"


def _claim_errors(spec: JsonObject, limit: JsonObject) -> Iterator[str]:
    kind = limit.get("type")
    if kind != "PersistentVolumeClaim":
        return
    requests = (spec.get("resources") or {}).get("requests") or {}
    for word, field in (("minimum", "min"), ("maximum", "max")):
        for name, bound in sorted((limit.get(field) or {}).items()):
            about = f"{word} {name} usage per {kind} is {bound}"
            if name not in requests:
                yield f"{about}.  No request is specified"
                continue
            found, edge = quantity_value(requests[name]), quantity_value(bound)
            if (found < edge) if field == "min" else (found > edge):
                yield f"{about}, but request is {requests[name]}"
