"""Create, update and the patches: from the bytes of a request to a committed object.

Between reading the newest version of an object and staging the next one nothing is awaited, unless a
webhook has a say; then the write is computed again when the object changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from mooring.kube.errors import BadRequest, Invalid
from mooring.local.api import apply as ssa
from mooring.local.api import codec, conversion, failures, fields, patch, strategies
from mooring.local.api.call import Call, view
from mooring.local.api.constraints import same
from mooring.local.api.errors import cannot_be_handled, invalid_object, strict_decoding
from mooring.local.api.objectmeta import (
    finalizers,
    generate_name,
    is_deleting,
    on_create,
    on_update,
    rfc3339,
    with_metadata,
)
from mooring.local.api.options import WriteOptions
from mooring.local.api.storage import Entry, StaleError
from mooring.local.api.wire import WireError

__all__ = ["create", "decode_body", "patch_object", "replace", "store_new", "update"]

JsonObject = dict[str, Any]
Result = tuple[int, JsonObject]

#: How often a write is computed again after the object changed meanwhile.
_ATTEMPTS = 8
_NAME_ATTEMPTS = 8

PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
)
CUSTOM_PATCH_TYPES = (*PATCH_TYPES[:2], *PATCH_TYPES[3:])


# --- bodies -------------------------------------------------------------------------------------------


async def decode_body(call: Call, *, kind: str, api_version: str) -> tuple[bytes, JsonObject]:
    """Return the body of a create or update as an object of the expected kind; raises 400 and 415."""
    content_type = codec.media_type(call.request.header("content-type")) or "application/json"
    if content_type not in codec.JSON_TYPES:
        raise failures.unsupported_media_type(codec.OBJECT_TYPES)
    body = await call.request.read_body()
    try:
        obj = codec.decode(body, content_type)
    except ValueError as error:
        raise _undecodable(call, kind, str(error)) from None
    if not isinstance(obj, dict):
        raise _undecodable(call, kind, _not_an_object(obj))
    return body, _expect(call, obj, kind=kind, api_version=api_version)


def _not_an_object(value: Any) -> str:
    shown = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")
    return f"json: cannot unmarshal {shown} into Go value of type struct"


def _undecodable(call: Call, kind: str, why: str) -> BadRequest:
    if call.served.custom is not None:
        return failures.bad_request(why)
    return failures.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
        f"json parse error: {why}"
    )


def _expect(call: Call, obj: JsonObject, *, kind: str, api_version: str) -> JsonObject:
    found_kind, found_version = obj.get("kind") or kind, obj.get("apiVersion") or api_version
    if call.served.custom is not None and not (obj.get("kind") and obj.get("apiVersion")):
        missing = "Kind" if not obj.get("kind") else "apiVersion"
        raise failures.bad_request(f"Object '{missing}' is missing in '{_short(obj)}'")
    if found_version != api_version:
        raise failures.bad_request(
            f"the API version in the data ({found_version}) does not match the expected API version"
            f" ({api_version})"
        )
    if found_kind != kind:
        raise _wrong_kind(call, found_kind, kind, found_version)
    return {**obj, "kind": kind, "apiVersion": api_version}


def _wrong_kind(call: Call, found: str, kind: str, api_version: str) -> BadRequest:
    group, _, version = api_version.rpartition("/")
    if call.served.custom is not None:
        return failures.bad_request(
            f'{found} in version "{version}" cannot be handled as a {kind}: '
            f"unable to decode into {api_version}, Kind={kind}"
        )
    if call.cluster.registry.schemas.get(group, version, found) is None:
        return failures.bad_request(
            f'no kind "{found}" is registered for version "{api_version}" in scheme '
            '"pkg/api/legacyscheme/scheme.go:30"'
        )
    return failures.bad_request(
        f'{found} in version "{version}" cannot be handled as a {kind}: '
        f"converting (v1.{found}) to (core.{kind}): unknown conversion"
    )


def _short(obj: JsonObject) -> str:
    text, _ = codec.encode(obj, codec.Format())
    return text.decode()


def _canonical(call: Call, obj: JsonObject, options: WriteOptions, repeated: Sequence[str]) -> JsonObject:
    """Return the object in canonical form, with strict or warned-of unknown fields; raises 400."""
    try:
        obj, unknown = call.kind.canonical(obj)
    except WireError as error:
        raise cannot_be_handled(call.served.kind, call.served.version, str(error)) from None
    problems = _problems(unknown, repeated)
    if problems and options.field_validation == "Strict":
        causes = strict_decoding(problems)
        raise cannot_be_handled(call.served.kind, call.served.version, causes)
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    return obj


def _problems(unknown: Sequence[str], repeated: Sequence[str]) -> list[str]:
    return [f'duplicate field "{path}"' for path in repeated] + [
        f'unknown field "{path}"' for path in unknown
    ]


def _repeated(body: bytes, options: WriteOptions) -> list[str]:
    return [] if options.field_validation == "Ignore" else codec.duplicates(body)


def _writer(call: Call, options: WriteOptions) -> ssa.Writer:
    return ssa.Writer(
        manager=options.manager,
        api_version=call.served.api_version,
        time=rfc3339(call.cluster.now()),
        subresource=call.target.subresource,
    )


# --- create ---------------------------------------------------------------------------------------------


async def create(call: Call) -> Result:
    """Create an object."""
    served = call.served
    options = WriteOptions.parse(call.request, "CreateOptions")
    body, obj = await decode_body(call, kind=served.kind, api_version=served.api_version)
    obj = strategies.drop_status(obj, served)
    obj = _canonical(call, obj, options, _repeated(body, options))
    _same_namespace(call, obj)
    return 201, await store_new(call, obj, options)


def _same_namespace(call: Call, obj: JsonObject) -> None:
    sent = obj["metadata"].get("namespace") or ""
    if sent and sent != call.namespace:
        raise failures.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


async def store_new(
    call: Call, obj: JsonObject, options: WriteOptions, *, applied: bool = False
) -> JsonObject:
    """Complete, check and store a canonical new object; `applied` when managedFields are set already."""
    served, cluster = call.served, call.cluster
    if served.terminating:
        raise failures.method_not_allowed_because(
            "create not allowed while custom resource definition is terminating"
        )
    if obj["metadata"].get("resourceVersion"):
        raise failures.bad_request("resourceVersion should not be set on objects to be created")
    obj = on_create(obj, now=cluster.now(), namespace=call.namespace)
    obj = call.kind.default(obj)
    _check_namespace(call, obj)
    before = obj
    obj = await cluster.admission.mutate(call, obj, None, "CREATE", options)
    if obj is not before:
        obj = call.kind.default(_canonical_after_admission(call, obj))
    obj = _without_generated_conflict(call, obj)
    # managedFields are those of what was sent and admitted; what the server adds now has no manager.
    if applied:
        obj = obj if obj is before else ssa.track(before, obj, call.kind.schema, _writer(call, options))
    else:
        reset = ("status",) if "status" in served.subresources else ()
        obj = ssa.track(None, obj, call.kind.schema, _writer(call, options), reset=reset)
    obj = strategies.prepare_create(obj, served, cluster.world)
    errors = call.kind.validate_create(obj)
    name = obj["metadata"].get("name") or ""
    if errors:
        raise invalid_object(errors, group=served.group, kind=served.kind, name=name)
    if served.storage == strategies.CRD:
        obj = strategies.establish(obj, cluster.world)
    await cluster.admission.validate(call, obj, None, "CREATE", options)
    place = (call.namespace, name)
    if call.collection.head(place) is not None:
        raise failures.already_exists(served.group, served.plural, name)
    if options.dry_run:
        return obj
    write = cluster.store.put(call.collection, place, _stored(call, obj), base=None)
    entry = await write.committed()
    cluster.written(served, entry)
    return view(entry, served)


def _stored(call: Call, obj: JsonObject) -> JsonObject:
    if call.served.converts:
        return conversion.to_storage(obj, group=call.served.group, plural=call.served.plural)
    return obj


def _without_generated_conflict(call: Call, obj: JsonObject) -> JsonObject:
    """Draw a generated name again while it is taken."""
    meta = obj["metadata"]
    base = meta.get("generateName")
    if not base or not meta["name"].startswith(base) or meta["name"] == base:
        return obj
    name = meta["name"]
    for _ in range(_NAME_ATTEMPTS):
        if call.collection.head((call.namespace, name)) is None:
            break
        name = generate_name(base)
    return obj if name == meta["name"] else with_metadata(obj, name=name)


def _check_namespace(call: Call, obj: JsonObject) -> None:
    """Refuse what is created in a namespace that does not exist or is going away."""
    if not call.served.namespaced:
        return
    namespaces = call.cluster.store.collection("namespaces")
    entry = namespaces.head(("", call.namespace))
    if entry is None:
        raise failures.not_found("", "namespaces", call.namespace)
    if is_deleting(entry.obj):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {call.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise failures.forbidden(
            call.served.group,
            call.served.plural,
            obj["metadata"].get("name") or "",
            f"unable to create new content in namespace {call.namespace} because it is being terminated",
            [cause],
        )


def _canonical_after_admission(call: Call, obj: JsonObject) -> JsonObject:
    try:
        return call.kind.canonical(obj)[0]
    except WireError as error:
        raise failures.internal(str(error)) from None


# --- update ---------------------------------------------------------------------------------------------


async def replace(call: Call) -> Result:
    """Update an object (PUT), or its status."""
    served, target = call.served, call.target
    options = WriteOptions.parse(call.request, "UpdateOptions")
    body, obj = await decode_body(call, kind=served.kind, api_version=served.api_version)
    obj = _canonical(call, obj, options, _repeated(body, options))
    _same_namespace(call, obj)
    name = obj["metadata"].get("name") or ""
    if not name:
        raise invalid_name(call, name)
    if name != target.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    if call.collection.head((call.namespace, target.name)) is None:
        if strategies.upserts(served) and not target.subresource:
            return 201, await store_new(call, obj, options)
        raise call.not_found()
    sent_version = obj["metadata"].get("resourceVersion") or ""
    if not sent_version and strategies.no_unconditional_update(served):
        error = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid_object([error], group=served.group, kind=served.kind, name=name)
    return 200, await update(call, lambda old: obj, options)


def invalid_name(call: Call, name: str) -> BadRequest:
    """Return the 400 for an object without a name."""
    return failures.bad_request(
        f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
    )


async def update(
    call: Call,
    compute: Callable[[JsonObject], JsonObject],
    options: WriteOptions,
    *,
    applied: bool = False,
) -> JsonObject:
    """Store what `compute` makes of the live object; raises 404, 409, 422.

    `compute` gets the live object in the request's version and returns a canonical one. It is called
    again when the object changed while a webhook was asked.
    """
    for _ in range(_ATTEMPTS):
        try:
            return await _update_once(call, compute, options, applied=applied)
        except StaleError:
            continue
    raise call.conflict()


async def _update_once(
    call: Call, compute: Callable[[JsonObject], JsonObject], options: WriteOptions, *, applied: bool
) -> JsonObject:
    cluster, served, subresource = call.cluster, call.served, call.target.subresource
    base = call.live()
    old = view(base, served)
    new = compute(old)
    if new is old:
        await cluster.store.settled(call.collection, base)
        return old
    _check_preconditions(call, new, old)
    new = on_update(new, old)
    before = new = call.kind.default(new)
    new = await cluster.admission.mutate(call, new, old, "UPDATE", options)
    if new is not before:
        new = call.kind.default(_canonical_after_admission(call, new))
    if call.collection.head(base.place) is not base:
        raise StaleError
    if not applied:
        new = ssa.track(old, new, call.kind.schema, _writer(call, options), reset=_reset(call))
    elif new is not before:
        new = ssa.track(before, new, call.kind.schema, _writer(call, options), reset=_reset(call))
    new = _prepared(call, new, old)
    new = ssa.restore_times(new, old)
    errors = call.kind.validate_update(new, old, subresource=subresource)
    if errors:
        raise invalid_object(errors, group=served.group, kind=served.kind, name=base.name)
    if served.storage == strategies.CRD and not subresource and not is_deleting(old):
        new = strategies.establish(new, cluster.world)
    await cluster.admission.validate(call, new, old, "UPDATE", options)
    return await _store_changed(call, new, old, base, options)


def _reset(call: Call) -> tuple[str, ...]:
    """Return the parts a request cannot change, which its manager does not come to own."""
    if call.target.subresource == "status":
        return ("spec", "metadata") if call.served.custom is None else ("spec",)
    return ("status",) if "status" in call.served.subresources else ()


def _prepared(call: Call, new: JsonObject, old: JsonObject) -> JsonObject:
    if call.target.subresource == "finalize":
        return strategies.prepare_part(new, old, "spec", call.served)
    if call.target.subresource == "approval":
        return strategies.prepare_part(new, old, "status", call.served)
    if call.target.subresource == "status":
        return strategies.prepare_status(new, old, call.served, call.cluster.world)
    return strategies.prepare_update(new, old, call.served, call.cluster.world)


def _check_preconditions(call: Call, new: JsonObject, old: JsonObject) -> None:
    meta, live = new["metadata"], old["metadata"]
    if meta.get("uid") and meta["uid"] != live["uid"]:
        raise call.conflict(
            f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {live['uid']}"
        )
    version = meta.get("resourceVersion")
    if version and version != live["resourceVersion"]:
        if not version.isdigit():
            error = fields.invalid(
                "metadata.resourceVersion", version, f'strconv.ParseUint: parsing "{version}": invalid syntax'
            )
            raise invalid_object(
                [error], group=call.served.group, kind=call.served.kind, name=call.target.name
            )
        raise call.conflict()


async def _store_changed(
    call: Call, new: JsonObject, old: JsonObject, base: Entry, options: WriteOptions
) -> JsonObject:
    cluster, served = call.cluster, call.served
    new = with_metadata(new, resourceVersion=old["metadata"]["resourceVersion"])
    gone = is_deleting(old) and not finalizers(new) and _may_go(call, new, old)
    if options.dry_run:
        return new
    if gone:
        write = cluster.store.delete(call.collection, base, last=_stored(call, new))
        entry = await write.committed()
        cluster.deleted(served, entry)
        return view(entry, served)
    if same(new, old):
        await cluster.store.settled(call.collection, base)
        return view(base, served)
    write = cluster.store.put(call.collection, base.place, _stored(call, new), base=base)
    entry = await write.committed()
    cluster.written(served, entry)
    return view(entry, served)


def _may_go(call: Call, new: JsonObject, old: JsonObject) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    if call.served.storage == "namespaces":
        return not (new.get("spec") or {}).get("finalizers")
    grace = old["metadata"].get("deletionGracePeriodSeconds")
    return not grace and bool(finalizers(old) or call.served.storage != "pods")


# --- patch ----------------------------------------------------------------------------------------------

PatchKind = Literal["json", "merge", "strategic", "apply"]


async def patch_object(call: Call) -> Result:
    """Patch an object or its status; apply creates what does not exist."""
    content_type = codec.media_type(call.request.header("content-type"))
    custom = call.served.custom is not None
    accepted = CUSTOM_PATCH_TYPES if custom else PATCH_TYPES
    if content_type not in accepted or content_type == "application/apply-patch+cbor":
        raise failures.unsupported_media_type(accepted)
    body = await call.request.read_body()
    if content_type == "application/apply-patch+yaml":
        return await _apply(call, body)
    options = WriteOptions.parse(call.request, "PatchOptions")
    try:
        change = codec.decode(body, "application/json")
    except ValueError as error:
        raise failures.bad_request(str(error)) from None
    live = call.live()
    assert live is not None

    def compute(old: JsonObject) -> JsonObject:
        patched = _patched(call, old, change, content_type)
        return _canonical_patched(call, patched, body, options)

    return 200, await update(call, compute, options)


def _patched(call: Call, old: JsonObject, change: Any, content_type: str) -> JsonObject:
    result: JsonObject
    if content_type == "application/json-patch+json":
        result = patch.json_patch(old, change)
    elif not isinstance(change, dict):
        raise failures.bad_request(
            f"json: cannot unmarshal {_go_type(change)} into Go value of type map[string]interface {{}}"
        )
    elif content_type == "application/merge-patch+json":
        result = patch.merge_patch(old, change)
    else:
        result = patch.strategic_merge_patch(old, change, call.kind.schema)
    if not isinstance(result, dict):
        raise failures.bad_request("the patch does not leave an object")
    return result


def _go_type(value: Any) -> str:
    return {list: "array", str: "string", bool: "bool"}.get(type(value), "number")


def _canonical_patched(call: Call, patched: JsonObject, body: bytes, options: WriteOptions) -> JsonObject:
    served = call.served
    if patched.get("kind") != served.kind or patched.get("apiVersion") != served.api_version:
        raise failures.bad_request(
            f"{patched.get('apiVersion')}, Kind={patched.get('kind')} does not match the expected "
            f"{served.api_version}, Kind={served.kind}"
        )
    try:
        canonical, unknown = call.kind.canonical(patched)
    except WireError as error:
        raise _invalid_patch(body, str(error)) from None
    problems = _problems(unknown, _repeated(body, options))
    if problems and options.field_validation == "Strict":
        raise _invalid_patch(body, strict_decoding(problems))
    if problems and options.field_validation == "Warn":
        call.request.warnings.extend(problems)
    name = canonical["metadata"].get("name") or ""
    if name != call.target.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )
    _same_namespace(call, canonical)
    return canonical


def _invalid_patch(body: bytes, why: str) -> Invalid:
    error = fields.invalid("patch", body.decode(errors="replace"), why)
    return invalid_object([error], group="", kind="", name="")


# --- server-side apply ----------------------------------------------------------------------------------


async def _apply(call: Call, body: bytes) -> Result:
    options = WriteOptions.parse(call.request, "PatchOptions", apply=True)
    config = _configuration(call, body, options)
    live = call.collection.head((call.namespace, call.target.name))
    writer = _writer(call, options)
    reset = _reset(call)
    if live is not None:

        def compute(old: JsonObject) -> JsonObject:
            merged = ssa.apply(old, config, call.kind.schema, writer, force=options.force, reset=reset)
            return merged if merged is old else _merged(call, merged)

        return 200, await update(call, compute, options, applied=True)
    if call.target.subresource:
        raise call.not_found()
    if uid := config["metadata"].get("uid"):
        raise call.conflict(
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        )
    config = strategies.drop_status(config, call.served)
    merged = ssa.apply(None, config, call.kind.schema, writer, force=options.force, reset=reset)
    return 201, await store_new(call, _merged(call, merged), options, applied=True)


def _configuration(call: Call, body: bytes, options: WriteOptions) -> JsonObject:
    """Return the applied configuration, in the fields the user wrote; raises 400."""
    served = call.served
    try:
        config = codec.decode(body, "application/yaml")
    except ValueError as error:
        raise failures.bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(config, dict):
        raise failures.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
            f"cannot unmarshal {_go_type(config)} into Go value of type map[string]interface {{}}"
        )
    if not config.get("kind") or not config.get("apiVersion"):
        raise failures.bad_request(f"Object 'Kind' is missing in '{_short(config)}'")
    if config["apiVersion"] != served.api_version or config["kind"] != served.kind:
        raise failures.bad_request(
            f"the API version in the data ({config['apiVersion']}) does not match the expected API version ({served.api_version})"
            if config["apiVersion"] != served.api_version
            else f"{config['kind']} does not match the expected {served.kind}"
        )
    meta = config.get("metadata")
    if meta is None:
        config = {**config, "metadata": {}}
    elif not isinstance(meta, dict):
        raise failures.bad_request("metadata must be an object")
    try:
        _, unknown = call.kind.canonical(config)
    except WireError as error:
        raise cannot_be_handled(served.kind, served.version, str(error)) from None
    if unknown and options.field_validation == "Strict":
        raise failures.bad_request(strict_decoding(_problems(unknown, ())))
    if unknown and options.field_validation == "Warn":
        call.request.warnings.extend(_problems(unknown, ()))
    return _addressed(call, config)


def _addressed(call: Call, config: JsonObject) -> JsonObject:
    meta = config["metadata"]
    name = meta.get("name") or call.target.name
    if name != call.target.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
        )
    _same_namespace(call, config)
    changes: dict[str, Any] = {"name": name}
    if call.namespace:
        changes["namespace"] = call.namespace
    return with_metadata(config, **changes)


def _merged(call: Call, merged: JsonObject) -> JsonObject:
    try:
        return call.kind.canonical(merged)[0]
    except WireError as error:
        raise cannot_be_handled(call.served.kind, call.served.version, str(error)) from None
