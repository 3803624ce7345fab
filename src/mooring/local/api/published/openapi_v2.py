"""The OpenAPI v2 document in protobuf, as far as kubectl reads it.

kubectl falls back to it for a custom resource whose definition it has just created: it looks for the
PATCH of a kind, or of Namespace in its place, and asks whether the server validates fields. Everything
else it takes from OpenAPI v3.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mooring.local.api.registry import Served

__all__ = ["MEDIA_TYPE", "document"]

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")

# Field numbers of gnostic's openapiv2 messages.
_SWAGGER, _INFO, _PATHS = 1, 2, 8
_TITLE, _VERSION = 1, 2
_PATH = 2
_NAME, _VALUE = 1, 2
_PATCH = 8
_OPERATION_PARAMETERS, _OPERATION_EXTENSION = 8, 13
_PARAMETER, _NON_BODY, _QUERY, _QUERY_NAME = 1, 2, 3, 4
_YAML = 2


def document(resources: Iterable[Served], version: str) -> bytes:
    """Return the document: a PATCH for every resource that has one."""
    info = _field(_TITLE, b"Kubernetes") + _field(_VERSION, version.encode())
    paths = b"".join(_field(_PATH, _path(served)) for served in resources if "patch" in served.verbs)
    return _field(_SWAGGER, b"2.0") + _field(_INFO, info) + _field(_PATHS, paths)


def _path(served: Served) -> bytes:
    root = f"/apis/{served.group}" if served.group else "/api"
    where = "/namespaces/{namespace}" if served.namespaced else ""
    name = f"{root}/{served.version}{where}/{served.plural}/{{name}}"
    gvk = {"group": served.group, "kind": served.kind, "version": served.version}
    extension = _field(_NAME, b"x-kubernetes-group-version-kind")
    extension += _field(_VALUE, _field(_YAML, msgspec.json.encode(gvk)))
    operation = b"".join(_field(_OPERATION_PARAMETERS, _query(parameter)) for parameter in _PARAMETERS)
    operation += _field(_OPERATION_EXTENSION, extension)
    return _field(_NAME, name.encode()) + _field(_VALUE, _field(_PATCH, operation))


def _query(name: str) -> bytes:
    return _field(_PARAMETER, _field(_NON_BODY, _field(_QUERY, _field(_QUERY_NAME, name.encode()))))


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
