"""The rules of flowcontrol: who waits for whom at a server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import GoStruct, duplicate, forbidden, invalid, not_supported, required
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
    chosen,
    items,
    named,
    spec_of,
)

__all__ = ["RULES"]

# --- schemas ------------------------------------------------------------------------------------------

_LAST: Final = 10_000
_METHODS: Final = ("ByNamespace", "ByUser")
_SUBJECTS: Final = ("Group", "ServiceAccount", "User")
_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch",
)  # fmt: skip


def _schema(obj: JsonObject) -> Errors:
    spec, name = spec_of(obj), (obj.get("metadata") or {}).get("name") or ""
    rank = spec.get("matchingPrecedence") or 0
    if rank <= 0:
        yield invalid("spec.matchingPrecedence", rank, "must be a positive value")
    if rank > _LAST:
        yield invalid("spec.matchingPrecedence", rank, f"must not be greater than {_LAST}")
    if rank == 1 and name != "exempt":
        text = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield invalid("spec.matchingPrecedence", rank, text)
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in _METHODS:
        shown = GoStruct(Type=method.get("type") or "")
        yield not_supported("spec.distinguisherMethod.type", shown, _METHODS)
    level, path = (
        (spec.get("priorityLevelConfiguration") or {}).get("name") or "",
        "spec.priorityLevelConfiguration",
    )
    if not level:
        yield required(f"{path}.name", "must reference a priority level")
    for text in names.dns1123_subdomain(level) if level else ():
        yield invalid(f"{path}.name", level, text)
    for path, rule in items(spec, "rules", "spec"):
        yield from _rule(rule, path)


def _rule(rule: JsonObject, path: str) -> Errors:
    if not rule.get("subjects"):
        yield required(f"{path}.subjects", "subjects must contain at least one value")
    for place, subject in items(rule, "subjects", path):
        yield from _subject(subject, place)
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        text = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield required(path, text)
    for place, one in items(rule, "resourceRules", path):
        yield from _verbs(one, place)
        yield from _several(
            one, "apiGroups", place, "resource rules must supply at least one api group", "api groups"
        )
        yield from _several(
            one, "resources", place, "resource rules must supply at least one resource", "resources"
        )
        yield from _namespaces(one, place)
    for place, one in items(rule, "nonResourceRules", path):
        yield from _verbs(one, place)
        none = "nonResourceURLs must contain at least one value"
        yield from _several(one, "nonResourceURLs", place, none, "non-resource URLs")
        if "*" not in (one.get("nonResourceURLs") or ()):
            for inner, url in items(one, "nonResourceURLs", place):
                if why := _bad_url(url):
                    yield invalid(inner, url, why)


#: The part of a subject for each kind, in the order in which the others are forbidden.
_PARTS: Final = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}


def _subject(subject: JsonObject, path: str) -> Errors:
    kind = subject.get("kind") or ""
    if kind not in _PARTS:
        yield not_supported(f"{path}.kind", kind, _SUBJECTS)
        return
    part = _PARTS[kind]
    about, place = subject.get(part), f"{path}.{part}"
    if about is None:
        yield required(place, f"{part} is required when subject kind is '{kind}'")
    elif kind != "ServiceAccount":
        if not about.get("name"):
            yield required(f"{place}.name")
    else:
        if about.get("name") != "*":
            yield from named(about.get("name") or "", f"{place}.name", names.dns1123_subdomain)
        namespace = about.get("namespace") or ""
        if not namespace:
            yield required(f"{place}.namespace", "must specify namespace for service account")
        for text in names.dns1123_label(namespace) if namespace else ():
            yield invalid(f"{place}.namespace", namespace, text)
    for other, key in _PARTS.items():
        if other != kind and subject.get(key) is not None:
            yield forbidden(f"{path}.{key}", f"{key} is forbidden when subject kind is not '{other}'")


def _several(rule: JsonObject, key: str, path: str, none: str, others: str) -> Errors:
    values: Sequence[str] = rule.get(key) or []
    if not values:
        yield required(f"{path}.{key}", none)
    elif len(values) > 1 and "*" in values:
        yield invalid(f"{path}.{key}", values, f"if '*' is present, must not specify other {others}")


def _verbs(rule: JsonObject, path: str) -> Errors:
    verbs = rule.get("verbs") or []
    yield from _several(rule, "verbs", path, "verbs must contain at least one value", "verbs")
    if "*" not in verbs and not set(verbs) <= set(_VERBS):
        yield not_supported(f"{path}.verbs", verbs, _VERBS)


def _namespaces(rule: JsonObject, path: str) -> Errors:
    values = rule.get("namespaces") or []
    if not values and rule.get("clusterScope"):
        return
    none = "resource rules that are not cluster scoped must supply at least one namespace"
    yield from _several(rule, "namespaces", path, none, "namespaces")
    for place, namespace in items(rule, "namespaces", path) if "*" not in values else ():
        for text in names.dns1123_label(namespace):
            why = f"each member of this list must be '*' or a DNS-1123 label; {text}"
            yield invalid(place, namespace, why)


def _bad_url(url: str) -> str:
    if not url or url == "/":
        return "" if url else "must not be empty"
    for wrong, why in (
        (not url.startswith("/"), "must start with slash"),
        (" " in url, "must not contain white-space"),
        ("//" in url, "must not contain double slash"),
        (
            url.count("*") > 1 or ("*" in url and not url.endswith("/*")),
            "wildcard can only do suffix matching",
        ),
    ):
        if wrong:
            return why
    return ""


# --- levels -------------------------------------------------------------------------------------------

_TYPES: Final = ("Exempt", "Limited")
_RESPONSES: Final = ("Queue", "Reject")
_MOST_QUEUES: Final = 10_000_000
_MOST_BITS: Final = 60
_COUNT: Final = "must be a non-negative integer"


def _level(obj: JsonObject) -> Errors:
    spec, name = spec_of(obj), (obj.get("metadata") or {}).get("name") or ""
    kind, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get("exempt")
    if (name == "exempt") != (kind == "Exempt"):
        yield invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
    yield from chosen(spec, "type", _TYPES, "spec")
    if kind == "Exempt":
        if limited is not None:
            yield forbidden("spec.limited", "must be nil if the type is not Limited")
        yield from _shares(exempt or {}, "spec.exempt")
    elif kind == "Limited":
        if exempt is not None:
            yield forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _limited(limited, "spec.limited")


def _shares(part: JsonObject, path: str) -> Errors:
    if (shares := part.get("nominalConcurrencyShares") or 0) < 0:
        yield invalid(f"{path}.nominalConcurrencyShares", shares, _COUNT)
    lent = part.get("lendablePercent")
    if lent is not None and not 0 <= lent <= 100:
        yield invalid(f"{path}.lendablePercent", lent, "must be between 0 and 100, inclusive")


def _limited(limited: JsonObject, path: str) -> Errors:
    yield from _shares(limited, path)
    response, place = limited.get("limitResponse") or {}, f"{path}.limitResponse"
    yield from chosen(response, "type", _RESPONSES, place)
    queuing = response.get("queuing")
    if response.get("type") == "Reject" and queuing is not None:
        yield forbidden(f"{place}.queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif response.get("type") == "Queue":
        if queuing is None:
            yield required(f"{place}.queuing", "must not be empty if limited.limitResponse.type is Limited")
        else:
            yield from _queuing(queuing, f"{place}.queuing")
    borrowed = limited.get("borrowingLimitPercent")
    if borrowed is not None and borrowed < 0:
        yield invalid(f"{path}.borrowingLimitPercent", borrowed, f"if specified, {_COUNT}")


def _queuing(queuing: JsonObject, path: str) -> Errors:
    length, queues, hand = (queuing.get(key) or 0 for key in ("queueLengthLimit", "queues", "handSize"))
    if length <= 0:
        yield invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _MOST_QUEUES:
        yield invalid(f"{path}.queues", queues, f"must not be greater than {_MOST_QUEUES}")
    if hand <= 0:
        yield invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > _MOST_BITS:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_MOST_BITS}"
        yield invalid(f"{path}.handSize", hand, text)


def _conditions(obj: JsonObject, old: JsonObject) -> Errors:
    status = obj.get("status") or {}
    if same(status, old.get("status") or {}):
        return
    known: set[str] = set()
    for path, condition in items(status, "conditions", "status"):
        kind = condition.get("type") or ""
        if kind in known:
            yield duplicate(f"{path}.type", kind)
        known.add(kind)
        if not kind:
            yield required(f"{path}.type")


_GROUP: Final = "flowcontrol.apiserver.k8s.io"

RULES: Final[Table] = {
    (_GROUP, "FlowSchema"): also(_schema, status=_conditions),
    (_GROUP, "PriorityLevelConfiguration"): also(_level, status=_conditions),
}
