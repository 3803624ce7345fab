"""The rules of resource: devices that are claimed, and what offers them.

Expressions that select devices are not compiled, and of a device's own description names are judged alone:
no scheduler here gives devices away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from mooring.local.api import names
from mooring.local.api.fields import duplicate, invalid, not_supported, required, too_long, too_many
from mooring.local.api.validation.metadata import annotation_errors, immutable, label_errors
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Rules,
    Table,
    also,
    fixed,
    items,
    spec_of,
)
from mooring.local.api.validation.storage import driver_name

__all__ = ["RULES"]

_MOST_REQUESTS: Final = 32
_MOST_CHOICES: Final = 8
_MOST_DEVICES: Final = 128
_LONGEST_EXPRESSION: Final = 10 * 1024
_LONGEST_PARAMETERS: Final = 10 * 1024
_MODES: Final = ("All", "ExactCount")


def _many(values: Sequence[Any], path: str, most: int) -> Errors:
    if len(values) > most:
        yield too_many(path, len(values), most)


def _label(name: str, path: str) -> Errors:
    for text in names.dns1123_label(name):
        yield invalid(path, name, text)


# --- claims -------------------------------------------------------------------------------------------


def _claim(obj: JsonObject) -> Errors:
    yield from _claim_spec(spec_of(obj), "spec")


def _claim_spec(spec: JsonObject, path: str) -> Errors:
    devices, place = spec.get("devices") or {}, f"{path}.devices"
    requests = devices.get("requests") or []
    yield from _many(requests, f"{place}.requests", _MOST_REQUESTS)
    known: set[str] = set()
    for inner, request in items(devices, "requests", place):
        yield from _request(request, inner)
        if (name := request.get("name") or "") in known:
            yield duplicate(inner, name)
        known.add(name)
    known |= {
        f"{request.get('name')}/{choice.get('name')}"
        for request in requests
        for choice in request.get("firstAvailable") or ()
    }
    yield from _many(devices.get("constraints") or [], f"{place}.constraints", _MOST_REQUESTS)
    for inner, constraint in items(devices, "constraints", place):
        yield from _references(constraint, known, inner)
        yield from _constraint(constraint, inner)
    yield from _many(devices.get("config") or [], f"{place}.config", _MOST_REQUESTS)
    for inner, config in items(devices, "config", place):
        yield from _references(config, known, inner)
        yield from _configuration(config, inner)


def _request(request: JsonObject, path: str) -> Errors:
    yield from _label(request.get("name") or "", f"{path}.name")
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or []
    one_of = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not choices:
        yield required(path, one_of)
    elif exactly is not None and choices:
        yield invalid(path, None, f"{one_of}, but multiple fields are set")
    elif exactly is not None:
        yield from _wanted(exactly, f"{path}.exactly")
    yield from _many(choices, f"{path}.firstAvailable", _MOST_CHOICES)
    known: set[str] = set()
    for place, choice in items(request, "firstAvailable", path) if exactly is None else ():
        name = choice.get("name") or ""
        yield from _label(name, f"{place}.name")
        yield from _wanted(choice, place)
        if name in known:
            yield duplicate(place, name)
        known.add(name)


def _wanted(request: JsonObject, path: str) -> Errors:
    name, mode = request.get("deviceClassName") or "", request.get("allocationMode") or ""
    count = request.get("count") or 0
    if not name:
        yield required(f"{path}.deviceClassName")
    for text in names.dns1123_subdomain(name) if name else ():
        yield invalid(f"{path}.deviceClassName", name, text)
    yield from _selectors(request, path)
    if mode not in _MODES:
        yield not_supported(f"{path}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{path}.count", count, "must be greater than zero")


def _selectors(holder: JsonObject, path: str) -> Errors:
    yield from _many(holder.get("selectors") or [], f"{path}.selectors", _MOST_REQUESTS)
    for place, selector in items(holder, "selectors", path):
        if selector.get("cel") is None:
            yield required(f"{place}.cel")
        elif len((selector["cel"].get("expression") or "").encode()) > _LONGEST_EXPRESSION:
            yield too_long(f"{place}.cel.expression", _LONGEST_EXPRESSION)


def _references(holder: JsonObject, known: set[str], path: str) -> Errors:
    text = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    seen: set[str] = set()
    for place, name in items(holder, "requests", path):
        if name.count("/") > 1:
            yield invalid(place, name, text)
        for part in name.split("/"):
            yield from _label(part, place)
        if name not in known:
            yield invalid(place, name, text)
        if name in seen:
            yield duplicate(place, name)
        seen.add(name)


def _constraint(constraint: JsonObject, path: str) -> Errors:
    for key in ("matchAttribute", "distinctAttribute"):
        if (name := constraint.get(key)) is not None:
            yield from _full_name(name, f"{path}.{key}")
            return
    text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    yield required(path, text)


def _full_name(name: str, path: str) -> Errors:
    domain, slash, _ = name.rpartition("/")
    for text in names.dns1123_subdomain(domain) if slash else ():
        yield invalid(path, domain, text)
    if not slash:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid(path, name, text)


def _configuration(config: JsonObject, path: str) -> Errors:
    opaque, place = config.get("opaque"), f"{path}.opaque"
    if opaque is None:
        yield required(place)
        return
    yield from driver_name(opaque.get("driver") or "", f"{place}.driver", once=True)
    parameters = opaque.get("parameters")
    if parameters is None:
        yield required(f"{place}.parameters")
    elif len(json.dumps(parameters, separators=(",", ":")).encode()) > _LONGEST_PARAMETERS:
        yield too_long(f"{place}.parameters", _LONGEST_PARAMETERS)
    elif not isinstance(parameters, dict):
        yield invalid(f"{place}.parameters", "<value omitted>", "must be a valid JSON object")


def _template(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    metadata = spec.get("metadata") or {}
    yield from label_errors(metadata.get("labels"), "spec.metadata.labels")
    yield from annotation_errors(metadata.get("annotations"), "spec.metadata.annotations")
    yield from _claim_spec(spec.get("spec") or {}, "spec.spec")


# --- classes and slices -------------------------------------------------------------------------------


def _class(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from _selectors(spec, "spec")
    yield from _many(spec.get("config") or [], "spec.config", _MOST_REQUESTS)
    for place, config in items(spec, "config", "spec"):
        yield from _configuration(config, place)


def _slice(obj: JsonObject) -> Errors:
    yield from _slice_head(spec_of(obj))
    yield from _slice_place(spec_of(obj))


def _slice_head(spec: JsonObject) -> Errors:
    pool = spec.get("pool") or {}
    yield from driver_name(spec.get("driver") or "", "spec.driver")
    name = pool.get("name") or ""
    if not name:
        yield required("spec.pool.name")
    for part in name.split("/") if name else ():
        for text in names.dns1123_subdomain(part):
            yield invalid("spec.pool.name", part, text)
    if (count := pool.get("resourceSliceCount") or 0) <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if (generation := pool.get("generation") or 0) < 0:
        yield invalid("spec.pool.generation", generation, "must be greater than or equal to zero")


def _slice_place(spec: JsonObject) -> Errors:
    node, found = spec.get("nodeName"), []
    if node is not None:
        found.append("`nodeName`")
        for text in names.dns1123_subdomain(node) if node else ():
            yield invalid("spec.nodeName", node, text)
        if not node:
            found.pop()
            yield invalid("spec.nodeName", node, "must be either unset or set to a non-empty string")
    if (selector := spec.get("nodeSelector")) is not None:
        found.append("`nodeSelector`")
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            text = "must have exactly one node selector term"
            yield invalid("spec.nodeSelector.nodeSelectorTerms", terms, text)
    for key in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(key):
            found.append(f"`{key}`")
        elif spec.get(key) is not None:
            yield invalid(f"spec.{key}", False, "must be either unset or set to true")
    one_of = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not found:
        yield required("spec", one_of)
    elif len(found) > 1:
        yield invalid("spec", f"{{{', '.join(found)}}}", f"{one_of}, but multiple fields are set")
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    yield from _many(spec.get("devices") or [], "spec.devices", _MOST_DEVICES)
    known: set[str] = set()
    for place, device in items(spec, "devices", "spec"):
        name = device.get("name") or ""
        yield from _label(name, f"{place}.name")
        if name in known:
            yield duplicate(place, name)
        known.add(name)


def _slice_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = spec_of(obj), spec_of(old)
    name, earlier = ((one.get("pool") or {}).get("name") for one in (spec, before))
    yield from immutable(name, earlier, "spec.pool.name")
    for key in ("driver", "nodeName"):
        yield from immutable(spec.get(key), before.get(key), f"spec.{key}")


_GROUP: Final = "resource.k8s.io"

RULES: Final[Table] = {
    (_GROUP, "DeviceClass"): also(_class),
    (_GROUP, "ResourceClaim"): Rules(_claim, fixed("spec")),
    (_GROUP, "ResourceClaimTemplate"): also(_template, fixed("spec")),
    (_GROUP, "ResourceSlice"): also(_slice, _slice_update),
}
