"""The rules of admission policies: every expression must compile, and be of the right type."""

from __future__ import annotations

from typing import Any, Final

from cel_expr_python import cel

from mooring.local.api.cel import CompileError, compiled
from mooring.local.api.cel_objects import as_maps
from mooring.local.api.fields import duplicate, invalid, not_supported, required
from mooring.local.api.validation.rules import Errors, JsonObject, Table, also

__all__ = ["RULES", "VARIABLES"]


#: What an expression of a policy may look at.
VARIABLES: Final = (
    "object", "oldObject", "request", "params", "namespaceObject", "variables", "authorizer",
)  # fmt: skip


def _mutating_policy(policy: JsonObject) -> Errors:
    """Yield what is wrong with a mutating policy: its mutations besides what policies have in common."""
    yield from _policy(policy)
    mutations = (policy.get("spec") or {}).get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in enumerate(mutations):
        yield from _mutation(mutation, f"spec.mutations[{index}]")


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
    elif why := _wrong(as_maps(text).expression, wanted, told):
        yield invalid(f"{path}.{part}.expression", text, why)


def _policy(policy: JsonObject) -> Errors:
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


#: What the conditions of webhooks may look at.
_HOOK_VARIABLES: Final = ("object", "oldObject", "request", "authorizer")


def _webhooks(configuration: JsonObject) -> Errors:
    """Yield what is wrong with the match conditions of webhooks."""
    for number, hook in enumerate(configuration.get("webhooks") or ()):
        names: set[str] = set()
        for index, condition in enumerate(hook.get("matchConditions") or ()):
            place = f"webhooks[{number}].matchConditions[{index}]"
            text = (condition.get("expression") or "").strip()
            if not text:
                yield required(f"{place}.expression")
            elif why := _wrong(text, cel.Type.BOOL, variables=_HOOK_VARIABLES):
                yield invalid(f"{place}.expression", condition["expression"], why)
            name = condition.get("name") or ""
            if not name:
                yield required(f"{place}.name")
            elif name in names:
                yield duplicate(f"{place}.name", name)
            names.add(name)


def _wrong(text: str, wanted: Any, told: str = "", *, variables: tuple[str, ...] = VARIABLES) -> str:
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


_GROUP: Final = "admissionregistration.k8s.io"

RULES: Final[Table] = {
    (_GROUP, "ValidatingAdmissionPolicy"): also(_policy),
    (_GROUP, "MutatingAdmissionPolicy"): also(_mutating_policy),
    (_GROUP, "ValidatingWebhookConfiguration"): also(_webhooks),
    (_GROUP, "MutatingWebhookConfiguration"): also(_webhooks),
}
