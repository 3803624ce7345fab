"""What is wrong with an entry, by itself and against the schema of its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mooring.catalog import pointer
from mooring.catalog.entry import (
    GROUP_PATTERN,
    KIND_PATTERN,
    PLURAL_PATTERN,
    VERSION_PATTERN,
    WIDGETS,
    Collection,
    Entry,
    Parameter,
    Parameters,
    Rule,
    Target,
    Text,
)
from mooring.catalog.expressions import ExpressionError, evaluate, params, re2
from mooring.catalog.promql import lint_query
from mooring.catalog.values import check_name, check_value, check_values, defaults

__all__ = ["lint", "lint_collection", "lint_schema"]

#: Parts of an entry, at most: what is done to look at one stays bounded.
MOST_PARAMETERS, MOST_PLANS, MOST_RULES, MOST_COLLECTIONS = 200, 50, 50, 10
MOST_CHARTS, MOST_FIGURES, MOST_COLUMNS, MOST_ACTIONS = 20, 20, 20, 30
#: What `requests` may tell of: resources of a ResourceQuota.
RESOURCES = frozenset(
    {
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "limits.cpu",
        "limits.memory",
        "pods",
        "persistentvolumeclaims",
        "services",
    }
)


def lint(entry: Entry) -> list[str]:
    """What must be mended in an entry; each line begins with the path of what is wrong."""
    return list(_lint(entry))


def _lint(entry: Entry) -> Iterator[str]:
    spec = entry.spec
    if many := list(_lint_counts(entry)):
        # Nothing else is looked at: that could take long.
        yield from many
        return
    if check_name(entry.metadata.name):
        yield f"metadata.name: {entry.metadata.name!r} is no name of lower case letters, digits and '-'"
    for path, text in _texts(entry):
        for language in ("en", "zh"):
            if not getattr(text, language).strip():
                yield f"{path}.{language}: missing"
    names = [section.name for section in spec.sections]
    yield from (f"spec.sections: {name!r} is there twice" for name, n in Counter(names).items() if n > 1)
    for name in spec.parameters.order:
        if name not in entry.parameters:
            yield f"spec.parameters.order: there is no field {name!r}"
    if entry.namespace and spec.override:
        yield "spec.override: an entry of a namespace takes no other's place"
    yield from (f"spec.target.{wrong}" for wrong in _lint_target(entry, spec.target))
    for name in spec.parameters.required:
        if name not in entry.parameters:
            yield f"spec.parameters.required: there is no field {name!r}"
    binds = Counter(parameter.bind for parameter in entry.parameters.values())
    for name, parameter in entry.parameters.items():
        path = f"spec.parameters.properties.{name}"
        yield from _lint_parameter(path, parameter, sections=names)
        if name in ("name", "namespace"):
            yield f"{path}: the name is taken by the form itself"
        if binds[parameter.bind] > 1:
            yield f"{path}.x-bind: {parameter.bind} is bound by another field as well"
    yield from _lint_plans(entry)
    yield from _lint_render(entry)
    yield from _lint_actions(entry)
    yield from _lint_expressions(entry)
    yield from _lint_metrics(entry)
    yield from _lint_collections(entry)
    members = [spec.topology.members.list] if spec.topology.members is not None else []
    for path in (*spec.sensitive, spec.status.conditions, *members):
        try:
            pointer.parts(path)
        except ValueError as error:
            yield f"spec: {error}"


def _lint_counts(entry: Entry) -> Iterator[str]:
    spec = entry.spec
    limits = [
        ("parameters.properties", len(entry.parameters), MOST_PARAMETERS),
        ("plans", len(spec.plans), MOST_PLANS),
        ("rules", len(spec.rules), MOST_RULES),
        ("actions", len(spec.actions), MOST_ACTIONS),
        ("metrics.charts", len(spec.metrics.charts), MOST_CHARTS),
        ("metrics.figures", len(spec.metrics.figures), MOST_FIGURES),
        ("collections", len(spec.collections), MOST_COLLECTIONS),
    ]
    for number, one in enumerate(spec.collections[:MOST_COLLECTIONS]):
        fields = one.create.parameters.properties if one.create is not None else {}
        rules = one.create.rules if one.create is not None else ()
        limits += [
            (f"collections[{number}].create.rules", len(rules), MOST_RULES),
            (f"collections[{number}].columns", len(one.columns), MOST_COLUMNS),
            (f"collections[{number}].create.parameters.properties", len(fields), MOST_PARAMETERS),
        ]
    yield from (f"spec.{path}: more than {limit}" for path, count, limit in limits if count > limit)


def _texts(entry: Entry) -> Iterator[tuple[str, Text]]:
    display = entry.spec.display
    yield "spec.display.title", display.title
    yield "spec.display.summary", display.summary
    if display.description is not None:
        yield "spec.display.description", display.description
    for number, section in enumerate(entry.spec.sections):
        yield f"spec.sections[{number}].title", section.title
    for name, parameter in entry.parameters.items():
        yield f"spec.parameters.properties.{name}.title", parameter.title
        if parameter.description is not None:
            yield f"spec.parameters.properties.{name}.description", parameter.description
    for number, plan in enumerate(entry.spec.plans):
        yield f"spec.plans[{number}].title", plan.title
        if plan.summary is not None:
            yield f"spec.plans[{number}].summary", plan.summary
    for action in entry.spec.actions:
        yield f"spec.actions.{action.name}.title", action.title
        yield f"spec.actions.{action.name}.description", action.description
    for what in ("roles", "parts"):
        for name, text in getattr(entry.spec.topology, what).items():
            yield f"spec.topology.{what}.{name}", text
    for number, rule in enumerate(entry.spec.rules):
        yield f"spec.rules[{number}].message", rule.message
    for number, chart in enumerate(entry.spec.metrics.charts):
        yield f"spec.metrics.charts[{number}].title", chart.title
    for number, figure in enumerate(entry.spec.metrics.figures):
        yield f"spec.metrics.figures[{number}].title", figure.title
    for one in entry.spec.collections:
        path = f"spec.collections.{one.name}"
        yield from ((f"{path}.title", one.title), (f"{path}.description", one.description))
        yield from ((f"{path}.columns[{n}].title", column.title) for n, column in enumerate(one.columns))
        for name, part in (("create", one.create), ("restore", one.restore)):
            if part is not None:
                yield from (
                    (f"{path}.{name}.title", part.title),
                    (f"{path}.{name}.description", part.description),
                )
        for number, rule in enumerate(one.create.rules if one.create is not None else ()):
            yield f"{path}.create.rules[{number}].message", rule.message
        fields = one.create.parameters.properties if one.create is not None else {}
        for name, parameter in fields.items():
            yield f"{path}.create.parameters.{name}.title", parameter.title
            if parameter.description is not None:
                yield f"{path}.create.parameters.{name}.description", parameter.description
    for what in ("stays", "goes"):
        for number, text in enumerate(getattr(entry.spec.retention, what)):
            yield f"spec.retention.{what}[{number}]", text


def _lint_expressions(entry: Entry) -> Iterator[str]:
    """Rules and requests, tried with the values of every plan."""
    spec = entry.spec
    values = {plan.name: defaults(entry, plan.name) for plan in spec.plans} or {"": defaults(entry)}
    yield from _lint_rules("spec.rules", spec.rules, spec.parameters, values)
    for one in spec.collections:
        if (form := one.create) is not None:
            path = f"spec.collections.{one.name}.create.rules"
            begun = {name: p.default for name, p in form.parameters.properties.items()}
            yield from _lint_rules(path, form.rules, form.parameters, {"": begun}, whole=False)
    for resource, text in spec.requests.items():
        path = f"spec.requests.{resource}"
        if resource not in RESOURCES:
            yield f"{path}: none of {', '.join(sorted(RESOURCES))}"
            continue
        for known in values.values():
            try:
                amount = evaluate(text, params(entry.parameters, known))
            except ExpressionError as error:
                yield f"{path}: {error}"
                break
            if not isinstance(amount, (int, float)) or isinstance(amount, bool) or amount < 0:
                yield f"{path}: gives {amount!r}, not an amount"
                break


def _lint_rules(
    path: str,
    rules: Sequence[Rule],
    parameters: Parameters,
    values: Mapping[str, Mapping[str, Any]],
    *,
    whole: bool = True,
) -> Iterator[str]:
    """Rules tried with values by plan; they must hold for all that are ``whole``, none of the needed ones missing."""
    for number, rule in enumerate(rules):
        if rule.field and rule.field not in parameters.properties:
            yield f"{path}[{number}].field: there is no field {rule.field!r}"
        for plan, known in values.items():
            try:
                fulfilled = evaluate(rule.cel, params(parameters.properties, known))
            except ExpressionError as error:
                yield f"{path}[{number}].cel: {error}"
                break
            begun = whole and all(known.get(name) is not None for name in parameters.required)
            if begun and fulfilled is not True:
                yield f"{path}[{number}].cel: not true for the values of plan {plan!r}"


def _lint_metrics(entry: Entry) -> Iterator[str]:
    metrics = entry.spec.metrics
    for number, chart in enumerate(metrics.charts):
        path = f"spec.metrics.charts[{number}].query"
        yield from (f"{path}: {wrong}" for wrong in lint_query(chart.query))
        if "$name" not in chart.query.replace("$namespace", ""):
            yield f"{path}: nothing in it is about $name"
    for number, figure in enumerate(metrics.figures):
        try:
            pointer.parts(figure.path)
        except ValueError as error:
            yield f"spec.metrics.figures[{number}].path: {error}"
        else:
            if not figure.path.startswith("/status/"):
                yield f"spec.metrics.figures[{number}].path: {figure.path!r} is not below /status"


def _lint_collections(entry: Entry) -> Iterator[str]:
    for name, count in Counter(one.name for one in entry.spec.collections).items():
        if count > 1:
            yield f"spec.collections: {name!r} is there twice"
    for one in entry.spec.collections:
        path = f"spec.collections.{one.name}"
        if check_name(one.name):
            yield f"{path}: the name must be of lower case letters, digits and '-'"
        whole = one.create is None  # objects of the whole cluster can be listed, not made
        yield from (f"{path}.target.{wrong}" for wrong in _lint_target(entry, one.target, whole=whole))
        outcome = [one.outcome.path] if one.outcome is not None else []
        restored = [*one.restore.drop, *one.restore.set] if one.restore is not None else []
        named = [one.restore.object] if one.restore is not None and one.restore.object else []
        for place in (
            one.of,
            *one.where,
            *(column.path for column in one.columns),
            *outcome,
            *restored,
            *named,
        ):
            try:
                pointer.parts(place)
            except ValueError as error:
                yield f"{path}: {error}"
        # A kind without a form may have its declaration elsewhere than in its spec.
        top = one.of[: one.of.find("/", 1) + 1] if whole and not one.of.startswith("/metadata/") else "/spec/"
        for column in one.columns:
            if not column.path.startswith(("/spec/", "/status/", "/metadata/", top or "/spec/")):
                yield f"{path}: {column.path!r} is not below /spec, /status or /metadata"
        if "{name}" not in one.named:
            yield f"{path}.named: {one.named!r} has no {{name}}"
        if not one.target.namespaced and "{namespace}" not in one.named:
            yield f"{path}.named: objects of the whole cluster must name the {{namespace}} too"
        for place in (one.of, *one.where):
            if not place.startswith(("/spec/", top or "/spec/")):
                yield f"{path}: {place!r} is not below /spec"
        for place in restored:
            if not place.startswith("/spec/"):
                yield f"{path}: {place!r} is not below /spec"
        for name in one.restore.ask if one.restore is not None else ():
            if name not in entry.parameters:
                yield f"{path}.restore.ask: there is no field {name!r}"
        if one.create is None:
            continue
        manifest = dict(one.create.render)
        for name, parameter in one.create.parameters.properties.items():
            yield from _lint_parameter(f"{path}.create.parameters.{name}", parameter, sections=[""])
            if parameter.sensitive:
                # The manifest of a collection's object is shown as it is.
                yield f"{path}.create.parameters.{name}: the form of a collection has no sensitive field"
            try:
                manifest = pointer.put(manifest, parameter.bind, _sample(parameter))
            except ValueError as error:
                yield f"{path}.create.parameters.{name}.x-bind: {error}"
        for key in sorted(one.create.render.keys() - {"spec", "metadata"}):
            yield f"{path}.create.render.{key}: only spec and metadata"


def _lint_target(entry: Entry, target: Target, *, whole: bool = False) -> Iterator[str]:
    ours = entry.api_version.partition("/")[0]
    if "." not in target.group or target.group.endswith((".k8s.io", ".kubernetes.io", ours)):
        # A Secret's data would be shown as anything else is.
        yield f"group: {target.group!r} is none of custom resources"
    yield from _lint_names(target.group, target.version, target.plural)
    if not re2.search(KIND_PATTERN, target.kind):
        yield f"kind: {target.kind!r} is no name of a kind"
    if not target.namespaced and not whole:
        yield "namespaced: the console makes what is in namespaces"


def _lint_names(group: str, version: str, plural: str) -> Iterator[str]:
    # They become parts of a path, which must not lead elsewhere.
    forms = (
        ("group", group, GROUP_PATTERN),
        ("version", version, VERSION_PATTERN),
        ("plural", plural, PLURAL_PATTERN),
    )
    for what, text, pattern in forms:
        if not re2.search(pattern, text):
            yield f"{what}: {text!r} is none"


def _lint_parameter(path: str, parameter: Parameter, *, sections: list[str]) -> Iterator[str]:
    if parameter.ui.widget and parameter.ui.widget not in WIDGETS:
        yield f"{path}.x-ui.widget: {parameter.ui.widget!r} is none of {', '.join(sorted(WIDGETS))}"
    if parameter.ui.group not in sections:
        yield f"{path}.x-ui.group: there is no section {parameter.ui.group!r}"
    if parameter.sensitive and parameter.default is not None:
        yield f"{path}.default: a sensitive field has none"
    if parameter.sensitive != (parameter.ui.widget == "secret"):
        yield f"{path}: x-sensitive and the widget secret belong together"
    if not parameter.bind.startswith(("/spec/", "/metadata/labels/", "/metadata/annotations/")):
        yield f"{path}.x-bind: {parameter.bind!r} is not below /spec, labels or annotations"
    if parameter.pattern:
        try:
            re2.compile(parameter.pattern)
        except re2.error as error:
            yield f"{path}.pattern: {error}"
            return
    if parameter.default is not None and (wrong := check_value(parameter, parameter.default)) is not None:
        yield f"{path}.default: {wrong.en}"
    for choice in parameter.enum:
        if (wrong := check_value(parameter, choice)) is not None:
            yield f"{path}.enum: {choice!r}: {wrong.en}"


def _lint_actions(entry: Entry) -> Iterator[str]:
    for name, count in Counter(action.name for action in entry.spec.actions).items():
        if count > 1:
            yield f"spec.actions: {name!r} is there twice"
    for action in entry.spec.actions:
        path = f"spec.actions.{action.name}"
        if check_name(action.name):
            yield f"{path}: the name must be of lower case letters, digits and '-'"
        if (other := action.target) is not None:
            wrong = _lint_names(other.group, other.version, other.plural)
            yield from (f"{path}.target.{each}" for each in wrong)
        if not (action.set or action.stamp or action.field):
            yield f"{path}: it does nothing"
        if action.field and action.target is not None:
            yield f"{path}.field: only a field of the instance itself can be asked for"
        if action.field and (
            action.field not in entry.parameters or entry.parameters[action.field].immutable
        ):
            yield f"{path}.field: there is no field {action.field!r} that can be changed"
        for place in (*action.when, *action.set, *([action.stamp] if action.stamp else [])):
            if not place.startswith(("/spec/", "/metadata/annotations/", "/metadata/labels/")):
                yield f"{path}: {place!r} is not below /spec, /metadata/annotations or /metadata/labels"


def _lint_plans(entry: Entry) -> Iterator[str]:
    plans = entry.spec.plans
    if plans and sum(plan.default for plan in plans) != 1:
        yield "spec.plans: one of them must be the default"
    for name, count in Counter(plan.name for plan in plans).items():
        if count > 1:
            yield f"spec.plans: {name!r} is there twice"
    required = set(entry.spec.parameters.required)
    for number, plan in enumerate(plans):
        for problem in check_values(entry, plan.values):
            if problem.field in plan.values or problem.field not in required:
                yield f"spec.plans[{number}].values.{problem.field}: {problem.message.en}"


def _lint_render(entry: Entry) -> Iterator[str]:
    manifest = entry.spec.render
    for key in sorted(manifest.keys() & {"apiVersion", "kind", "status"}):
        yield f"spec.render.{key}: comes from spec.target"
    for name, parameter in entry.parameters.items():
        try:
            manifest = pointer.put(manifest, parameter.bind, _sample(parameter))
        except ValueError as error:
            yield f"spec.parameters.properties.{name}.x-bind: {error}"


def _sample(parameter: Parameter) -> Any:
    return {} if parameter.type == "object" else parameter.default


def lint_schema(entry: Entry, definition: dict[str, Any]) -> list[str]:
    """What in an entry does not fit the CustomResourceDefinition of its kind."""
    schema, problems = _schema_of(entry.spec.target, definition, "spec.target")
    if schema is None:
        return problems
    problems += _form_problems(schema, entry.parameters, "spec.parameters.properties")
    problems += _leaf_problems(schema, entry.spec.render, "spec.render")
    for one in entry.spec.collections:
        restored = list(one.restore.set) if one.restore is not None else []
        problems += [
            f"spec.collections.{one.name}.restore.set: the kind has no {pointer.shown(place)}"
            for place in restored
            if _schema_at(schema, pointer.parts(place)) is None
        ]
    return problems


def lint_collection(one: Collection, definition: dict[str, Any]) -> list[str]:
    """What in a collection does not fit the CustomResourceDefinition of its kind; its status may say anything."""
    path = f"spec.collections.{one.name}"
    schema, problems = _schema_of(one.target, definition, f"{path}.target")
    if schema is None:
        return problems
    paths = (column.path for column in one.columns)
    shown = [one.of, *one.where, *(at for at in paths if not at.startswith(("/status/", "/metadata/")))]
    problems += [
        f"{path}: the kind has no {pointer.shown(place)}"
        for place in shown
        if _schema_at(schema, pointer.parts(place)) is None
    ]
    if one.create is not None:
        problems += _form_problems(schema, one.create.parameters.properties, f"{path}.create.parameters")
        problems += _leaf_problems(schema, one.create.render, f"{path}.create.render")
    return problems


def _schema_of(
    target: Target, definition: dict[str, Any], path: str
) -> tuple[dict[str, Any] | None, list[str]]:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    if (spec.get("group"), names.get("kind"), names.get("plural")) != (
        target.group,
        target.kind,
        target.plural,
    ):
        return None, [f"{path}: {target.kind} ({target.group}) is not what the definition defines"]
    versions = {version.get("name"): version for version in spec.get("versions") or ()}
    if target.version not in versions:
        return None, [f"{path}.version: there is no {target.version!r}, but {', '.join(map(str, versions))}"]
    return (versions[target.version].get("schema") or {}).get("openAPIV3Schema") or {}, []


def _form_problems(schema: dict[str, Any], parameters: Mapping[str, Parameter], path: str) -> Iterator[str]:
    for name, parameter in parameters.items():
        if parameter.bind.startswith("/metadata/"):
            continue
        found, bound = _schema_at(schema, pointer.parts(parameter.bind)), pointer.shown(parameter.bind)
        if found is None:
            yield f"{path}.{name}.x-bind: the kind has no {bound}"
        elif (kind := found.get("type")) not in (None, parameter.type) and not (
            kind == "number" and parameter.type == "integer"
        ):
            yield f"{path}.{name}.x-bind: {bound} is of type {kind}, the field of type {parameter.type}"


def _leaf_problems(schema: dict[str, Any], manifest: dict[str, Any], path: str) -> Iterator[str]:
    for leaf in _leaves(manifest):
        if not leaf.startswith("/metadata") and _schema_at(schema, pointer.parts(leaf)) is None:
            yield f"{path}: the kind has no {pointer.shown(leaf)}"


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{path}/{pointer.escape(str(key))}")
    elif isinstance(value, list) and value:
        for index, below in enumerate(value):
            yield from _leaves(below, f"{path}/{index}")
    elif path:
        yield path


def _schema_at(schema: dict[str, Any], steps: tuple[str, ...]) -> dict[str, Any] | None:
    for step in steps:
        below: Any
        if schema.get("type") == "array":
            below = schema.get("items")
        elif step in (schema.get("properties") or {}):
            below = schema["properties"][step]
        else:
            below = schema.get("additionalProperties")
            if below is True:
                return {}
        if not isinstance(below, dict):
            # An object without a single declared property takes anything.
            free = schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties")
            return {} if free else None
        schema = below
    if schema.get("x-kubernetes-int-or-string"):
        return {}
    return schema
