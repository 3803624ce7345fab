"""One face for built-in kinds and custom resources: canonical form, defaults, rules.

The difference ends here. Built-in objects take the form Go gives them (`wire`), get the defaults and
rules of their kind; custom resources are pruned, defaulted and validated by their schema.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mooring.local.api import crd as crds
from mooring.local.api import schema, validation, wire
from mooring.local.api.defaults import default_builtin
from mooring.local.api.fields import FieldError
from mooring.local.api.registry import Registry, Served
from mooring.local.api.schema import Schema
from mooring.local.api.validation.changes import changed_metadata

__all__ = ["Kind"]

JsonObject = dict[str, Any]

CRD = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class Kind:
    """How objects of one served resource are read, filled in and checked."""

    served: Served
    schema: Schema
    metadata: Schema

    @classmethod
    def of(cls, served: Served, registry: Registry) -> Kind:
        """Return the kind of a resource; its schema is compiled on first use."""
        return cls(served, registry.schema(served), registry.schemas.object_meta())

    @property
    def is_custom(self) -> bool:
        """Whether the kind comes from a CustomResourceDefinition."""
        return self.served.custom is not None

    def canonical(self, obj: JsonObject) -> tuple[JsonObject, Sequence[str]]:
        """Return the object in its canonical form and the unknown fields it lost.

        Raises WireError in Go's words for a value of a wrong type.
        """
        if not self.is_custom:
            decoded = wire.decode(obj, self.schema)
            return decoded.value, decoded.unknown
        meta = obj.get("metadata")
        decoded = wire.decode(meta if meta is not None else {}, self.metadata)
        unknown = [f"metadata.{path}" for path in decoded.unknown]
        obj = {**obj, "metadata": decoded.value}
        unknown += schema.unknown_fields(obj, self.schema)
        return schema.prune(obj, self.schema), unknown

    def read_back(self, obj: JsonObject) -> JsonObject:
        """Return the object as it comes back from storage."""
        return obj if self.is_custom else wire.stored(obj, self.schema)

    def default(self, obj: JsonObject, *, applied: bool = False) -> JsonObject:
        """Return the object with its defaults; nulls that an apply leaves stay, to be refused."""
        served = self.served
        if self.is_custom:
            filled: JsonObject = schema.default(obj, self.schema, drop_nulls=not applied)
            return filled
        if served.storage == CRD:
            obj = crds.default_crd(obj)
        if served.storage == "secrets":
            obj = _fold_string_data(obj)
        return default_builtin(obj, group=served.group, kind=served.kind)

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """Return what is wrong with a new object."""
        served = self.served
        if served.custom is not None:
            errors = validation.validate_metadata(obj["metadata"], namespaced=served.namespaced)
            return errors + served.custom.validate(obj)
        errors = validation.validate_create(
            obj, group=served.group, kind=served.kind, namespaced=served.namespaced
        )
        return errors + (crds.validate_crd(obj) if served.storage == CRD else [])

    def validate_update(self, obj: JsonObject, old: JsonObject, *, subresource: str = "") -> list[FieldError]:
        """Return what is wrong with a changed object."""
        served = self.served
        generic = changed_metadata(obj["metadata"], old["metadata"])
        if served.custom is not None:
            again = validation.validate_metadata_update(obj["metadata"], old["metadata"])
            return [*generic, *again, *served.custom.validate(obj, old)]
        errors = validation.validate_update(
            obj,
            old,
            group=served.group,
            kind=served.kind,
            namespaced=served.namespaced,
            subresource=subresource,
        )
        if served.storage == CRD and not subresource:
            errors += crds.validate_crd_update(obj, old)
        return generic + errors


def _fold_string_data(obj: JsonObject) -> JsonObject:
    """Return a Secret with its stringData moved into data, where alone it is ever read."""
    texts = obj.get("stringData")
    if texts is None:
        return obj
    data = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    folded = {key: value for key, value in obj.items() if key != "stringData"}
    return {**folded, "data": {**(obj.get("data") or {}), **data}} if data else folded
