"""What policies in CEL have in common, validating and mutating ones: bindings, parameters, expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cel_expr_python import cel

from mooring.kube.errors import ApiError, api_error
from mooring.local.api import failures
from mooring.local.api.access.rbac import Attributes
from mooring.local.api.admission.review import EXEMPT, Review, rule_matches, selected
from mooring.local.api.call import Call
from mooring.local.api.cel.authorizer import asking, authorizer_of
from mooring.local.api.cel.rules import CompileError, compiled, failure
from mooring.local.api.selectors import label_selector
from mooring.local.api.validation.matching import VARIABLES

__all__ = [
    "ConfigurationError",
    "ExpressionError",
    "bound",
    "conditions_hold",
    "evaluated",
    "params_of",
    "refusal",
    "seen",
    "variables_of",
]

JsonObject = dict[str, Any]

_GROUP: Final = "admissionregistration.k8s.io"
#: Beside the variables: who answers what expressions ask of `authorizer`.
DECIDE: Final = "$decide"


class ExpressionError(ValueError):
    """An expression that could not be evaluated; the failurePolicy decides."""


class ConfigurationError(ValueError):
    """A binding whose parameters cannot be found."""


def bound(kind: str, review: Review) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield the policies that concern a write, each with a binding that puts it in force there.

    `kind` is the plural of the policies without its end: `validatingadmissionpolic`.
    """
    call = review.call
    policies = call.cluster.store.collection(f"{kind}ies.{_GROUP}")
    if not policies.count or call.served.storage in EXEMPT:
        return
    collection = call.cluster.store.collection(f"{kind}ybindings.{_GROUP}")
    bindings = [entry.obj for entry in collection.entries()]
    for policy in policies.entries():
        if bindings and _concerns(policy.obj["spec"].get("matchConstraints") or {}, review):
            for binding in bindings:
                match = binding["spec"].get("matchResources") or {}
                if binding["spec"].get("policyName") == policy.name and _concerns(
                    match, review, by_default=True
                ):
                    yield policy.obj, binding


def _concerns(match: Mapping[str, Any], review: Review, *, by_default: bool = False) -> bool:
    rules = match.get("resourceRules") or ()
    if not selected(match, review) or any(
        rule_matches(rule, review) for rule in match.get("excludeResourceRules") or ()
    ):
        return False
    return any(rule_matches(rule, review) for rule in rules) or (by_default and not rules)


def refusal(review: Review, *why: str, code: int, reason: str, bare: bool = False) -> ApiError:
    """Return the answer to a write that policies refuse; `bare`: its text is the first cause as it is."""
    served = review.call.served
    shown = failures.forbidden(served.group, served.plural, review.name(), why[0])
    details = {**shown.details, "causes": [{"message": each} for each in why]}
    return api_error(
        code, {"message": why[0] if bare else shown.message, "reason": reason, "details": details}
    )


def seen(review: Review, params: JsonObject | None) -> JsonObject:
    """Return what expressions may look at."""
    call = review.call
    namespace = None
    if call.namespace:
        entry = call.cluster.store.collection("namespaces").get(("", call.namespace))
        namespace = {"kind": "Namespace", "apiVersion": "v1", **entry.obj} if entry is not None else None
    objects = {"object": review.obj, "oldObject": review.old, "params": params}
    shown = {name: _shown(obj) for name, obj in objects.items()}
    served, target = call.served, call.target
    about = Attributes(
        user=call.user,
        verb="",
        group=served.group,
        resource=served.plural,
        subresource=target.subresource,
        name=review.name(),
        namespace=call.namespace,
    )
    return {
        **shown,
        "request": review.about(),
        "namespaceObject": _shown(namespace),
        "variables": {},
        "authorizer": authorizer_of(call.user, about),
        DECIDE: call.cluster.authorizer.decide,
    }


def _shown(obj: JsonObject | None) -> JsonObject | None:
    """Return an object as expressions see it: `namespace` is a reserved word, and escaped."""
    if obj is None or "namespace" not in (meta := obj.get("metadata") or {}):
        return obj
    return {**obj, "metadata": {**meta, "__namespace__": meta["namespace"]}}


def evaluated(expression: str, data: JsonObject, *, shown: str = "") -> Any:
    """Return the value of an expression as plain data; raises ExpressionError, which names it, or `shown`."""
    known = {name: value for name, value in data.items() if name != DECIDE}
    try:
        with asking(data[DECIDE]):
            result = compiled(expression, *VARIABLES).eval(data=known)
    except CompileError as error:
        raise ExpressionError(str(error)) from None
    if result.type() == cel.Type.ERROR:
        why = failure(str(result.value()))
        raise ExpressionError(f"expression '{shown or expression}' resulted in error: {why}")
    return result.plain_value()


def conditions_hold(conditions: Any, data: JsonObject) -> bool:
    """Whether all conditions are true; one that fails matters only where none is false."""
    failed: ExpressionError | None = None
    for condition in conditions:
        try:
            if evaluated(condition["expression"], data) is not True:
                return False
        except ExpressionError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return True


def variables_of(variables: Any, data: JsonObject) -> JsonObject:
    """Return the values of variables; one that fails is missing, and whoever asks for it fails in turn."""
    values: JsonObject = {}
    for variable in variables:
        try:
            values[variable["name"]] = evaluated(variable["expression"], {**data, "variables": values})
        except ExpressionError:
            continue
    return values


def params_of(
    kind: Mapping[str, Any] | None, reference: Mapping[str, Any] | None, call: Call
) -> list[JsonObject | None]:
    """Return the objects a binding names as parameters, None standing for no parameters at all."""
    if kind is None or reference is None:
        return [None]
    group, _, version = kind["apiVersion"].rpartition("/")
    served = call.cluster.registry.of_kind(group, version, kind["kind"])
    if served is None:
        raise ConfigurationError(f"paramKind kind `{kind['apiVersion']}, Kind={kind['kind']}` not known")
    namespace = (reference.get("namespace") or call.namespace) if served.namespaced else ""
    if served.namespaced and not namespace:
        text = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        raise ConfigurationError(text)
    collection = call.cluster.store.collection(served.storage)
    if name := reference.get("name"):
        entry = collection.get((namespace, name))
        entries = [entry] if entry is not None else []
    else:
        wanted = label_selector(reference.get("selector") or {})
        entries = [entry for entry in collection.entries(namespace) if wanted.matches(entry.labels)]
    if not entries and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    header = {"kind": served.kind, "apiVersion": served.api_version}
    return [{**header, **entry.obj} for entry in entries]
