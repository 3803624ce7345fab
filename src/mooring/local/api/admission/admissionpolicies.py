"""ValidatingAdmissionPolicies: rules in CEL on writes of any kind, in force where a binding says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mooring.kube.errors import ApiError
from mooring.local.api.admission.policies import (
    ConfigurationError,
    ExpressionError,
    bound,
    conditions_hold,
    evaluated,
    params_of,
    refusal,
    seen,
    variables_of,
)
from mooring.local.api.admission.review import Review

__all__ = ["check_policies"]

JsonObject = dict[str, Any]

#: The audit annotation that lists what a write did not pass where the action is Audit.
_FAILURE = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    reason: str = "Invalid"
    #: Which of the policy's validations it is.
    index: int = 0


def check_policies(review: Review) -> None:
    """Raise the first refusal of the policies in force; those that only warn do so."""
    for policy, binding in bound("validatingadmissionpolic", review):
        _check(policy, binding, review)


def _check(policy: JsonObject, binding: JsonObject, review: Review) -> None:
    spec, actions = policy["spec"], binding["spec"].get("validationActions") or ()
    which = f"ValidatingAdmissionPolicy '{policy['metadata']['name']}'"
    which += f" with binding '{binding['metadata']['name']}'"
    try:
        failed = list(_failures(policy, binding["spec"], review))
    except ConfigurationError as error:
        if spec.get("failurePolicy") == "Ignore":
            return
        raise _denied(review, which, _Failure(f"failed to configure binding: {error}")) from None
    for one in failed:
        if "Audit" in actions:
            _audit_failure(policy, binding, actions, one, review)
        if "Warn" in actions:
            review.call.request.warnings.append(f"Validation failed for {which}: {one.message}")
        if "Deny" in actions:
            raise _denied(review, which, one)


def _denied(review: Review, which: str, failed: _Failure) -> ApiError:
    why = f"{which} denied request: {failed.message}"
    return refusal(review, why, code=_CODES.get(failed.reason, 422), reason=failed.reason)


def _audit_failure(
    policy: JsonObject, binding: JsonObject, actions: Any, failed: _Failure, review: Review
) -> None:
    """Tell the audit log of a validation that a write does not pass."""
    told = {
        "message": failed.message,
        "policy": policy["metadata"]["name"],
        "binding": binding["metadata"]["name"],
        "expressionIndex": failed.index,
        "validationActions": list(actions),
    }
    annotations = review.call.request.annotations
    before = msgspec.json.decode(annotations.get(_FAILURE, "[]"))
    annotations[_FAILURE] = msgspec.json.encode([*before, told]).decode()


def _annotated(policy: JsonObject, data: JsonObject, review: Review) -> Iterator[_Failure]:
    """Tell the audit log what a policy wants told; yield the expressions that failed."""
    spec, name = policy["spec"], policy["metadata"]["name"]
    for annotation in spec.get("auditAnnotations") or ():
        try:
            value = evaluated(annotation["valueExpression"], data)
        except ExpressionError as error:
            if spec.get("failurePolicy") != "Ignore":
                yield _Failure(str(error))
            continue
        if isinstance(value, str) and value.strip():
            review.call.request.annotations[f"{name}/{annotation['key']}"] = value


def _failures(policy: JsonObject, binding: JsonObject, review: Review) -> Iterator[_Failure]:
    """Yield the validations of a policy that a write does not pass, for all parameters in turn."""
    spec = policy["spec"]
    ignores = spec.get("failurePolicy") == "Ignore"
    for params in params_of(spec.get("paramKind"), binding.get("paramRef"), review.call):
        data = seen(review, params)
        try:
            if not conditions_hold(spec.get("matchConditions") or (), data):
                continue
            data["variables"] = variables_of(spec.get("variables") or (), data)
        except ExpressionError as error:
            if not ignores:
                yield _Failure(str(error))
            continue
        yield from _annotated(policy, data, review)
        for index, validation in enumerate(spec.get("validations") or ()):
            try:
                if evaluated(validation["expression"], data) is not True:
                    yield _Failure(_message(validation, data), validation.get("reason") or "Invalid", index)
            except ExpressionError as error:
                if not ignores:
                    yield _Failure(str(error), index=index)


def _message(validation: Mapping[str, Any], data: JsonObject) -> str:
    told: Any = ""
    if expression := validation.get("messageExpression"):
        try:
            told = evaluated(expression, data)
        except ExpressionError:
            told = ""
    if isinstance(told, str) and (text := told.strip()) and "\n" not in text:
        return text
    message: str = (validation.get("message") or "").strip()
    return message or f"failed expression: {validation['expression'].strip()}"
