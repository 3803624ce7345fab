"""One write as those see it who may refuse it, webhooks and policies, and which of them it concerns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooring.local.api.call import Call, Operation
from mooring.local.api.options import WriteOptions
from mooring.local.api.selectors import label_selector

__all__ = ["EXEMPT", "Review", "rule_matches", "selected"]

JsonObject = dict[str, Any]

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
#: Kinds that nobody may refuse: one could lock everybody out.
EXEMPT = frozenset(
    f"{plural}.admissionregistration.k8s.io"
    for plural in (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
)


@dataclass(frozen=True, slots=True)
class Review:
    """One write: the new object (None for a deletion) and the old one (None for a creation).

    Of a connection to a pod the object is the options, a kind of their own, and the name that of the pod.
    """

    call: Call
    obj: JsonObject | None
    old: JsonObject | None
    operation: Operation
    options: WriteOptions | None

    @property
    def dry_run(self) -> bool:
        """Whether nothing is going to be stored."""
        return self.options is not None and self.options.dry_run

    def name(self) -> str:
        """Return the name of the object."""
        if self.operation == "CONNECT":
            return self.call.target.name
        return str(((self.obj or self.old or {}).get("metadata") or {}).get("name") or "")

    def about(self) -> JsonObject:
        """Return the request of an AdmissionReview, without the objects."""
        served, target = self.call.served, self.call.target
        name = self.obj["kind"] if self.operation == "CONNECT" and self.obj else served.kind
        kind = {"group": served.group, "version": served.version, "kind": name}
        resource = {"group": served.group, "version": served.version, "resource": served.plural}
        request: JsonObject = {
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": self.name(),
            "operation": self.operation,
            "userInfo": self.call.user.to_json(),
            "dryRun": self.dry_run,
            "options": self._options(),
        }
        if self.call.namespace:
            request["namespace"] = self.call.namespace
        if target.subresource:
            request["subResource"] = request["requestSubResource"] = target.subresource
        return request

    def request(self) -> JsonObject:
        """Return the request of an AdmissionReview."""
        return {**self.about(), "object": self.obj, "oldObject": self.old}

    def _options(self) -> JsonObject | None:
        if self.operation == "CONNECT":
            return None
        shown: JsonObject = {"kind": _OPTIONS[self.operation], "apiVersion": "meta.k8s.io/v1"}
        if self.options is not None:
            shown["fieldManager"] = self.options.manager
            if self.options.dry_run:
                shown["dryRun"] = ["All"]
        return shown


def rule_matches(rule: Mapping[str, Any], review: Review) -> bool:
    """Whether a rule (operations, groups, versions, resources, names, scope) names a write."""
    call = review.call
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != call.served.namespaced:
        return False
    names = rule.get("resourceNames")
    return (
        _listed(review.operation, rule.get("operations"))
        and _listed(call.served.group, rule.get("apiGroups"))
        and _listed(call.served.version, rule.get("apiVersions"))
        and any(_resource_matches(pattern, review) for pattern in rule.get("resources") or ())
        and (not names or review.name() in names)
    )


def _listed(value: str, patterns: list[str] | None) -> bool:
    return patterns is not None and (value in patterns or "*" in patterns)


def _resource_matches(pattern: str, review: Review) -> bool:
    resource, _, subresource = pattern.partition("/")
    if resource not in ("*", review.call.served.plural):
        return False
    return subresource == review.call.target.subresource or subresource == "*"


def selected(selectors: Mapping[str, Any], review: Review) -> bool:
    """Whether a write is within a namespaceSelector and an objectSelector."""
    return _namespace_matches(selectors.get("namespaceSelector") or {}, review) and _object_matches(
        selectors.get("objectSelector") or {}, review
    )


def _namespace_matches(selector: Mapping[str, Any], review: Review) -> bool:
    if not selector:
        return True
    call = review.call
    if call.served.storage == "namespaces":
        labels = ((review.obj or review.old or {}).get("metadata") or {}).get("labels")
    elif call.namespace:
        entry = call.cluster.store.collection("namespaces").get(("", call.namespace))
        labels = entry.obj["metadata"].get("labels") if entry is not None else None
    else:
        return True
    return label_selector(selector).matches(labels)


def _object_matches(selector: Mapping[str, Any], review: Review) -> bool:
    if not selector:
        return True
    parsed = label_selector(selector)
    objects = [obj for obj in (review.obj, review.old) if obj is not None]
    return any(parsed.matches((obj.get("metadata") or {}).get("labels")) for obj in objects)
