"""ValidatingAdmissionPolicies: rules in CEL on writes of any kind, in force where a binding says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel

from mooring.kube.errors import ApiError, api_error
from mooring.local.api import failures
from mooring.local.api.call import Call
from mooring.local.api.cel import CompileError, compiled, failure
from mooring.local.api.review import EXEMPT, Review, rule_matches, selected
from mooring.local.api.selectors import label_selector
from mooring.local.api.validation_policies import VARIABLES

__all__ = ["check_policies"]

JsonObject = dict[str, Any]

_GROUP: Final = "admissionregistration.k8s.io"
_POLICIES, _BINDINGS = (
    f"{plural}.{_GROUP}" for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
)
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class ExpressionError(ValueError):
    """An expression that could not be evaluated; the failurePolicy decides."""


class ConfigurationError(ValueError):
    """A binding whose parameters cannot be found."""


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    reason: str = "Invalid"


def check_policies(review: Review) -> None:
    """Raise the first refusal of the policies in force; those that only warn do so."""
    call = review.call
    policies = call.cluster.store.collection(_POLICIES)
    if not policies.count or call.served.storage in EXEMPT:
        return
    bindings = [entry.obj for entry in call.cluster.store.collection(_BINDINGS).entries()]
    for policy in policies.entries():
        if bindings and _concerns(policy.obj["spec"].get("matchConstraints") or {}, review):
            for binding in bindings:
                if binding["spec"].get("policyName") == policy.name:
                    _check(policy.obj, binding, review)


def _concerns(match: Mapping[str, Any], review: Review, *, by_default: bool = False) -> bool:
    rules = match.get("resourceRules") or ()
    if not selected(match, review) or any(
        rule_matches(rule, review) for rule in match.get("excludeResourceRules") or ()
    ):
        return False
    return any(rule_matches(rule, review) for rule in rules) or (by_default and not rules)


def _check(policy: JsonObject, binding: JsonObject, review: Review) -> None:
    if not _concerns(binding["spec"].get("matchResources") or {}, review, by_default=True):
        return
    spec, actions = policy["spec"], binding["spec"].get("validationActions") or ()
    which = f"ValidatingAdmissionPolicy '{policy['metadata']['name']}'"
    which += f" with binding '{binding['metadata']['name']}'"
    try:
        failed = list(_failures(spec, binding["spec"], review))
    except ConfigurationError as error:
        if spec.get("failurePolicy") == "Ignore":
            return
        raise _denied(review, which, _Failure(f"failed to configure binding: {error}")) from None
    for one in failed:
        if "Warn" in actions:
            review.call.request.warnings.append(f"Validation failed for {which}: {one.message}")
        if "Deny" in actions:
            raise _denied(review, which, one)


def _denied(review: Review, which: str, failed: _Failure) -> ApiError:
    why = f"{which} denied request: {failed.message}"
    served = review.call.served
    shown = failures.forbidden(served.group, served.plural, review.name(), why)
    details = {**shown.details, "causes": [{"message": why}]}
    code = _CODES.get(failed.reason, 422)
    return api_error(code, {"message": shown.message, "reason": failed.reason, "details": details})


def _failures(spec: JsonObject, binding: JsonObject, review: Review) -> Iterator[_Failure]:
    """Yield the validations of a policy that a write does not pass, for all parameters in turn."""
    ignores = spec.get("failurePolicy") == "Ignore"
    for params in _params(spec.get("paramKind"), binding.get("paramRef"), review.call):
        data = _data(review, params)
        try:
            if not _conditions_hold(spec.get("matchConditions") or (), data):
                continue
            data["variables"] = _variables(spec.get("variables") or (), data)
        except ExpressionError as error:
            if not ignores:
                yield _Failure(str(error))
            continue
        for validation in spec.get("validations") or ():
            try:
                if _evaluated(validation["expression"], data) is not True:
                    yield _Failure(_message(validation, data), validation.get("reason") or "Invalid")
            except ExpressionError as error:
                if not ignores:
                    yield _Failure(str(error))


def _data(review: Review, params: JsonObject | None) -> JsonObject:
    call = review.call
    namespace = None
    if call.namespace:
        entry = call.cluster.store.collection("namespaces").get(("", call.namespace))
        namespace = {"kind": "Namespace", "apiVersion": "v1", **entry.obj} if entry is not None else None
    objects = {"object": review.obj, "oldObject": review.old, "params": params}
    shown = {name: _shown(obj) for name, obj in objects.items()}
    return {**shown, "request": review.about(), "namespaceObject": _shown(namespace), "variables": {}}


def _shown(obj: JsonObject | None) -> JsonObject | None:
    """Return an object as expressions see it: `namespace` is a reserved word, and escaped."""
    if obj is None or "namespace" not in (meta := obj.get("metadata") or {}):
        return obj
    return {**obj, "metadata": {**meta, "__namespace__": meta["namespace"]}}


def _evaluated(expression: str, data: JsonObject) -> Any:
    try:
        result = compiled(expression, *VARIABLES).eval(data=data)
    except CompileError as error:
        raise ExpressionError(str(error)) from None
    if result.type() == cel.Type.ERROR:
        why = failure(str(result.value()))
        raise ExpressionError(f"expression '{expression}' resulted in error: {why}")
    return result.value()


def _conditions_hold(conditions: Any, data: JsonObject) -> bool:
    failed: ExpressionError | None = None
    for condition in conditions:
        try:
            if _evaluated(condition["expression"], data) is not True:
                return False
        except ExpressionError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return True


def _variables(variables: Any, data: JsonObject) -> JsonObject:
    """Return the values of variables; one that fails is missing, and whoever asks for it fails in turn."""
    values: JsonObject = {}
    for variable in variables:
        try:
            values[variable["name"]] = _evaluated(variable["expression"], {**data, "variables": values})
        except ExpressionError:
            continue
    return values


def _message(validation: Mapping[str, Any], data: JsonObject) -> str:
    told: Any = ""
    if expression := validation.get("messageExpression"):
        try:
            told = _evaluated(expression, data)
        except ExpressionError:
            told = ""
    if isinstance(told, str) and (text := told.strip()) and "\n" not in text:
        return text
    message: str = (validation.get("message") or "").strip()
    return message or f"failed expression: {validation['expression'].strip()}"


def _params(
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
