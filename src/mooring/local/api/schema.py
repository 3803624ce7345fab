"""Schemas of built-in kinds and of custom resources, compiled once into one structural form.

Every function here is pure: inputs are never changed, and what comes back shares structure with the
input (the very same object when nothing had to change, so `result is obj` means "nothing to do").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.local.api.fields import FieldError

__all__ = [
    "Schema",
    "Schemas",
    "check_types",
    "compile_structural",
    "default",
    "prune",
    "unknown_fields",
    "validate",
]

Json = Any
JsonObject = dict[str, Any]


class Schema:
    """One node of a compiled schema; compare by identity, never change after compilation."""


class Schemas:
    """The schemas and the discovery of the built-in kinds, loaded per group version on first use."""

    def get(self, group: str, version: str, kind: str) -> Schema | None:
        """Return the schema of a built-in kind, None when there is no such kind."""
        raise NotImplementedError

    def document(self, group: str, version: str) -> JsonObject | None:
        """Return the OpenAPI v3 document (without paths) served for a built-in group version."""
        raise NotImplementedError

    def discovery(self) -> Mapping[str, JsonObject]:
        """Return the discovery documents of a real server: keys `api`, `api_v1`, `apis_apps_v1` ..."""
        raise NotImplementedError


def compile_structural(document: JsonObject, *, kind: str = "", preserve_unknown: bool = False) -> Schema:
    """Compile the openAPIV3Schema of a CRD version (metadata, apiVersion and kind are added)."""
    raise NotImplementedError


def unknown_fields(obj: Json, schema: Schema) -> list[str]:
    """Return the paths (`spec.foo`, `spec.containers[0].foo`) of fields the schema does not know.

    Field validation words each as `unknown field "spec.foo"`.
    """
    raise NotImplementedError


def check_types(obj: Json, schema: Schema) -> str | None:
    """Return Go's text for the first value a built-in kind cannot decode, None when all decode.

    For example `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.
    """
    raise NotImplementedError


def prune(obj: Json, schema: Schema) -> Json:
    """Return the object without the fields the schema does not know."""
    raise NotImplementedError


def default(obj: Json, schema: Schema) -> Json:
    """Return the object with the defaults of its (custom resource) schema filled in."""
    raise NotImplementedError


def validate(obj: Json, schema: Schema, old: Json = None) -> list[FieldError]:
    """Return what breaks the schema of a custom resource; CEL rules are `cel.evaluate`'s."""
    raise NotImplementedError
