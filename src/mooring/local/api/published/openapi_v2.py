"""The OpenAPI v2 document, for clients that do not read v3: as JSON, and in protobuf as kubectl asks for it.

kubectl reads it in two cases: for a custom resource whose definition it has just created, it looks for the PATCH
of a kind, or of Namespace in its place, and asks whether the server validates fields; and for `kubectl explain
--output=plaintext-openapiv2`. The protobuf form holds what these read: every PATCH, and the definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mooring.local.api.published.openapi_paths import paths_of
from mooring.local.api.registry import Served

__all__ = ["MEDIA_TYPE", "document", "encoded"]

JsonObject = dict[str, Any]

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
#: What OpenAPI v2 has no word for in a schema.
_V3_ONLY = frozenset(("allOf", "anyOf", "oneOf", "not", "nullable", "default"))

# Field numbers of gnostic's openapiv2 messages.
_SWAGGER, _INFO, _PATHS, _DEFINITIONS = 1, 2, 8, 9
_TITLE, _VERSION = 1, 2
_PATH, _DEFINITION, _PROPERTY = 2, 1, 1
_NAME, _VALUE = 1, 2
_PATCH = 8
_OPERATION_PARAMETERS, _OPERATION_EXTENSION = 8, 13
_PARAMETER, _NON_BODY, _QUERY, _QUERY_NAME = 1, 2, 3, 4
_REFERENCE, _FORMAT, _DESCRIPTION = 1, 2, 4
_REQUIRED, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSION = 19, 21, 22, 23, 25, 31
_ONE, _YAML = 1, 2


def document(resources: Iterable[Served], schemas: Mapping[str, JsonObject], *, version: str) -> JsonObject:
    """Return the document. ``schemas`` are definitions as OpenAPI v3 has them, or those of custom resources for v2."""
    paths = paths_of(resources, schemas)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": {path: _path(item) for path, item in paths.items()},
        "definitions": {name: _schema(schema) for name, schema in schemas.items()},
    }


def _path(item: JsonObject) -> JsonObject:
    return {
        key: [_parameter(one) for one in part] if key == "parameters" else _operation(part)
        for key, part in item.items()
    }


def _operation(operation: JsonObject) -> JsonObject:
    answer = operation["responses"]["200"]
    responses = {"200": {"description": answer["description"]}}
    for content in answer["content"].values():
        responses["200"]["schema"] = _schema(content["schema"])
    parameters = [_parameter(one) for one in operation["parameters"]]
    return {**operation, "parameters": parameters, "responses": responses}


def _parameter(parameter: JsonObject) -> JsonObject:
    return {**{key: part for key, part in parameter.items() if key != "schema"}, **parameter["schema"]}


def _schema(schema: JsonObject) -> JsonObject:
    """Return a schema in the words of v2; a reference beside a text is one that v3 wraps into allOf."""
    if "oneOf" in schema and "format" in schema:  # IntOrString
        return {"type": "string", **{key: schema[key] for key in ("description", "format") if key in schema}}
    parts: list[JsonObject] = schema.get("allOf") or []
    found = {key: part for key, part in schema.items() if key not in _V3_ONLY}
    if len(parts) == 1 and "$ref" in parts[0]:
        found |= parts[0]
    if "$ref" in found:
        found["$ref"] = "#/definitions/" + found["$ref"].rpartition("/")[2]
    if "properties" in found:
        found["properties"] = {name: _schema(part) for name, part in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _schema(found[key])
    return found


# --- protobuf


def encoded(swagger: JsonObject) -> bytes:
    """Return what kubectl reads of a document, in protobuf."""
    info = _field(_TITLE, swagger["info"]["title"]) + _field(_VERSION, swagger["info"]["version"])
    paths = b"".join(
        _field(_PATH, _named(path, _field(_PATCH, _encoded_operation(item["patch"]))))
        for path, item in swagger["paths"].items()
        if "patch" in item
    )
    definitions = b"".join(
        _field(_DEFINITION, _named(name, _encoded_schema(schema)))
        for name, schema in swagger["definitions"].items()
    )
    whole = _field(_SWAGGER, swagger["swagger"]) + _field(_INFO, info)
    return whole + _field(_PATHS, paths) + _field(_DEFINITIONS, definitions)


def _encoded_operation(operation: JsonObject) -> bytes:
    parameters = [_field(_OPERATION_PARAMETERS, _query(one["name"])) for one in operation["parameters"]]
    return b"".join(parameters) + _extensions(_OPERATION_EXTENSION, operation)


def _encoded_schema(schema: JsonObject) -> bytes:
    texts = ((_REFERENCE, "$ref"), (_FORMAT, "format"), (_DESCRIPTION, "description"))
    parts = [_field(number, schema[key]) for number, key in texts if schema.get(key)]
    parts += [_field(_REQUIRED, name) for name in schema.get("required") or ()]
    if isinstance(more := schema.get("additionalProperties"), dict):
        parts.append(_field(_ADDITIONAL, _field(_ONE, _encoded_schema(more))))
    if "type" in schema:
        parts.append(_field(_TYPE, _field(_ONE, schema["type"])))
    if "items" in schema:
        parts.append(_field(_ITEMS, _field(_ONE, _encoded_schema(schema["items"]))))
    properties = [
        _field(_PROPERTY, _named(name, _encoded_schema(part)))
        for name, part in (schema.get("properties") or {}).items()
    ]
    if properties:
        parts.append(_field(_PROPERTIES, b"".join(properties)))
    return b"".join(parts) + _extensions(_EXTENSION, schema)


def _extensions(number: int, node: JsonObject) -> bytes:
    """Encode what begins with x-; the values are read as YAML, which JSON is."""
    return b"".join(
        _field(number, _named(key, _field(_YAML, msgspec.json.encode(value))))
        for key, value in node.items()
        if key.startswith("x-")
    )


def _named(name: str, value: bytes) -> bytes:
    return _field(_NAME, name) + _field(_VALUE, value)


def _query(name: str) -> bytes:
    return _field(_PARAMETER, _field(_NON_BODY, _field(_QUERY, _field(_QUERY_NAME, name))))


def _field(number: int, value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
