"""CustomResourceDefinitions: which are accepted, and what a server needs to serve one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mooring.local.api.cel import Rules
from mooring.local.api.fields import FieldError
from mooring.local.api.schema import Schema

__all__ = [
    "CompiledVersion",
    "compile_version",
    "default_crd",
    "established",
    "openapi_v2",
    "openapi_v3",
    "validate_crd",
    "validate_crd_update",
]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompiledVersion:
    """Everything needed to serve one version of a custom resource."""

    name: str
    served: bool
    storage: bool
    deprecated: bool
    deprecation_warning: str
    schema: Schema
    rules: Rules
    status: bool
    scale: Mapping[str, str] | None
    columns: tuple[Mapping[str, Any], ...]
    selectable_fields: tuple[str, ...]

    def validate(self, obj: JsonObject, old: JsonObject | None = None) -> list[FieldError]:
        """Return what breaks the schema, its list types or its CEL rules."""
        raise NotImplementedError


def default_crd(crd: JsonObject) -> JsonObject:
    """Return the CRD with singular, listKind, conversion strategy and storedVersions filled in."""
    raise NotImplementedError


def validate_crd(crd: JsonObject) -> list[FieldError]:
    """Return why a new (defaulted) CRD is refused: names, versions, structural schemas, CEL rules."""
    raise NotImplementedError


def validate_crd_update(crd: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return why a changed CRD is refused, with what must not change (group, scope, plural ...)."""
    raise NotImplementedError


def established(crd: JsonObject, others: Iterable[JsonObject], *, now: str) -> JsonObject:
    """Return the CRD with acceptedNames, NamesAccepted, Established and storedVersions in its status.

    `others` are the CRDs already there: a name one of them holds in the group is refused.
    """
    raise NotImplementedError


def compile_version(crd: JsonObject, version: str) -> CompiledVersion:
    """Compile one version of an accepted CRD."""
    raise NotImplementedError


def openapi_v3(crd: JsonObject, version: str) -> dict[str, JsonObject]:
    """Return the component schemas of one version for /openapi/v3/apis/<group>/<version>, with the List."""
    raise NotImplementedError


def openapi_v2(crd: JsonObject, version: str) -> dict[str, JsonObject]:
    """Return the definitions of one version for /openapi/v2."""
    raise NotImplementedError
