"""What kinds and fields mean, in the words of a real server: `kubectl explain` shows it.

The documents everything else works with are kept without these texts. They are read on first use.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

__all__ = ["described", "text_of"]

JsonObject = dict[str, Any]


@cache
def _texts() -> dict[str, dict[str, str]]:
    """Schema -> field -> text; the schema's own text is that of the field ""."""
    file = resources.files("mooring.local.api").joinpath("openapi", "descriptions.json.gz")
    return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=dict[str, dict[str, str]])


def text_of(schema: str, field: str = "") -> str:
    """Return what a schema, or a field of it, is; "" when nothing is told."""
    return _texts().get(schema, {}).get(field, "")


def described(schemas: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Return schemas with the texts of those that are built in."""
    known = _texts()
    return {name: _told(schema, known[name]) if name in known else schema for name, schema in schemas.items()}


def _told(schema: JsonObject, texts: Mapping[str, str]) -> JsonObject:
    result = {**schema, "description": texts[""]} if "" in texts else dict(schema)
    if "properties" in schema:
        result["properties"] = {
            key: {**_open(part), "description": texts[key]} if key in texts else part
            for key, part in schema["properties"].items()
        }
    return result


def _open(part: JsonObject) -> JsonObject:
    """Return a property that can hold a text: beside a bare reference none is read."""
    return {"allOf": [part]} if "$ref" in part else part
