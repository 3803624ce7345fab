"""The rules of built-in kinds: required fields, names, labels, what must not change."""

from __future__ import annotations

from typing import Any

from mooring.local.api.fields import FieldError

__all__ = ["validate_create", "validate_metadata", "validate_metadata_update", "validate_update"]

JsonObject = dict[str, Any]


def validate_create(obj: JsonObject, *, group: str, kind: str, namespaced: bool) -> list[FieldError]:
    """Return what is wrong with a new built-in object (after defaulting), metadata included."""
    raise NotImplementedError


def validate_update(
    obj: JsonObject, old: JsonObject, *, group: str, kind: str, namespaced: bool, subresource: str = ""
) -> list[FieldError]:
    """Return what is wrong with a changed built-in object, metadata included."""
    raise NotImplementedError


def validate_metadata(meta: JsonObject, *, namespaced: bool, path: str = "metadata") -> list[FieldError]:
    """Return what is wrong with the metadata of any new object, custom resources included."""
    raise NotImplementedError


def validate_metadata_update(
    meta: JsonObject, old: JsonObject, *, path: str = "metadata"
) -> list[FieldError]:
    """Return what is wrong with changed metadata of any object, custom resources included."""
    raise NotImplementedError
