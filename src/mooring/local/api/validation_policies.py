"""The rules of ValidatingAdmissionPolicies: every expression must compile, and be of the right type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cel_expr_python import cel

from mooring.local.api.cel import CompileError, compiled
from mooring.local.api.fields import FieldError, invalid

__all__ = ["VARIABLES", "policy_errors"]

JsonObject = dict[str, Any]

#: What an expression of a policy may look at.
VARIABLES: Final = ("object", "oldObject", "request", "params", "namespaceObject", "variables")


def policy_errors(policy: JsonObject) -> Iterator[FieldError]:
    """Yield the expressions of a policy that cannot be compiled, or are of a wrong type."""
    spec = policy.get("spec") or {}
    for part, field, wanted in (
        ("matchConditions", "expression", cel.Type.BOOL),
        ("variables", "expression", None),
        ("validations", "expression", cel.Type.BOOL),
        ("validations", "messageExpression", cel.Type.STRING),
        ("auditAnnotations", "valueExpression", None),
    ):
        for index, item in enumerate(spec.get(part) or ()):
            text = item.get(field) or ""
            if text and (why := _wrong(text, wanted)):
                yield invalid(f"spec.{part}[{index}].{field}", text, why)


def _wrong(text: str, wanted: Any) -> str:
    try:
        kind = compiled(text, *VARIABLES).return_type()
    except CompileError as error:
        return str(error)
    if wanted is None or kind in (wanted, cel.Type.DYN):
        return ""
    return f"must evaluate to {wanted.name().lower()} but got {kind.name().lower()}"
