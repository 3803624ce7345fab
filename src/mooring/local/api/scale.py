"""The scale subresource: one size, whatever the kind calls it, and who owns it.

A Scale is an object of its own with managedFields of its own. Those are made of the parent's as long as a
request lasts: every manager of the parent's size owns `spec.replicas` of the Scale, and what the request
makes of that is brought back. A manager that updates has another API version in a Scale than in the
parent, so it is not found again on the way back: it loses the size to a new entry that has no time. That is
what a real server does (k8s.io/apimachinery, managedfields.ScaleHandler), down to entries that
look like one manager twice, the first of which is forgotten by the next write.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.local.api import apply as ssa
from mooring.local.api import codec, failures, fields, patch, reads, wire, writes
from mooring.local.api.bodies import configuration, decode_body
from mooring.local.api.call import Call, view
from mooring.local.api.constraints import same
from mooring.local.api.errors import cannot_be_handled, invalid_object
from mooring.local.api.http import Answer
from mooring.local.api.objectmeta import with_metadata
from mooring.local.api.options import WriteOptions
from mooring.local.api.patching import PATCH_TYPES
from mooring.local.api.schema import Schema
from mooring.local.api.wire import WireError

__all__ = ["scale"]

JsonObject = dict[str, Any]

_KIND, _API_VERSION = "Scale", "autoscaling/v1"
#: The size of a custom resource that has none, in the Scale that a patch starts from: the smallest int32.
_UNSET: Final = -(2**31)
_BUILTIN: Final = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


async def scale(call: Call) -> Answer:
    """Answer a request on a Scale."""
    if call.verb == "get":
        entry = call.collection.get((call.namespace, call.target.name))
        if entry is None:
            raise call.not_found()
        entry = await call.cluster.conversions.shown(entry, call.served)
        return reads.answer_object(call, 200, _scale_of(call, view(entry, call.served)), call.form())
    if call.verb == "update":
        options = WriteOptions.parse(call.request, "UpdateOptions")
        _, sent = await decode_body(call, kind=_KIND, api_version=_API_VERSION)
        writes.check_name(call, sent)
        return await _rescale(call, lambda before: sent, options)
    content_type = codec.media_type(call.request.header("content-type"))
    if content_type not in PATCH_TYPES:
        custom = call.served.custom is not None
        raise failures.unsupported_media_type(PATCH_TYPES) if custom else failures.unroutable_body()
    body = await call.request.read_body()
    if content_type == PATCH_TYPES[3]:
        return await _apply(call, body)
    options = WriteOptions.parse(call.request, "PatchOptions")
    try:
        change = codec.decode(body, "application/json")
    except ValueError as error:
        raise failures.bad_request(str(error)) from None
    # A Scale holds no list that is merged, so every patch but JSON's own merges.
    patched = patch.json_patch if content_type == PATCH_TYPES[0] else patch.merge_patch
    return await _rescale(call, lambda before: patched(before, change), options)


# --- a Scale of an object -----------------------------------------------------------------------------


def _paths(call: Call) -> Mapping[str, str]:
    if call.served.custom is not None and call.served.custom.scale is not None:
        return call.served.custom.scale
    return _BUILTIN


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def _at(obj: Any, path: str) -> Any:
    for step in _steps(path):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _with(obj: JsonObject, steps: list[str], value: Any) -> JsonObject:
    if len(steps) == 1:
        return {**obj, steps[0]: value}
    return {**obj, steps[0]: _with(obj.get(steps[0]) or {}, steps[1:], value)}


def _scale_of(call: Call, obj: JsonObject) -> JsonObject:
    paths = _paths(call)
    meta = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: JsonObject = {"replicas": _at(obj, paths["statusReplicasPath"]) or 0}
    if selector := _selector(call, obj, paths):
        status["selector"] = selector
    replicas = _at(obj, paths["specReplicasPath"])
    return {
        "kind": _KIND,
        "apiVersion": _API_VERSION,
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector(call: Call, obj: JsonObject, paths: Mapping[str, str]) -> str:
    if call.served.custom is not None:
        path = paths.get("labelSelectorPath")
        return str(_at(obj, path) or "") if path else ""
    selector = _at(obj, ".spec.selector") or {}
    if call.served.storage == "replicationcontrollers":
        selector = {"matchLabels": selector}
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        values = ",".join(sorted(expression.get("values") or ()))
        shown = {
            "In": f"{expression['key']} in ({values})",
            "NotIn": f"{expression['key']} notin ({values})",
            "Exists": expression["key"],
            "DoesNotExist": f"!{expression['key']}",
        }
        parts.append(shown[expression["operator"]])
    return ",".join(parts)


# --- writes -------------------------------------------------------------------------------------------


async def _rescale(call: Call, change: Callable[[JsonObject], JsonObject], options: WriteOptions) -> Answer:
    """Store what an update or patch makes of the live Scale."""
    schema, writer = _schema(call), _writer(call, options)

    def changed(before: JsonObject) -> JsonObject:
        after = _canonical(call, change(with_metadata(before, managedFields=None)), schema)
        return ssa.track(before, after, schema, writer)

    return await _store(call, changed, options)


async def _apply(call: Call, body: bytes) -> Answer:
    options = WriteOptions.parse(call.request, "PatchOptions", apply=True)
    config = configuration(call, body, kind=_KIND, api_version=_API_VERSION)
    schema, writer = _schema(call), _writer(call, options)

    def changed(before: JsonObject) -> JsonObject:
        if call.served.custom is not None and not before["metadata"].get("managedFields"):
            raise _not_tracked("create manager for existing fields: failed to convert live object", "/")
        applied = ssa.apply(before, config, schema, writer, force=options.force)
        after = before if applied is before else _canonical(call, applied, schema)
        if call.served.custom is not None and not same(after.get("spec"), before.get("spec")):
            raise _not_tracked("convert new object", f"/{call.target.name}")
        return after

    return await _store(call, changed, options)


def _not_tracked(step: str, name: str) -> Exception:
    """Return the 500 of an applied Scale of a custom resource: a real server has no such object to make there."""
    return failures.without_reason(
        f"failed to {step} ({name}; {_API_VERSION}, Kind={_KIND}) to proper version:"
        f" request to convert CR to an invalid group/version: {_API_VERSION}"
    )


async def _store(call: Call, change: Callable[[JsonObject], JsonObject], options: WriteOptions) -> Answer:
    paths = _paths(call)

    def compute(old: JsonObject) -> JsonObject:
        owners = old["metadata"].get("managedFields") or []
        before = with_metadata(_scale_of(call, old), managedFields=_owners(call).of_scale(owners) or None)
        if call.served.custom is not None and _at(old, paths["specReplicasPath"]) is None:
            before = {**before, "spec": {"replicas": _UNSET}}
        after = change(before)
        replicas = (after.get("spec") or {}).get("replicas", 0)
        _check_replicas(call, replicas, paths["specReplicasPath"])
        meta = after["metadata"]
        owners = _owners(call).of_parent(owners, meta.get("managedFields") or [])
        changed = with_metadata(
            _with(old, _steps(paths["specReplicasPath"]), replicas), managedFields=owners or None
        )
        for name in ("resourceVersion", "uid"):
            changed = with_metadata(changed, **{name: meta[name]}) if meta.get(name) else changed
        return changed

    obj = await writes.update(call, compute, options, tracked=True)
    return reads.answer_object(call, 200, _scale_of(call, obj), call.form())


def _schema(call: Call) -> Schema:
    schemas = call.cluster.registry.schemas
    name = call.cluster.registry.definition_name(_API_VERSION, _KIND) or ""
    return schemas.named(name, group="autoscaling", version="v1")


def _writer(call: Call, options: WriteOptions) -> ssa.Writer:
    return dataclasses.replace(writes.writer_of(call, options), api_version=_API_VERSION)


def _owners(call: Call) -> ssa.ScaleOwners:
    """Return where each version of the kind has its size."""
    served, registry = call.served, call.cluster.registry

    def place(api_version: str) -> str | None:
        group, _, version = api_version.rpartition("/")
        if group != served.group:
            return None
        if served.custom is None:
            return _BUILTIN["specReplicasPath"]
        known = registry.version(served, version)
        return None if known is None else (known.scale or {}).get("specReplicasPath", "")

    return ssa.ScaleOwners(served.api_version, place)


def _canonical(call: Call, sent: JsonObject, schema: Schema) -> JsonObject:
    """Return a changed Scale in canonical form; raises 400 and 422 in the words of the verb."""
    spec = sent.get("spec")
    why = _wrong_type(spec.get("replicas", 0)) if isinstance(spec, dict) else ""
    if not why:
        try:
            return wire.decode(sent, schema).value
        except WireError as error:
            why = str(error)
    if call.verb == "patch":
        raise invalid_object([fields.invalid("patch", sent, why)], group="", kind="", name="")
    raise cannot_be_handled(_KIND, "v1", why)


def _wrong_type(replicas: Any) -> str:
    if replicas is None or (isinstance(replicas, int) and not isinstance(replicas, bool)):
        return ""
    found = "string" if isinstance(replicas, str) else "number"
    return f"json: cannot unmarshal {found} into Go struct field ScaleSpec.spec.replicas of type int32"


def _check_replicas(call: Call, replicas: int, path: str) -> None:
    if replicas == _UNSET and call.served.custom is not None:
        raise failures.bad_request(f'the spec replicas field "{path}" cannot be empty')
    if replicas < 0:
        error = fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_object([error], group="autoscaling", kind=_KIND, name=call.target.name)
