"""The rules of events, of the old group and of the new one.

The new one asks for more; errors name the fields of the old one in both.
"""

from __future__ import annotations

from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import invalid, required
from mooring.local.api.validation.metadata import immutable, standard_finalizers, validate_metadata
from mooring.local.api.validation.rules import Errors, JsonObject, Rules, Table

__all__ = ["RULES"]

_GROUP: Final = "events.k8s.io/v1"
_LONGEST: Final = 128
_LONGEST_NOTE: Final = 1024
#: The old group's name of a field, which errors show, and the new group's.
_FIELDS: Final = (
    ("involvedObject", "regarding"),
    ("reason", "reason"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
)
#: Fields that are an empty text where they are not there.
_TEXTS: Final = ("reason", "message", "type", "action", "reportingController", "reportingInstance")
_UNSET: Final = ("firstTimestamp", "lastTimestamp", "count", "source")


def _is_new(event: JsonObject) -> bool:
    return event.get("apiVersion") == _GROUP


def _field(event: JsonObject, name: str) -> object:
    return event.get(dict(_FIELDS)[name] if _is_new(event) else name)


def _event(event: JsonObject) -> Errors:
    yield from _common(event)
    if not _is_new(event):
        return
    metadata = event.get("metadata") or {}
    yield from validate_metadata(metadata, namespaced=True)
    yield from standard_finalizers(metadata.get("finalizers"), [])
    yield from _series(event)
    if not event.get("eventTime"):
        yield required("eventTime")
    if (kind := event.get("type") or "") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {kind}")
    for name in _UNSET:
        if _field(event, name):
            yield invalid(name, "", "needs to be unset")


def _common(event: JsonObject) -> Errors:
    namespace = (event.get("metadata") or {}).get("namespace") or ""
    about: JsonObject = event.get("regarding" if _is_new(event) else "involvedObject") or {}
    there, path = about.get("namespace") or "", "involvedObject.namespace"
    if not event.get("eventTime"):
        if there != namespace and (there or namespace != "default"):
            yield invalid(path, there, "does not match event.namespace")
    else:
        if not there and namespace not in ("default", "kube-system"):
            yield invalid(path, there, "does not match event.namespace")
        yield from _reported(event)
    for text in names.dns1123_subdomain(namespace):
        yield invalid("namespace", namespace, text)


def _reported(event: JsonObject) -> Errors:
    key = "reportingController" if _is_new(event) else "reportingComponent"
    controller = event.get(key) or ""
    if not controller:
        yield required(key)
    for text in names.qualified_name(controller):
        yield invalid(key, controller, text)
    for key in ("reportingInstance", "action", "reason"):
        value = event.get(key) or ""
        if not value:
            yield required(key)
        if len(value.encode()) > _LONGEST:
            yield invalid(key, "", f"can have at most {_LONGEST} characters")
    if len(str(_field(event, "message") or "").encode()) > _LONGEST_NOTE:
        yield invalid("message", "", f"can have at most {_LONGEST_NOTE} characters")


def _series(event: JsonObject) -> Errors:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _event_update(event: JsonObject, old: JsonObject) -> Errors:
    yield from _common(event)
    if not _is_new(event):
        return
    if not same(event.get("series"), old.get("series")):
        yield from _series(event)
    for name, _ in _FIELDS:
        empty = "" if name in _TEXTS else None
        yield from immutable(_field(event, name) or empty, _field(old, name) or empty, name)


RULES: Final[Table] = {
    ("", "Event"): Rules(_event, _event_update),
    ("events.k8s.io", "Event"): Rules(_event, _event_update),
}
