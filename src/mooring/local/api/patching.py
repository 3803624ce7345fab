"""The patches, server-side apply among them: from a change that was sent to the object that is stored."""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.kube.errors import BadRequest, Invalid
from mooring.local.api import apply as ssa
from mooring.local.api import codec, failures, fields, patch, protobuf, strategies, writes
from mooring.local.api.bodies import (
    check_repeated_lines,
    check_same_namespace,
    configuration,
    go_type,
    problems_of,
    repeated,
)
from mooring.local.api.call import Call
from mooring.local.api.errors import cannot_be_handled, invalid_object, strict_decoding
from mooring.local.api.objectmeta import with_metadata
from mooring.local.api.options import WriteOptions
from mooring.local.api.wire import WireError

__all__ = ["PATCH_TYPES", "patch_object"]

JsonObject = dict[str, Any]

PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
CUSTOM_PATCH_TYPES = (*PATCH_TYPES[:2], PATCH_TYPES[3])


async def patch_object(call: Call) -> writes.Result:
    """Patch an object or its status; apply creates what does not exist."""
    content_type = codec.media_type(call.request.header("content-type"))
    custom = call.served.custom is not None
    accepted = CUSTOM_PATCH_TYPES if custom else PATCH_TYPES
    if content_type not in accepted:
        raise failures.unsupported_media_type(accepted) if custom else failures.unroutable_body()
    body = await call.request.read_body()
    if content_type == "application/apply-patch+yaml":
        return await _apply(call, body)
    options = WriteOptions.parse(call.request, "PatchOptions")
    call.live()
    try:
        change = codec.decode(body, "application/json")
    except ValueError as error:
        raise _not_decodable(str(error), content_type) from None

    def compute(old: JsonObject) -> JsonObject:
        patched = _patched(call, old, change, content_type)
        strategic = content_type == PATCH_TYPES[2]
        shown = _go_map(change) if strategic else _short(patched)
        try:
            return _canonical_patched(call, patched, shown, body, options)
        except WireError:
            raise _invalid_patch(shown, first_wrong(patched)) from None

    def first_wrong(patched: JsonObject) -> str:
        """What is told first: a strategic patch is converted in the order of the fields, others by their names."""
        if content_type == PATCH_TYPES[2]:
            name = call.cluster.registry.definition_name(call.served.api_version, call.served.kind) or ""
            ordered = protobuf.in_declared_order(patched, name)
        elif content_type == PATCH_TYPES[1]:
            ordered = patch.by_name(patched)
        else:
            paths = [str(step.get(key, "")).split("/")[1:] for step in change for key in ("path", "from")]
            ordered = patch.by_name(patched, paths)
        try:
            call.kind.canonical(ordered)
        except WireError as error:
            return error.converted if content_type == PATCH_TYPES[2] else str(error)
        raise AssertionError("it was wrong before")

    return 200, await writes.update(call, compute, options)


def _patched(call: Call, old: JsonObject, change: Any, content_type: str) -> JsonObject:
    result: JsonObject
    if content_type == "application/json-patch+json":
        if not isinstance(change, list):
            raise _not_of_type(change, "[]handlers.jsonPatchOp", content_type)
        result = patch.json_patch(old, change)
    elif not isinstance(change, dict):
        raise _not_of_type(change, "map[string]interface {}", content_type)
    elif content_type == "application/merge-patch+json":
        result = patch.merge_patch(old, change)
    else:
        result = patch.strategic_merge_patch(old, change, call.kind.schema)
    if not isinstance(result, dict):
        raise failures.bad_request("the patch does not leave an object")
    return result


def _not_of_type(change: Any, wanted: str, content_type: str) -> BadRequest:
    why = f"json: cannot unmarshal {go_type(change)} into Go value of type {wanted}"
    return _not_decodable(why, content_type)


def _not_decodable(why: str, content_type: str) -> BadRequest:
    strategic = content_type == PATCH_TYPES[2]
    return failures.bad_request(why if strategic else f"error decoding patch: {why}")


def _go_map(value: Any) -> str:
    """Show a patch as Go prints the map it was decoded into."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_map, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _canonical_patched(
    call: Call, patched: JsonObject, shown: str, body: bytes, options: WriteOptions
) -> JsonObject:
    served = call.served
    if patched.get("kind") != served.kind or patched.get("apiVersion") != served.api_version:
        _, _, version = str(patched.get("apiVersion")).rpartition("/")
        own = served.group.partition(".")[0] or "core"
        why = f"converting ({version}.{patched.get('kind')}) to ({own}.{served.kind}): unknown conversion"
        raise _invalid_patch(shown, why)
    whole, unknown = call.kind.canonical(patched)
    problems = problems_of(unknown, repeated(body, options))
    if problems and options.field_validation == "Strict":
        raise _invalid_patch(shown, strict_decoding(problems))
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    name = whole["metadata"].get("name") or ""
    if name != call.target.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )
    check_same_namespace(call, whole)
    return whole


def _invalid_patch(shown: str, why: str) -> Invalid:
    error = fields.invalid("patch", shown, why)
    return invalid_object([error], group="", kind="", name="")


async def _apply(call: Call, body: bytes) -> writes.Result:
    options = WriteOptions.parse(call.request, "PatchOptions", apply=True)
    config = configuration(call, body, kind=call.served.kind, api_version=call.served.api_version)
    check_repeated_lines(call, body, options)
    live = call.collection.head((call.namespace, call.target.name))
    writer = writes.writer_of(call, options)
    reset = writes.reset_fields(call)
    if live is not None:

        def compute(old: JsonObject) -> JsonObject:
            merged = ssa.apply(
                old,
                config,
                call.kind.schema,
                writer,
                force=options.force,
                reset=reset,
                versions=call.versions,
            )
            return merged if merged is old else _merged(call, merged, config)

        return 200, await writes.update(call, compute, options, applied=True)
    if call.target.subresource:
        raise call.not_found()
    if uid := config["metadata"].get("uid"):
        raise call.conflict(
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        )
    config = strategies.drop_status(with_metadata(config, resourceVersion=None), call.served)
    named = bool(config["metadata"].get("name"))
    merged = ssa.apply(None, config, call.kind.schema, writer, force=options.force, reset=reset)
    new = _merged(call, with_metadata(merged, name=call.target.name), config)
    if not named:
        raise writes.nameless(call)
    return 201, await writes.store_new(call, new, options, applied=True)


def _merged(call: Call, merged: JsonObject, config: JsonObject) -> JsonObject:
    """Return what an applied configuration makes of an object in canonical form; raises 400 and 500."""
    served, meta = call.served, config["metadata"]
    try:
        canonical = call.kind.canonical(merged)[0]
    except WireError as error:
        if served.custom is not None:
            raise cannot_be_handled(served.kind, served.version, str(error)) from None
        kind = f"{served.group}/{served.version}, Kind={served.kind}"
        what = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}; {kind}"
        raise failures.without_reason(
            f"failed to convert new object ({what}) to proper version: unable to convert unstructured object to"
            f" {kind}: {error.converted}"
        ) from None
    if call.served.custom is None:
        return canonical
    empty = {
        key: merged["metadata"][key] for key in writes.CONTAINERS if merged["metadata"].get(key) in ({}, [])
    }
    return {**canonical, "metadata": {**canonical["metadata"], **empty}} if empty else canonical


def _short(obj: JsonObject) -> str:
    return msgspec.json.encode(obj).decode()
