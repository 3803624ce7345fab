"""ValidatingAdmissionPolicies: rules in CEL on writes of any kind, in force where a binding says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mooring.kube.errors import ApiError
from mooring.local.api.policies import (
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
from mooring.local.api.review import Review

__all__ = ["check_policies"]

JsonObject = dict[str, Any]

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    reason: str = "Invalid"


def check_policies(review: Review) -> None:
    """Raise the first refusal of the policies in force; those that only warn do so."""
    for policy, binding in bound("validatingadmissionpolic", review):
        _check(policy, binding, review)


def _check(policy: JsonObject, binding: JsonObject, review: Review) -> None:
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
    return refusal(review, why, code=_CODES.get(failed.reason, 422), reason=failed.reason)


def _failures(spec: JsonObject, binding: JsonObject, review: Review) -> Iterator[_Failure]:
    """Yield the validations of a policy that a write does not pass, for all parameters in turn."""
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
        for validation in spec.get("validations") or ():
            try:
                if evaluated(validation["expression"], data) is not True:
                    yield _Failure(_message(validation, data), validation.get("reason") or "Invalid")
            except ExpressionError as error:
                if not ignores:
                    yield _Failure(str(error))


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
