"""What the API server would refuse of a definition, found when it is rendered, with the path of the field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.runtime.crd_markers import Crd, SchemaError

__all__ = ["check_defaults", "check_names", "check_node", "check_paths", "check_rules", "join"]

JsonSchema = Mapping[str, Any]


def join(path: str, name: str) -> str:
    """The path of a field below another."""
    return f"{path}.{name}" if path else name


def check_node(schema: JsonSchema, path: str) -> None:
    """A list type stands on a list, and its keys are fields that are never absent."""
    list_type = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if list_type and schema.get("type") != "array":
        raise SchemaError(f"{path}: list_type on something that is not a list")
    if list_type == "set" and "properties" in schema["items"]:
        raise SchemaError(
            f"{path}: list_type='set' needs plain items; use 'map' with list_map_keys for objects"
        )
    if list_type == "map":
        items = schema["items"]
        if not keys:
            raise SchemaError(f"{path}: list_type='map' needs list_map_keys")
        for key in keys:
            prop = items.get("properties", {}).get(key)
            if prop is None:
                raise SchemaError(f"{path}: list map key {key!r} is not a field of the items")
            if key not in items.get("required", ()) and "default" not in prop:
                raise SchemaError(f"{path}: list map key {key!r} must be required or have a default")


# --- CEL: names and bounds ---------------------------------------------------------------------------------

_SELF_PATH: Final = re.compile(r"\b(?:self|oldSelf)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)(\s*\()?")
_STRING_LITERAL: Final = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")


def check_rules(schema: JsonSchema, path: str, *, unbounded: str = "") -> None:
    """Every rule names known, bounded fields, and stands below bounded lists and maps only."""
    cel = schema.get("x-kubernetes-validations", ())
    if cel and unbounded:
        raise SchemaError(
            f"{path}: has a CEL rule but {unbounded} is unbounded; give it max_items/max_properties"
        )
    for rule in cel:
        _check_rule(rule["rule"], schema, path)
        if message := rule.get("messageExpression"):
            _check_message(message, schema, path)
    for name, prop in schema.get("properties", {}).items():
        check_rules(prop, join(path, name), unbounded=unbounded)
    if isinstance(items := schema.get("items"), dict):
        check_rules(items, path + "[]", unbounded=unbounded or ("" if "maxItems" in schema else path))
    if isinstance(values := schema.get("additionalProperties"), dict):
        check_rules(values, path + "[]", unbounded=unbounded or ("" if "maxProperties" in schema else path))


def _check_rule(rule: str, schema: JsonSchema, path: str) -> None:
    if not any(name in rule for name in ("self", "oldSelf")):
        raise SchemaError(f"{path}: the CEL rule {rule!r} does not look at self")
    _check_names(rule, schema, path)


def _check_message(expression: str, schema: JsonSchema, path: str) -> None:
    if "string(" in _STRING_LITERAL.sub("''", expression):
        # Kubernetes 1.36 answers "estimated messageExpression cost exceeds budget by factor of more than 100x".
        raise SchemaError(
            f"{path}: the message expression {expression!r}: string() has no known length, so its cost has no "
            "limit and the server refuses it; name the field in a plain message"
        )
    _check_names(expression, schema, path)


def _check_names(rule: str, schema: JsonSchema, path: str) -> None:
    """The fields that an expression names are there, and bounded."""
    if re.search(r"\bself\b(?!\.)", rule):
        _check_bounded(schema, path, rule)
    for match in _SELF_PATH.finditer(_STRING_LITERAL.sub("''", rule)):
        names = match.group(1)[1:].split(".")
        if match.group(2):
            names = names[:-1]  # the last name is a function call: self.items.all(...)
        _check_path(schema, names, path, rule)


def _check_path(schema: JsonSchema, names: Sequence[str], path: str, rule: str) -> None:
    node = schema
    for depth, name in enumerate(names):
        if path == "" and depth == 0 and name == "metadata":
            return  # metadata.name and generateName are always there and bounded
        properties = node.get("properties")
        if properties is None:
            break
        found = properties.get(name) or properties.get(_cel_unescape(name))
        if found is None:
            known = ", ".join(properties)
            raise SchemaError(f"{path or 'object'}: the CEL rule {rule!r} names {name!r}, known are: {known}")
        node = found
        path = join(path, name)
    if len(names) > 0:
        _check_bounded(node, path, rule)


def _check_bounded(node: JsonSchema, path: str, rule: str) -> None:
    kind = node.get("type")
    if "enum" in node or node.get("format") in _BOUNDED_FORMATS:
        return
    limit = {"array": "maxItems", "string": "maxLength"}.get(str(kind))
    if kind == "object" and "additionalProperties" in node:
        limit = "maxProperties"
    if limit and limit not in node:
        raise SchemaError(
            f"{path}: the CEL rule {rule!r} reads it, so it needs {limit} "
            "(the server's cost limit counts the worst case)"
        )


_BOUNDED_FORMATS: Final = frozenset({"date", "date-time", "duration", "ipv4", "ipv6", "uuid"})


def _cel_unescape(name: str) -> str:
    for escaped, plain in (
        ("__dash__", "-"),
        ("__dot__", "."),
        ("__slash__", "/"),
        ("__underscores__", "__"),
    ):
        name = name.replace(escaped, plain)
    return name.removeprefix("__").removesuffix("__") if name.startswith("__") else name


# --- defaults ----------------------------------------------------------------------------------------------


def check_defaults(schema: JsonSchema, path: str) -> None:
    """Every default fits its own schema: the server refuses the definition otherwise."""
    if "default" in schema and (trouble := next(_misfits(schema["default"], schema, path), "")):
        raise SchemaError(f"{trouble}; the default must fit the schema")
    for name, below in schema.get("properties", {}).items():
        check_defaults(below, join(path, name))
    for name in ("items", "additionalProperties"):
        if isinstance(below := schema.get(name), dict):
            check_defaults(below, path + "[]")


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _misfits(value: Any, schema: JsonSchema, path: str) -> Iterator[str]:
    """What is wrong with a value, each with its path."""
    if value is None:
        if not schema.get("nullable"):
            yield f"{path}: the default is null and the field is not nullable"
        return
    kinds = _TYPES.get(str(schema.get("type")))
    if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        yield f"{path}: the default {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: the default {value!r} is not one of {', '.join(map(str, schema['enum']))}"
    yield from _out_of_bounds(value, schema, path)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _misfits(item, schema.get("items", {}), f"{path}[{number}]")
    elif isinstance(value, dict):
        yield from _misfitting_fields(value, schema, path)


#: What bounds a value, and how it is measured.
_BOUNDS: Final[Sequence[tuple[tuple[type, ...], str, str, Callable[[Any], float]]]] = (
    ((int, float), "minimum", "maximum", lambda value: value),
    ((str,), "minLength", "maxLength", len),
    ((list,), "minItems", "maxItems", len),
    ((dict,), "minProperties", "maxProperties", len),
)


def _out_of_bounds(value: Any, schema: JsonSchema, path: str) -> Iterator[str]:
    for kinds, least, most, measure in _BOUNDS:
        if isinstance(value, kinds) and not isinstance(value, bool):
            size = measure(value)
            if size < schema.get(least, size) or size > schema.get(most, size):
                yield f"{path}: the default {value!r} is out of bounds ({least}, {most})"
    pattern = schema.get("pattern")
    if isinstance(value, str) and pattern and not re.search(pattern, value):
        yield f"{path}: the default {value!r} does not match {pattern}"


def _misfitting_fields(value: Mapping[str, Any], schema: JsonSchema, path: str) -> Iterator[str]:
    known, free = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value and "default" not in known.get(name, {}):
            yield f"{path}: the default lacks {name}, which is required"
    for name, below in value.items():
        if name in known:
            yield from _misfits(below, known[name], join(path, name))
        elif isinstance(free, dict):
            yield from _misfits(below, free, f"{path}[{name}]")
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and "type" in schema:
            yield f"{path}: the default has {name}, which is no field and would be pruned"


# --- names and paths ---------------------------------------------------------------------------------------

_LABEL: Final = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
_VERSION: Final = re.compile(r"^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$")


def check_names(group: str, version: str, plural: str, definition: Crd) -> None:
    """Names are what the server takes, and versions order as people expect them to."""
    names = (plural, definition.singular, *definition.short_names, *definition.categories)
    for name in names:
        if not _LABEL.match(name):
            raise SchemaError(f"{plural}.{group}: {name!r} is no name; use lower-case letters, digits and -")
    if not _VERSION.match(version):
        raise SchemaError(f"{plural}.{group}: {version!r} is no version; write v1, v1beta2, v2alpha1")
    approval = "api-approved.kubernetes.io"
    if group.endswith((".k8s.io", ".kubernetes.io")) and approval not in definition.annotations:
        raise SchemaError(
            f"{plural}.{group}: the group belongs to Kubernetes; use your own, or annotate {approval}"
        )


def check_paths(schema: JsonSchema, definition: Crd) -> None:
    """Columns, scale and selectable fields name fields that exist, of a type that makes sense there."""
    for column in definition.columns:
        _field_at(schema, column.json_path, f"column {column.name}")
    if (scale := definition.scale) is not None:
        for path, under in ((scale.spec_path, ".spec."), (scale.status_path, ".status.")):
            if not path.startswith(under):
                raise SchemaError(f"scale: {path} must be under {under[:-1]}")
            _of_type(_field_at(schema, path, "scale"), ("integer",), path, "scale")
        if scale.selector_path:
            found = _field_at(schema, scale.selector_path, "scale")
            _of_type(found, ("string",), scale.selector_path, "scale")
    for path in definition.selectable_fields:
        found = _field_at(schema, path, "selectable field")
        _of_type(found, ("string", "integer", "boolean"), path, "selectable field")


def _of_type(node: JsonSchema | None, kinds: Sequence[str], path: str, what: str) -> None:
    if node is not None and node.get("type") not in kinds:
        raise SchemaError(f"{what}: {path} is {node.get('type')}, it must be {' or '.join(kinds)}")


_SEGMENT: Final = re.compile(r"\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\[[^\]]*\]")


def _field_at(schema: JsonSchema, path: str, what: str) -> JsonSchema | None:
    """The schema at a JSON path; ``None`` where it cannot be known (metadata, free-form objects)."""
    node, at, end = schema, "", 0
    for match in _SEGMENT.finditer(path):
        if match.start() != end:
            break
        end = match.end()
        name = match["name"]
        if name is None:
            inner = node.get("items") or node.get("additionalProperties")
        elif (at, name) == ("", "metadata"):
            return None
        else:
            inner = node.get("properties", {}).get(name) or node.get("additionalProperties")
        if not isinstance(inner, dict):
            if "properties" not in node and name is not None:
                return None
            known = ", ".join(node.get("properties", ())) or "nothing below"
            raise SchemaError(
                f"{what}: {path}: {at or 'the object'} has no {name or 'items'}, known are: {known}"
            )
        node, at = inner, path[:end]
    if end != len(path):
        raise SchemaError(f"{what}: {path!r} is no JSON path; write .spec.size")
    return node
