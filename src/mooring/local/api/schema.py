"""Schemas of built-in kinds and of custom resources, compiled once into one structural form.

Every function here is pure: inputs are never changed, and what comes back shares structure with the
input (the very same object when nothing had to change, so `result is obj` means "nothing to do").

Custom resources are pruned and defaulted by their schemas here, and validated by `constraints.validate`.
Built-in kinds are Go structs on a real server: `wire.decode` does what their decoder and encoder do.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

__all__ = [
    "Schema",
    "Schemas",
    "builtin",
    "compile_node",
    "compile_structural",
    "default",
    "prune",
    "unknown_fields",
]

Json = Any
JsonObject = dict[str, Any]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
MISSING: Final = object()
_REF_PREFIX: Final = "#/components/schemas/"
_TYPE_META: Final = frozenset(("apiVersion", "kind", "metadata"))

# Definitions whose meaning is in their name: the Go types behind them have their own JSON form.
_SPECIAL: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "raw",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "raw",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "raw",
}
_DEDUCED: Final = {
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
}


class Schema:
    """One node of a compiled schema; compare by identity, never change after compilation.

    `kind` tells what a value is: struct (known properties), map, list, string, integer, number, boolean,
    quantity, time, microtime, int-or-string, raw (any JSON). A node of a custom resource may also be
    `any`: no type was given.
    """

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "atomic",
        "deduced",
        "default",
        "embedded",
        "enum",
        "enum_values",
        "exclusive_maximum",
        "exclusive_minimum",
        "fields",
        "format",
        "go",
        "has_defaults",
        "has_lists",
        "has_rules",
        "items",
        "kind",
        "list_keys",
        "list_type",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "meta_rules",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "name",
        "not_",
        "nullable",
        "one_of",
        "patch_key",
        "patch_strategy",
        "pattern",
        "plan",
        "preserve",
        "properties",
        "required",
        "rules",
        "source",
        "type",
        "types",
        "unique",
    )  # fmt: skip

    def __init__(self) -> None:
        self.kind: str = "any"
        self.type: str = ""
        self.types: tuple[str, ...] = ()
        self.name: str = ""
        self.properties: dict[str, Schema] = {}
        self.additional: Schema | None = None
        self.items: Schema | None = None
        self.required: tuple[str, ...] = ()
        self.default: Json = MISSING
        self.nullable = False
        self.preserve = False
        self.embedded = False
        self.deduced = False
        """Server-side apply deduces the structure of fields the schema does not know."""
        self.atomic = False
        """Server-side apply treats the whole value as one leaf."""
        self.list_type: str = "atomic"
        self.list_keys: tuple[str, ...] = ()
        self.patch_strategy: frozenset[str] = frozenset()
        self.patch_key: str = ""
        self.fields: dict[str, tuple[str, str]] = {}
        """Go type and flags of each property of a built-in struct."""
        self.go: str = ""
        self.plan: Any = None
        """What `wire` derives from the fields, on first use."""
        self.source: JsonObject = {}
        self.rules: tuple[JsonObject, ...] = ()
        self.enum: tuple[Json, ...] | None = None
        self.enum_values: frozenset[Hashable] | None = None
        """The enumeration to look values up in, made on first use."""
        self.format: str = ""
        self.pattern: str = ""
        self.minimum: float | None = None
        self.maximum: float | None = None
        self.exclusive_minimum = False
        self.exclusive_maximum = False
        self.multiple_of: float | None = None
        self.min_length: int | None = None
        self.max_length: int | None = None
        self.min_items: int | None = None
        self.max_items: int | None = None
        self.min_properties: int | None = None
        self.max_properties: int | None = None
        self.unique = False
        self.all_of: tuple[Schema, ...] = ()
        self.any_of: tuple[Schema, ...] = ()
        self.one_of: tuple[Schema, ...] = ()
        self.not_: Schema | None = None
        self.meta_rules: Schema | None = None
        self.has_defaults = False
        self.has_lists = False
        self.has_rules = False

    def __repr__(self) -> str:
        return f"<Schema {self.name or self.kind}>"

    def child(self, key: str) -> Schema | None:
        """Return the schema of a property or map value, None when it is not known."""
        return self.properties.get(key) or self.additional

    def copy(self) -> Schema:
        """Return a shallow copy, to give a shared definition the marks of one property."""
        twin = Schema()
        for slot in Schema.__slots__:
            setattr(twin, slot, getattr(self, slot))
        return twin


# --- built-in kinds ---------------------------------------------------------------------------------


@cache
def _read(name: str) -> Any:
    return json.loads(resources.files("mooring.local.api").joinpath("openapi", name).read_bytes())


def _file(group: str, version: str) -> str:
    return f"apis__{group}__{version}.json" if group else f"api__{version}.json"


class Schemas:
    """The schemas and the discovery of the built-in kinds, loaded per group version on first use."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], dict[str, Schema]] = {}
        self._definitions: dict[str, Schema] = {}

    def get(self, group: str, version: str, kind: str) -> Schema | None:
        """Return the schema of a built-in kind, None when there is no such kind."""
        return self._load(group, version).get(kind)

    def named(self, name: str, *, group: str, version: str) -> Schema:
        """Return a definition that a group version's document holds, the body of a subresource for one."""
        self._load(group, version)
        return self._definitions[name]

    def document(self, group: str, version: str) -> JsonObject | None:
        """Return the OpenAPI v3 document (without paths) served for a built-in group version."""
        try:
            document: JsonObject = _read(_file(group, version))
        except FileNotFoundError:
            return None
        return document

    def discovery(self) -> Mapping[str, JsonObject]:
        """Return the discovery documents of a real server: keys `api`, `api_v1`, `apis/apps/v1` ..."""
        documents: Mapping[str, JsonObject] = _read("discovery.json")
        return documents

    def object_meta(self) -> Schema:
        """Return the schema of metadata."""
        self._load("", "v1")
        return self._definitions[META]

    def _load(self, group: str, version: str) -> dict[str, Schema]:
        key = (group, version)
        if key not in self._kinds:
            document = self.document(group, version)
            self._kinds[key] = self._compile(document, key) if document else {}
        return self._kinds[key]

    def _compile(self, document: JsonObject, key: tuple[str, str]) -> dict[str, Schema]:
        compiler = _BuiltinCompiler(document["components"]["schemas"], self._definitions)
        kinds = {}
        for name, definition in compiler.sources.items():
            schema = compiler.definition(name)
            for gvk in definition.get("x-kubernetes-group-version-kind", ()):
                if (gvk["group"], gvk["version"]) == key:
                    kinds[gvk["kind"]] = schema
        compiler.finish()
        return kinds


@cache
def builtin() -> Schemas:
    """Return the one instance that everything in this process shares."""
    return Schemas()


class _BuiltinCompiler:
    """Compiles OpenAPI definitions; references may be circular (JSONSchemaProps), so copies come last."""

    def __init__(self, sources: Mapping[str, JsonObject], done: dict[str, Schema]) -> None:
        self.sources = sources
        self._done = done
        self._open: set[str] = set()
        self._late: list[tuple[Schema, Schema, JsonObject]] = []

    def definition(self, name: str) -> Schema:
        if name in self._done:
            return self._done[name]
        schema = self._done[name] = Schema()
        self._open.add(name)
        schema.name = name
        schema.go = name.rpartition(".")[2]
        schema.fields = {key: (go, flags) for key, (go, flags) in _read("fields.json").get(name, {}).items()}
        self._fill(schema, self.sources[name])
        if name in _SPECIAL:
            schema.kind = _SPECIAL[name]
            schema.atomic = schema.kind == "raw" and name not in _DEDUCED
            schema.deduced = name in _DEDUCED
        elif ".JSONSchemaPropsOr" in name:
            schema.kind, schema.deduced = "raw", True
        self._open.discard(name)
        return schema

    def finish(self) -> None:
        for twin, target, source in self._late:
            for slot in Schema.__slots__:
                setattr(twin, slot, getattr(target, slot))
            self._mark(twin, source)
        self._late.clear()

    def node(self, source: JsonObject) -> Schema:
        reference = source.get("$ref") or (source["allOf"][0]["$ref"] if "allOf" in source else "")
        if not reference:
            schema = Schema()
            self._fill(schema, source)
            return schema
        name = reference.removeprefix(_REF_PREFIX)
        target = self.definition(name)
        if not any(mark in source for mark in _MARKS):
            return target
        if name in self._open:
            twin = Schema()
            self._late.append((twin, target, source))
            return twin
        twin = target.copy()
        self._mark(twin, source)
        return twin

    def _mark(self, schema: Schema, source: JsonObject) -> None:
        if (map_type := source.get("x-kubernetes-map-type")) is not None:
            schema.atomic = map_type == "atomic"
        if strategy := source.get("x-kubernetes-patch-strategy"):
            schema.patch_strategy = frozenset(strategy.split(","))
        schema.patch_key = source.get("x-kubernetes-patch-merge-key", schema.patch_key)

    def _fill(self, schema: Schema, source: JsonObject) -> None:
        schema.type = source.get("type", "")
        schema.types = (schema.type,) if schema.type else ()
        schema.format = source.get("format", "")
        schema.required = tuple(source.get("required", ()))
        schema.enum = tuple(source["enum"]) if "enum" in source else None
        if "default" in source and source["default"] != {}:
            schema.default = source["default"]
        self._mark(schema, source)
        for key, value in source.get("properties", {}).items():
            schema.properties[key] = self.node(value)
        if "items" in source:
            schema.items = self.node(source["items"])
        if isinstance(additional := source.get("additionalProperties"), dict):
            schema.additional = self.node(additional)
        schema.kind = _kind_of(schema)
        if schema.kind == "list":
            _list_relation(schema, source)
        if schema.type == "object" and not schema.properties and schema.additional is None:
            schema.deduced = True


_MARKS: Final = (
    "x-kubernetes-map-type", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key",
)  # fmt: skip
_KINDS: Final = {
    "array": "list",
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}


def _kind_of(schema: Schema) -> str:
    if schema.type == "object":
        return "map" if schema.additional is not None and not schema.properties else "struct"
    return _KINDS.get(schema.type, "any")


def _list_relation(schema: Schema, source: JsonObject) -> None:
    """Set how server-side apply merges a list; patch strategies stand in where no list type is given."""
    if (list_type := source.get("x-kubernetes-list-type")) is not None:
        schema.list_type = list_type
        schema.list_keys = tuple(source.get("x-kubernetes-list-map-keys", ()))
    elif "merge" in schema.patch_strategy:
        schema.list_type = "map" if schema.patch_key else "set"
        schema.list_keys = (schema.patch_key,) if schema.patch_key else ()


# --- custom resources -------------------------------------------------------------------------------


def compile_structural(
    document: JsonObject | None, *, kind: str = "", preserve_unknown: bool = False
) -> Schema:
    """Compile the openAPIV3Schema of a CRD version (metadata, apiVersion and kind are added)."""
    schema = _structural(document or {"type": "object"}, preserve=preserve_unknown)
    schema.name = kind
    if preserve_unknown or not document:
        schema.preserve = True
        schema.deduced = True
    _embed(schema, document or {})
    return schema


def compile_node(document: JsonObject) -> Schema:
    """Compile a part of a custom resource's schema: no object, so without metadata."""
    return _structural(document, preserve=False)


def _embed(schema: Schema, source: JsonObject) -> None:
    schema.embedded = True
    if "metadata" in schema.properties:
        schema.meta_rules = schema.properties["metadata"]
    text = _structural({"type": "string"}, preserve=False)
    schema.properties = {
        "apiVersion": text,
        "kind": text,
        **schema.properties,
        "metadata": builtin().object_meta(),
    }
    schema.required = tuple(dict.fromkeys((*schema.required, "apiVersion", "kind")))


def _structural(source: JsonObject, *, preserve: bool) -> Schema:
    schema = Schema()
    schema.source = source
    schema.type = source.get("type", "")
    if source.get("x-kubernetes-int-or-string"):
        schema.types = ("integer", "string")
    elif schema.type:
        schema.types = (schema.type,)
    schema.preserve = bool(source.get("x-kubernetes-preserve-unknown-fields"))
    preserve = preserve or schema.preserve
    for key, value in (source.get("properties") or {}).items():
        schema.properties[key] = _structural(value, preserve=preserve)
    if isinstance(items := source.get("items"), dict):
        schema.items = _structural(items, preserve=preserve)
    additional = source.get("additionalProperties")
    if isinstance(additional, dict):
        schema.additional = _structural(additional, preserve=preserve)
    elif additional is True:
        schema.additional = _anything()
    schema.kind = _kind_of(schema)
    if source.get("x-kubernetes-int-or-string"):
        schema.kind = "int-or-string"
    # Server-side apply: below a node that preserves unknown fields they are deduced, too.
    schema.deduced = preserve or (not schema.properties and schema.additional is None)
    schema.atomic = source.get("x-kubernetes-map-type") == "atomic"
    if schema.kind in ("list", "any"):
        _list_relation(schema, source)
    _constraints(schema, source)
    if source.get("x-kubernetes-embedded-resource"):
        _embed(schema, source)
    schema.has_defaults = any(
        child.default is not MISSING or child.has_defaults for child in _children(schema)
    )
    schema.has_lists = schema.list_type != "atomic" or any(child.has_lists for child in _children(schema))
    schema.has_rules = bool(schema.rules) or any(child.has_rules for child in _children(schema))
    return schema


def _anything() -> Schema:
    schema = Schema()
    schema.preserve = schema.deduced = True
    return schema


def _children(schema: Schema) -> Iterator[Schema]:
    yield from (child for key, child in schema.properties.items() if child.name != META)
    if schema.items is not None:
        yield schema.items
    if schema.additional is not None:
        yield schema.additional


def _constraints(schema: Schema, source: JsonObject) -> None:
    schema.default = source.get("default", MISSING)
    if schema.default is None:
        schema.default = MISSING
    schema.nullable = bool(source.get("nullable"))
    schema.required = tuple(source.get("required") or ())
    schema.enum = tuple(source["enum"]) if source.get("enum") else None
    schema.format = source.get("format", "")
    schema.pattern = source.get("pattern", "")
    schema.minimum = source.get("minimum")
    schema.maximum = source.get("maximum")
    schema.exclusive_minimum = bool(source.get("exclusiveMinimum"))
    schema.exclusive_maximum = bool(source.get("exclusiveMaximum"))
    schema.multiple_of = source.get("multipleOf")
    schema.min_length = source.get("minLength")
    schema.max_length = source.get("maxLength")
    schema.min_items = source.get("minItems")
    schema.max_items = source.get("maxItems")
    schema.min_properties = source.get("minProperties")
    schema.max_properties = source.get("maxProperties")
    schema.unique = bool(source.get("uniqueItems"))
    schema.rules = tuple(source.get("x-kubernetes-validations") or ())
    schema.all_of = tuple(_structural(part, preserve=False) for part in source.get("allOf") or ())
    schema.any_of = tuple(_structural(part, preserve=False) for part in source.get("anyOf") or ())
    schema.one_of = tuple(_structural(part, preserve=False) for part in source.get("oneOf") or ())
    if isinstance(negated := source.get("not"), dict):
        schema.not_ = _structural(negated, preserve=False)


# --- unknown fields ---------------------------------------------------------------------------------


def unknown_fields(obj: Json, schema: Schema) -> list[str]:
    """Return the sorted paths (`spec.foo`, `spec.containers[0].foo`) of fields the schema does not know.

    Field validation words each as `unknown field "spec.foo"`.
    """
    found: list[str] = []
    _prune(obj, schema, "", found)
    return sorted(found)


def prune(obj: Json, schema: Schema) -> Json:
    """Return the object without the fields the schema does not know."""
    return _prune(obj, schema, "", [])


def _prune(value: Json, schema: Schema | None, path: str, found: list[str]) -> Json:
    if isinstance(value, dict):
        return _prune_object(value, schema, path, found)
    if isinstance(value, list):
        return _prune_list(value, schema, path, found)
    return value


def _prune_list(value: list[Json], schema: Schema | None, path: str, found: list[str]) -> list[Json]:
    if schema is not None and schema.preserve and schema.items is None:
        return value
    items = schema.items if schema is not None else None
    if items is not None and items.kind in _SCALARS:
        return value
    result: list[Json] | None = None
    for index, item in enumerate(value):
        pruned = _prune(item, items, f"{path}[{index}]", found)
        if pruned is not item:
            result = list(value) if result is None else result
            result[index] = pruned
    return value if result is None else result


_SCALARS: Final = frozenset(
    ("string", "integer", "number", "boolean", "quantity", "time", "microtime", "int-or-string")
)


def _prune_object(value: JsonObject, schema: Schema | None, path: str, found: list[str]) -> JsonObject:
    if schema is not None and schema.kind == "raw":
        return value
    result: JsonObject | None = None
    prefix = f"{path}." if path else ""
    for key, item in value.items():
        child = schema.properties.get(key) or schema.additional if schema is not None else None
        if child is None:
            if schema is not None and schema.preserve:
                continue
            if path or key not in _TYPE_META:
                found.append(prefix + key)
            result = dict(value) if result is None else result
            del result[key]
        elif type(item) is dict or type(item) is list:
            pruned = _prune(item, child, prefix + key, found)
            if pruned is not item:
                result = dict(value) if result is None else result
                result[key] = pruned
    return value if result is None else result


# --- defaults ---------------------------------------------------------------------------------------


def default(obj: Json, schema: Schema, *, drop_nulls: bool = True) -> Json:
    """Return a custom resource with the defaults of its schema filled in.

    Nulls that are neither nullable nor defaulted are dropped, as a real server does when it reads an
    object; it does not after an apply.
    """
    return _default(obj, schema, drop_nulls)


def _default(value: Json, schema: Schema, drop: bool) -> Json:
    if isinstance(value, dict):
        return _default_object(value, schema, drop)
    if isinstance(value, list) and schema.items is not None:
        return _default_list(value, schema.items, drop)
    return value


def _default_object(value: JsonObject, schema: Schema, drop: bool) -> JsonObject:
    result = dict(value)
    changed = False
    for key, item in value.items():
        child = schema.properties.get(key) or schema.additional
        if child is None or child.name == META:
            continue
        if item is None:
            if not child.nullable and (drop or child.default is not MISSING):
                changed = True
                del result[key]
                if child.default is not MISSING and key not in schema.properties:
                    result[key] = child.default
        elif type(item) is dict or type(item) is list:
            filled = _default(item, child, drop)
            if filled is not item:
                changed = True
                result[key] = filled
    if schema.has_defaults:
        for key, child in schema.properties.items():
            if child.default is not MISSING and key not in result:
                changed = True
                result[key] = _default(child.default, child, drop)
    return result if changed else value


def _default_list(value: list[Json], items: Schema, drop: bool) -> list[Json]:
    result: list[Json] | None = None
    for index, item in enumerate(value):
        if item is None and not items.nullable and items.default is not MISSING:
            filled = items.default
        else:
            filled = _default(item, items, drop)
        if filled is not item:
            result = list(value) if result is None else result
            result[index] = filled
    return value if result is None else result
