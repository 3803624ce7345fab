"""The rules of what judges writes: policies, and their bindings; webhooks are in `webhooks`."""

from __future__ import annotations

import re
from typing import Final

from cel_expr_python import cel

from mooring.local.api import names
from mooring.local.api.cel.objects import as_maps
from mooring.local.api.fields import duplicate, forbidden, invalid, not_supported, required
from mooring.local.api.validation.matching import (
    FAILURES,
    REINVOCATIONS,
    VARIABLES,
    condition_errors,
    expression_error,
    match_errors,
    no_deletes,
)
from mooring.local.api.validation.metadata import selector_errors
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
from mooring.local.api.validation.webhooks import webhooks

__all__ = ["RULES"]

# --- policies -----------------------------------------------------------------------------------------

_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MOST_ANNOTATIONS: Final = 20
_LONGEST_ANNOTATION: Final = 5 * 1024
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")


def _policy_head(spec: JsonObject) -> Errors:
    policy, match = spec.get("failurePolicy"), spec.get("matchConstraints")
    if policy is None:
        yield required("spec.failurePolicy")
    elif policy not in FAILURES:
        yield not_supported("spec.failurePolicy", policy, FAILURES)
    if (kind := spec.get("paramKind")) is not None:
        yield from _param_kind(kind, "spec.paramKind")
    if match is None:
        yield required("spec.matchConstraints")
    else:
        yield from match_errors(match, "spec.matchConstraints")
        if not match.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")


def _policy_middle(spec: JsonObject) -> Errors:
    yield from condition_errors(spec, "spec", VARIABLES)
    for place, variable in items(spec, "variables", "spec"):
        name, text = variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            yield required(f"{place}.name", "name is not specified")
        elif _IDENTIFIER.fullmatch(name) is None:
            yield invalid(f"{place}.name", name, "must be a valid CEL identifier")
        if not text.strip():
            yield required(f"{place}.expression", "expression is not specified")
        elif why := expression_error(text, None):
            yield invalid(f"{place}.expression", text, why)


def _param_kind(about: JsonObject, path: str) -> Errors:
    whole, kind = about.get("apiVersion") or "", about.get("kind") or ""
    group, slash, version = whole.rpartition("/")
    if not whole:
        yield required(f"{path}.apiVersion")
    elif whole.count("/") > 1:
        yield invalid(f"{path}.apiVersion", whole, f"unexpected GroupVersion string: {whole}")
    else:
        if slash and (texts := names.dns1123_subdomain(group)):
            yield invalid(f"{path}.apiVersion", group, ",".join(texts))
        if not version:
            yield invalid(f"{path}.apiVersion", whole, "version must be specified")
        elif texts := names.dns1035_label(version):
            yield invalid(f"{path}.apiVersion", version, ",".join(texts))
    if not kind:
        yield required(f"{path}.kind")
    elif texts := names.dns1035_label(kind.lower()):
        text = "may have mixed case, but should otherwise match: " + ",".join(texts)
        yield invalid(f"{path}.kind", kind, text)


def _policy(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from _policy_head(spec)
    yield from _policy_middle(spec)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        text = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", text)
        yield required("spec.auditAnnotations", text)
    for place, validation in items(spec, "validations", "spec"):
        yield from _validation(validation, place)
    annotations = spec.get("auditAnnotations") or []
    if len(annotations) > _MOST_ANNOTATIONS:
        text = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        yield invalid("spec.auditAnnotations", annotations, text)
    name, known = (obj.get("metadata") or {}).get("name") or "", set()
    for place, annotation in items(spec, "auditAnnotations", "spec"):
        yield from _annotation(annotation, name, place)
        if (key := annotation.get("key") or "") in known:
            yield duplicate(f"{place}.key", key)
        known.add(key)


def _validation(validation: JsonObject, path: str) -> Errors:
    text, told = validation.get("expression") or "", validation.get("messageExpression") or ""
    message, reason = validation.get("message") or "", validation.get("reason")
    if not text.strip():
        yield required(f"{path}.expression", "expression is not specified")
    elif why := expression_error(text, cel.Type.BOOL):
        yield invalid(f"{path}.expression", text, why)
    if told and not told.strip():
        yield invalid(f"{path}.messageExpression", told, "must be non-empty if specified")
    elif told and (why := expression_error(told, cel.Type.STRING)):
        yield invalid(f"{path}.messageExpression", told, why)
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)


def _annotation(annotation: JsonObject, name: str, path: str) -> Errors:
    key, text = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
    if not name:
        yield invalid(f"{path}.key", key, "requires metadata.name be non-empty")
    for why in names.qualified_name(f"{name}/{key}") if name else ():
        yield invalid(f"{path}.key", f"{name}/{key}", why)
    if not text:
        yield required(f"{path}.valueExpression", "valueExpression is not specified")
    elif len(text.encode()) > _LONGEST_ANNOTATION:
        yield required(f"{path}.valueExpression", f"must not exceed {_LONGEST_ANNOTATION} bytes in length")
    elif why := expression_error(text, None):
        yield invalid(f"{path}.valueExpression", annotation["valueExpression"], why)


def _mutating_policy(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from _policy_head(spec)
    yield from no_deletes(spec.get("matchConstraints") or {}, "spec.matchConstraints")
    yield from _policy_middle(spec)
    if not spec.get("mutations"):
        yield required("spec.mutations", "mutations must contain at least one item")
    for place, mutation in items(spec, "mutations", "spec"):
        yield from _mutation(mutation, place)
    yield from chosen(spec, "reinvocationPolicy", REINVOCATIONS, "spec")


#: Type of a mutation -> its part, and what its expression must evaluate to.
_MUTATIONS: Final = {
    "ApplyConfiguration": ("applyConfiguration", "MAP", "Object"),
    "JSONPatch": ("jsonPatch", "LIST", "list(JSONPatch)"),
}


def _mutation(mutation: JsonObject, path: str) -> Errors:
    kind = mutation.get("patchType") or ""
    if kind not in _MUTATIONS:
        yield (
            not_supported(f"{path}.patchType", kind, tuple(_MUTATIONS))
            if kind
            else required(f"{path}.patchType")
        )
        return
    for other, (part, _, _) in _MUTATIONS.items():
        if other != kind and mutation.get(part) is not None:
            why = f"must not be specified when patchType is {kind}"
            yield invalid(f"{path}.{part}", f"{{{part}}}", why)
    part, wanted, told = _MUTATIONS[kind]
    if mutation.get(part) is None:
        yield required(f"{path}.{part}", f"must be specified when patchType is {kind}")
        return
    text = (mutation[part].get("expression") or "").strip()
    if not text:
        yield required(f"{path}.{part}.expression")
    elif why := expression_error(as_maps(text).expression, wanted, told):
        yield invalid(f"{path}.{part}.expression", text, why)


# --- bindings -----------------------------------------------------------------------------------------

_ACTIONS: Final = ("Audit", "Deny", "Warn")
_EXCLUSIVE: Final = "name and selector are mutually exclusive"


def _binding(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from named(spec.get("policyName") or "", "spec.policyName", names.dns1123_subdomain)
    if (reference := spec.get("paramRef")) is not None:
        yield from _param_ref(reference, "spec.paramRef")
    if (match := spec.get("matchResources")) is not None:
        yield from match_errors(match, "spec.matchResources")


def _param_ref(reference: JsonObject, path: str) -> Errors:
    name, selector = reference.get("name") or "", reference.get("selector")
    for text in names.http_path_segment(name):
        yield invalid(f"{path}.name", name, text)
    if name and selector is not None:
        yield forbidden(f"{path}.name", _EXCLUSIVE)
    yield from selector_errors(selector, f"{path}.selector")
    if name and selector is not None:
        yield forbidden(f"{path}.selector", _EXCLUSIVE)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    yield from chosen(reference, "parameterNotFoundAction", ("Deny", "Allow"), path)


def _validating_binding(obj: JsonObject) -> Errors:
    yield from _binding(obj)
    actions, path = spec_of(obj).get("validationActions") or [], "spec.validationActions"
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"{path}[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(f"{path}[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        yield invalid(
            path,
            actions,
            "must not contain both Deny and Warn (repeating the same validation failure information in the "
            "API response and headers serves no purpose)",
        )
    if not actions:
        yield required(path, "at least one validation action is required")


def _mutating_binding(obj: JsonObject) -> Errors:
    yield from _binding(obj)
    yield from no_deletes(spec_of(obj).get("matchResources") or {}, "spec.matchResources")


_GROUP: Final = "admissionregistration.k8s.io"

RULES: Final[Table] = {
    (_GROUP, "MutatingAdmissionPolicyBinding"): also(_mutating_binding),
    (_GROUP, "ValidatingAdmissionPolicyBinding"): also(_validating_binding),
    (_GROUP, "ValidatingAdmissionPolicy"): also(_policy),
    (_GROUP, "MutatingAdmissionPolicy"): also(_mutating_policy),
    (_GROUP, "ValidatingWebhookConfiguration"): also(webhooks),
    (_GROUP, "MutatingWebhookConfiguration"): also(webhooks),
}
