"""The rules of limit ranges and resource quotas, and of the names and amounts of resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import duplicate, forbidden, invalid, required
from mooring.local.api.validation.rules import (
    NOT_NEGATIVE,
    Errors,
    JsonObject,
    Table,
    also,
    items,
    spec_of,
)
from mooring.local.api.wire import quantity_value

__all__ = ["RULES", "amount_errors", "container_resource_errors", "resource_name_errors"]

# --- names and amounts of resources -------------------------------------------------------------------

_COUNTED: Final = frozenset(
    ("configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets",
     "services", "services.loadbalancers", "services.nodeports")
)  # fmt: skip
_MEASURED: Final = ("cpu", "ephemeral-storage", "memory")
_QUOTA: Final = frozenset(
    (
        *_COUNTED,
        *_MEASURED,
        "requests.storage",
        *(f"{part}.{name}" for part in ("limits", "requests") for name in _MEASURED),
    )
)
_STANDARD: Final = _QUOTA | {"storage"}
_HUGE_PAGES: Final = ("hugepages-", "requests.hugepages-")


def _native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _extended(name: str) -> bool:
    if _native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")


def resource_name_errors(name: str, path: str) -> Errors:
    """Yield what is wrong with the name of a resource."""
    if texts := names.qualified_name(name):
        for text in texts:
            yield invalid(path, name, text)
    elif "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def container_resource_errors(name: str, path: str) -> Errors:
    """Yield what is wrong with the name of a resource that a container asks for."""
    yield from resource_name_errors(name, path)
    if "/" not in name:
        if name not in _MEASURED and not name.startswith("hugepages-"):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not _native(name) and not _extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def amount_errors(name: str, amount: str, path: str) -> Errors:
    """Yield what is wrong with the amount of a resource; some are counted, not measured."""
    value = quantity_value(amount)
    if value < 0:
        yield invalid(path, amount, NOT_NEGATIVE)
    if (name in _COUNTED or _extended(name)) and value != value.to_integral_value():
        yield invalid(path, amount, "must be an integer")


# --- quotas -------------------------------------------------------------------------------------------

_PODS: Final = frozenset(("pods",))
_COMPUTE: Final = _PODS | {
    name for kind in ("cpu", "memory") for name in (kind, f"limits.{kind}", f"requests.{kind}")
}
#: What each scope may count.
_SCOPES: Final[Mapping[str, frozenset[str]]] = {
    "BestEffort": _PODS,
    "CrossNamespacePodAffinity": _COMPUTE,
    "NotBestEffort": _COMPUTE,
    "NotTerminating": _COMPUTE,
    "PriorityClass": _COMPUTE,
    "Terminating": _COMPUTE,
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
_ONLY_EXIST: Final = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_CONTRARY: Final = ({"BestEffort", "NotBestEffort"}, {"NotTerminating", "Terminating"})


def _quota(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from _quota_amounts(spec, "hard", "spec")
    scopes = spec.get("scopes") or []
    yield from _scope_errors(scopes, spec, "spec.scopes", scopes)
    if (selector := spec.get("scopeSelector")) is not None:
        yield from _scope_selector(selector, spec, "spec.scopeSelector.matchExpressions")


def _quota_amounts(holder: JsonObject, key: str, path: str) -> Errors:
    for name, amount in (holder.get(key) or {}).items():
        place = f"{path}.{key}[{name}]"
        yield from resource_name_errors(name, place)
        if "/" not in name and name not in _QUOTA and not name.startswith(_HUGE_PAGES):
            yield invalid(place, name, "must be a standard resource for quota")
        yield from amount_errors(name, amount, place)


def _scope_errors(scopes: Sequence[str], spec: JsonObject, path: str, shown: object) -> Errors:
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid(path, shown, "unsupported scope")
        yield from _misapplied(scope, spec, path, shown)
    if any(pair <= set(scopes) for pair in _CONTRARY):
        yield invalid(path, shown, "conflicting scopes")


def _misapplied(scope: str, spec: JsonObject, path: str, shown: object) -> Errors:
    for name in sorted(spec.get("hard") or ()):
        standard = name in _QUOTA or name.startswith(_HUGE_PAGES)
        if standard and scope in _SCOPES and name not in _SCOPES[scope]:
            yield invalid(path, shown, "unsupported scope applied to resource")


def _scope_selector(selector: JsonObject, spec: JsonObject, path: str) -> Errors:
    expressions = selector.get("matchExpressions") or ()
    for expression in expressions:
        scope, operator = expression.get("scopeName") or "", expression.get("operator") or ""
        values = expression.get("values") or []
        if scope not in _SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        yield from _misapplied(scope, spec, path, selector)
        if scope in _ONLY_EXIST and operator != "Exists":
            yield invalid(
                f"{path}.operator",
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            )
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(f"{path}.values", text)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                yield invalid(f"{path}.values", values, text)
        else:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    if any(pair <= {expression.get("scopeName") for expression in expressions} for pair in _CONTRARY):
        yield invalid(path, spec.get("scopes"), "conflicting scopes")


def _quota_update(obj: JsonObject, old: JsonObject) -> Errors:
    scopes = spec_of(obj).get("scopes")
    if set(scopes or ()) != set(spec_of(old).get("scopes") or ()):
        yield invalid("spec.scopes", scopes, "field is immutable")


def _quota_status(obj: JsonObject, old: JsonObject) -> Errors:
    status = obj.get("status") or {}
    if same(status, old.get("status") or {}):
        return
    for key in ("hard", "used"):
        yield from _quota_amounts(status, key, "status")


# --- limit ranges -------------------------------------------------------------------------------------

_LIMITED: Final = ("Container", "PersistentVolumeClaim", "Pod")
#: Pairs of a limit's parts of which the first may not be above the second: the words for both, and whose path
#: and value the error shows.
_ORDERED: Final = (
    ("min", "max", "min value", "max value", "min", "min"),
    ("min", "defaultRequest", "min value", "default request value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "default request value", "max value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "default request value", "default limit value", "defaultRequest",
     "defaultRequest"),
    ("min", "default", "min value", "default value", "default", "min"),
    ("default", "max", "default value", "max value", "default", "max"),
)  # fmt: skip


def _limit_range(obj: JsonObject) -> Errors:
    known: set[str] = set()
    for path, limit in items(spec_of(obj), "limits", "spec"):
        kind = limit.get("type") or ""
        texts = names.qualified_name(kind)
        for text in texts:
            yield invalid(f"{path}.type", kind, text)
        if not texts and "/" not in kind and kind not in _LIMITED:
            yield invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
        if kind in known:
            yield duplicate(f"{path}.type", kind)
        known.add(kind)
        yield from _limit(limit, kind, path)


def _limit(limit: JsonObject, kind: str, path: str) -> Errors:
    check = container_resource_errors if kind in ("Pod", "Container") else resource_name_errors
    parts = {
        key: limit.get(key) or {}
        for key in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    }
    for key in ("default", "defaultRequest") if kind == "Pod" else ():
        if parts[key]:
            yield forbidden(f"{path}.{key}", "may not be specified when `type` is 'Pod'")
        parts[key] = {}
    for key, amounts in parts.items():
        for name in amounts:
            yield from check(name, f"{path}.{key}[{name}]")
    if kind == "PersistentVolumeClaim" and "storage" not in {**parts["min"], **parts["max"]}:
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", text)
    for name in sorted({name for amounts in parts.values() for name in amounts}):
        yield from _one_limit({key: amounts.get(name) for key, amounts in parts.items()}, name, path)


def _one_limit(amounts: Mapping[str, str | None], name: str, path: str) -> Errors:
    values = {key: quantity_value(amount) for key, amount in amounts.items() if amount is not None}
    for low, high, low_word, high_word, place, shown in _ORDERED:
        if low in values and high in values and values[low] > values[high]:
            text = f"{low_word} {amounts[low]} is greater than {high_word} {amounts[high]}"
            yield invalid(f"{path}.{place}[{name}]", amounts[shown], text)
    ratio, place = values.get("maxLimitRequestRatio"), f"{path}.maxLimitRequestRatio[{name}]"
    given = amounts["maxLimitRequestRatio"]
    if ratio is not None and ratio < 1:
        yield invalid(place, given, f"ratio {given} is less than 1")
    if ratio is not None and "max" in values and "min" in values:
        most = values["max"] / values["min"] if values["min"] else Decimal("Infinity")
        if ratio > most:
            yield invalid(place, given, f"ratio {given} is greater than max/min = {most:.6f}")
    if not _native(name) or name.startswith("hugepages-"):
        limit, request = amounts["default"], amounts["defaultRequest"]
        if limit is not None and request is not None and values["default"] != values["defaultRequest"]:
            text = f"default value {limit} must equal to defaultRequest value {request} in {name}"
            yield invalid(f"{path}.defaultRequest[{name}]", request, text)


RULES: Final[Table] = {
    ("", "LimitRange"): also(_limit_range),
    ("", "ResourceQuota"): also(_quota, _quota_update, status=_quota_status),
}
