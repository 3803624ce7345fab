"""The three patches that are not apply: JSON patch, JSON merge patch, strategic merge patch.

All raise mooring.kube.errors.ApiError subclasses (BadRequest, Invalid) with the server's texts, change
none of their arguments, and return a result that may share structure with them.
"""

from __future__ import annotations

from typing import Any

from mooring.local.api.schema import Schema

__all__ = ["json_patch", "merge_patch", "strategic_merge_patch"]

Json = Any
JsonObject = dict[str, Any]


def json_patch(obj: Json, operations: Json) -> Json:
    """Apply an RFC 6902 patch (a list of operations)."""
    raise NotImplementedError


def merge_patch(obj: Json, patch: Json) -> Json:
    """Apply an RFC 7386 merge patch."""
    raise NotImplementedError


def strategic_merge_patch(obj: JsonObject, patch: JsonObject, schema: Schema) -> JsonObject:
    """Apply a strategic merge patch by the patch strategies and merge keys of a built-in schema."""
    raise NotImplementedError
