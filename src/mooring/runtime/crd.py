"""CustomResourceDefinitions from types: one source for what we decode, document, validate and install.

A kind is a msgspec Struct. What the *decoder* must accept stays in the Python type (wide, everything
optional); what a *user* may write is said by markers that the decoder ignores, so an object stored by a
newer or older version of the CRD never wedges an informer.

    @rules(Rule("self.min <= self.max", "min must not exceed max"))
    class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
        min: Annotated[int | None, F("Lower bound.", minimum=0, default=0)] = None
        max: Annotated[int | None, F("Upper bound.", required=True)] = None

    @crd(short_names=("wd",), columns=(PrinterColumn("Size", ".spec.size", type="integer"),))
    class Widget(Object):
        resource: ClassVar[Resource] = Resource(...)
        spec: WidgetSpec | None = None
        status: WidgetStatus | None = None

    render_crd(Widget)   # -> dict, ready for to_yaml() or a server-side apply

Guarantees: the schema is structural (a type everywhere, no ``$ref``); a CEL rule names only fields that
exist, and every list, map and string it names is bounded, so that the server's cost estimate stays finite;
a mistake raises `SchemaError` with the path of the field at render time, not at install time.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast, get_args, get_origin

import msgspec
import yaml

if TYPE_CHECKING:
    from mooring.kube.object import Object, Resource

__all__ = [
    "Crd",
    "F",
    "PrinterColumn",
    "Rule",
    "Scale",
    "SchemaError",
    "UnknownField",
    "at_most_one_of",
    "check_crds",
    "crd",
    "crd_of",
    "defaulted",
    "exactly_one_of",
    "immutable",
    "render_crd",
    "render_schema",
    "rules",
    "to_yaml",
    "unknown_fields",
    "write_crds",
]

T = TypeVar("T")
S = TypeVar("S", bound=type)

_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY_PATTERN: Final = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
"""What a Kubernetes quantity looks like; the same pattern controller-gen writes."""

_NO_DEFAULT: Final[Any] = object()


class SchemaError(Exception):
    """A type or marker cannot become a CRD; the message names the field and the remedy."""


Reason = Literal["", "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


@dataclass(frozen=True)
class Rule:
    """One CEL validation (``x-kubernetes-validations``); ``self`` is the value it stands on."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: Literal[
        "", "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"
    ] = ""
    field_path: str = ""
    optional_old_self: bool = False

    def render(self) -> dict[str, Any]:
        """The rule as the API server reads it."""
        pairs = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
            "fieldPath": self.field_path,
            "optionalOldSelf": self.optional_old_self,
        }
        return {name: value for name, value in pairs.items() if value}


def immutable(message: str = "the field cannot be changed after creation") -> Rule:
    """The value may be set once; a change (not an addition) is refused."""
    return Rule("self == oldSelf", message, reason="FieldValueForbidden")


def exactly_one_of(*names: str, message: str = "") -> Rule:
    """Exactly one of the named fields (JSON names) of this object is set."""
    return Rule(_count(names) + " == 1", message or f"exactly one of {', '.join(names)} must be set")


def at_most_one_of(*names: str, message: str = "") -> Rule:
    """At most one of the named fields (JSON names) of this object is set."""
    return Rule(_count(names) + " <= 1", message or f"at most one of {', '.join(names)} may be set")


def _count(names: Sequence[str]) -> str:
    return "[" + ", ".join(f"has(self.{name})" for name in names) + "].filter(x, x).size()"


@dataclass(frozen=True, init=False)
class F:
    """Marker on a field (or on a list item, or a map value): documentation and constraints for the CRD.

    Put it in ``Annotated``: ``size: Annotated[int | None, F("Number of pods.", minimum=3)] = None``. The
    decoder ignores it. ``default`` is the JSON value the server fills in (the Python default stays ``None``,
    so that a falsy value can still be applied). ``required`` makes the server refuse the object without it.
    ``int_or_string``, ``preserve_unknown`` and ``embedded`` set the ``x-kubernetes-*`` extension of the same
    name; ``schema`` replaces the derived schema altogether (for types this walker cannot know).
    """

    doc: str = ""
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    enum: Sequence[Any] | None = None
    default: Any = _NO_DEFAULT
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    list_type: Literal["atomic", "set", "map"] | None = None
    list_map_keys: Sequence[str] = ()
    map_type: Literal["atomic", "granular"] | None = None
    required: bool = False
    nullable: bool = False
    int_or_string: bool = False
    preserve_unknown: bool = False
    embedded: bool = False
    rules: Sequence[Rule] = ()
    example: Any = None
    schema: Mapping[str, Any] | None = None

    def __init__(
        self,
        doc: str = "",
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        exclusive_minimum: bool = False,
        exclusive_maximum: bool = False,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        format: str | None = None,
        enum: Sequence[Any] | None = None,
        default: Any = _NO_DEFAULT,
        min_items: int | None = None,
        max_items: int | None = None,
        min_properties: int | None = None,
        max_properties: int | None = None,
        list_type: Literal["atomic", "set", "map"] | None = None,
        list_map_keys: Sequence[str] = (),
        map_type: Literal["atomic", "granular"] | None = None,
        required: bool = False,
        nullable: bool = False,
        int_or_string: bool = False,
        preserve_unknown: bool = False,
        embedded: bool = False,
        rules: Sequence[Rule] = (),
        example: Any = None,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        values = dict(locals())
        del values["self"]
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def has_default(self) -> bool:
        """Whether a default was given (it may be falsy)."""
        return self.default is not _NO_DEFAULT

    def apply_to(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The derived schema with this marker's constraints laid over it."""
        out: dict[str, Any] = dict(self.schema) if self.schema is not None else dict(schema)
        if self.int_or_string:
            out = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        for name, key in _PLAIN_KEYS:
            value = getattr(self, name)
            if value is not None and value is not False and value != "":
                out[key] = value
        if self.enum is not None:
            out["enum"] = list(self.enum)
        if self.has_default:
            out["default"] = self.default
        list_type = self.list_type or ("map" if self.list_map_keys else None)
        if list_type:
            out["x-kubernetes-list-type"] = list_type
        if self.list_map_keys:
            out["x-kubernetes-list-map-keys"] = list(self.list_map_keys)
        if self.embedded:
            out.setdefault("type", "object")
        if self.rules:
            out["x-kubernetes-validations"] = [
                *out.get("x-kubernetes-validations", ()),
                *(rule.render() for rule in self.rules),
            ]
        return out


_PLAIN_KEYS: Final = (
    ("doc", "description"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("exclusive_minimum", "exclusiveMinimum"),
    ("exclusive_maximum", "exclusiveMaximum"),
    ("multiple_of", "multipleOf"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("pattern", "pattern"),
    ("format", "format"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("min_properties", "minProperties"),
    ("max_properties", "maxProperties"),
    ("map_type", "x-kubernetes-map-type"),
    ("nullable", "nullable"),
    ("preserve_unknown", "x-kubernetes-preserve-unknown-fields"),
    ("embedded", "x-kubernetes-embedded-resource"),
    ("example", "example"),
)


@dataclass(frozen=True)
class PrinterColumn:
    """A column of ``kubectl get``; ``priority`` 0 is always shown, 1 only with ``-o wide``."""

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    description: str = ""
    format: str = ""
    priority: int = 0

    def render(self) -> dict[str, Any]:
        """The column as the API server reads it."""
        out: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.json_path}
        if self.description:
            out["description"] = self.description
        if self.format:
            out["format"] = self.format
        if self.priority:
            out["priority"] = self.priority
        return out


AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", type="date")


@dataclass(frozen=True)
class Scale:
    """The scale subresource: JSON paths of the wanted and the observed number, and of the label selector."""

    spec_path: str = ".spec.replicas"
    status_path: str = ".status.replicas"
    selector_path: str = ""

    def render(self) -> dict[str, Any]:
        """The subresource as the API server reads it."""
        out = {"specReplicasPath": self.spec_path, "statusReplicasPath": self.status_path}
        if self.selector_path:
            out["labelSelectorPath"] = self.selector_path
        return out


@dataclass(frozen=True)
class Crd:
    """What `crd` recorded about one version of a kind."""

    singular: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    columns: tuple[PrinterColumn, ...]
    status: bool
    scale: Scale | None
    served: bool
    storage: bool
    deprecated: bool | str
    selectable_fields: tuple[str, ...]
    preserve_unknown: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def crd(
    *,
    singular: str = "",
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    columns: Sequence[PrinterColumn] = (AGE,),
    status: bool = True,
    scale: Scale | None = None,
    rules: Sequence[Rule] = (),
    served: bool = True,
    storage: bool = True,
    deprecated: bool | str = False,
    selectable_fields: Sequence[str] = (),
    preserve_unknown: bool = False,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Callable[[S], S]:
    """Declare a kind (class decorator); group, version, plural and scope come from its ``resource``.

    ``singular`` defaults to the lower-cased kind. ``rules`` are CEL rules on the whole object (they may name
    ``self.metadata.name``). ``preserve_unknown`` is for taken-over groups: existing YAML with fields we do
    not know is kept on spec and on every typed object in it instead of being pruned. ``deprecated`` may be
    the warning that users of this version get. Of several versions exactly one has ``storage``.
    """

    def declare(kind: S) -> S:
        definition = Crd(
            singular=singular or cast(Any, kind).resource.kind.lower(),
            short_names=tuple(short_names),
            categories=tuple(categories),
            columns=tuple(columns),
            status=status,
            scale=scale,
            served=served,
            storage=storage,
            deprecated=deprecated,
            selectable_fields=tuple(selectable_fields),
            preserve_unknown=preserve_unknown,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
        )
        cast(Any, kind).__mooring_crd__ = definition
        return _with_rules(kind, rules)

    return declare


def rules(*cel: Rule) -> Callable[[S], S]:
    """CEL rules on every value of this Struct type (class decorator)."""
    return lambda kind: _with_rules(kind, cel)


def _with_rules(kind: S, cel: Sequence[Rule]) -> S:
    cast(Any, kind).__mooring_rules__ = (*_rules_of(kind), *cel)
    return kind


def _rules_of(kind: type) -> tuple[Rule, ...]:
    return cast("tuple[Rule, ...]", kind.__dict__.get("__mooring_rules__", ()))


def crd_of(kind: type) -> Crd:
    """The declaration of a kind; `SchemaError` when the class has no ``@crd``."""
    definition = kind.__dict__.get("__mooring_crd__")
    if not isinstance(definition, Crd):
        raise SchemaError(
            f"{kind.__name__}: not declared as a custom resource; decorate the class with @crd(...)"
        )
    return definition


# --- the schema walker -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Walker:
    """Turns annotations into structural schemas; ``seen`` guards against recursive types."""

    preserve_unknown: bool = False
    seen: tuple[type, ...] = ()

    def schema(self, annotation: Any, path: str) -> dict[str, Any]:
        base, markers = _unwrap(annotation)
        if any(marker.schema is not None or marker.int_or_string for marker in markers):
            out: dict[str, Any] = {}
        else:
            out = self._plain(base, path)
        for marker in markers:
            out = marker.apply_to(out)
        _check_node(out, path)
        return out

    def _plain(self, base: Any, path: str) -> dict[str, Any]:
        if base in _SCALARS:
            return dict(_SCALARS[base])
        if base is Any or base is object:
            return {"x-kubernetes-preserve-unknown-fields": True}
        if base is msgspec.Raw:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if isinstance(base, type) and issubclass(base, msgspec.Struct):
            return self._struct(base, path)
        origin = get_origin(base)
        if origin in (list, tuple, Sequence):
            return {"type": "array", "items": self.schema(get_args(base)[0], path + "[]")}
        if origin in (dict, Mapping):
            return self._map(get_args(base)[1], path)
        if origin is Literal:
            choices = list(get_args(base))
            return {**_SCALARS[type(choices[0])], "enum": choices}
        if origin in (typing.Union, types.UnionType):
            return _union(set(get_args(base)), path)
        if base in (list, tuple):
            return {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}
        if base is dict:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        raise SchemaError(f"{path}: no schema for {base!r}; use a plain type, a Struct, or F(schema=...)")

    def _map(self, value: Any, path: str) -> dict[str, Any]:
        if _unwrap(value)[0] in (Any, object):
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": self.schema(value, path + "[]")}

    def _struct(self, kind: type[msgspec.Struct], path: str) -> dict[str, Any]:
        if kind in self.seen:
            raise SchemaError(
                f"{path}: {kind.__name__} contains itself and a structural schema cannot recurse; "
                "mark the field F(schema={'type': 'object', 'x-kubernetes-preserve-unknown-fields': True})"
            )
        inner = _Walker(preserve_unknown=self.preserve_unknown, seen=(*self.seen, kind))
        out = inner.properties(kind, path)
        if self.preserve_unknown:
            out["x-kubernetes-preserve-unknown-fields"] = True
        return out

    def properties(self, kind: type[msgspec.Struct], path: str) -> dict[str, Any]:
        """An object schema of the Struct's fields, with its documentation and rules."""
        out: dict[str, Any] = {"type": "object"}
        if doc := _doc(kind):
            out["description"] = doc
        fields = msgspec.structs.fields(kind)
        required = [f.encode_name for f in fields if any(m.required for m in _unwrap(f.type)[1])]
        if required:
            out["required"] = required
        if cel := _rules_of(kind):
            out["x-kubernetes-validations"] = [rule.render() for rule in cel]
        out["properties"] = {f.encode_name: self.schema(f.type, _join(path, f.encode_name)) for f in fields}
        for name, keys in getattr(kind, "list_keys", {}).items():
            _associative(out["properties"].get(name), keys)
        return out


def _associative(schema: dict[str, Any] | None, keys: Sequence[str]) -> None:
    """Mark a list of a built-in type as keyed, as the API server knows it (env by name, ports by number)."""
    if schema is None or schema.get("type") != "array" or "x-kubernetes-list-type" in schema:
        return
    items = schema["items"]
    known = items.get("properties", {})
    if not all(key in known for key in keys):
        return
    for key in keys:
        if key == "protocol":
            known[key].setdefault("default", "TCP")  # the server's own default; a key must never be absent
        elif "default" not in known[key] and key not in items.get("required", ()):
            items.setdefault("required", []).append(key)
    schema["x-kubernetes-list-type"] = "map"
    schema["x-kubernetes-list-map-keys"] = list(keys)


_SCALARS: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    bytes: {"type": "string", "format": "byte"},
}


def _union(members: set[Any], path: str) -> dict[str, Any]:
    if members == {int, float}:
        return {"type": "number"}
    if str in members and members <= {str, int, float}:
        out: dict[str, Any] = {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
        }
        if float in members:
            out["pattern"] = QUANTITY_PATTERN
        return out
    raise SchemaError(f"{path}: no structural schema for the union {members}; use one type or F(schema=...)")


def _unwrap(annotation: Any) -> tuple[Any, list[F]]:
    """The type without ``Annotated`` and ``None``, and the markers found on the way, inner first."""
    markers: list[F] = []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            base, *extra = get_args(annotation)
            markers = [*(item for item in extra if isinstance(item, F)), *markers]
            annotation = base
        elif origin in (typing.Union, types.UnionType):
            members = [m for m in get_args(annotation) if m not in (type(None), msgspec.UnsetType)]
            if len(members) == len(get_args(annotation)):
                return annotation, markers
            annotation = members[0] if len(members) == 1 else typing.Union[tuple(members)]  # noqa: UP007
        else:
            return annotation, markers


def _doc(kind: type) -> str:
    text = kind.__dict__.get("__doc__") or ""
    if text.startswith("`io.k8s."):
        return ""  # a generated type: its name says nothing to a user
    return " ".join(text.strip().split("\n\n")[0].split())


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _check_node(schema: Mapping[str, Any], path: str) -> None:
    list_type = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if list_type and schema.get("type") != "array":
        raise SchemaError(f"{path}: list_type on something that is not a list")
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

_SELF_PATH: Final = re.compile(r"\bself((?:\.[A-Za-z_][A-Za-z0-9_]*)+)(\s*\()?")
_STRING_LITERAL: Final = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")


def _check_rules(schema: Mapping[str, Any], path: str, *, unbounded: str = "") -> None:
    """Every rule names known, bounded fields, and stands below bounded lists and maps only."""
    cel = schema.get("x-kubernetes-validations", ())
    if cel and unbounded:
        raise SchemaError(
            f"{path}: has a CEL rule but {unbounded} is unbounded; give it max_items/max_properties"
        )
    for rule in cel:
        _check_rule(rule["rule"], schema, path)
    for name, prop in schema.get("properties", {}).items():
        _check_rules(prop, _join(path, name), unbounded=unbounded)
    if isinstance(items := schema.get("items"), dict):
        _check_rules(items, path + "[]", unbounded=unbounded or ("" if "maxItems" in schema else path))
    if isinstance(values := schema.get("additionalProperties"), dict):
        _check_rules(values, path + "[]", unbounded=unbounded or ("" if "maxProperties" in schema else path))


def _check_rule(rule: str, schema: Mapping[str, Any], path: str) -> None:
    if not any(name in rule for name in ("self", "oldSelf")):
        raise SchemaError(f"{path}: the CEL rule {rule!r} does not look at self")
    if re.search(r"\bself\b(?!\.)", rule):
        _check_bounded(schema, path, rule)
    for match in _SELF_PATH.finditer(_STRING_LITERAL.sub("''", rule)):
        names = match.group(1)[1:].split(".")
        if match.group(2):
            names = names[:-1]  # the last name is a function call: self.items.all(...)
        _check_path(schema, names, path, rule)


def _check_path(schema: Mapping[str, Any], names: Sequence[str], path: str, rule: str) -> None:
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
        path = _join(path, name)
    if len(names) > 0:
        _check_bounded(node, path, rule)


def _check_bounded(node: Mapping[str, Any], path: str, rule: str) -> None:
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


# --- the whole definition ----------------------------------------------------------------------------------


def render_schema(kind: type) -> dict[str, Any]:
    """The openAPIV3Schema of one version of a kind."""
    definition = crd_of(kind)
    out: dict[str, Any] = {"type": "object"}
    if doc := _doc(kind):
        out["description"] = doc
    fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
    required = [name for name, f in fields.items() if any(m.required for m in _unwrap(f.type)[1])]
    if required:
        out["required"] = required
    if cel := _rules_of(kind):
        out["x-kubernetes-validations"] = [rule.render() for rule in cel]
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    for name, f in fields.items():
        if name not in properties:
            walker = _Walker(preserve_unknown=definition.preserve_unknown and name != "status")
            properties[name] = walker.schema(f.type, name)
    out["properties"] = properties
    _check_rules(out, "")
    return out


def render_crd(kind: type[Object], *others: type[Object]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind; ``others`` are its further versions, in order of preference."""
    versions = [kind, *others]
    stored = [version for version in versions if crd_of(version).storage]
    if len(stored) != 1:
        raise SchemaError(f"{kind.__name__}: exactly one version has storage=True, found {len(stored)}")
    main = stored[0].resource
    for version in versions:
        other = version.resource
        if (other.group, other.kind, other.plural) != (main.group, main.kind, main.plural):
            raise SchemaError(f"{version.__name__}: is not another version of {main.kind}.{main.group}")
    definition = crd_of(stored[0])
    metadata: dict[str, Any] = {"name": f"{main.plural}.{main.group}"}
    if definition.labels:
        metadata["labels"] = dict(definition.labels)
    if definition.annotations:
        metadata["annotations"] = dict(definition.annotations)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": main.group,
            "names": _names(main, definition),
            "scope": "Namespaced" if main.namespaced else "Cluster",
            "versions": [_version(version) for version in versions],
        },
    }


def _names(resource: Resource, definition: Crd) -> dict[str, Any]:
    out: dict[str, Any] = {
        "kind": resource.kind,
        "listKind": resource.kind + "List",
        "plural": resource.plural,
        "singular": definition.singular,
    }
    if definition.short_names:
        out["shortNames"] = list(definition.short_names)
    if definition.categories:
        out["categories"] = list(definition.categories)
    return out


def _version(kind: type[Object]) -> dict[str, Any]:
    definition = crd_of(kind)
    out: dict[str, Any] = {
        "name": kind.resource.version,
        "served": definition.served,
        "storage": definition.storage,
    }
    if definition.deprecated:
        out["deprecated"] = True
        if isinstance(definition.deprecated, str):
            out["deprecationWarning"] = definition.deprecated
    if definition.columns:
        out["additionalPrinterColumns"] = [column.render() for column in definition.columns]
    if definition.selectable_fields:
        out["selectableFields"] = [{"jsonPath": path} for path in definition.selectable_fields]
    subresources: dict[str, Any] = {}
    if definition.status:
        subresources["status"] = {}
    if definition.scale:
        subresources["scale"] = definition.scale.render()
    if subresources:
        out["subresources"] = subresources
    out["schema"] = {"openAPIV3Schema": render_schema(kind)}
    return out


def to_yaml(definition: Mapping[str, Any]) -> str:
    """YAML text of a rendered definition: stable order, no aliases, one document."""
    text: str = yaml.dump(dict(definition), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):
    """Lists indented under their key, as kubectl and controller-gen users expect; never anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow=flow, indentless=False)


Kinds = type | Sequence[type]
"""One kind, or the versions of one kind."""


def _rendered(kinds: Iterable[Kinds]) -> dict[str, str]:
    out: dict[str, str] = {}
    for item in kinds:
        versions = [item] if isinstance(item, type) else list(item)
        definition = render_crd(versions[0], *versions[1:])
        out[definition["metadata"]["name"] + ".yaml"] = to_yaml(definition)
    return out


def write_crds(kinds: Iterable[Kinds], directory: Path) -> list[Path]:
    """Write one ``PLURAL.GROUP.yaml`` per kind into the directory; returns the files that changed."""
    directory.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in _rendered(kinds).items():
        path = directory / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed


def check_crds(kinds: Iterable[Kinds], directory: Path) -> str:
    """A unified diff between the committed CRD files and the types; empty when they agree."""
    parts: list[str] = []
    for name, text in _rendered(kinds).items():
        path = directory / name
        committed = path.read_text() if path.exists() else ""
        parts += difflib.unified_diff(
            committed.splitlines(keepends=True), text.splitlines(keepends=True), str(path), "generated"
        )
    return "".join(parts)


# --- the same markers at run time --------------------------------------------------------------------------

Filler = Callable[[Any], Any]
_fillers: dict[Any, Filler | None] = {}


def defaulted(value: T) -> T:
    """The value with the defaults of its markers filled in, for code that may run before the server has.

    Structs are copied only where something was missing; a default inside an absent object is not applied,
    exactly as the API server does it.
    """
    fill = _filler(type(value))
    return value if fill is None else cast("T", fill(value))


def _filler(annotation: Any) -> Filler | None:
    base, _ = _unwrap(annotation)
    key = base if isinstance(base, type) else repr(base)
    if key not in _fillers:
        _fillers[key] = None  # a recursive type has no defaults below itself
        _fillers[key] = _build_filler(base)
    return _fillers[key]


def _build_filler(base: Any) -> Filler | None:
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        return _struct_filler(base)
    origin = get_origin(base)
    if origin is list and (each := _filler(get_args(base)[0])) is not None:
        return lambda items: [each(item) for item in items]
    if origin is dict and (value := _filler(get_args(base)[1])) is not None:
        return lambda items: {name: value(item) for name, item in items.items()}
    return None


def _struct_filler(kind: type[msgspec.Struct]) -> Filler | None:
    plan: list[tuple[str, Any, bool, Filler | None]] = []
    for f in msgspec.structs.fields(kind):
        base, markers = _unwrap(f.type)
        default = next((m.default for m in reversed(markers) if m.has_default), None)
        has_default = any(m.has_default for m in markers)
        if has_default and isinstance(base, type) and issubclass(base, msgspec.Struct):
            default = msgspec.convert(default, base)
        filler = _filler(f.type)
        if has_default or filler is not None:
            plan.append((f.name, default, has_default, filler))
    if not plan:
        return None

    def fill(value: Any) -> Any:
        changes: dict[str, Any] = {}
        for name, default, has_default, filler in plan:
            old = getattr(value, name)
            new = default if old is None and has_default else old
            if filler is not None and new is not None:
                new = filler(new)
            if new is not old:
                changes[name] = new
        return msgspec.structs.replace(value, **changes) if changes else value

    return fill


@dataclass(frozen=True)
class UnknownField:
    """A field of a user's object that the type does not know; ``nearest`` is what was probably meant."""

    path: str
    nearest: str

    def __str__(self) -> str:
        hint = f'; did you mean "{self.nearest}"?' if self.nearest else ""
        return f'unknown field "{self.path}"{hint}'


def unknown_fields(kind: type, raw: Mapping[str, Any], *, path: str = "") -> list[UnknownField]:
    """Fields of a decoded JSON object that the type does not know, with the nearest known name."""
    found: list[UnknownField] = []
    known = {f.encode_name: f.type for f in msgspec.structs.fields(kind)}
    for name, value in raw.items():
        where = _join(path, name)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            folded = next((other for other in known if other.lower() == name.lower()), "")
            found.append(UnknownField(where, folded or (close[0] if close else "")))
        else:
            found += _unknown_in(known[name], value, where)
    return found


def _unknown_in(annotation: Any, value: Any, path: str) -> list[UnknownField]:
    base, markers = _unwrap(annotation)
    if path == "metadata" or any(m.preserve_unknown or m.schema is not None for m in markers):
        return []
    if isinstance(base, type) and issubclass(base, msgspec.Struct) and isinstance(value, Mapping):
        return unknown_fields(base, value, path=path)
    found: list[UnknownField] = []
    if get_origin(base) is list and isinstance(value, list):
        for index, item in enumerate(value):
            found += _unknown_in(get_args(base)[0], item, f"{path}[{index}]")
    elif get_origin(base) is dict and isinstance(value, Mapping):
        for name, item in value.items():
            found += _unknown_in(get_args(base)[1], item, f"{path}[{name}]")
    return found
