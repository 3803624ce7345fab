"""The values of a form against the schema of its fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.catalog.entry import Entry, Parameter, Parameters, Rule, Text
from mooring.catalog.expressions import ExpressionError, evaluate, params, re2
from mooring.kube.quantity import parse_quantity

__all__ = [
    "NAME_FIELD",
    "FieldProblem",
    "check_edit",
    "check_fields",
    "check_form",
    "check_name",
    "check_value",
    "check_values",
    "defaults",
    "requests_of",
]

#: The field that names the instance.
NAME_FIELD: Final = "name"
#: Characters of one text, entries of one map: what is longer never reaches the API server.
TEXT_LIMIT, MAP_LIMIT = 4096, 256

_NAME = re2.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_BYTES = re2.compile(r"(?i)^[0-9]+([kmg]b?)?$")


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one field of the form."""

    field: str
    message: Text


def check_name(name: Any) -> list[FieldProblem]:
    """What is wrong with the name of an instance."""
    if isinstance(name, str) and _NAME.match(name):
        return []
    message = Text(
        en="Use 1 to 63 lower case letters, digits and '-', beginning and ending with a letter or digit.",
        zh="使用 1 到 63 个小写字母、数字或 '-',首尾须为字母或数字。",
    )
    return [FieldProblem(field=NAME_FIELD, message=message)]


def defaults(entry: Entry, plan: str | None = None) -> dict[str, Any]:
    """The values a form begins with: every field's default, then those of the plan (by default the default one)."""
    values = {name: p.default for name, p in entry.parameters.items() if p.default is not None}
    for candidate in entry.spec.plans:
        if candidate.name == plan or (plan is None and candidate.default):
            values |= candidate.values
    return values


def check_values(entry: Entry, values: Mapping[str, Any]) -> list[FieldProblem]:
    """What is wrong with the values of a form; empty and missing ones count as not given.

    The rules of the entry are asked once every field is sound by itself.
    """
    return check_form(entry.spec.parameters, entry.spec.rules, values)


def check_form(
    parameters: Parameters, rules: Iterable[Rule], values: Mapping[str, Any]
) -> list[FieldProblem]:
    """The same for any form: its fields, then its rules."""
    return check_fields(parameters, values) or check_rules(parameters, rules, values)


def check_edit(entry: Entry, changed: Mapping[str, Any], present: Mapping[str, Any]) -> list[FieldProblem]:
    """What is wrong with an edit: with each field that is changed, and rules that held before it and do not after it."""
    problems = [one for one in check_fields(entry.spec.parameters, changed) if one.field in changed]
    if problems:
        return problems
    parameters, rules = entry.spec.parameters, entry.spec.rules
    before = check_rules(parameters, rules, present)
    return [one for one in check_rules(parameters, rules, {**present, **changed}) if one not in before]


def check_rules(
    parameters: Parameters, rules: Iterable[Rule], values: Mapping[str, Any]
) -> list[FieldProblem]:
    """The rules that values, each of them sound by itself, do not fulfil together."""
    problems = []
    known = params(parameters.properties, values)
    for rule in rules:
        try:
            fulfilled = evaluate(rule.cel, known) is True
        except ExpressionError as error:
            wrong = Text(en=f"A rule cannot be evaluated: {error}", zh=f"规则无法求值：{error}")
            problems.append(FieldProblem(field=rule.field, message=wrong))
        else:
            if not fulfilled:
                problems.append(FieldProblem(field=rule.field, message=rule.message))
    return problems


def requests_of(entry: Entry, values: Mapping[str, Any]) -> dict[str, float]:
    """What an instance of these values needs, by resource of a ResourceQuota; what cannot be told is left out."""
    known = params(entry.parameters, values)
    found = {}
    for resource, text in entry.spec.requests.items():
        try:
            amount = evaluate(text, known)
        except ExpressionError:
            continue
        if isinstance(amount, (int, float)) and not isinstance(amount, bool):
            found[resource] = float(amount)
    return found


def check_fields(parameters: Parameters, values: Mapping[str, Any]) -> list[FieldProblem]:
    """What is wrong with each field by itself."""
    problems = [
        FieldProblem(field=name, message=Text(en="There is no such field.", zh="没有这个字段。"))
        for name in values
        if name not in parameters.properties
    ]
    for name, parameter in parameters.properties.items():
        value = values.get(name)
        if _absent(value):
            if name in parameters.required:
                problems.append(FieldProblem(field=name, message=Text(en="This is needed.", zh="必填。")))
        elif (message := check_value(parameter, value)) is not None:
            problems.append(FieldProblem(field=name, message=message))
    return problems


def _absent(value: Any) -> bool:
    return value is None or value == "" or value == {}


def check_value(parameter: Parameter, value: Any) -> Text | None:
    """What is wrong with one value, None if nothing is."""
    match parameter.type:
        case "boolean":
            wrong = (
                None
                if isinstance(value, bool)
                else Text(en="Must be true or false.", zh="须为 true 或 false。")
            )
        case "integer" | "number":
            wrong = _number(parameter, value)
        case "string":
            wrong = _string(parameter, value)
        case "object":
            wrong = _map(value)
    if wrong is None and parameter.enum and not any(_same(value, choice) for choice in parameter.enum):
        choices = ", ".join(map(str, parameter.enum))
        wrong = Text(en=f"Must be one of: {choices}.", zh=f"须为其中之一：{choices}。")
    return wrong


def _same(value: Any, choice: Any) -> bool:
    return type(value) is type(choice) and bool(value == choice)


def _number(parameter: Parameter, value: Any) -> Text | None:
    whole = parameter.type == "integer"
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        if whole:
            return Text(en="Must be a whole number.", zh="须为整数。")
        return Text(en="Must be a number.", zh="须为数字。")
    # Written so that NaN is refused as well.
    if parameter.minimum is not None and not value >= parameter.minimum:
        return Text(en=f"Must be at least {parameter.minimum:g}.", zh=f"不得小于 {parameter.minimum:g}。")
    if parameter.maximum is not None and not value <= parameter.maximum:
        return Text(en=f"Must be at most {parameter.maximum:g}.", zh=f"不得大于 {parameter.maximum:g}。")
    if not -(2**63) <= value < 2**63:
        return Text(en="Is out of range.", zh="超出范围。")
    return None


def _string(parameter: Parameter, value: Any) -> Text | None:
    if not isinstance(value, str):
        return Text(en="Must be a text.", zh="须为文本。")
    most = TEXT_LIMIT if parameter.max_length is None else min(parameter.max_length, TEXT_LIMIT)
    if len(value) > most:
        return Text(en=f"Must have at most {most} characters.", zh=f"最多 {most} 个字符。")
    if parameter.min_length is not None and len(value) < parameter.min_length:
        least = parameter.min_length
        return Text(en=f"Must have at least {least} characters.", zh=f"至少 {least} 个字符。")
    if parameter.format == "quantity" and not _is_quantity(value):
        return Text(en="Must be an amount, as 500m or 2Gi.", zh="须为数量，例如 500m 或 2Gi。")
    if parameter.format == "bytes" and not _BYTES.match(value):
        return Text(
            en="Must be a size as Redis writes it: 256mb, 2gb.", zh="须为 Redis 写法的大小：256mb、2gb。"
        )
    if parameter.pattern and not re2.search(parameter.pattern, value):
        return Text(en=f"Must match {parameter.pattern}.", zh=f"须匹配 {parameter.pattern}。")
    return None


def _is_quantity(text: str) -> bool:
    try:
        return bool(parse_quantity(text) >= 0)
    except ValueError:
        return False


def _map(value: Any) -> Text | None:
    if not isinstance(value, dict) or not all(
        isinstance(k, str) and isinstance(v, str) for k, v in value.items()
    ):
        return Text(en="Must be names with texts.", zh="须为名称与文本的对应。")
    longest = max((len(text) for pair in value.items() for text in pair), default=0)
    if len(value) > MAP_LIMIT or longest > TEXT_LIMIT or "" in value:
        return Text(
            en=f"At most {MAP_LIMIT} entries of {TEXT_LIMIT} characters, each with a name.",
            zh=f"最多 {MAP_LIMIT} 项，每项最多 {TEXT_LIMIT} 个字符，且须有名称。",
        )
    return None
