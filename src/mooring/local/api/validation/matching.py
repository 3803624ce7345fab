"""What policies and webhooks have in common: what they match, and expressions that must compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cel_expr_python import cel

from mooring.local.api import names
from mooring.local.api.cel.rules import CompileError, compiled
from mooring.local.api.fields import duplicate, invalid, not_supported, required, too_many
from mooring.local.api.validation.metadata import selector_errors
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    items,
    named,
)

__all__ = [
    "FAILURES",
    "MATCHES",
    "REINVOCATIONS",
    "VARIABLES",
    "condition_errors",
    "expression_error",
    "match_errors",
    "no_deletes",
    "rule_errors",
]

#: What an expression of a policy may look at.
VARIABLES: Final = (
    "object", "oldObject", "request", "params", "namespaceObject", "variables", "authorizer",
)  # fmt: skip


# --- what is matched ----------------------------------------------------------------------------------

FAILURES: Final = ("Fail", "Ignore")
MATCHES: Final = ("Equivalent", "Exact")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTABLE: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
REINVOCATIONS: Final = ("IfNeeded", "Never")
_MOST_CONDITIONS: Final = 64


def _alone(values: Sequence[str], path: str, others: str) -> Errors:
    if not values:
        yield required(path)
    if len(values) > 1 and "*" in values:
        yield invalid(path, values, f"if '*' is present, must not specify other {others}")


def rule_errors(rule: JsonObject, path: str) -> Errors:
    """Yield what is wrong with a rule of operations on resources."""
    yield from _alone(rule.get("operations") or [], f"{path}.operations", "operations")
    for place, operation in items(rule, "operations", path):
        if operation not in _OPERATIONS:
            yield not_supported(place, operation, _OPERATIONS)
    yield from _alone(rule.get("apiGroups") or [], f"{path}.apiGroups", "API groups")
    yield from _alone(rule.get("apiVersions") or [], f"{path}.apiVersions", "API versions")
    for place, version in items(rule, "apiVersions", path):
        if not version:
            yield required(place)
    yield from _resources(rule.get("resources") or [], f"{path}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        yield not_supported(f"{path}.scope", scope, _SCOPES)


def _resources(resources: Sequence[str], path: str) -> Errors:
    if not resources:
        yield required(path)
    whole: set[str] = set()
    anywhere: set[str] = set()
    plain = False
    for index, text in enumerate(resources):
        place = f"{path}[{index}]"
        resource, slash, part = text.partition("/")
        if not text:
            yield required(place)
        elif not slash:
            plain = text != "*"
        if not slash:
            continue
        if resource in whole:
            yield invalid(place, text, f"if '{resource}/*' is present, must not specify {text}")
        if part in anywhere:
            yield invalid(place, text, f"if '*/{part}' is present, must not specify {text}")
        whole |= {resource} if part == "*" else set()
        anywhere |= {part} if resource == "*" else set()
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and plain:
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, resources, text)


def match_errors(match: JsonObject, path: str) -> Errors:
    """Yield what is wrong with what a policy or a binding matches."""
    policy = match.get("matchPolicy")
    if policy is None:
        yield required(f"{path}.matchPolicy")
    elif policy not in MATCHES:
        yield not_supported(f"{path}.matchPolicy", policy, MATCHES)
    for key in ("namespaceSelector", "objectSelector"):
        if match.get(key) is None:
            yield required(f"{path}.{key}")
        yield from selector_errors(match.get(key), f"{path}.{key}")
    for key in ("resourceRules", "excludeResourceRules"):
        for place, rule in items(match, key, path):
            known: set[str] = set()
            for inner, name in items(rule, "resourceNames", place):
                for text in names.http_path_segment(name):
                    yield invalid(inner, name, text)
                if name in known:
                    yield duplicate(inner, name)
                known.add(name)
            yield from rule_errors(rule, place)


def no_deletes(match: JsonObject, path: str) -> Errors:
    """Yield the operations that nothing can change an object in."""
    for _, rule in items(match, "resourceRules", path):
        for operation in rule.get("operations") or ():
            if operation not in _MUTABLE:
                yield not_supported(f"{path}.resourceRules.operations", operation, _MUTABLE)


def condition_errors(holder: JsonObject, path: str, variables: tuple[str, ...]) -> Errors:
    """Yield what is wrong with the conditions of a match."""
    conditions = holder.get("matchConditions") or ()
    if len(conditions) > _MOST_CONDITIONS:
        yield too_many(f"{path}.matchConditions", len(conditions), _MOST_CONDITIONS)
    known: set[str] = set()
    for place, condition in items(holder, "matchConditions", path):
        text, name = (condition.get("expression") or "").strip(), condition.get("name") or ""
        if not text:
            yield required(f"{place}.expression")
        elif why := expression_error(text, cel.Type.BOOL, variables=variables):
            yield invalid(f"{place}.expression", text, why)
        yield from named(name, f"{place}.name", names.qualified_name)
        if name in known:
            yield duplicate(f"{place}.name", name)
        known |= {name} if name else set()


# --- expressions --------------------------------------------------------------------------------------


def expression_error(
    text: str, wanted: Any, told: str = "", *, variables: tuple[str, ...] = VARIABLES
) -> str:
    """Say what is wrong with an expression; `wanted` is a type, or the beginning of the names of some."""
    try:
        kind = compiled(text, *variables).return_type()
    except CompileError as error:
        return str(error)
    if wanted is None or kind == cel.Type.DYN:
        return ""
    if kind.name().startswith(wanted) if isinstance(wanted, str) else kind == wanted:
        return ""
    return f"must evaluate to {told or wanted.name().lower()} but got {kind.name().lower()}"
