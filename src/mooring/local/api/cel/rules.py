"""x-kubernetes-validations: rules in CEL, compiled when a CRD is accepted, evaluated on every write.

The language is Google's own implementation (cel-expr-python, which wraps cel-cpp): parser, type
checker, macros, optional values and the string library are as in a Kubernetes API server, whose
further functions (quantity, url, ip, cidr, regex and list functions) are added here. A rule it cannot
evaluate is an error of the CRD; none is ever skipped.

Not as on a real server: values of objects are typed as dynamic, so that operands of wrong types are
found when the rule runs (fields that do not exist are found by `cel_ast`). What rules cost at most is
reckoned by `cel_cost`; what they do cost is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from mooring.local.api.cel.authorizer import authorizer_functions
from mooring.local.api.cel.checks import escape, field_errors
from mooring.local.api.cel.cost import (
    RULE_LIMIT,
    SCHEMA_LIMIT,
    Budget,
    exceeded,
    most_elements,
    rule_cost,
    times_at_most,
)
from mooring.local.api.cel.functions import kubernetes_functions
from mooring.local.api.constraints import same
from mooring.local.api.fields import FieldError, duplicate, forbidden, invalid, omitted, required
from mooring.local.api.schema import META, MISSING, Schema

__all__ = ["CompileError", "Rules", "compile_rules", "compiled", "escape", "failure"]

Json = Any
JsonObject = dict[str, Any]


# --- the language -------------------------------------------------------------------------------------


@cache
def _environment(*variables: str, binding: bool = False) -> Any:
    extensions = [
        ext_optional.ExtOptional(),
        ext_strings.ExtStrings(),
        *([ext_bindings.ExtBindings()] if binding else []),
        ext_math.ExtMath(),
        ext_encoders.ExtEncoders(),
        kubernetes_functions(),
        *([authorizer_functions()] if "authorizer" in variables else []),
    ]
    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN), extensions=extensions)


class CompileError(ValueError):
    """An expression that is no CEL, or not of the wanted type; the text is the compiler's."""


@cache
def compiled(expression: str, *variables: str, binding: bool = False) -> Any:
    """Return the program of an expression over some variables; raises CompileError.

    `binding`: cel.bind is known, which a real server does not offer to anybody.
    """
    try:
        return _environment(*variables, binding=binding).compile(expression)
    except RuntimeError as error:
        text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise CompileError(f"compilation failed: {text}") from None


_OPTIONAL: Final = "cel.bind(oldSelf, hasOld ? optional.of(old) : optional.none(),\n{}\n)"


@dataclass(frozen=True, slots=True)
class _Expression:
    """A compiled expression, and whether it looks at oldSelf."""

    program: Any
    uses_old: bool

    def run(self, value: Json, old: Json) -> Any:
        """Return the CEL value; old is MISSING when there is none."""
        known = old is not MISSING
        return self.program.eval(
            data={
                "self": value,
                "oldSelf": old if known else None,
                "old": old if known else None,
                "hasOld": known,
            }
        )


def _expression(text: str, *, optional: bool) -> _Expression:
    try:
        compiled(text, "self")
        uses_old = False
    except CompileError as error:
        if not re.search(r"undeclared reference to 'oldSelf['.]", str(error)):
            raise
        uses_old = True
    if optional and uses_old:
        return _Expression(
            compiled(_OPTIONAL.format(text), "self", "old", "hasOld", binding=True), uses_old=True
        )
    return _Expression(compiled(text, "self", "oldSelf"), uses_old)


# --- values -------------------------------------------------------------------------------------------


def _native(value: Json, schema: Schema) -> Json:
    """Return a value as rules see it: escaped names, numbers as doubles, no unknown fields."""
    if value is None:
        return None
    kind = schema.kind
    if isinstance(value, dict):
        if schema.properties:
            return _native_object(value, schema)
        if schema.additional is not None:
            return {key: _native(item, schema.additional) for key, item in value.items()}
        return value if schema.preserve else {}
    if isinstance(value, list) and schema.items is not None:
        return [_native(item, schema.items) for item in value]
    if kind == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _native_object(value: JsonObject, schema: Schema) -> JsonObject:
    result: JsonObject = {}
    for key, child in schema.properties.items():
        if key not in value or (name := escape(key)) is None:
            continue
        item = value[key]
        if child.name == META:
            item = item or {}
            result[name] = {k: item[k] for k in ("name", "generateName") if k in item}
        else:
            result[name] = _native(item, child)
    return result


def _reordered(old: Json, new: Json, schema: Schema) -> Json:
    """Return the old value with its sets and keyed lists in the order of the new one.

    Their order means nothing, and `self.list == oldSelf.list` must not depend on it.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        result = dict(old)
        for key, item in old.items():
            child = schema.properties.get(key) or schema.additional
            if child is not None and child.has_lists and key in new:
                result[key] = _reordered(item, new[key], child)
        return result
    if not (isinstance(old, list) and isinstance(new, list)) or schema.items is None:
        return old
    if schema.list_type == "atomic":
        return old
    items = schema.items
    before = {_key(item, schema): item for item in old}
    ordered = [
        _reordered(before.pop(key), item, items) for item in new if (key := _key(item, schema)) in before
    ]
    return [*ordered, *before.values()]


def _key(item: Json, schema: Schema) -> str:
    if schema.list_type == "map" and isinstance(item, dict):
        return repr([item.get(key) for key in schema.list_keys])
    return repr(item)


# --- rules --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """One compiled rule of a schema node."""

    text: str
    expression: _Expression
    message: str
    message_expression: _Expression | None
    reason: str
    path: str
    optional: bool

    def judge(self, value: Json, old: Json, place: str, shown: Json) -> FieldError | None:
        result = self.expression.run(value, old)
        if result.type() == cel.Type.ERROR:
            return invalid(
                place, _type_of(shown), f"{failure(str(result.value()))} evaluating rule: {self.told}"
            )
        if result.value() is True:
            return None
        detail = self._detail(value, old)
        where = f"{place}{self.path}" if place else self.path.removeprefix(".")
        shown = omitted if isinstance(shown, (dict, list)) else shown
        if self.reason == "FieldValueForbidden":
            return forbidden(where, detail)
        if self.reason == "FieldValueRequired":
            return required(where, detail)
        if self.reason == "FieldValueDuplicate":
            return duplicate(where, shown)
        return invalid(where, shown, detail)

    @property
    def told(self) -> str:
        """The message, or else the rule on one line."""
        return self.message or " ".join(self.text.split())

    def _detail(self, value: Json, old: Json) -> str:
        if self.message_expression is not None:
            result = self.message_expression.run(value, old)
            text = result.value() if result.type() == cel.Type.STRING else None
            if isinstance(text, str) and text.strip() and "\n" not in text.strip():
                return text.strip()
        return self.message or f"failed rule: {' '.join(self.text.split())}"


def _type_of(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names[type(value)]


def failure(text: str) -> str:
    """Word what went wrong as a Kubernetes API server does."""
    if found := re.search(r'Key not found in map : "?([^"]*)"?', text):
        return f"no such key: {found[1]}"
    if found := re.search(r"Index error: index=(-?\d+)", text):
        return f"index out of bounds: {found[1]}"
    if "divide by zero" in text:
        return "division by zero"
    if "No matching overloads" in text:
        return "no such overload"
    return text.partition(": ")[2] or text


@dataclass(frozen=True, slots=True)
class _Node:
    """The rules of a schema node and of what is below it."""

    schema: Schema
    rules: tuple[_Rule, ...] = ()
    children: Mapping[str, _Node] = field(default_factory=dict)
    items: _Node | None = None
    additional: _Node | None = None

    def __bool__(self) -> bool:
        return bool(self.rules or self.children or self.items or self.additional)

    def evaluate(self, value: Json, old: Json, place: str, *, unchanged: bool) -> Iterator[FieldError]:
        if value is None:
            return
        unchanged = unchanged or (old is not MISSING and same(value, old))
        yield from self._own(value, old, place, unchanged=unchanged)
        if isinstance(value, dict):
            yield from self._members(value, old, place, unchanged=unchanged)
        elif isinstance(value, list) and self.items is not None:
            before: dict[str, Json] = {}
            if isinstance(old, list) and self.schema.list_type == "map":
                before = {_key(item, self.schema): item for item in old}
            for index, item in enumerate(value):
                earlier = before.get(_key(item, self.schema), MISSING) if before else MISSING
                yield from self.items.evaluate(item, earlier, f"{place}[{index}]", unchanged=unchanged)

    def _own(self, value: Json, old: Json, place: str, *, unchanged: bool) -> Iterator[FieldError]:
        known = old is not MISSING and old is not None
        wanted = [
            rule
            for rule in self.rules
            if (known or rule.optional if rule.expression.uses_old else not unchanged)
        ]
        if not wanted:
            return
        native = _native(value, self.schema)
        before = MISSING
        if known and any(rule.expression.uses_old for rule in wanted):
            ordered = _reordered(old, value, self.schema) if self.schema.has_lists else old
            before = _native(ordered, self.schema)
        for rule in wanted:
            error = rule.judge(native, before, place, value)
            if error is not None:
                yield error

    def _members(self, value: JsonObject, old: Json, place: str, *, unchanged: bool) -> Iterator[FieldError]:
        before = old if isinstance(old, dict) else {}
        prefix = f"{place}." if place else ""
        for key, node in self.children.items():
            if key in value:
                yield from node.evaluate(
                    value[key], before.get(key, MISSING), prefix + key, unchanged=unchanged
                )
        if self.additional is not None:
            for key, item in value.items():
                if key not in self.schema.properties:
                    yield from self.additional.evaluate(
                        item, before.get(key, MISSING), f"{place}[{key}]", unchanged=unchanged
                    )


class Rules:
    """The compiled rules of one schema; falsy when it has none."""

    __slots__ = ("_root",)

    def __init__(self, root: _Node | None) -> None:
        self._root = root

    def __bool__(self) -> bool:
        return bool(self._root)

    def evaluate(self, obj: Json, old: Json = None) -> list[FieldError]:
        """Return the violated rules; transition rules (oldSelf) run only where there is an old value.

        Rules without oldSelf are not run on values that did not change (ratcheting).
        """
        if not self._root:
            return []
        earlier = MISSING if old is None else old
        return list(self._root.evaluate(obj, earlier, "", unchanged=False))


# --- compiling ----------------------------------------------------------------------------------------


def compile_rules(schema: Schema, *, path: str = "") -> tuple[Rules, list[FieldError]]:
    """Compile every rule of a schema; the errors name those that cannot be compiled, and refuse the CRD.

    `path` is the schema's place in the CRD: `spec.versions[0].schema.openAPIV3Schema`.
    """
    compiling = _Compiling(schema)
    root = compiling.node(schema, path, "", 1)
    errors, budget = compiling.errors, compiling.budget
    if budget.total > SCHEMA_LIMIT:
        shared = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errors += [forbidden(place, shared) for _, place in budget.dear]
        about = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.append(forbidden(path, exceeded(about, budget.total, SCHEMA_LIMIT)))
    return Rules(root), errors


class _Compiling:
    """One pass over a schema: what it found wrong, and what the rules cost together."""

    def __init__(self, root: Schema) -> None:
        self.errors: list[FieldError] = []
        self.budget = Budget()
        self._root = root

    def node(self, schema: Schema, path: str, lost: str, times: int | None) -> _Node | None:
        """Compile a node that an object has at most so many times (None: no limit).

        `lost` is where old and new values can no longer be told to belong together.
        """
        if not schema.has_rules:
            return None
        places = [(index, f"{path}.x-kubernetes-validations[{index}]") for index in range(len(schema.rules))]
        rules = [rule for index, place in places if (rule := self._rule(schema, index, place, lost, times))]
        children = {}
        below = lost or (path if schema.atomic else "")
        each = most_elements(schema)
        inner = None if times is None or each is None else times * each
        for key, child in schema.properties.items():
            if child.name != META and (node := self.node(child, f"{path}.properties[{key}]", below, inner)):
                children[key] = node
        items = additional = None
        if schema.items is not None:
            uncorrelated = lost or ("" if schema.list_type == "map" else path)
            items = self.node(schema.items, f"{path}.items", uncorrelated, inner)
        if schema.additional is not None:
            additional = self.node(schema.additional, f"{path}.additionalProperties", lost, inner)
        return _Node(schema, tuple(rules), children, items, additional)

    def _rule(self, schema: Schema, index: int, place: str, lost: str, times: int | None) -> _Rule | None:
        before = len(self.errors)
        rule = _rule(schema, index, place, lost, self.errors)
        if rule is not None:
            found = self._costs(rule, schema, place, times)
            self.errors[before:before] = found
        return rule

    def _costs(self, rule: _Rule, schema: Schema, place: str, times: int | None) -> list[FieldError]:
        """Spend what a rule and its message may cost; return what is too much."""
        whole = schema is self._root or schema.embedded
        parts = [("rule", "estimated rule cost", rule.expression, times_at_most(schema, times))]
        if rule.message_expression is not None:
            parts.append(
                ("messageExpression", "estimated messageExpression cost", rule.message_expression, 1)
            )
        errors = []
        for name, about, expression, count in parts:
            once = rule_cost(expression.program.serialize(), schema, is_resource=whole)
            cost = self.budget.times(once, count)
            if cost > RULE_LIMIT:
                errors.append(forbidden(f"{place}.{name}", exceeded(about, cost, RULE_LIMIT)))
            self.budget.spend(cost, f"{place}.{name}")
        return errors


def _rule(schema: Schema, index: int, place: str, lost: str, errors: list[FieldError]) -> _Rule | None:
    source = schema.rules[index]
    text = source.get("rule") or ""
    if not text.strip():
        return None  # structural.check_schema says so
    optional = bool(source.get("optionalOldSelf"))
    try:
        expression = _checked(text, schema, optional=optional, wanted=cel.Type.BOOL)
    except CompileError as error:
        errors.append(invalid(f"{place}.rule", source, str(error)))
        return None
    if expression.uses_old and lost:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}"
        errors.append(invalid(f"{place}.rule", text, detail))
    if not expression.uses_old and source.get("optionalOldSelf") is not None:
        errors.append(
            invalid(f"{place}.optionalOldSelf", optional, "may not be set if oldSelf is not used in rule")
        )
    message = None
    if (told := source.get("messageExpression") or "").strip():
        try:
            message = _checked(told, schema, optional=optional, wanted=cel.Type.STRING)
        except CompileError as error:
            detail = str(error).replace("compilation failed", "messageExpression compilation failed", 1)
            errors.append(invalid(f"{place}.messageExpression", source, detail))
    return _Rule(
        text=text,
        expression=expression,
        message=(source.get("message") or "").strip(),
        message_expression=message,
        reason=source.get("reason") or "",
        path=source.get("fieldPath") or "",
        optional=optional,
    )


def _checked(text: str, schema: Schema, *, optional: bool, wanted: Any) -> _Expression:
    name = {cel.Type.BOOL.name(): "bool", cel.Type.STRING.name(): "string"}[wanted.name()]
    expression = _expression(text, optional=optional)
    wrapped = _OPTIONAL.index("{") if optional and expression.uses_old else 0
    if wrong := field_errors(expression.program.serialize(), text, schema, offset=wrapped):
        raise CompileError("compilation failed: " + "\n".join(wrong))
    kind = expression.program.return_type()
    if kind not in (wanted, cel.Type.DYN):
        raise CompileError(
            "cel expression must evaluate to a bool"
            if name == "bool"
            else f"messageExpression must evaluate to a {name}"
        )
    return expression
