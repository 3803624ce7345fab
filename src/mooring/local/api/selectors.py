"""Label and field selectors of lists, watches and deletecollection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooring.kube.selectors import (
    EVERYTHING,
    FieldRequirement,
    Selector,
    parse_field_selector,
    parse_selector,
)
from mooring.local.api import failures
from mooring.local.api.http import Query
from mooring.local.api.registry import Served
from mooring.local.api.storage import Entry

__all__ = ["Filter", "label_selector"]

_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

#: Field labels by stored collection, with where their value is.
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "pods": {
        name: name
        for name in (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        )
    },
    "events": {
        **{f"involvedObject.{name}": f"involvedObject.{name}" for name in _INVOLVED},
        **{f"regarding.{name}": f"involvedObject.{name}" for name in _INVOLVED},
        "reason": "reason",
        "reportingComponent": "reportingComponent",
        "reportingController": "reportingComponent",
        "source": "source.component",
        "type": "type",
    },
    "secrets": {"type": "type"},
    "namespaces": {"status.phase": "status.phase", "name": "metadata.name"},
    "nodes": {"spec.unschedulable": "spec.unschedulable"},
    "services": {"spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"},
    "replicasets.apps": {"status.replicas": "status.replicas"},
    "replicationcontrollers": {"status.replicas": "status.replicas"},
    "jobs.batch": {"status.successful": "status.succeeded"},
    "certificatesigningrequests.certificates.k8s.io": {"spec.signerName": "spec.signerName"},
}
#: Fields that read as this when they are not set.
_UNSET = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
    "status.succeeded": "0",
}
#: Where a value is found that is not set in its own place.
_ELSEWHERE = {"source.component": "reportingComponent"}
_REPORTERS = ("involvedObject", "reportingComponent")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which objects a list or watch is about; the paths of fields are those of stored objects."""

    labels: Selector = EVERYTHING
    fields: tuple[FieldRequirement, ...] = ()
    namespace: str = ""
    name: str = ""

    @classmethod
    def parse(cls, query: Query, served: Served, *, namespace: str, name: str = "") -> Filter:
        """Read labelSelector and fieldSelector; raises 400."""
        try:
            labels = parse_selector(query.text("labelSelector"))
        except ValueError as error:
            raise failures.bad_request(str(error)) from None
        requirements = []
        for wanted in _field_requirements(query, served):
            if wanted.path == "metadata.name" and not wanted.negated and not name:
                name = wanted.value
            else:
                requirements.append(wanted)
        return cls(labels, tuple(requirements), namespace, name)

    @property
    def everything(self) -> bool:
        """Whether no object of the namespace is left out."""
        return not (self.labels.requirements or self.fields or self.name)

    def matches(self, entry: Entry) -> bool:
        """Whether an object is one of them."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        if self.name and entry.name != self.name:
            return False
        if not self.labels.requirements and not self.fields:
            return True
        if self.labels.requirements and not self.labels.matches(entry.labels):
            return False
        if not self.fields:
            return True
        obj = entry.obj
        return all((_value(obj, field.path) == field.value) != field.negated for field in self.fields)


def _field_requirements(query: Query, served: Served) -> list[FieldRequirement]:
    text = query.text("fieldSelector")
    if not text:
        return []
    try:
        wanted = parse_field_selector(text)
    except ValueError as error:
        raise failures.bad_request(str(error)) from None
    return [FieldRequirement(_path(served, w.path), w.value, w.negated) for w in wanted]


def _path(served: Served, label: str) -> str:
    if label == "metadata.name" or (label == "metadata.namespace" and served.namespaced):
        return label
    if served.custom is not None:
        known = {path.lstrip("."): path.lstrip(".") for path in served.custom.selectable_fields}
    else:
        known = dict(_FIELDS.get(served.storage, {}))
    if label in known:
        return known[label]
    if served.custom is not None or served.storage in _FIELDS:
        raise failures.bad_request(f"field label not supported: {label}")
    raise failures.bad_request(
        f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


def _value(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value in (None, "") and path in _ELSEWHERE:
        return _value(obj, _ELSEWHERE[path])
    if value is None:
        return _UNSET.get(path, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def label_selector(selector: Mapping[str, Any] | None) -> Selector:
    """Return a LabelSelector in its JSON form as a selector: None selects nothing, {} everything."""
    if selector is None:
        return Selector(nothing=True)
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(expression.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return parse_selector(",".join(parts))
