"""From types to structural schemas: a type everywhere, no references, nothing the server would not take."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from mooring.runtime.crd_checks import check_defaults, check_node, check_rules, join
from mooring.runtime.crd_markers import SchemaError, crd_of, rules_of, unwrap

__all__ = ["QUANTITY_PATTERN", "render_schema"]

_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY_PATTERN: Final = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
"""What a Kubernetes quantity looks like; the same pattern controller-gen writes."""


def render_schema(kind: type) -> dict[str, Any]:
    """The openAPIV3Schema of one version of a kind."""
    definition = crd_of(kind)
    out: dict[str, Any] = {"type": "object"}
    if doc := _doc(kind):
        out["description"] = doc
    fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
    required = [name for name, f in fields.items() if any(m.required for m in unwrap(f.type)[1])]
    if required:
        out["required"] = required
    if cel := rules_of(kind):
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
    check_rules(out, "")
    check_defaults(out, "")
    return out


@dataclass(frozen=True)
class _Walker:
    """Turns annotations into structural schemas; ``seen`` guards against recursive types."""

    preserve_unknown: bool = False
    seen: tuple[type, ...] = ()

    def schema(self, annotation: Any, path: str) -> dict[str, Any]:
        base, markers = unwrap(annotation)
        if any(marker.schema is not None or marker.int_or_string for marker in markers):
            out: dict[str, Any] = {}
        else:
            out = self._plain(base, path)
        for marker in markers:
            out = marker.apply_to(out)
        check_node(out, path)
        return _with_bounds(out)

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
        if unwrap(value)[0] in (Any, object):
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
        required = [f.encode_name for f in fields if any(m.required for m in unwrap(f.type)[1])]
        if required:
            out["required"] = required
        if cel := rules_of(kind):
            out["x-kubernetes-validations"] = [rule.render() for rule in cel]
        out["properties"] = {f.encode_name: self.schema(f.type, join(path, f.encode_name)) for f in fields}
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


def _with_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """A field whose description ends with its range and default, which kubectl explain does not show otherwise."""
    text = schema.get("description")
    if not text:
        return schema
    low, high = schema.get("minimum"), schema.get("maximum")
    said = ""
    if low is not None and high is not None:
        said = f"From {low} to {high}"
    elif low or high is not None:  # that a number is not negative goes without saying
        said = f"At least {low}" if high is None else f"At most {high}"
    default = schema.get("default")
    if default is not None and not isinstance(default, (dict, list)) and "default" not in text.lower():
        shown = str(default).lower() if isinstance(default, bool) else default
        said = f"{said}, {shown} by default" if said else f"Default: {shown}"
    return {**schema, "description": f"{text} {said}."} if said else schema


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


def _doc(kind: type) -> str:
    text = kind.__dict__.get("__doc__") or ""
    if text.startswith("`io.k8s."):
        return ""  # a generated type: its name says nothing to a user
    return " ".join(text.strip().split("\n\n")[0].split())
