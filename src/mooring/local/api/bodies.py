"""Bodies of writes: read, checked to be what they were sent for, brought into their canonical form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mooring.kube.errors import BadRequest
from mooring.local.api import codec, failures, fields, protobuf
from mooring.local.api.call import Call
from mooring.local.api.errors import cannot_be_handled, invalid_object, strict_decoding
from mooring.local.api.options import WriteOptions
from mooring.local.api.wire import WireError, json_type

__all__ = [
    "canonical",
    "check_repeated_lines",
    "check_same_namespace",
    "configuration",
    "decode_body",
    "go_type",
    "problems_of",
    "repeated",
]

JsonObject = dict[str, Any]

#: Bytes of a body that an error message shows.
_SUMMARY = 30


async def decode_body(call: Call, *, kind: str, api_version: str) -> tuple[bytes, JsonObject]:
    """Return the body of a create or update as an object of the expected kind; raises 400 and 415."""
    content_type = codec.media_type(call.request.header("content-type")) or "application/json"
    if content_type not in (codec.JSON_TYPES if call.served.custom is not None else codec.OBJECT_TYPES):
        raise failures.unsupported_media_type(codec.OBJECT_TYPES)
    body = await call.request.read_body()
    obj: Any
    try:
        if content_type == protobuf.MEDIA_TYPE:
            obj = protobuf.decode(body, call.cluster.registry.definition_name)
        else:
            obj = codec.decode(body, content_type)
    except ValueError as error:
        raise _undecodable(kind, str(error), body, content_type) from None
    if obj is None:
        obj = {}
    if not isinstance(obj, dict):
        raise _undecodable(kind, _not_an_object(obj), body, content_type)
    return body, _expect(call, obj, body, kind=kind, api_version=api_version)


def _not_an_object(value: Any) -> str:
    shown = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")
    parts = 'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\""'
    return f"json: cannot unmarshal {shown} into Go value of type struct {{ {parts} }}"


def _undecodable(kind: str, why: str, body: bytes, content_type: str) -> BadRequest:
    if content_type == "application/json":
        why = f"couldn't get version/kind; json parse error: {why}"
    return failures.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(body)})"
    )


def _summary(body: bytes) -> str:
    """Show the beginning of a body: as text when it looks like JSON, else as hexadecimal digits."""
    if not body:
        return "<empty>"
    shown = body[:_SUMMARY].decode(errors="replace") if body[:1] == b"{" else body[:_SUMMARY].hex()
    return shown + (" ..." if len(body) > _SUMMARY else "")


def _expect(call: Call, obj: JsonObject, body: bytes, *, kind: str, api_version: str) -> JsonObject:
    for key in ("apiVersion", "kind"):
        if not isinstance(obj.get(key) or "", str):
            why = f"json: cannot unmarshal {json_type(obj[key])} into Go struct field .{key} of type string"
            raise _undecodable(kind, why, body, "application/json")
    found_kind, found_version = obj.get("kind") or kind, obj.get("apiVersion") or api_version
    if call.served.custom is not None and not (obj.get("kind") and obj.get("apiVersion")):
        missing = "Kind" if not obj.get("kind") else "apiVersion"
        why = f"Object '{missing}' is missing in '{body.decode(errors='replace')}'"
        raise failures.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(body)})"
        )
    if (found_version, found_kind) != (api_version, kind):
        if call.served.custom is not None and found_version == api_version:
            error = fields.invalid("kind", found_kind, f"must be {kind}")
            name = str((obj.get("metadata") or {}).get("name") or "")
            raise invalid_object([error], group=call.served.group, kind=found_kind, name=name)
        raise _wrong_kind(call, found_kind, kind, found_version, api_version)
    return {**obj, "kind": kind, "apiVersion": api_version}


def _wrong_kind(call: Call, found: str, kind: str, found_version: str, api_version: str) -> BadRequest:
    group, _, version = found_version.rpartition("/")
    if call.served.custom is not None and found_version != api_version:
        return failures.bad_request(
            f"the API version in the data ({found_version}) does not match the expected API version"
            f" ({api_version})"
        )
    if call.cluster.registry.schemas.get(group, version, found) is None:
        where = 'in scheme "pkg/runtime/scheme.go:111"'
        why = f'no kind "{found}" is registered for version "{found_version}" {where}'
    else:
        own = call.served.group.partition(".")[0] or "core"
        why = f"converting ({version}.{found}) to ({own}.{kind}): unknown conversion"
    return failures.bad_request(f'{found} in version "{version}" cannot be handled as a {kind}: {why}')


def canonical(call: Call, obj: JsonObject, options: WriteOptions, body: bytes) -> JsonObject:
    """Return the object in canonical form, with strict or warned-of unknown fields; raises 400."""
    try:
        obj, unknown = call.kind.canonical(obj)
    except WireError as error:
        raise cannot_be_handled(call.served.kind, call.served.version, str(error)) from None
    problems = problems_of(unknown, repeated(body, options))
    if call.served.custom is None and len(problems) > 1 and body[:1] == b"{":
        problems = _in_order(problems, body)
    if problems and options.field_validation == "Strict":
        causes = strict_decoding(problems)
        raise cannot_be_handled(call.served.kind, call.served.version, causes)
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    return obj


def problems_of(unknown: Sequence[str], repeated: Sequence[str]) -> list[str]:
    return [f'duplicate field "{path}"' for path in repeated] + [
        f'unknown field "{path}"' for path in unknown
    ]


def _in_order(problems: Sequence[str], body: bytes) -> list[str]:
    """Return problems as a decoder comes upon them: a repeated field is one at its second place."""
    places: dict[str, int] = {}
    for index, path in enumerate(codec.occurrences(body)):
        places[f'duplicate field "{path}"'] = index
        places.setdefault(f'unknown field "{path}"', index)
    return sorted(problems, key=lambda problem: places.get(problem, len(places)))


def repeated(body: bytes, options: WriteOptions) -> list[str]:
    if options.field_validation == "Ignore" or body[:4] == protobuf.MAGIC:
        return []
    return codec.duplicates(body)


def check_repeated_lines(call: Call, body: bytes, options: WriteOptions) -> None:
    """Refuse, or warn of, keys that an applied configuration holds twice in one mapping."""
    if options.field_validation == "Ignore" or (body[:1] == b"{" and not codec.duplicates(body)):
        return
    complaints = codec.repeated_lines(body)
    if not complaints:
        return
    lines = "\n".join(f"  {complaint}" for complaint in complaints)
    why = f"error converting YAML to JSON: yaml: unmarshal errors:\n{lines}"
    if options.field_validation == "Strict":
        raise failures.bad_request(f"error strict decoding YAML: {why}")
    call.request.warnings.append(why)


def configuration(call: Call, body: bytes, *, kind: str, api_version: str) -> JsonObject:
    """Return the applied configuration, in the fields the user wrote; raises 400."""
    try:
        config = codec.decode(body, "application/yaml")
    except ValueError as error:
        raise failures.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if not isinstance(config, dict):
        raise failures.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
            f"cannot unmarshal {go_type(config)} into Go value of type map[string]interface {{}}"
        )
    group_version, found = config.get("apiVersion") or "/", config.get("kind") or ""
    if (group_version, found) != (api_version, kind):
        if "/" not in group_version:
            group_version = "/" + group_version
        raise failures.bad_request(f"invalid object type: {group_version}, Kind={found}")
    meta = config.get("metadata")
    if meta is None:
        config = {**config, "metadata": {}}
    elif not isinstance(meta, dict):
        raise failures.bad_request("metadata must be an object")
    return _addressed(call, config)


def _addressed(call: Call, config: JsonObject) -> JsonObject:
    name = config["metadata"].get("name") or ""
    if name and name != call.target.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )
    check_same_namespace(call, config)
    return config


def go_type(value: Any) -> str:
    names = {list: "array", str: "string", bool: "bool", dict: "object"}
    return names.get(type(value), "number")


def check_same_namespace(call: Call, obj: JsonObject) -> None:
    if not call.served.namespaced:
        return
    sent = obj["metadata"].get("namespace") or ""
    if sent and sent != call.namespace:
        raise failures.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
