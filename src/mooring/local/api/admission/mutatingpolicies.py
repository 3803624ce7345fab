"""MutatingAdmissionPolicies: changes in CEL to writes of any kind, in force where a binding says so.

A change is an apply configuration, merged into the object as server-side apply merges, or a JSON patch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mooring.kube.errors import ApiError, Invalid
from mooring.local.api import merge, patch
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
from mooring.local.api.cel.objects import as_maps
from mooring.local.api.schema import Schema
from mooring.local.api.wire import WireError

__all__ = ["Mutations"]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Invocation:
    """One policy in force for a write, with one of its parameters."""

    policy: JsonObject
    binding: JsonObject
    params: JsonObject | None

    @property
    def repeats(self) -> bool:
        """Whether it is asked again when somebody changes the object after it."""
        return bool(self.policy["spec"].get("reinvocationPolicy") == "IfNeeded")


@dataclass(slots=True)
class Mutations:
    """What policies make of one write: `first`, then what webhooks do, then `again`."""

    review: Review
    _repeating: list[_Invocation] = field(default_factory=list)
    _due: set[int] = field(default_factory=set)
    _failures: list[str] = field(default_factory=list)

    def first(self, obj: JsonObject) -> JsonObject:
        """Return the object as the policies in force want it; raises the first refusal."""
        for policy, binding in bound("mutatingadmissionpolic", replace(self.review, obj=obj)):
            try:
                every = params_of(
                    policy["spec"].get("paramKind"), binding["spec"].get("paramRef"), self.review.call
                )
            except ConfigurationError as error:
                self._failed(_Invocation(policy, binding, None), f"failed to configure binding: {error}")
                continue
            for params in every:
                obj = self._invoked(_Invocation(policy, binding, params), obj)
        self._check()
        return obj

    def again(self, obj: JsonObject, *, changed: bool) -> JsonObject:
        """Ask those again who want it and whose outcome was changed, once; `changed`: by webhooks."""
        due = range(len(self._repeating)) if changed else sorted(self._due)
        for index in due:
            obj = self._mutated(self._repeating[index], obj)
        self._check()
        return obj

    def _check(self) -> None:
        """Refuse the write for what has failed so far."""
        if self._failures:
            raise refusal(self.review, *self._failures, code=403, reason="Invalid", bare=True)

    def _invoked(self, invocation: _Invocation, obj: JsonObject) -> JsonObject:
        mutated = self._mutated(invocation, obj)
        if mutated != obj:
            self._due.update(range(len(self._repeating)))
        if invocation.repeats:
            self._repeating.append(invocation)
        return mutated

    def _mutated(self, invocation: _Invocation, obj: JsonObject) -> JsonObject:
        spec = invocation.policy["spec"]
        try:
            if not conditions_hold(spec.get("matchConditions") or (), self._data(invocation, obj)):
                return obj
        except ExpressionError as error:
            self._failed(invocation, str(error))
            return obj
        for mutation in spec.get("mutations") or ():
            try:
                data = self._data(invocation, obj)
                data["variables"] = variables_of(spec.get("variables") or (), data)
                obj = self._changed(mutation, obj, data)
            except ExpressionError as error:
                self._failed(invocation, str(error))
        return obj

    def _data(self, invocation: _Invocation, obj: JsonObject) -> JsonObject:
        return seen(replace(self.review, obj=obj), invocation.params)

    def _changed(self, mutation: JsonObject, obj: JsonObject, data: JsonObject) -> JsonObject:
        """Carry out one mutation, and fill in what the changed object leaves out."""
        kind = self.review.call.kind
        if mutation.get("patchType") == "JSONPatch":
            changed = _json_patched(obj, _value(mutation["jsonPatch"]["expression"], data))
        else:
            wanted = _value(mutation["applyConfiguration"]["expression"], data)
            changed = _merged(obj, wanted, kind.schema)
        if changed is obj:
            return obj
        try:
            return kind.default(kind.canonical(changed)[0])
        except WireError as error:
            raise ExpressionError(str(error)) from None

    def _failed(self, invocation: _Invocation, why: str) -> None:
        """Note a failure, unless those of the policy are to be ignored."""
        if invocation.policy["spec"].get("failurePolicy") == "Ignore":
            return
        names = [each["metadata"]["name"] for each in (invocation.policy, invocation.binding)]
        self._failures.append(f"policy '{names[0]}' with binding '{names[1]}' denied request: {why}")


def _value(expression: str, data: JsonObject) -> Any:
    literals = as_maps(expression)
    if literals.mismatch:
        raise ExpressionError(f"type mismatch: {literals.mismatch}")
    return evaluated(literals.expression, data, shown=expression.strip())


def _json_patched(obj: JsonObject, operations: Any) -> JsonObject:
    """Return the patched object; a patch whose own test fails changes nothing."""
    if not isinstance(operations, list):
        raise ExpressionError("type mismatch: JSONPatchType.expression should evaluate to array")
    try:
        changed = patch.json_patch(obj, operations)
    except ApiError as error:
        if isinstance(error, Invalid) and patch.test_failed(error):
            return obj
        raise ExpressionError(f"JSON Patch: {error.__cause__ or error.message}") from None
    if not isinstance(changed, dict):
        raise ExpressionError("JSON Patch: it leaves no object")
    return changed


def _merged(obj: JsonObject, wanted: Any, schema: Schema) -> JsonObject:
    """Return the object with an apply configuration merged in."""
    if not isinstance(wanted, dict):
        raise ExpressionError(f"unsupported return type from ApplyConfiguration expression: {wanted!r}")
    configuration = {**wanted, "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    try:
        merge.check(configuration, schema)
    except merge.TypedError as error:
        why = f"failed to convert patch object to typed object: {error}"
        raise ExpressionError(f"error applying patch: {why}") from None
    if found := _atomics(configuration, schema, ""):
        why = f"may not mutate atomic arrays, maps or structs: {', '.join(found)}"
        raise ExpressionError(f"error applying patch: invalid ApplyConfiguration: {why}")
    merged: JsonObject = merge.merge(obj, configuration, schema)
    return merged


def _atomics(value: Any, schema: Schema, path: str) -> list[str]:
    """Return the places in a configuration where a part would replace a whole."""
    found = [path] if schema.atomic and isinstance(value, (dict, list)) else []
    if isinstance(value, dict):
        for key, item in value.items():
            if (child := schema.properties.get(key) or schema.additional) is not None:
                found += _atomics(item, child, f"{path}.{key}")
    elif isinstance(value, list) and schema.items is not None:
        if schema.list_type not in ("map", "set") and path not in found:
            found.append(path)
        for item in value:
            found += _atomics(item, schema.items, path)
    return found
