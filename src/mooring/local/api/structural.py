"""Which schemas a CustomResourceDefinition may have: the rules of structural schemas.

A schema is structural when the type of every value can be told without looking at the value, so that
the server can prune, default and merge by it. Texts are those of k8s.io/apiextensions-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from mooring.local.api import constraints, patterns, schema
from mooring.local.api.fields import FieldError, forbidden, invalid, not_supported, required

__all__ = ["check_schema"]

Json = Any
JsonObject = dict[str, Any]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_META: Final = ("metadata", "kind", "apiVersion")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_STR: Final = "x-kubernetes-int-or-string"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_RULES: Final = "x-kubernetes-validations"

_ROOT_FIELDS: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength "
    "Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example "
    "XPreserveUnknownFields XValidations"
)
_WITH_STATUS: Final = "at the root of the schema if the status subresource is enabled"
_AT_ROOT: Final = frozenset(
    (*(name[0].lower() + name[1:] for name in _ROOT_FIELDS.split()), _PRESERVE, _RULES)
)  # fmt: skip


def check_schema(source: JsonObject, path: str, *, status: bool) -> list[FieldError]:
    """Return why the schema of a CRD version is refused, CEL rules aside.

    `status` tells that the version has the status subresource.
    """
    errors = list(_root(source, path, status=status))
    structural = [*_invariants(source, "root", path), *_completeness(source, path)]
    errors += sorted(structural, key=str)
    if not structural:
        errors += _defaults(source, path, _Inside())
    errors += _standard(source, path, _Inside(root=True))
    return errors


def _root(source: JsonObject, path: str, *, status: bool) -> Iterator[FieldError]:
    if status:
        if source.get("type") not in (None, "object"):
            text = f'only "object" is allowed as the type {_WITH_STATUS}'
            yield invalid(f"{path}.type", source["type"], text)
        elif any(value not in (None, False, [], {}) and key not in _AT_ROOT for key, value in source.items()):
            text = f"only [{_ROOT_FIELDS}] fields are allowed {_WITH_STATUS}"
            yield invalid(path, source, text)
    if source.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


# --- structure ----------------------------------------------------------------------------------------


def _key(path: str, name: str) -> str:
    return f"{path}.properties[{name}]"


def _invariants(source: JsonObject, level: str, path: str) -> Iterator[FieldError]:
    kind = source.get("type", "")
    properties = source.get("properties") or {}
    items = source.get("items")
    additional = source.get("additionalProperties")
    if kind == "array" and not isinstance(items, dict):
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        yield from _invariants(items, "item", f"{path}.items")
    for name, child in properties.items():
        yield from _invariants(child, "field", _key(path, name))
    if additional is not None:
        if level == "root":
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(additional, dict):
            yield from _invariants(additional, "field", f"{path}.additionalProperties")
    yield from _exclusive(source, path)
    yield from _validations(source, path, skip=_skipped(source))
    yield from _typed(source, level, path)
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if level == "root" or source.get(_EMBEDDED):
        yield from _meta(source, level, path)
    if source.get(_EMBEDDED) and not source.get(_PRESERVE) and not properties:
        text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        yield required(f"{path}.properties", text)


def _exclusive(source: JsonObject, path: str) -> Iterator[FieldError]:
    if source.get(_INT_STR):
        for mark in (_PRESERVE, _EMBEDDED):
            if source.get(mark):
                yield invalid(f"{path}.{mark}", True, f"must be false if {_INT_STR} is true")


def _typed(source: JsonObject, level: str, path: str) -> Iterator[FieldError]:
    kind = source.get("type", "")
    if source.get(_EMBEDDED) and kind != "object":
        text = f"must be object if {_EMBEDDED} is true"
        yield required(f"{path}.type", text) if not kind else invalid(f"{path}.type", kind, text)
    elif not kind and not source.get(_INT_STR) and not source.get(_PRESERVE):
        where = {
            "root": "at the root",
            "item": "for specified array items",
            "field": "for specified object fields",
        }
        yield required(f"{path}.type", f"must not be empty {where[level]}")
    if source.get(_EMBEDDED) and source.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", f"must not be used if {_EMBEDDED} is set")


def _meta(source: JsonObject, level: str, path: str) -> Iterator[FieldError]:
    properties = source.get("properties") or {}
    for name in ("kind", "apiVersion"):
        if name in properties and properties[name].get("type") != "string":
            yield invalid(f"{_key(path, name)}.type", properties[name].get("type", ""), "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    if metadata.get("type") != "object":
        yield invalid(f"{_key(path, 'metadata')}.type", metadata.get("type", ""), "must be object")
    known = {"type", "description", "title", "default"}
    inner = set(metadata.get("properties") or {})
    if level == "root" and (set(metadata) - known - {"properties"} or inner - {"name", "generateName"}):
        text = (
            "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )
        yield forbidden(_key(path, "metadata"), text)


def _skipped(source: JsonObject) -> str:
    """Return which junctor spells int-or-string, and so may name types."""
    if source.get("anyOf") == _INT_OR_STRING:
        return "anyOf"
    first = (source.get("allOf") or [{}])[0]
    return "allOf" if first.get("anyOf") == _INT_OR_STRING else ""


def _validations(source: JsonObject, path: str, *, skip: str = "") -> Iterator[FieldError]:
    for junctor in _JUNCTORS:
        if junctor == skip == "anyOf":
            continue
        for index, part in enumerate(source.get(junctor) or ()):
            inner = "anyOf" if junctor == skip == "allOf" and index == 0 else ""
            yield from _nested(part, f"{path}.{junctor}[{index}]", skip=inner)
    if isinstance(source.get("not"), dict):
        yield from _nested(source["not"], f"{path}.not")
    if (pattern := source.get("pattern")) and (wrong := patterns.check(pattern)):
        text = f"must be a valid regular expression, but isn't: error parsing regexp: {wrong}"
        yield invalid(f"{path}.pattern", pattern, text)


_EMPTY: Final = {
    "type": "empty",
    "title": "empty",
    "description": "empty",
    _LIST_KEYS: "empty",
    _RULES: "empty",
}
_FALSE: Final = ("nullable", _PRESERVE, _EMBEDDED, _INT_STR)
_UNDEFINED: Final = ("additionalProperties", "default", _LIST_TYPE, _MAP_TYPE)


def _nested(source: JsonObject, path: str, *, skip: str = "") -> Iterator[FieldError]:
    """Judge a schema below allOf, anyOf, oneOf or not: it may restrict values, not give structure."""
    yield from _validations(source, path, skip=skip)
    if isinstance(source.get("items"), dict):
        yield from _nested(source["items"], f"{path}.items")
    for name, child in (source.get("properties") or {}).items():
        yield from _nested(child, _key(path, name))
    for key in _EMPTY:
        if source.get(key):
            yield forbidden(f"{path}.{key}", "must be empty to be structural")
    for key in _FALSE:
        if source.get(key):
            yield forbidden(f"{path}.{key}", "must be false to be structural")
    for key in _UNDEFINED:
        if source.get(key) is not None:
            yield forbidden(f"{path}.{key}", "must be undefined to be structural")
    if "metadata" in (source.get("properties") or {}):
        yield forbidden(_key(path, "metadata"), "must not be specified in a nested context")


def _completeness(source: JsonObject, path: str) -> Iterator[FieldError]:
    """What a junctor restricts must be there in the structure, too."""
    yield from _complete(source, source, path, path)


def _complete(values: JsonObject, structure: JsonObject, path: str, place: str) -> Iterator[FieldError]:
    parts = [(f"{place}.{j}[{i}]", part) for j in _JUNCTORS for i, part in enumerate(values.get(j) or ())]
    if isinstance(values.get("not"), dict):
        parts.append((f"{place}.not", values["not"]))
    for inner, part in parts:
        yield from _complete_nested(part, structure, path, inner)


def _complete_nested(
    values: JsonObject, structure: JsonObject, path: str, place: str
) -> Iterator[FieldError]:
    yield from _complete(values, structure, path, place)
    if isinstance(values.get("items"), dict):
        if not isinstance(structure.get("items"), dict):
            yield required(f"{path}.items", f"because it is defined in {place}.items")
        else:
            yield from _complete_nested(
                values["items"], structure["items"], f"{path}.items", f"{place}.items"
            )
    for name, child in (values.get("properties") or {}).items():
        known = (structure.get("properties") or {}).get(name)
        if known is None:
            yield required(_key(path, name), f"because it is defined in {_key(place, name)}")
        else:
            yield from _complete_nested(child, known, _key(path, name), _key(place, name))


# --- defaults -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Inside:
    """Where in a schema a node stands."""

    root: bool = False
    meta: bool = False
    no_default: str = ""


def _defaults(source: JsonObject, path: str, inside: _Inside) -> Iterator[FieldError]:
    """Yield defaults that their own schema would prune or refuse."""
    if source.get("default") is not None and not inside.meta:
        yield from _default(source, f"{path}.default")
    if isinstance(source.get("items"), dict):
        yield from _defaults(source["items"], f"{path}.items", inside)
    if isinstance(source.get("additionalProperties"), dict):
        yield from _defaults(source["additionalProperties"], f"{path}.additionalProperties", inside)
    for name, child in (source.get("properties") or {}).items():
        meta = inside.meta or (name in _META and (inside.root or bool(source.get(_EMBEDDED))))
        yield from _defaults(child, _key(path, name), replace(inside, meta=meta, root=False))


def _default(source: JsonObject, path: str) -> Iterator[FieldError]:
    bare = {key: value for key, value in source.items() if key != "default"}
    compiled = schema.compile_node(bare)
    value = source["default"]
    if not constraints.same(schema.prune(value, compiled), value):
        yield invalid(path, value, "must not have unknown fields")
    for error in constraints.validate(value, compiled):
        place = f"{path}.{error.field}" if error.field not in ("", constraints.NO_PATH) else path
        yield replace(error, field=place)


# --- what JSON schema may be used ---------------------------------------------------------------------

_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


def _standard(source: JsonObject, path: str, inside: _Inside) -> Iterator[FieldError]:
    yield from _keywords(source, path, inside)
    additional = source.get("additionalProperties")
    properties = source.get("properties") or {}
    if additional is not None and properties and additional is not True:
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", text)
    below = replace(inside, root=False)
    if isinstance(additional, dict):
        reason = "inside additionalProperties applying to object metadata"
        inner = replace(below, no_default=reason) if inside.meta else below
        yield from _standard(additional, f"{path}.additionalProperties", inner)
    for name, child in properties.items():
        inner = below
        if (inside.root or source.get(_EMBEDDED)) and name in _META:
            inner = replace(
                below, meta=True, no_default=f"in top-level {name}" if inside.root else below.no_default
            )
        yield from _standard(child, _key(path, name), inner)
    if isinstance(source.get("not"), dict):
        yield from _standard(source["not"], f"{path}.not", below)
    for junctor in _JUNCTORS:
        for index, part in enumerate(source.get(junctor) or ()):
            yield from _standard(part, f"{path}.{junctor}[{index}]", below)
    if isinstance(source.get("items"), dict):
        yield from _standard(source["items"], f"{path}.items", below)
    yield from _marks(source, path)
    yield from _list_marks(source, path)
    yield from _rules(source, path)


def _keywords(source: JsonObject, path: str, inside: _Inside) -> Iterator[FieldError]:
    kind = source.get("type")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if source.get("default") is not None and inside.no_default:
        yield forbidden(f"{path}.default", f"must not be set {inside.no_default}")
    for key in _UNSUPPORTED:
        if source.get(key):
            yield forbidden(f"{path}.{key}", f"{key} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(source.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if inside.meta and source.get(_EMBEDDED):
        yield forbidden(f"{path}.{_EMBEDDED}", "must not be used inside of resource meta")
    if source.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", text)


def _marks(source: JsonObject, path: str) -> Iterator[FieldError]:
    kind = source.get("type", "")
    if source.get(_PRESERVE) is False:
        yield invalid(f"{path}.{_PRESERVE}", False, "must be true or undefined")
    map_type = source.get(_MAP_TYPE)
    if map_type is not None:
        if kind != "object":
            text = f"must be object if {_MAP_TYPE} is specified"
            yield invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
        if map_type not in ("atomic", "granular"):
            yield not_supported(f"{path}.{_MAP_TYPE}", map_type, ("atomic", "granular"))
    list_type = source.get(_LIST_TYPE)
    if list_type is not None:
        if kind != "array":
            text = f"must be array if {_LIST_TYPE} is specified"
            yield invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
        elif list_type == "set":
            yield from _set_items(source.get("items") or {}, f"{path}.items")
        if list_type not in ("atomic", "set", "map"):
            yield not_supported(f"{path}.{_LIST_TYPE}", list_type, ("atomic", "set", "map"))


def _set_items(items: JsonObject, path: str) -> Iterator[FieldError]:
    text = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    if items.get("type") == "array" and items.get(_LIST_TYPE) not in (None, "atomic"):
        yield invalid(f"{path}.{_LIST_TYPE}", items[_LIST_TYPE], text)
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield invalid(f"{path}.{_MAP_TYPE}", items.get(_LIST_TYPE), text)


def _list_marks(source: JsonObject, path: str) -> Iterator[FieldError]:
    keys, list_type, items = source.get(_LIST_KEYS) or [], source.get(_LIST_TYPE), source.get("items")
    if keys and list_type != "map":
        text = f"must be map if {_LIST_KEYS} is non-empty"
        place = f"{path}.{_LIST_TYPE}"
        yield required(place, text) if list_type is None else invalid(place, list_type, text)
    if list_type == "map":
        if not keys:
            yield required(f"{path}.{_LIST_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
        if items is None:
            yield required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
        elif isinstance(items, dict) and items.get("type") != "object":
            text = f"must be object if parent array's {_LIST_TYPE} is map"
            yield invalid(f"{path}.items.type", items.get("type", ""), text)
        elif isinstance(items, dict):
            yield from _key_types(keys, items, path)
    if isinstance(items, dict) and list_type in ("set", "map"):
        if items.get("nullable"):
            yield forbidden(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {list_type}")
        if list_type == "map":
            yield from _key_values(keys, items, path)


def _key_types(keys: list[str], items: JsonObject, path: str) -> Iterator[FieldError]:
    for index, key in enumerate(keys):
        known = (items.get("properties") or {}).get(key)
        if known is None:
            yield invalid(f"{path}.{_LIST_KEYS}", keys, "entries must all be names of item properties")
        elif known.get("type") in ("array", "object"):
            text = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield invalid(f"{_key(path + '.items', key)}.type", items.get("type"), text)
        if key in keys[:index]:
            yield invalid(f"{path}.{_LIST_KEYS}", keys, "must not contain duplicate entries")


def _key_values(keys: list[str], items: JsonObject, path: str) -> Iterator[FieldError]:
    for key in keys:
        known = (items.get("properties") or {}).get(key)
        if known is None:
            continue
        place = _key(f"{path}.items", key)
        if key not in (items.get("required") or ()) and known.get("default") is None:
            text = f"this property is in {_LIST_KEYS}, so it must have a default or be a required property"
            yield required(f"{place}.default", text)
        if known.get("nullable"):
            yield forbidden(
                f"{place}.nullable", f"this property is in {_LIST_KEYS}, so it cannot be nullable"
            )


_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def _rules(source: JsonObject, path: str) -> Iterator[FieldError]:
    """Judge the form of CEL rules; `cel.compile_rules` judges the expressions."""
    for index, rule in enumerate(source.get(_RULES) or ()):
        place = f"{path}.{_RULES}[{index}]"
        expression = (rule.get("rule") or "").strip()
        message = rule.get("message") or ""
        if not expression:
            yield required(f"{place}.rule", "rule is not specified")
        elif message and not message.strip():
            yield invalid(f"{place}.message", message, "must be non-empty if specified")
        elif re.search(r"[\n\r]", message.strip()):
            yield invalid(f"{place}.message", message, "must not contain line breaks")
        elif re.search(r"[\n\r]", expression) and not message.strip():
            yield required(f"{place}.message", "message must be specified if rule contains line breaks")
        if rule.get("messageExpression") and not rule["messageExpression"].strip():
            yield required(f"{place}.messageExpression", "messageExpression must be non-empty if specified")
        if rule.get("reason") is not None and rule["reason"] not in _REASONS:
            yield not_supported(f"{place}.reason", rule["reason"], _REASONS)
        field = rule.get("fieldPath") or ""
        if field and not field.strip():
            yield invalid(f"{place}.fieldPath", field, "must be non-empty if specified")
        if re.search(r"[\n\r]", field):
            yield invalid(f"{place}.fieldPath", field, "must not contain line breaks")
        elif field and not _leads_somewhere(field, source):
            yield invalid(f"{place}.fieldPath", field, "must be a valid path")


def _leads_somewhere(path: str, source: JsonObject) -> bool:
    """Tell whether a simple path (`.spec.ports`, `.labels['a.b']`) leads to a known field."""
    rest, node = path, source
    while rest:
        found = re.match(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['((?:[^'\\]|\\.)+)'\]", rest)
        if found is None:
            return False
        name = found[1] or found[2]
        child = (node.get("properties") or {}).get(name)
        if child is None and isinstance(node.get("additionalProperties"), dict):
            child = node["additionalProperties"]
        if child is None:
            return False
        node, rest = child, rest[found.end() :]
    return True
